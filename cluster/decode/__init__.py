"""Bytes and trees of Kubernetes objects to small records, with every fault.

Neither the watch nor the ledger is imported here.
"""
