"""Another GPU resource for a pod whose own is not free, and promises of it.

Resources and affinity of the injector are not imported here.
"""
