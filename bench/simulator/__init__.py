"""Benchmarks of replays."""
