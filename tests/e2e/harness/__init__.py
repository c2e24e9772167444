"""Runs a real control plane as processes on loopback, for tests and benchmarks.

`control_plane` puts the parts together: `process` starts and ends one of them,
`commands`, `certificates`, `credentials` and `scheduler_config` say how, `reaper` is a
safety net. `product` sets ours up as it ships, `service` is its process. `client`,
`kubectl`, `pods`, `builders`, `churn`, `late_watch` and `preempting` are what a test
acts with, `kubelet`, `proxy` and `recording` stand in for what is not there, `amounts`
and `classic` say what is right, and `audit`, `scheduler_log` and `waiting` are what a
test looks at. `watched_api` lends the control plane to the tests of the fake API
server.
"""
