"""The mutable table with its one writer, and the snapshots that it publishes.

Where changes come from is not known here: no API server, no watch.
"""
