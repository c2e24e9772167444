"""Benchmarks of the verbs, in process and over HTTP."""
