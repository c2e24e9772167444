"""The public placement trace: its files, and the workload that is made of them.

Nodes and pods become the objects that an operator of such a cluster would have, and
are read as those of an API server are.
"""

import csv
import re
import textwrap
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final, TypeAlias, TypeVar

import msgspec
import numpy as np

from cluster.decode.objects import Node, Pod
from cluster.ledger.changes import NodesListed, PodsListed
from cluster.ledger.ledger import Ledger
from cluster.yaml_text import describe_unreadable
from extender.explain.table import WIDTH
from extender.verbs.options import VerbOptions
from scoring.faults import Fault, FaultsError, list_faults
from scoring.quantity import shorten
from scoring.resources import SHARED_GPU
from scoring.snapshot import Int64Array, Snapshot
from simulator.cluster import GPU, Cluster
from simulator.devices import Devices
from simulator.pods import WHOLE, QueuedPod

NODE_FILE: Final = "openb_node_list_gpu_node.csv"

POD_FILE: Final = "openb_pod_list_{}.csv"

MODEL_LABEL: Final = "nvidia.com/gpu.product"

MAX_GPUS: Final = 16

# Any more is a mistake: a thousand cores, a thousand TiB.
MAX_MILLICORES: Final = 1_000_000

MAX_MEBIBYTES: Final = 1_000_000_000

MAX_SHOWN_FAULTS: Final = 100

# The trace sets no bound to the number of pods on a node.
MAX_PODS: Final = 10_000

_LIST_NAME: Final = re.compile(r"[a-z0-9]{1,40}", re.ASCII)

Row: TypeAlias = Mapping[str, str | None]

_Item = TypeVar("_Item")


class TraceError(FaultsError):
    """A trace that cannot be read, with every fault of its files."""

    def __init__(self, faults: Sequence[Fault]) -> None:
        super().__init__(faults, list_faults("trace", faults, MAX_SHOWN_FAULTS))


@dataclass(frozen=True, slots=True)
class TraceNode:
    """One row of the list of nodes."""

    name: str
    cpu_milli: int
    memory_mib: int
    gpus: int
    model: str


@dataclass(frozen=True, slots=True)
class TracePod:
    """One row of a list of pods.

    Attributes
    ----------
    share : int
        Thousandths of each GPU; 1000 for a pod that asks for none.
    models : tuple of str
        Accepted models, each once; empty for any.
    """

    name: str
    cpu_milli: int
    memory_mib: int
    gpus: int
    share: int
    models: tuple[str, ...]

    @property
    def asked(self) -> int:
        """Thousandths of GPUs that it asks in all."""
        return self.gpus * self.share


@dataclass(frozen=True, slots=True)
class Trace:
    """Nodes, and one list of pods."""

    nodes: tuple[TraceNode, ...]
    pods: tuple[TracePod, ...]

    @property
    def capacity(self) -> int:
        """Thousandths of the GPUs of all nodes."""
        return sum(node.gpus for node in self.nodes) * WHOLE

    def in_whole_gpus(self) -> "Trace":
        """Return the same with each share rounded up to one GPU."""
        return replace(self, pods=tuple(replace(p, share=WHOLE) for p in self.pods))


def read_trace(folder: Path, pod_list: str) -> Trace:
    """Read the nodes and a list of pods; raise `TraceError` with all faults.

    Parameters
    ----------
    pod_list : str
        Such as ``default`` or ``gpuspec33``.
    """
    faults: list[Fault] = []
    nodes = _read_rows(folder / NODE_FILE, _NODE_COLUMNS, _node_of, faults)
    pods: list[TracePod] = []
    if _LIST_NAME.fullmatch(pod_list):
        path = folder / POD_FILE.format(pod_list)
        if not path.exists():
            faults.append(_no_such_list(path))
        else:
            pods = _read_rows(path, _POD_COLUMNS, _pod_of, faults)
    else:
        wanted = "wanted the name of a list, in small letters and digits"
        faults.append(Fault("list", f"{wanted}, got {shorten(pod_list)}"))
    if faults:
        raise TraceError(faults)
    return Trace(tuple(nodes), tuple(pods))


def _no_such_list(path: Path) -> Fault:
    """Return the fault of a list that is not there, with those that are in lines."""
    before, after = POD_FILE.split("{}")
    found = sorted(path.parent.glob(f"{before}*{after}"))
    names = [one.name.removeprefix(before).removesuffix(after) for one in found]
    start = f"  {path}: "
    lines = textwrap.wrap(
        ", ".join(names) or "none",
        WIDTH,
        initial_indent=f"{start}no such list; there are ",
        subsequent_indent="    ",
        break_long_words=False,
    )
    return Fault(str(path), "\n".join(lines)[len(start) :])


_NODE_COLUMNS: Final = ("sn", "cpu_milli", "memory_mib", "gpu", "model")

# The lists of some pods end after these.
_POD_COLUMNS: Final = ("name", "cpu_milli", "memory_mib", "num_gpu", "gpu_milli")


def _read_rows(
    path: Path,
    columns: Sequence[str],
    read: Callable[["_Fields"], _Item],
    faults: list[Fault],
) -> list[_Item]:
    """Return what `read` makes of each row of a file; add to `faults`."""
    try:
        text = path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        faults.append(Fault(str(path), describe_unreadable(error)))
        return []
    rows = csv.DictReader(text.splitlines())
    missing = [name for name in columns if name not in (rows.fieldnames or ())]
    if missing:
        said = f"wanted the columns {', '.join(columns)}, got none of {missing[0]}"
        if len(missing) > 1:
            said = f"wanted the columns {', '.join(columns)}; {', '.join(missing)} lack"
        faults.append(Fault(path.name, said))
        return []
    items: list[_Item] = []
    names: set[str] = set()
    for row in rows:
        fields = _Fields(row, f"{path.name}: line {rows.line_num}", faults)
        name = fields.text(columns[0])
        if name in names:
            fields.complain(columns[0], f"wanted each once, got {shorten(name)} again")
        names.add(name)
        items.append(read(fields))
    if not items:
        faults.append(Fault(path.name, "wanted rows, got none"))
    return items


class _Fields:
    """The fields of one row; what is wrong with them goes to `faults`."""

    def __init__(self, row: Row, where: str, faults: list[Fault]) -> None:
        self._row = row
        self._where = where
        self._faults = faults

    def complain(self, column: str, message: str) -> None:
        """Add a fault of one field."""
        self._faults.append(Fault(f"{self._where}: {column}", message))

    def text(self, column: str) -> str:
        """Return a field that is not empty."""
        value = self.optional(column)
        if not value:
            self.complain(column, "wanted text, got none")
        return value

    def optional(self, column: str) -> str:
        """Return a field, empty where the row has none."""
        return (self._row.get(column) or "").strip()

    def number(self, column: str, least: int, most: int) -> int:
        """Return a whole number within bounds; the lower one for any other."""
        value = self.optional(column)
        digits = value.isascii() and value.isdigit() and len(value) <= len(str(most))
        if digits and least <= int(value) <= most:
            return int(value)
        wanted = f"wanted a whole number from {least} to {most}"
        self.complain(column, f"{wanted}, got {shorten(value)}")
        return least


def _node_of(fields: _Fields) -> TraceNode:
    return TraceNode(
        fields.optional("sn"),
        fields.number("cpu_milli", 0, MAX_MILLICORES),
        fields.number("memory_mib", 0, MAX_MEBIBYTES),
        fields.number("gpu", 0, MAX_GPUS),
        fields.text("model"),
    )


def _pod_of(fields: _Fields) -> TracePod:
    gpus = fields.number("num_gpu", 0, MAX_GPUS)
    # A pod of several GPUs has them whole.
    least = {0: 0, 1: 1}.get(gpus, WHOLE)
    share = fields.number("gpu_milli", least, WHOLE)
    models = filter(None, fields.optional("gpu_spec").split("|"))
    return TracePod(
        fields.optional("name"),
        fields.number("cpu_milli", 0, MAX_MILLICORES),
        fields.number("memory_mib", 0, MAX_MEBIBYTES),
        gpus,
        share if gpus else WHOLE,
        tuple(dict.fromkeys(model.strip() for model in models)),
    )


def inflated(trace: Trace, hundredths: int, random: np.random.Generator) -> list[int]:
    """Return which pods arrive in which order, as indices, by the published protocol.

    The list is sorted by name and shuffled. Pods drawn from it, any of them any time,
    are added until the next one would pass so many hundredths of the cluster's GPUs; a
    list that asks for more loses random pods instead.
    """
    by_name = sorted(range(len(trace.pods)), key=lambda i: trace.pods[i].name)
    order: list[int] = random.permutation(np.array(by_name)).tolist()
    limit = trace.capacity * hundredths // 100
    asked = sum(pod.asked for pod in trace.pods)
    while asked > limit:
        gone = order.pop(int(random.integers(len(order))))
        asked -= trace.pods[gone].asked
    if not any(pod.asked for pod in trace.pods):
        return order
    while True:
        drawn = by_name[int(random.integers(len(by_name)))]
        asked += trace.pods[drawn].asked
        if asked > limit:
            return order
        order.append(drawn)


def node_manifest(node: TraceNode) -> dict[str, Any]:
    """Return a node as an API server would have it."""
    amounts = {
        "cpu": f"{node.cpu_milli}m",
        "memory": f"{node.memory_mib}Mi",
        "pods": str(MAX_PODS),
        GPU: str(node.gpus),
        SHARED_GPU: str(node.gpus * WHOLE),
    }
    return {
        "metadata": {"name": node.name, "labels": {MODEL_LABEL: node.model}},
        "status": {
            "allocatable": amounts,
            "capacity": amounts,
            "conditions": [{"type": "Ready", "status": "True"}],
        },
    }


def pod_manifest(pod: TracePod, name: str, type_annotation: str) -> dict[str, Any]:
    """Return a pod as an API server would have it, after the webhook.

    A share is asked in thousandths. Accepted models stand in the annotation, and in the
    node affinity that the webhook writes.
    """
    requests = {"cpu": f"{pod.cpu_milli}m", "memory": f"{pod.memory_mib}Mi"}
    gpus: dict[str, str] = {}
    if pod.gpus:
        is_share = pod.share < WHOLE
        gpus = {SHARED_GPU: str(pod.share)} if is_share else {GPU: str(pod.gpus)}
    resources = {"requests": {**requests, **gpus}, "limits": gpus}
    spec: dict[str, Any] = {"containers": [{"name": "main", "resources": resources}]}
    annotations = {}
    if pod.gpus and pod.models:
        annotations[type_annotation] = ", ".join(pod.models)
        models = {"key": MODEL_LABEL, "operator": "In", "values": list(pod.models)}
        terms = [{"matchExpressions": [models]}]
        required = {"nodeSelectorTerms": terms}
        spec["affinity"] = {
            "nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}
        }
    return {
        "metadata": {
            "name": name,
            "namespace": "trace",
            "uid": f"trace/{name}",
            "annotations": annotations,
        },
        "spec": spec,
        "status": {"phase": "Pending"},
    }


def build_ledger(trace: Trace, ledger: Ledger, options: VerbOptions) -> Ledger:
    """Fill an empty ledger with the nodes of a trace; return it."""
    records = [
        options.builder.node_record(msgspec.convert(node_manifest(node), Node))[0]
        for node in trace.nodes
    ]
    ledger.apply(NodesListed(tuple(records)))
    ledger.apply(PodsListed(()))
    return ledger


def build_cluster(trace: Trace, snapshot: Snapshot) -> Cluster:
    """Return the cluster of a trace with all GPUs free."""
    total = np.array([node.gpus for node in trace.nodes], dtype=np.int64)
    places = np.arange(int(total.max(initial=0)))
    free = (places < total[:, None]) * np.int64(WHOLE)
    return Cluster(snapshot, Devices(free, total * WHOLE), is_sharing=True)


def models_of(trace: Trace) -> tuple[tuple[str, ...], Int64Array]:
    """Return the GPU models, and the code of each node's."""
    names = tuple(dict.fromkeys(node.model for node in trace.nodes))
    code_of = {name: code for code, name in enumerate(names)}
    return names, np.array([code_of[n.model] for n in trace.nodes], dtype=np.int64)


def queue_pods(
    trace: Trace, order: Sequence[int], options: VerbOptions
) -> Iterator[QueuedPod]:
    """Yield the pods of a trace in an order, each under a name of its own."""
    annotation = options.builder.annotations.gpu_type
    known: dict[int, QueuedPod] = {}
    for number, index in enumerate(order):
        row = trace.pods[index]
        if index not in known:
            known[index] = _queued(
                row, pod_manifest(row, row.name, annotation), options
            )
        yield known[index].named(f"{row.name}-{number}")


def _queued(row: TracePod, manifest: dict[str, Any], options: VerbOptions) -> QueuedPod:
    pod = msgspec.convert(manifest, Pod)
    record, _ = options.builder.pod_record(pod)
    models = row.models if row.gpus else ()
    return QueuedPod(record, row.gpus, row.share, models)
