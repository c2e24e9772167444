"""What a pod wants of cards, and what cards are, in words."""

from extender.amounts import show_bytes
from scoring.cards import Bounds, NodeCards
from scoring.demand import Demand
from scoring.objects import Request
from scoring.resources import MAX_QUANTITY, is_whole_card


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
