"""`ShapeCounts`: the workload mix as it is learned from the pods that come."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from math import inf
from types import MappingProxyType
from typing import Final, TypeAlias

from scoring.gpu.node_gpus import NodeGpus
from scoring.packing.shapes import Shape

# Pods that count; what came before them counts less and less.
WINDOW: Final = 8192

# Shapes, and sets of models, of which a count is kept.
MAX_SHAPES: Final = 512

# Shapes that stand for all, and the part of the pods that they make up at least, where
# so many do.
MAX_TYPICAL: Final = 128

COVERAGE: Final = 0.95

# The part of the pods that must come in other shapes, or of the GPUs that must be asked
# of other models, for the mix to change: whatever was computed by it is lost then.
MIN_SHIFT: Final = 0.05

_ONE_GPU: Final = Shape(0, 1)


@dataclass(frozen=True, slots=True)
class ExpectedShape:
    """Request shape, and where it may run.

    Attributes
    ----------
    accepted : frozenset of str
        Names of GPU models or families, in normal form; empty for any.
    excluded : frozenset of str
        The same of those that are never accepted.
    is_whole : bool
        Whether a share or a slice will not do where it goes by the name of a GPU.
    """

    shape: Shape
    accepted: frozenset[str] = frozenset()
    excluded: frozenset[str] = frozenset()
    is_whole: bool = False

    @property
    def is_picky(self) -> bool:
        """Whether some models will not do."""
        return bool(self.accepted or self.excluded)

    def accepts(self, gpus: NodeGpus) -> bool:
        """Whether GPUs of this kind will do."""
        if self.is_whole and not gpus.is_whole:
            return False
        return not (self.excluded & gpus.names) and (
            not self.accepted or bool(self.accepted & gpus.names)
        )

    @property
    def one_gpu(self) -> "ExpectedShape":
        """A GPU of a model that will do."""
        return replace(self, shape=_ONE_GPU)


# Shape -> part of the pods that come in it; all parts add up to 1.
LearnedMix: TypeAlias = Mapping[ExpectedShape, float]

NOTHING_LEARNED: Final[LearnedMix] = MappingProxyType({})


@dataclass(frozen=True, slots=True, eq=False)
class ExpectedPods:
    """Mix of the pods that are expected; each is told apart by identity.

    Attributes
    ----------
    parts : mapping
        shape -> how many of all pods come in it, in any unit
    pods : float
        Number of pods that it was learned from; infinite for a mix that is given.
    asked : mapping or None
        one GPU of the models that a pod accepts -> part of the GPUs that are asked so.
        It has the rare shapes, too, of which together many may insist on a model; None
        where `parts` has all.
    """

    parts: LearnedMix = field(default_factory=lambda: NOTHING_LEARNED)
    pods: float = inf
    asked: LearnedMix | None = None


NOBODY_EXPECTED: Final = ExpectedPods()


def typical_of(counts: Mapping[ExpectedShape, float]) -> LearnedMix:
    """Return the most frequent shapes, with their part of the pods of them all."""
    ordered = sorted(counts.items(), key=lambda item: -item[1])
    total, covered = sum(counts.values()), 0.0
    kept: dict[ExpectedShape, float] = {}
    for expected, count in ordered[:MAX_TYPICAL]:
        if covered >= COVERAGE * total:
            break
        kept[expected] = count
        covered += count
    return MappingProxyType({shape: n / covered for shape, n in kept.items()})


def asked_of(counts: Mapping[ExpectedShape, float]) -> LearnedMix:
    """Return by which models the GPUs are asked for, as `ExpectedPods.asked` has it."""
    asked: dict[ExpectedShape, float] = {}
    for expected, count in counts.items():
        one = expected.one_gpu
        asked[one] = asked.get(one, 0.0) + count * expected.shape.total
    return _as_parts(asked)


def _as_parts(counts: Mapping[ExpectedShape, float]) -> LearnedMix:
    """Return each count as its part of them all; those of nothing are left out."""
    total = sum(counts.values())
    return MappingProxyType({one: n / total for one, n in counts.items() if n})


class ShapeCounts:
    """Counts the shapes of pods, the recent ones most; one thread may call it.

    Each time `WINDOW` pods are counted, all counts are halved. The rarest shape makes
    room for a new one.
    """

    def __init__(self) -> None:
        # shape -> how many pods, older ones in part
        self._counts: dict[ExpectedShape, float] = {}
        # one GPU of some models -> thousandths of a GPU; of shapes that made room, too
        self._asked: dict[ExpectedShape, float] = {}
        self._since_halved = 0

    def add(self, expected: ExpectedShape) -> None:
        """Count one pod."""
        _count(self._counts, expected, 1.0)
        _count(self._asked, expected.one_gpu, float(expected.shape.total))
        self._since_halved += 1
        if self._since_halved >= WINDOW:
            self._since_halved = 0
            for counts in (self._counts, self._asked):
                for shape in counts:
                    counts[shape] /= 2

    def typical(self) -> LearnedMix:
        """Return the most frequent shapes, with their part of the pods of them all."""
        return typical_of(self._counts)

    @property
    def pods(self) -> float:
        """Number of pods that count, older ones in part."""
        return sum(self._counts.values())

    def asked(self) -> LearnedMix:
        """Return by which models the GPUs are asked for, by rare shapes, too."""
        return _as_parts(self._asked)

    def renewed(self, mix: LearnedMix) -> LearnedMix:
        """Return the mix as it is now, or `mix` itself while it is nearly the same."""
        now = self.typical()
        return now if shift(mix, now) > MIN_SHIFT else mix


def _count(counts: dict[ExpectedShape, float], kind: ExpectedShape, n: float) -> None:
    """Add to a count; the least one makes room for a new one."""
    if kind not in counts and len(counts) >= MAX_SHAPES:
        del counts[min(counts, key=counts.__getitem__)]
    counts[kind] = counts.get(kind, 0.0) + n


def shift(before: LearnedMix, after: LearnedMix) -> float:
    """Return which part of the pods comes in other shapes than before, 0 to 1.

    >>> one, two = ExpectedShape(Shape(0, 1)), ExpectedShape(Shape(0, 2))
    >>> shift({one: 1.0}, {one: 0.75, two: 0.25})
    0.25
    """
    return sum(
        (max(part - before.get(shape, 0.0), 0.0) for shape, part in after.items()), 0.0
    )
