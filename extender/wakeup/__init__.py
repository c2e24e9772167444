"""Unschedulable pods, which were refused on every node, and their wake-up by a patch.

Neither explanations nor tracking are imported here.
"""
