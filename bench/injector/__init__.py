"""Benchmarks of admission reviews, in process and over HTTPS."""
