"""Bytes of kube-scheduler's calls to frozen values, and answers to bytes.

Verbs, explanations, wake-ups and tracking are not imported here.
"""
