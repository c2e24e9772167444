"""filter, prioritize and preempt on one snapshot, and the results that calls share.

Neither tracking, wake-ups nor explanations are imported here.
"""
