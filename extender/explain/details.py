"""Numbers behind a verdict, a function for each, in words."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from cluster.decode.objects import NodeRecord
from cluster.decode.records import FaultSignals
from scoring.candidates import Ask, Candidates, LabelKeys
from scoring.feasibility import Verdict, short_of
from scoring.gpu.node_gpus import NO_CARDS, Bounds, NodeCards
from scoring.gpu.requirements import Demand
from scoring.protocols import NodeFacts
from scoring.quantity import MAX_QUANTITY, show_amount, show_bytes, show_free
from scoring.resources import Request, ResourceScope, is_whole_card
from scoring.snapshot import BoolArray, Snapshot


def show_demand(demand: Demand, request: Request) -> str:
    """Return what narrows down which cards will do; empty for nothing.

    Whole ones are wanted only where cards are requested, not slices or shares.

    >>> show_demand(Demand(("H100", "A100"), ("L4",)), (("nvidia.com/gpu", 1),))
    'H100 or A100, not L4, whole cards'
    >>> show_demand(Demand(min_memory=40 * 2**30), (("nvidia.com/mig-1g.10gb", 1),))
    'at least 40Gi of memory'
    """
    parts = []
    if demand.types:
        parts.append(" or ".join(demand.types))
    if demand.excluded:
        parts.append("not " + " or ".join(demand.excluded))
    if demand.min_memory:
        parts.append(f"at least {show_bytes(demand.min_memory)} of memory")
    if demand.wants_whole_cards and any(is_whole_card(name) for name, _ in request):
        parts.append("whole cards")
    return ", ".join(parts)


def show_cards(cards: NodeCards, request: Request = ()) -> str:
    """Return what a node's cards are, with the memory of what is requested.

    >>> show_cards(NodeCards(model="A100", is_shared=True, replicas=4))
    'A100, shared by 4'
    """
    parts = [cards.model or "cards of an unknown model"]
    if cards.profile:
        parts.append(f"cut into {cards.profile}")
    if cards.is_shared:
        parts.append(f"shared by {cards.replicas or 'an unknown number'}")
    for resource, _ in request:
        parts.append(f"{resource} with {show_size(cards.memory_of(resource))}")
    return ", ".join(parts)


def show_size(size: Bounds) -> str:
    """Return between which sizes some memory is.

    >>> show_size(Bounds(2**30, 2**30)), show_size(Bounds())
    ('1Gi', 'memory unknown')
    """
    if size.low == size.high:
        return show_bytes(size.low)
    if size.high >= MAX_QUANTITY:
        return f"at least {show_bytes(size.low)}" if size.low else "memory unknown"
    return f"{show_bytes(size.low)} to {show_bytes(size.high)}"


@dataclass(frozen=True, slots=True, eq=False)
class Judged:
    """One pod on C candidates, with all that their verdicts were computed from.

    Attributes
    ----------
    short : bool array, shape (Q, C)
        True where our count of a free amount is too low.
    """

    snapshot: Snapshot
    candidates: Candidates
    ask: Ask
    scope: ResourceScope
    signals: FaultSignals
    keys: LabelKeys
    short: BoolArray = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "short", short_of(self.candidates, self.ask))

    def facts(self, place: int) -> NodeFacts:
        """Return what is known of the candidate at `place`, which must be known."""
        return self.snapshot.facts[int(self.candidates.columns[place])]

    def model(self, place: int) -> str:
        """Return the model of the candidate's cards, empty if unknown."""
        if not self.candidates.known[place]:
            return ""
        facts = self.facts(place)
        return facts.cards.model if isinstance(facts, NodeRecord) else ""

    def capacity(self, place: int, resource: str) -> int:
        """Return the node's capacity of a resource, 0 where it is not kept."""
        facts = self.facts(place)
        return (
            dict(facts.capacity).get(resource, 0)
            if isinstance(facts, NodeRecord)
            else 0
        )

    def shown(self, place: int, rows: BoolArray) -> str:
        """Return the numbers of the asked resources that `rows` picks, shape (Q,)."""
        return "; ".join(
            show_free(
                resource,
                asked,
                int(self.candidates.allocatable[row, place]),
                int(self.candidates.requested[row, place]),
                self.capacity(place, resource),
            )
            for row, (resource, asked) in enumerate(self.ask.request)
            if rows[row]
        )


def detail_of(judged: Judged, place: int, verdict: Verdict) -> str:
    """Return the numbers behind the verdict on the candidate at `place`."""
    return DETAILS[verdict](judged, place)


def _about_feasible(judged: Judged, place: int) -> str:
    """Return the numbers of all asked resources, and which of them we count short."""
    if not judged.ask.request:
        return "asks nothing that is managed"
    claimed = judged.candidates.claimed[:, place]
    said = [judged.shown(place, ~claimed)] if not claimed.all() else []
    said += [
        f"{name} comes from a DeviceClass: not counted here"
        for (name, _), is_claimed in zip(judged.ask.request, claimed, strict=True)
        if is_claimed
    ]
    if judged.short[:, place].any():
        said.append(
            "exempt from our count: the nominated node"
            if judged.candidates.nominated[place]
            else "too few by our count, kube-scheduler's is trusted"
        )
    return "; ".join(said)


def _about_unknown(_judged: Judged, _place: int) -> str:
    return "the cache has no node of this name"


def _about_missing(judged: Judged, place: int) -> str:
    """Return what the node lacks, and which managed resources it offers."""
    snapshot, column = judged.snapshot, int(judged.candidates.columns[place])
    lacking = [
        name
        for (name, _), is_offered in zip(
            judged.ask.request, judged.candidates.offered[:, place], strict=True
        )
        if not is_offered
    ]
    offered = [
        f"{show_amount(name, int(snapshot.allocatable[row, column]))} {name}"
        for row, name in enumerate(snapshot.resources)
        if snapshot.offered[row, column] and judged.scope.is_managed(name)
    ]
    has = ", ".join(offered) or "nothing that is managed"
    return f"asks {', '.join(lacking)}: the node offers {has}"


def _about_readiness(judged: Judged, place: int) -> str:
    """Return the signals that are raised, and resources without a healthy device."""
    said = list(_signals(judged, place))
    sick = (judged.candidates.allocatable[:, place] == 0) & ~judged.candidates.claimed[
        :, place
    ]
    if sick.any():
        said.append(judged.shown(place, sick))
    return "; ".join(said)


def _signals(judged: Judged, place: int) -> Iterator[str]:
    """Yield each fault signal that the node raises."""
    facts, signals = judged.facts(place), judged.signals
    if not judged.candidates.faulted[place]:
        return
    found = False
    for key, value in facts.labels.items():
        if signals.found_on({key: value}, {}):
            found = True
            usable = ", ".join(sorted(signals.label_values.get(key, ())))
            wanted = f" (usable: {usable})" if usable else ""
            yield f"label {key}={value}{wanted}"
    if not found:  # statuses of conditions are not kept
        kinds = ", ".join(f"{kind}={s}" for kind, s in signals.conditions.items())
        yield f"a condition of the node: {kinds}"


def _about_total(judged: Judged, place: int) -> str:
    """Return the numbers of what is more than the whole node has."""
    allocatable = judged.candidates.allocatable[:, place]
    asked = np.array([amount for _, amount in judged.ask.request])
    return judged.shown(
        place, (allocatable < asked) & ~judged.candidates.claimed[:, place]
    )


def _about_free(judged: Judged, place: int) -> str:
    """Return the numbers of what is more than the node has free, or who is there."""
    said = []
    is_short = judged.short[:, place]
    if is_short.any():
        said.append(judged.shown(place, is_short))
    if judged.ask.demand.is_exclusive and judged.candidates.tenants[place]:
        count = int(judged.candidates.tenants[place])
        said.append(f"wants no other GPU pod on the node: it has {count}")
    elif not judged.ask.demand.is_exclusive and judged.candidates.exclusive[place]:
        said.append("a pod on the node wants no other GPU pod there")
    return "; ".join(said)


def _about_cards(judged: Judged, place: int) -> str:
    """Return what is wanted of the cards, and what the node says of its own."""
    said, facts = [], judged.facts(place)
    key, demand = judged.keys.accelerator, judged.ask.demand
    if judged.ask.accelerator not in (None, facts.labels.get(key)):
        has = f"has {facts.labels[key]}" if key in facts.labels else "has no such label"
        said.append(f"{key}={judged.ask.accelerator} wanted, {has}")
    if not demand.is_readable:
        said.append("an annotation of the pod cannot be read")
    elif wanted := show_demand(demand, judged.ask.request):
        cards = facts.cards if isinstance(facts, NodeRecord) else NO_CARDS
        has = show_cards(cards, judged.ask.request if demand.min_memory else ())
        said.append(f"{wanted} wanted, the node has {has}")
    return "; ".join(said)


# verdict -> the numbers behind it
DETAILS: Final[Mapping[Verdict, Callable[[Judged, int], str]]] = {
    Verdict.FEASIBLE: _about_feasible,
    Verdict.UNKNOWN_NODE: _about_unknown,
    Verdict.NO_GPU: _about_missing,
    Verdict.NO_SUCH_RESOURCE: _about_missing,
    Verdict.NOT_READY: _about_readiness,
    Verdict.TOO_FEW: _about_total,
    Verdict.WRONG_TYPE: _about_cards,
    Verdict.TYPE_UNKNOWN: _about_cards,
    Verdict.TOO_LITTLE_MEMORY: _about_cards,
    Verdict.NOT_ALONE: _about_free,
    Verdict.INSUFFICIENT: _about_free,
}
