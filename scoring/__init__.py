"""The pure core: feasibility and scores, computed on arrays of one snapshot.

What belongs here has no I/O, clock, thread, log or global state, and imports numpy
and the standard library only.
"""
