"""What an explanation says, as values that become JSON or a table."""

from collections.abc import Mapping

import msgspec

from extender.tracking.last_answers import LastAnswer


class _Row(msgspec.Struct, frozen=True, rename="camel"):
    """Keys as Kubernetes writes its own."""


class GpuRequirementsRow(_Row, frozen=True):
    """What the pod wants of the GPUs themselves; memory in bytes."""

    types: tuple[str, ...]
    excluded: tuple[str, ...]
    preferred: tuple[str, ...]
    min_memory: int
    sharing_allowed: bool
    exclusive: bool
    linked: str


class PodFacts(_Row, frozen=True):
    """The pod as it was read; amounts in base units."""

    namespace: str
    name: str
    uid: str
    origin: str
    node_name: str
    resource: str
    request: dict[str, int]
    accelerator: str | None
    nominated_node: str
    demand: GpuRequirementsRow | None


class SnapshotFacts(_Row, frozen=True):
    """The state of the cluster that all is computed from.

    `age_seconds` is the time since the last contact with whatever it comes from; None
    where that is not known.
    """

    generation: int
    node_count: int
    age_seconds: float | None


class SettingsFacts(_Row, frozen=True):
    """The settings on which the rest depends."""

    counts: str
    profile: str
    strategy: str
    weights: Mapping[str, int]
    normalize: str
    max_score: int
    shortlist: int


class WireFacts(_Row, frozen=True):
    """What would be sent to kube-scheduler now.

    Attributes
    ----------
    asked : bool
        Whether kube-scheduler would ask at all.
    offered : int
        Nodes that pass kube-scheduler's own checks.
    passed : int
        How many of them the filter's answer names.
    shown : str
        The one text that all carry where every one is refused, else empty.
    reasons : mapping
        reason as it is sent -> how many nodes carry it
    """

    asked: bool
    offered: int
    passed: int
    shown: str
    reasons: dict[str, int]


class SchedulerFacts(_Row, frozen=True):
    """kube-scheduler's own verdict on a node, in its words, and what is behind it."""

    passes: bool
    reason: str | None = None
    detail: str = ""


class VerdictFacts(_Row, frozen=True):
    """Our verdict on a node, by its own reason, and the numbers behind it."""

    feasible: bool
    reason: str | None
    resolvable: bool
    detail: str


class Amounts(_Row, frozen=True):
    """One resource of a node, in base units; the pod's own share is taken out.

    `under_way` is asked by pods that our answers have just put there.
    """

    asked: int
    allocatable: int
    requested: int
    free: int
    under_way: int


class NodeFacts(_Row, frozen=True):
    """One node.

    Attributes
    ----------
    type : str
        The model of its GPUs; empty if unknown.
    offered : bool
        Whether kube-scheduler would offer it.
    terms : mapping
        score term -> its value, 0 to 100
    total : float or None
        Before normalisation; None where the pod asks for nothing that is managed.
    tier : int or None
        Place of the node's type in the order that the pod asks for.
    priority : int or None
        What prioritize would send; None for a node that it is not asked about.
    shortlisted : bool or None
        Whether the filter's answer names it; None without a shortlist in effect.
    failing : bool
        Whether pods of several owners failed there lately before they ran.
    """

    name: str
    type: str
    offered: bool
    scheduler: SchedulerFacts
    verdict: VerdictFacts
    amounts: dict[str, Amounts]
    terms: dict[str, float]
    total: float | None
    tier: int | None
    priority: int | None
    shortlisted: bool | None
    failing: bool


class ExplanationPage(_Row, frozen=True):
    """One page of an explanation: the answer's facts, and some of the nodes.

    `next_offset` is where the next page begins; None on the last one.
    """

    pod: PodFacts
    snapshot: SnapshotFacts
    settings: SettingsFacts
    wire: WireFacts
    last_answers: Mapping[str, LastAnswer]
    not_modelled: tuple[str, ...]
    notes: tuple[str, ...]
    nodes: tuple[NodeFacts, ...]
    next_offset: int | None = None
