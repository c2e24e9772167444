"""Injection rules: their file, its faults, and which rule applies to a pod.

Fallback and affinity are not imported here.
"""
