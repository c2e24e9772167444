"""What a pod wants of the cards, written into it as required node affinity."""

import threading
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

from cluster.decode.gpu_requirements import DemandReader
from cluster.ledger.writer import NotSyncedError, SnapshotSource
from injector.affinity.terms import LabelDemand, add_label_demand, build_label_demand
from injector.fallback.simulation import CardDemand
from injector.review import read_pod
from injector.steps import PodFacts
from scoring.gpu.affinity import (
    Alternative,
    DemandWish,
    demand_alternatives,
    refusing_alternatives,
)
from scoring.gpu.node_gpus import CardRules
from scoring.gpu.node_labels import CardLabels, LabelledCards
from scoring.gpu.requirements import Demand, DemandError
from scoring.pod_request import effective_request
from scoring.protocols import NodeFacts
from scoring.resources import Remembered, Request, ResourceScope

_Wish: TypeAlias = DemandWish | CardDemand

_MAX_KNOWN: Final = 1024

_MAX_KEPT_LENGTH: Final = 1024  # characters

TOO_MANY_TERMS: Final = (
    "the pod has too many terms of required node affinity: what it wants of the GPUs"
    " was not added to them"
)


@dataclass(frozen=True, slots=True)
class _Seen:
    """What the labels of the nodes were, and what follows from it.

    Attributes
    ----------
    labels : CardLabels
        Those that are read, and by which rules.
    facts : tuple of NodeFacts
        Those of the snapshot; another tuple as soon as a node has changed.
    kinds : tuple of LabelledCards
    kind_of : dict
        node name -> its facts and kind
    demands : dict
        wish -> what labels must be for it
    """

    labels: CardLabels
    facts: tuple[NodeFacts, ...] = ()
    kinds: tuple[LabelledCards, ...] = ()
    kind_of: dict[str, tuple[NodeFacts, LabelledCards]] = field(default_factory=dict)
    demands: dict[_Wish, LabelDemand] = field(default_factory=dict)

    def demand_of(self, wish: _Wish) -> LabelDemand:
        """Return what labels must be for a wish."""
        known = self.demands.get(wish)
        if known is None:
            known = build_label_demand(self._alternatives(wish))
            if isinstance(wish, DemandWish) and not _is_brief(wish.request):
                return known
            if len(self.demands) >= _MAX_KNOWN:
                self.demands.clear()
            self.demands[wish] = known
        return known

    def _alternatives(self, wish: _Wish) -> tuple[Alternative, ...]:
        if isinstance(wish, DemandWish):
            return demand_alternatives(self.labels.rules, wish, self.kinds)
        return refusing_alternatives(self.labels.rules, wish, self.kinds)

    def with_nodes(self, facts: tuple[NodeFacts, ...]) -> "_Seen":
        """Return the same for other nodes."""
        kind_of = {}
        for node in facts:
            known = self.kind_of.get(node.name)
            if known is None or known[0] is not node:
                known = node, self.labels.kind_of(node)
            kind_of[node.name] = known
        kinds = tuple(dict.fromkeys(kind for _, kind in kind_of.values()))
        # What was computed for the same kinds still holds.
        demands = self.demands if kinds == self.kinds else {}
        return _Seen(self.labels, facts, kinds, kind_of, demands)


class KnownCards:
    """Knows which labels nodes with which cards have; any thread may call it.

    Parameters
    ----------
    source : SnapshotSource
        While it has not been read, no node is known.
    rules : CardRules
    """

    def __init__(self, source: SnapshotSource, rules: CardRules) -> None:
        self._source = source
        # Held for one comparison, so that nodes seen by old rules replace no new ones.
        self._lock = threading.Lock()
        # PERF: pods come more often than labels change, and wish for the same.
        self._seen: _Seen
        self.use(rules)

    def use(self, rules: CardRules) -> None:
        """Read labels by other rules from now on."""
        with self._lock:
            self._seen = _Seen(CardLabels(rules))

    def require(self, pod: dict[str, Any], wish: _Wish) -> tuple[str, ...]:
        """Require of the node of `pod` what `wish` says, as far as labels tell it.

        Returns a warning if that cannot be written. A pod that has a node already is
        left alone: the kubelet checks affinity, too.
        """
        spec = pod["spec"]
        if spec.get("nodeName"):
            return ()
        is_written = add_label_demand(spec, self._look().demand_of(wish))
        return () if is_written else (TOO_MANY_TERMS,)

    def _look(self) -> _Seen:
        """Return the labels of the nodes as they are now."""
        try:
            facts = self._source.current().facts
        except NotSyncedError:
            facts = ()
        seen = self._seen
        if facts is seen.facts:
            return seen
        newer = seen.with_nodes(facts)
        with self._lock:
            if self._seen is seen:
                self._seen = newer
        return newer


def _is_brief(request: Request) -> bool:
    """Say whether to remember `request`: nobody has checked yet what it names."""
    return sum(len(name) for name, _ in request) <= _MAX_KEPT_LENGTH


class AffinityStep:
    """Adds the hard part of a demand to each term of a pod's required node affinity.

    A pod whose demand cannot be read stays as it is, and so does a term that implies
    what is wanted, as after an earlier review.

    Parameters
    ----------
    known : KnownCards
    demands : DemandReader
    scope : ResourceScope
    """

    def __init__(
        self, known: KnownCards, demands: DemandReader, scope: ResourceScope
    ) -> None:
        self._known = known
        self._demands = demands
        self._is_managed = Remembered(scope.is_managed).__getitem__

    def apply(self, pod: dict[str, Any], facts: PodFacts) -> tuple[str, ...]:
        """Write the affinity; return a warning if it cannot be written."""
        del facts
        demand = self._demand_of(pod)
        if demand is None:
            return ()
        spec = read_pod(pod).spec
        request = effective_request(spec, self._is_managed, lambda _path, _error: None)
        if not request:
            return ()
        wish = DemandWish(demand, tuple((name, 1) for name, _ in request))
        return self._known.require(pod, wish)

    def _demand_of(self, pod: dict[str, Any]) -> Demand | None:
        """Return the demand, None where it says nothing that labels can answer."""
        metadata = pod.get("metadata") or {}
        try:
            demand = self._demands.read(metadata.get("annotations"))
        except DemandError:
            return None  # `DemandCheck` tells the user
        is_hard = demand.types or demand.excluded or demand.min_memory
        return demand if is_hard else None
