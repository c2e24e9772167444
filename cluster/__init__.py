"""Cluster state: objects decoded, counted in one ledger, published as snapshots."""
