"""Pods a second of the real kube-scheduler: alone, with us, with an idle extender."""
