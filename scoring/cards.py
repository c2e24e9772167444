"""What the cards of a node are: model, memory, and whether they are cut or shared."""

import re
from dataclasses import dataclass
from typing import Final

from scoring.gpu_models import GIB
from scoring.resources import MAX_QUANTITY, is_whole_card

_MIG_PREFIX: Final = "nvidia.com/mig-"
_SHARED: Final = ".shared"
_PROFILE: Final = re.compile(r"(?:(\d{1,2})c\.)?(\d{1,2})g\.(\d{1,4})gb\b", re.ASCII)


@dataclass(frozen=True, slots=True)
class Bounds:
    """Between which two sizes the memory of something is.

    Attributes
    ----------
    low, high : int
        Bytes; 0 and the largest quantity where nothing is known.
    """

    low: int = 0
    high: int = MAX_QUANTITY

    def shared_by(self, replicas: int) -> "Bounds":
        """Return what one of so many sharers has; 0 for an unknown number."""
        if replicas:
            return Bounds(self.low // replicas, self.high // replicas)
        return Bounds(0, self.high)


ANY_SIZE: Final = Bounds()


@dataclass(frozen=True, slots=True)
class NodeCards:
    """What is known of the cards of one node, which are all alike.

    Attributes
    ----------
    model : str
        Canonical name; the node's own word for a model or family that is not told
        apart further; empty if nothing tells.
    names : frozenset of str
        Every name, in normal form, that certainly holds.
    possible_names : frozenset of str
        Names that may hold: those of models between which the labels do not decide.
    memory : Bounds
        Of a whole card, as its nominal size.
    is_shared : bool
        Whether one of ``nvidia.com/gpu`` is a share of something.
    replicas : int
        How many share it; 0 if unknown, 1 where it is not shared.
    profile : str
        The MIG profile that one of ``nvidia.com/gpu`` is; empty for a card.
    slice_replicas : tuple of (str, int)
        MIG profile, as in resource names -> how many share one, where more than one.
    links : str
        How several cards are linked, by the model; empty if unknown.
    """

    model: str = ""
    names: frozenset[str] = frozenset()
    possible_names: frozenset[str] = frozenset()
    memory: Bounds = ANY_SIZE
    is_shared: bool = False
    replicas: int = 1
    profile: str = ""
    slice_replicas: tuple[tuple[str, int], ...] = ()
    links: str = ""

    @property
    def is_whole(self) -> bool:
        """Whether one of ``nvidia.com/gpu`` is a card that nobody else uses."""
        return not (self.is_shared or self.profile)

    @property
    def undivided(self) -> Bounds:
        """Memory of what one of ``nvidia.com/gpu`` is, or is a share of."""
        return _slice_memory(self.profile) if self.profile else self.memory

    def memory_of(self, resource: str) -> Bounds:
        """Return the memory of one unit of `resource`: a card, a share or a slice."""
        if resource.startswith(_MIG_PREFIX):
            profile = resource.removeprefix(_MIG_PREFIX)
            is_share = profile.endswith(_SHARED)
            profile = profile.removesuffix(_SHARED)
            replicas = dict(self.slice_replicas).get(profile, 0 if is_share else 1)
            return _slice_memory(profile).shared_by(replicas)
        if resource.endswith(_SHARED):
            return self.memory.shared_by(self.replicas if self.is_shared else 0)
        if not is_whole_card(resource):
            return self.memory
        return self.undivided.shared_by(self.replicas)


NO_CARDS: Final = NodeCards()


def _slice_memory(profile: str) -> Bounds:
    """Return the memory of a MIG instance by the name of its profile.

    Compute instances, as in ``1c.3g.40gb``, share that of the GPU instance.
    """
    found = _PROFILE.match(profile)
    if found is None:
        return ANY_SIZE
    slices = int(found[2])
    size = int(found[3]) * GIB
    if found[1] is not None and slices:
        size = size * min(int(found[1]), slices) // slices
    return Bounds(size, size)
