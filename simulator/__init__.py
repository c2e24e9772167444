"""Replay: pods are placed one after the other by kube-scheduler's rules and our verbs.

The verbs are called as functions, the very ones that answer kube-scheduler. Neither
settings nor the command line are known here.
"""
