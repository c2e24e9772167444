"""Frozen models of the configuration file, and all its faults at once.

Neither listeners nor commands are imported here.
"""
