"""Annotations of a fallback: the decision that is written, and read the next time.

The API server has a pod reviewed again if a later webhook has changed it. If it still
asks what it ended with, it is decided; if it asks something else, it is decided again.
"""

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Any, Self

from scoring.resources import Request


@dataclass(frozen=True, slots=True)
class FallbackAnnotations:
    """Names of the annotations that fallback reads and writes.

    Attributes
    ----------
    opt_out : str
        ``never`` on a pod that must not be changed.
    sharing : str
        ``allowed`` on a pod that takes shared or sliced GPUs for whole ones.
    record : str
        Written: what was changed.
    mark : str
        Written: what the pod ended with, on every pod that was decided about.
    """

    opt_out: str
    sharing: str
    record: str
    mark: str


@dataclass(frozen=True, slots=True)
class FallbackMark:
    """The resources that a pod ended with; none for a pod not decided about.

    Amounts are left to the holds: the mark is one that people read.
    """

    resources: tuple[str, ...] = ()

    @classmethod
    def read(cls, text: str) -> Self:
        """Return the mark that an annotation holds."""
        # Each once: what a user has written may name one a thousand times.
        return cls.of(text.split(",") if text else ())

    @classmethod
    def of(cls, resources: Iterable[str]) -> Self:
        """Return the mark of a pod that ended with `resources`.

        >>> FallbackMark.of(["nvidia.com/gpu", "nvidia.com/mig-1g.10gb"]).text
        'nvidia.com/gpu,nvidia.com/mig-1g.10gb'
        """
        return cls(tuple(dict.fromkeys(resources)))

    @property
    def text(self) -> str:
        """The mark as an annotation holds it."""
        return ",".join(self.resources)

    def is_kept(self, resources: Iterable[str]) -> bool:
        """Whether all that was ended with is among `resources`."""
        return set(resources).issuperset(self.resources)

    def may_be_of(self, promised: Request) -> bool:
        """Whether a pod so marked can be one that was promised `promised`."""
        return bool(self.resources) and self.is_kept(dict(promised))

    def is_outdated(
        self, promised: Request, request: Request, sources: Collection[str]
    ) -> bool:
        """Whether `promised` was for a pod so marked that now asks otherwise.

        Parameters
        ----------
        promised : tuple of (str, int)
            What some pod was promised.
        request : tuple of (str, int)
            What the marked pod asks.
        sources : collection of str
            Those of `request` that can fall.
        """
        if not self.may_be_of(promised):
            return False
        before, now = dict(promised), dict(request)
        return any(before.get(name) != now[name] for name in sources)


NO_MARK = FallbackMark()


def write_decision(
    pod: dict[str, Any],
    names: FallbackAnnotations,
    mark: FallbackMark,
    record: str = "",
    *,
    is_further: bool = False,
) -> None:
    """Write into `pod` what was decided, in the place of an earlier decision.

    Parameters
    ----------
    mark : FallbackMark
        None is written if it has no resources.
    record : str
        What was changed; empty for nothing.
    is_further : bool
        Whether what was changed earlier still holds: the record adds to it.
    """
    metadata = pod.setdefault("metadata", {})
    annotations = dict(metadata.get("annotations") or {})
    annotations.pop(names.mark, None)
    before = annotations.pop(names.record, "")
    if mark.resources:
        annotations[names.mark] = mark.text
    records = [text for text in (before if is_further else "", record) if text]
    if records:
        annotations[names.record] = ",".join(records)
    metadata["annotations"] = annotations
