"""GPU requirements of a pod, written as its required node affinity.

Injection of resources and fallback are not imported here.
"""
