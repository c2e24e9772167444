"""GPU models, the GPUs that nodes have, and what pods require of them.

It knows nothing of scores: no term, profile or normalisation is imported here.
"""
