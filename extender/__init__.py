"""The kube-scheduler extender: its wire format, its verbs, its HTTP resources."""
