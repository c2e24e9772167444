"""A control plane that starts each run from the same bytes.

Nodes and pods are created once; then etcd's data is put aside, and each run begins
with a copy of it under a new etcd and a new kube-apiserver.
"""

import shutil
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Self

from bench.clusters import GPUS_PER_NODE, gpu_labels, node_names
from bench.processes import BenchError
from tests.e2e.harness.builders import JsonObject, make_node, make_pod
from tests.e2e.harness.control_plane import ControlPlane
from tests.e2e.harness.process import ManagedProcess
from tests.e2e.harness.reaper import Reaper


class Stage:
    """Owned by the bench's thread; `fresh` lends it to one run at a time."""

    def __init__(
        self, binaries: Mapping[str, Path], folder: Path, reaper: Reaper
    ) -> None:
        self.plane = ControlPlane(
            binaries, folder=folder, log_folder=folder / "logs", reaper=reaper
        )
        self._data = folder / "etcd"
        self._kept = folder / "etcd-kept"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.plane.stop()
        shutil.rmtree(self._kept, ignore_errors=True)

    def prepare(self, nodes: int, pods: int) -> None:
        """Create nodes and pending pods, and put the data aside."""
        with self._running() as plane:
            plane.client.create_many(
                _node(number, name) for number, name in enumerate(node_names(nodes))
            )
            plane.client.create_many(_pod(number) for number in range(pods))
            plane.api_server.stop()
            plane.etcd.stop()  # in order, so that all of it is in the files
        shutil.copytree(self._data, self._kept)

    @contextmanager
    def fresh(self) -> Iterator[ControlPlane]:
        """Run etcd and kube-apiserver on a copy of the data."""
        shutil.rmtree(self._data, ignore_errors=True)
        shutil.copytree(self._kept, self._data)
        with self._running() as plane:
            yield plane

    @contextmanager
    def _running(self) -> Iterator[ControlPlane]:
        with ExitStack() as ending:
            for process in (self.plane.etcd, self.plane.api_server):
                ending.callback(end, process)
                process.start()
            yield self.plane


def end(process: ManagedProcess) -> None:
    """Kill a process: nothing that it holds is needed any more."""
    process.close(at_once=True)


def check_bound(plane: ControlPlane, least: int) -> None:
    """Raise `BenchError` unless pods are bound, and no node has too many of them."""
    taken: dict[str, int] = {}  # node name -> bound pods, one GPU each
    for pod in plane.client.list("Pod"):
        node = pod["spec"].get("nodeName")
        if node:
            taken[node] = taken.get(node, 0) + 1
    if sum(taken.values()) < least or max(taken.values()) > GPUS_PER_NODE:
        raise BenchError(
            f"wanted {least} pods bound, at most {GPUS_PER_NODE} to a node,"
            f" got {sum(taken.values())}, {max(taken.values(), default=0)}"
        )


def _node(number: int, name: str) -> JsonObject:
    """Return a node with eight free GPUs, that can take eight pods."""
    labels = gpu_labels(number)
    return make_node(name, gpus=GPUS_PER_NODE, cpu="96", memory="1Ti", labels=labels)


def _pod(number: int) -> JsonObject:
    """Return a pod of one GPU that each node can take: all names pass."""
    return make_pod(
        f"train-{number}", gpus=1, cpu="8", memory="32Gi", labels={"app": "train"}
    )
