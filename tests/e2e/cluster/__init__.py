"""A whole cluster on one machine, in a network namespace: `make cluster`.

The control plane is the real one, of `tests.e2e.harness`. `kubelet` stands in for the
kubelets of all nodes and starts the pods' processes as their spec says (`pod`,
`container`, `probes`, `volumes`; `launch` is where a process begins), `services` for
kube-proxy and DNS, `spaces` has the network, `images` says which files an image has.
Tests start it as a process of its own, as people do.
"""
