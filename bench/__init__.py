"""Benchmarks: kernels and verbs in process, calls over HTTP beside an echo floor."""
