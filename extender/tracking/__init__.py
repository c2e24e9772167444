"""Tables of what was answered: assumed pods, count mismatches, last answers.

Neither explanations nor wake-ups are imported here.
"""
