"""Prices of a placement: what it leaves behind for the pods that come next.

Arrays in, arrays out. It knows no term, profile or normalisation; those import it.
"""
