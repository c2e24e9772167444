"""Whether the cards of a node are what a pod wants of them, and how well they are."""

from enum import IntEnum
from typing import Final

from scoring.gpu.models import normal_name
from scoring.gpu.node_gpus import NodeCards
from scoring.gpu.requirements import Demand
from scoring.resources import PODS, STANDARD_RESOURCES, Request, is_whole_card

# Of a whole request, whose memory would be taken for that of a card.
NEVER_OF_CARDS: Final = frozenset((*STANDARD_RESOURCES, PODS))


class Suitability(IntEnum):
    """The checks in their order; the first that fails decides."""

    SUITS = 0
    WRONG_TYPE = 1
    TYPE_UNKNOWN = 2
    TOO_LITTLE_MEMORY = 3


def suitability(cards: NodeCards, demand: Demand, request: Request) -> Suitability:
    """Return the first check that `cards` fail.

    Parameters
    ----------
    cards : NodeCards
    demand : Demand
    request : tuple of (str, int)
        The managed part of the pod's request. Memory is that of one unit of each
        resource in it: of a card, a share or a slice.

    Returns
    -------
    Suitability
        `TYPE_UNKNOWN` where the labels leave open what decides, be it type or memory.
    """
    of_type = _of_kind(cards, demand, request)
    if of_type is not Suitability.SUITS or not demand.min_memory:
        return of_type
    sizes = [cards.memory_of(resource) for resource, _ in _of_cards(request)]
    if any(size.high < demand.min_memory for size in sizes):
        return Suitability.TOO_LITTLE_MEMORY
    if any(size.low < demand.min_memory for size in sizes):
        return Suitability.TYPE_UNKNOWN
    return Suitability.SUITS


def may_suit(cards: NodeCards, demand: Demand, request: Request) -> bool:
    """Say whether `cards` suit if memory that is not known is large enough."""
    of_type = _of_kind(cards, demand, request)
    return of_type is Suitability.SUITS and may_hold(cards, demand, request)


def may_hold(cards: NodeCards, demand: Demand, request: Request) -> bool:
    """Say whether memory is enough as far as it is known, whatever the type."""
    return all(
        cards.memory_of(resource).high >= demand.min_memory
        for resource, _ in _of_cards(request)
    )


def _of_kind(cards: NodeCards, demand: Demand, request: Request) -> Suitability:
    """Return whether all but the memory suits."""
    if not demand.is_readable:
        return Suitability.WRONG_TYPE
    whole_cards = any(is_whole_card(resource) for resource, _ in request)
    if whole_cards and demand.wants_whole_cards and not cards.is_whole:
        return Suitability.WRONG_TYPE
    return _of_type(cards, demand)


def _of_type(cards: NodeCards, demand: Demand) -> Suitability:
    """Return whether the type is accepted and not excluded; unknown is neither."""
    excluded = frozenset(map(normal_name, demand.excluded))
    if excluded & cards.names:
        return Suitability.WRONG_TYPE
    accepted = frozenset(map(normal_name, demand.types))
    if (accepted or excluded) and not cards.names:
        return Suitability.TYPE_UNKNOWN
    if accepted and not accepted & cards.names:
        is_open = bool(accepted & cards.possible_names)
        return Suitability.TYPE_UNKNOWN if is_open else Suitability.WRONG_TYPE
    if excluded & cards.possible_names:
        return Suitability.TYPE_UNKNOWN
    return Suitability.SUITS


def choice_of(cards: NodeCards, names: tuple[str, ...]) -> int:
    """Return the place in `names` of the first that holds; their number for none."""
    return next(
        (i for i, name in enumerate(names) if normal_name(name) in cards.names),
        len(names),
    )


def _of_cards(request: Request) -> Request:
    """Return a request without what is never of a card, such as ``cpu``."""
    return tuple(pair for pair in request if pair[0] not in NEVER_OF_CARDS)
