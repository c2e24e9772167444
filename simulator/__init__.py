"""Replay and what-if with the very functions that answer kube-scheduler.

The layer between `service` and the two faces: it may import `extender` and
`injector`, and neither of them knows it.
"""
