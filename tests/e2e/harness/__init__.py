"""Runs a real control plane as processes on loopback, for tests and benchmarks.

`control_plane` puts the parts together: `process` starts and ends one of them,
`commands`, `certificates`, `credentials` and `scheduler_config` say how, `reaper` is a
safety net. `client`, `kubectl`, `pods`, `builders` and `churn` are what a test acts
with, `kubelet`, `proxy` and `recording` stand in for what is not there, and `audit`,
`scheduler_log` and `waiting` are what it looks at.
"""
