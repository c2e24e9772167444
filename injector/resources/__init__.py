"""CPU, memory and other resources per GPU, written into a pod's containers.

Fallback and affinity are not imported here.
"""
