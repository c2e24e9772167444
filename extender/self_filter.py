"""`filter_ourselves`: a filter call that we make to ourselves, from bytes to bytes."""

import json
from collections.abc import Sequence
from typing import Final

from extender import wire
from extender.filter_answer import encode_filter
from extender.question import VerbOptions, pose
from extender.verbs import filter_nodes
from scoring.snapshot import Snapshot

NAME: Final = "self-filter"
MAX_NAMES: Final = 3
_ANY_GPU: Final = "nvidia.com/gpu"


class SelfFilterError(RuntimeError):
    """Our own answer to our own question is wrong."""


def build_call(snapshot: Snapshot, gpu_resources: Sequence[str]) -> bytes:
    """Return a filter call about the first nodes, for a pod with one GPU."""
    exact = (name for name in gpu_resources if not name.endswith("*"))
    resource = next(exact, _ANY_GPU)
    container = {"name": "main", "resources": {"limits": {resource: "1"}}}
    pod = {
        "metadata": {"name": NAME, "namespace": "gpu-extender", "uid": NAME},
        "spec": {"containers": [container]},
    }
    names = list(snapshot.nodes.names[:MAX_NAMES])
    call = {"Pod": pod, "Nodes": None, "NodeNames": names}
    return json.dumps(call, separators=(",", ":")).encode()


def filter_ourselves(snapshot: Snapshot, options: VerbOptions) -> None:
    """Make the call as kube-scheduler would; raise whatever goes wrong.

    The same code runs as for a call that comes in, but nothing is counted, remembered
    or told to anybody.
    """
    body = build_call(snapshot, options.builder.scope.gpu_resources)
    args = wire.decode_args(body)
    question = pose(args, snapshot, options)
    result = filter_nodes(question, options)
    answer = json.loads(encode_filter(body, args, question, result, None).data)
    refused = {**answer["FailedNodes"], **answer["FailedAndUnresolvableNodes"]}
    if sorted([*answer["NodeNames"], *refused]) != sorted(args.names):
        raise SelfFilterError("self-filter: an asked node is not in the answer")
