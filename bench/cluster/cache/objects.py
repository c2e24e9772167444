"""The nodes, pods and watch lines of a large cluster, one after the other."""

from collections.abc import Iterator
from typing import Final

from bench.cluster.cache.templates import node_template, pod_template
from bench.clusters import MODELS, node_names

PODS_PER_OWNER: Final = 20
# kind of pod -> requests of its main container; one pod in ten wants GPUs
REQUESTS: Final = tuple(
    {"cpu": f"{100 + 50 * number}m", "memory": f"{128 + 64 * number}Mi"}
    for number in range(36)
) + tuple(
    {"cpu": "8", "memory": "32Gi", "nvidia.com/gpu": str(gpus)} for gpus in (1, 1, 2, 1)
)
# Pods that the stream of events keeps alive at a time.
LIVE_PODS: Final = 200


_NODE: Final = node_template()
_PODS: Final = tuple(pod_template(requests) for requests in REQUESTS)


def node_texts(count: int) -> Iterator[bytes]:
    """Yield the nodes of a list, in the order of their names."""
    for number, name in enumerate(sorted(node_names(count))):
        accelerator, product, _ = MODELS[number % len(MODELS)]
        fields = {
            "name": name,
            "uid": f"{number:08x}-0000-4000-8000-{number:012x}",
            "version": 1000 + number,
            "product": product,
            "accelerator": accelerator,
        }
        yield (_NODE % fields).encode()


def pod_text(
    number: int, node: str, version: int, *, phase: str = "Running", prefix: str = "app"
) -> bytes:
    """Return the pod of that number; what it asks and who owns it follow from it."""
    owner = number // PODS_PER_OWNER
    fields = {
        "name": f"{prefix}-{owner}-6d4cf56db6-{number:06x}",
        "owner": f"{prefix}-{owner}-6d4cf56db6",
        "owner_uid": f"{owner:08x}-{prefix}-4000-9000-{owner:012x}",
        "namespace": f"team-{owner % 50}",
        "uid": f"{number:08x}-{prefix}-4000-a000-{number:012x}",
        "version": version,
        "node": node,
        "phase": phase,
    }
    # neighbours in a list are unlike, and so are the pods of one node
    kind = number * 7 + number // 5000
    return (_PODS[kind % len(_PODS)] % fields).encode()


def pod_texts(count: int, nodes: int) -> Iterator[bytes]:
    """Yield the pods of a list, spread over the nodes."""
    names = node_names(nodes)
    for number in range(count):
        yield pod_text(number, names[number % nodes], 10_000 + number)


def event_lines(nodes: int, version: int) -> Iterator[bytes]:
    """Yield watch lines without end: pods come, are bound, run, and are deleted.

    Each pod is a new one, so that nothing can be kept from an older.
    """
    names = node_names(nodes)

    def line(event_type: str, number: int, phase: str, node: str) -> bytes:
        text = pod_text(number, node, version, phase=phase, prefix="new")
        kind = b'{"type":"%s","object":{"kind":"Pod","apiVersion":"v1",'
        return kind % event_type.encode() + text[1:] + b"}\n"

    number = 0
    while True:
        node = names[number * 7 % nodes]
        old = number - LIVE_PODS
        lives = [
            ("ADDED", number, "Pending", ""),
            ("MODIFIED", number, "Pending", node),
            ("MODIFIED", number, "Running", node),
        ]
        if old >= 0:
            lives.append(("DELETED", old, "Running", names[old * 7 % nodes]))
        for event_type, whose, phase, where in lives:
            version += 1
            yield line(event_type, whose, phase, where)
        number += 1
