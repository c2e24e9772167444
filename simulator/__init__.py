"""Reserved for replay and what-if with the functions that answer kube-scheduler.

The layer between `service` and the two faces: it may import `extender` and
`injector`, and neither of them knows it. It holds nothing yet.
"""
