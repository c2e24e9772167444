"""Another GPU resource for a pod whose own is not free, and what is held for it.

Injection of resources and affinity are not imported here.
"""
