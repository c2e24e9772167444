"""Injection rules: their file, its faults, and which rule applies to a pod.

No step of a review is imported here.
"""
