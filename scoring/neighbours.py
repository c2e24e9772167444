"""What the pods of a node keep others from: host ports, and pods that they repel.

Both are kube-scheduler's own checks, NodePorts and of InterPodAffinity the half that
running pods ask for.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from scoring.eligibility import holds
from scoring.exclusions import Exclusions, HostPort, RepelledPods
from scoring.protocols import ExcludingPod
from scoring.snapshot import BoolArray, Snapshot, read_only

# kube-scheduler's words: pkg/scheduler/framework/plugins/{nodeports,interpodaffinity}
# of Kubernetes 1.37.
TAKEN_PORTS: Final = "node(s) didn't have free ports for the requested pod ports"

REPELLED: Final = "node(s) didn't satisfy existing pods anti-affinity rules"

# The one label of namespaces that follows from their names.
_NAME_LABEL: Final = "kubernetes.io/metadata.name"


@dataclass(frozen=True, slots=True)
class Newcomer:
    """A pod that would come to a node, as far as its neighbours look at it.

    Attributes
    ----------
    uid : str
        It does not keep itself away.
    """

    uid: str
    namespace: str
    labels: Mapping[str, str]
    ports: tuple[HostPort, ...] = ()


@dataclass(frozen=True, slots=True, eq=False)
class Neighbourhood:
    """What the pods of N nodes keep a newcomer from.

    Attributes
    ----------
    taken : bool array, shape (N,)
        Where a port that it asks is in use.
    repelled : bool array, shape (N,)
        Where a pod is that wants it away.
    takers, repellers : mapping
        column -> a pod that is the reason; of a repeller, with the term.
    is_known : bool
        Whether there was no pod of which nobody here knows whether it repels.
    """

    taken: BoolArray
    repelled: BoolArray
    takers: Mapping[int, ExcludingPod]
    repellers: Mapping[int, tuple[ExcludingPod, RepelledPods]]
    is_known: bool


def look_around(snapshot: Snapshot, newcomer: Newcomer) -> Neighbourhood:
    """Return what the pods of all nodes keep a newcomer from."""
    takers: dict[int, ExcludingPod] = {}
    # topology key -> its value -> a pod that repels from there
    zones: dict[str, dict[str, tuple[ExcludingPod, RepelledPods]]] = {}
    is_known = True
    # PERF: pods of one template share their exclusions.
    matched: dict[int, tuple[list[RepelledPods], bool]] = {}
    for pod in snapshot.excluding:
        column = snapshot.nodes.column_of.get(pod.node_name)
        exclusions = pod.exclusions
        if column is None or exclusions is None or pod.uid == newcomer.uid:
            continue
        if newcomer.ports and _overlap(newcomer.ports, exclusions.ports):
            takers.setdefault(column, pod)
        if exclusions.repels or not exclusions.is_whole:
            key = id(exclusions)
            if key not in matched:
                matched[key] = _matching(exclusions, newcomer)
            terms, is_decided = matched[key]
            is_known &= is_decided
            labels = snapshot.facts[column].labels if terms else {}
            for term in terms:
                if (value := labels.get(term.topology_key)) is not None:
                    zone = zones.setdefault(term.topology_key, {})
                    zone.setdefault(value, (pod, term))
    repellers = _in_zones(snapshot, zones)
    return Neighbourhood(
        _mask(snapshot, takers),
        _mask(snapshot, repellers),
        takers,
        repellers,
        is_known,
    )


def matches(term: RepelledPods, newcomer: Newcomer) -> bool | None:
    """Whether a pod is one of those that are repelled; None where nobody here knows.

    Of a namespace, no label is known but its name.
    """
    if term.conditions is None or not all(
        holds(item, newcomer.labels.get(item.key)) for item in term.conditions
    ):
        return False
    if newcomer.namespace in term.namespaces:
        return True
    if term.namespace_conditions is None:
        return False
    named = [c for c in term.namespace_conditions if c.key == _NAME_LABEL]
    if not all(holds(item, newcomer.namespace) for item in named):
        return False
    return True if len(named) == len(term.namespace_conditions) else None


def labels_of_repelled(snapshot: Snapshot) -> frozenset[str] | None:
    """Return the labels by which running pods repel others; None where none does."""
    # PERF: pods of one template share their exclusions.
    kinds = {
        id(pod.exclusions): pod.exclusions
        for pod in snapshot.excluding
        if pod.exclusions is not None and pod.exclusions.repels
    }
    if not kinds:
        return None
    return frozenset(
        item.key
        for exclusions in kinds.values()
        for term in exclusions.repels
        for item in term.conditions or ()
    )


def _overlap(wanted: Sequence[HostPort], used: Sequence[HostPort]) -> bool:
    return any(one.conflicts_with(other) for one in wanted for other in used)


def _matching(
    exclusions: Exclusions, newcomer: Newcomer
) -> tuple[list[RepelledPods], bool]:
    """Return the terms that mean the newcomer, and whether all could be decided."""
    verdicts = [(term, matches(term, newcomer)) for term in exclusions.repels]
    is_decided = exclusions.is_whole and all(found is not None for _, found in verdicts)
    return [term for term, found in verdicts if found], is_decided


def _in_zones(
    snapshot: Snapshot,
    zones: Mapping[str, Mapping[str, tuple[ExcludingPod, RepelledPods]]],
) -> dict[int, tuple[ExcludingPod, RepelledPods]]:
    """Return the columns that are in one of these zones, and who repels there."""
    found: dict[int, tuple[ExcludingPod, RepelledPods]] = {}
    for key, of_value in zones.items():
        for column, node in enumerate(snapshot.facts):
            repeller = of_value.get(node.labels.get(key, ""))
            if repeller is not None and key in node.labels:
                found.setdefault(column, repeller)
    return found


def _mask(snapshot: Snapshot, columns: Mapping[int, object]) -> BoolArray:
    mask = np.zeros(len(snapshot.nodes.names), dtype=np.bool_)
    mask[list(columns)] = True
    return read_only(mask)
