"""Link layouts of nodes: which GPUs are joined, and what a set of them is worth.

It knows nothing of pods, snapshots or profiles: none of them is imported here.
"""
