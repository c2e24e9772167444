"""Benchmarks of kernels on arrays."""
