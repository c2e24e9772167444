"""Frozen models of the configuration file, and all its faults at once.

Nothing else of the service is imported here.
"""
