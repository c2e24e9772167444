"""GPU requirements of a pod, written as its required node affinity.

Fallback and resources of the injector are not imported here.
"""
