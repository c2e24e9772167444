"""Warnings for annotations and labels that look like ours and are none."""

import difflib
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import islice
from typing import Final

from injector.admitted_pod import AdmittedPod
from scoring.quantity import shorten
from scoring.resources import ResourceScope

OWN_PREFIX: Final = "gpu-extender.io/"

_MAX_WARNINGS: Final = 4

_MAX_KEY: Final = 320  # characters; Kubernetes takes no longer ones

_SEPARATORS: Final = re.compile(r"[-_.]")


@dataclass(frozen=True, slots=True)
class NameCheck:
    """Warns of misspelled annotations and labels, else passed over without a word.

    Attributes
    ----------
    annotations, labels : frozenset of str
        Those that are read, or written.
    """

    scope: ResourceScope
    annotations: frozenset[str]
    labels: frozenset[str]
    # name without separators and capitals -> name
    _plain: Mapping[str, str] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        plain = {_plain(name): name for name in sorted(self.annotations)}
        object.__setattr__(self, "_plain", plain)

    def apply(self, pod: AdmittedPod) -> tuple[str, ...]:
        """Return the warnings; change nothing."""
        metadata = pod.decoded.metadata
        annotations, labels = metadata.annotations or {}, metadata.labels or {}
        if not (annotations or labels):
            return ()
        if not any(map(self.scope.is_managed, pod.asked_resources())):
            return ()
        found = (*self._of_annotations(annotations), *self._of_labels(labels))
        return tuple(islice(found, _MAX_WARNINGS))

    def _of_annotations(self, keys: Iterable[str]) -> Iterable[str]:
        for key in keys:
            if key in self.annotations or len(key) > _MAX_KEY:
                continue
            if key in self.labels:
                yield f"annotation {key} has no effect: it is read from the labels"
            elif key.startswith(OWN_PREFIX):
                near = _near(key, self.annotations)
                hint = f"; did you mean {near}?" if near else ""
                yield f"annotation {shorten(key)} is not known, has no effect{hint}"
            elif _plain(key) in self._plain:
                meant = self._plain[_plain(key)]
                yield f"annotation {shorten(key)} has no effect; did you mean {meant}?"

    def _of_labels(self, keys: Iterable[str]) -> Iterable[str]:
        for key in keys:
            if key in self.labels or len(key) > _MAX_KEY:
                continue
            if key in self.annotations:
                yield f"label {key} has no effect: it is read from the annotations"
            elif key.startswith(OWN_PREFIX):
                near = _near(key, self.labels | self.annotations)
                kind = "the annotation " if near in self.annotations else ""
                hint = f"; did you mean {kind}{near}?" if near else ""
                yield f"label {shorten(key)} is not known, has no effect{hint}"


def _near(key: str, known: Iterable[str]) -> str:
    """Return the known name that is most like `key`; empty if none is."""
    return next(iter(difflib.get_close_matches(key, sorted(known), 1)), "")


def _plain(name: str) -> str:
    """Return a name without separators and capitals.

    >>> _plain("x.com/GPU_type") == _plain("x.com/gpu-type")
    True
    """
    return _SEPARATORS.sub("", name).lower()
