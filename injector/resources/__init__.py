"""CPU, memory and other resources per GPU, written into a pod's containers.

Fallback and affinity of the injector are not imported here.
"""
