"""`Demand`: what a pod wants of the cards themselves, beside their number."""

from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

Link: TypeAlias = Literal["", "preferred", "required"]


@dataclass(frozen=True, slots=True)
class Demand:
    """What a pod wants of the cards that it gets.

    Attributes
    ----------
    types : tuple of str
        Accepted types, the most wanted first; names of models or families. Empty
        where any type will do.
    excluded : tuple of str
        Types that are never accepted.
    preferred : tuple of str
        Types that score better and refuse nothing.
    min_memory : int
        Bytes that each card, slice or share must have; 0 asks for nothing.
    is_sharing_allowed : bool
        Whether a share or a slice of a card may stand for a card.
    is_exclusive : bool
        Whether the pod wants no other GPU pod on its node.
    linked : str
        Whether several cards must, or should, be linked; empty asks for nothing.
    is_readable : bool
        False where an annotation of the pod cannot be read: the verbs then refuse to
        judge it, and no node is known to suit.
    """

    types: tuple[str, ...] = ()
    excluded: tuple[str, ...] = ()
    preferred: tuple[str, ...] = ()
    min_memory: int = 0
    is_sharing_allowed: bool = False
    is_exclusive: bool = False
    linked: Link = ""
    is_readable: bool = True

    @property
    def is_of_cards(self) -> bool:
        """Whether it narrows down which nodes' cards will do."""
        return self.wants_whole_cards or bool(
            self.types or self.excluded or self.min_memory or not self.is_readable
        )

    @property
    def names_cards(self) -> bool:
        """Whether it says anything of the cards, be it a preference."""
        return self.is_of_cards or bool(self.preferred)

    @property
    def wants_whole_cards(self) -> bool:
        """Whether a share or a slice of a card will not do for a card."""
        return not self.is_sharing_allowed and bool(
            self.types
            or self.excluded
            or self.min_memory
            or self.is_exclusive
            or self.linked == "required"
        )


NO_DEMAND: Final = Demand()
UNREADABLE: Final = Demand(is_readable=False)
