"""`PodNotices`: what reviews said of pods, told once the watch shows the pods.

The answer of a review is read by whoever sent the pod; a controller reads none. Only a
pod that the watch shows has a UID, and was admitted by all others, too.
"""

import contextlib
import logging
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final, NamedTuple, TypeAlias

from cluster.ledger.writer import NotSyncedError, SnapshotSource
from extender.events.event import Regarding
from extender.events.notices import Notice, NoticedPod
from injector.admission import ReviewNotes
from injector.admitted_pod import PodIdentity
from scoring.bounded import BoundedDict
from scoring.protocols import Owner, RecentPod

logger = logging.getLogger(__name__)

# After that the pod was refused elsewhere, and never came.
KEPT_SECONDS: Final = 30.0

MAX_KEPT: Final = 4096

# Between two lines of one text about the pods of one controller.
LOG_SECONDS: Final = 600.0

# Warnings in the log in a minute; the next one says how many were left out.
MAX_LINES: Final = 60

WARNED: Final = "GPUPodWarning"

FELL: Final = "GPUPodFallback"

ADMISSION: Final = "Admission"

# namespace, owner UID, name or generateName, whether it is the latter
_PodKey: TypeAlias = tuple[str, str, str, bool]


class _Fall(NamedTuple):
    """A pod that fell and is not seen yet."""

    ends: float
    texts: tuple[str, ...]
    targets: frozenset[str]


@dataclass(slots=True, eq=False)
class _Kept:
    """What was said of pods of one key; the warnings of all fellows are alike."""

    ends: float = float("-inf")
    warnings: tuple[str, ...] = ()
    falls: deque[_Fall] = field(default_factory=lambda: deque(maxlen=MAX_KEPT))


class PodNotices:
    """Keeps what reviews said until the pods are seen; any thread may call it.

    Parameters
    ----------
    tell : callable
        Told of each pod that is seen and of which something was said.
    monotonic : callable
        Returns seconds.
    """

    def __init__(
        self,
        source: SnapshotSource,
        tell: Callable[[NoticedPod], None],
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._source = source
        self._tell = tell
        self._monotonic = monotonic
        self._lock = threading.Lock()
        self._kept: BoundedDict[_PodKey, _Kept] = BoundedDict(MAX_KEPT)
        self._sequence = 0
        # namespace, controller or pod, text -> when it may be logged again
        self._logged: BoundedDict[tuple[str, str, str], float]
        self._logged = BoundedDict(MAX_KEPT)
        self._minute = float("-inf")
        self._lines = self._left_out = 0

    def note(self, pod: PodIdentity, notes: ReviewNotes) -> None:
        """Keep what a review said of a pod that it let through, and no dry run."""
        is_generated = not pod.name
        name = pod.name or pod.generate_name
        key = (pod.namespace, pod.owner_uid, name, is_generated)
        with self._lock:
            now = self._monotonic()
            kept = self._kept.get(key)
            if kept is None or kept.ends <= now:
                kept = _Kept()
            # A second review of the pod says less: what it sees is put right already.
            if not is_generated:
                kept.warnings = tuple(dict.fromkeys((*kept.warnings, *notes.warnings)))
            elif not set(notes.warnings) <= set(kept.warnings):
                kept.warnings = notes.warnings
            kept.ends = now + KEPT_SECONDS
            if notes.fall:
                kept.falls.append(_Fall(kept.ends, notes.fall, notes.targets))
            self._kept.keep_newest(key, kept)

    def look(self) -> None:
        """Tell of the pods that are seen now; one thread calls it."""
        with contextlib.suppress(NotSyncedError):
            recent = self._source.current().recent_pods
            arrived = []
            for pod in reversed(recent):
                if pod.sequence <= self._sequence:
                    break
                arrived.append(pod)
            if recent:
                self._sequence = recent[-1].sequence
            if not self._kept:
                return
            for pod in reversed(arrived):
                warnings, fall = self._take(pod)
                if warnings or fall:
                    self._log(pod, warnings, fall)
                    self._tell(_noticed(pod, warnings, fall))

    def _take(self, pod: RecentPod) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Return what was said of a pod, and of its fall."""
        for is_generated, name in ((False, pod.name), (True, pod.generate_name)):
            key = (pod.namespace, pod.owner_uid, name, is_generated)
            with self._lock:
                kept, now = self._kept.get(key), self._monotonic()
                if kept is None:
                    continue
                if not is_generated or kept.ends <= now:
                    del self._kept[key]
                if kept.ends <= now:
                    continue
                return kept.warnings, _take_fall(kept.falls, pod, now)
        return (), ()

    def _log(
        self, pod: RecentPod, warnings: tuple[str, ...], fall: tuple[str, ...]
    ) -> None:
        """Log each fall, and each warning but once in a while."""
        owner = _owner_text(pod.owner)
        fields = {"namespace": pod.namespace, "owner": owner, "pod": pod.name}
        if fall:
            text = "; ".join(fall)
            logger.info("pod fell back", extra={"fields": {**fields, "fall": text}})
        now = self._monotonic()
        if now - self._minute >= 60.0:  # noqa: PLR2004 - a minute
            self._minute, self._lines = now, 0
        for text in warnings:
            key = (pod.namespace, pod.owner_uid or pod.generate_name or pod.name, text)
            if now < self._logged.get(key, now):
                continue
            if self._lines >= MAX_LINES:
                self._left_out += 1
                continue
            self._logged.keep_newest(key, now + LOG_SECONDS)
            self._lines += 1
            more = {"left_out": self._left_out} if self._left_out else {}
            self._left_out = 0
            logger.warning(
                "pod admitted with a warning",
                extra={"fields": {**fields, "warning": text, **more}},
            )


def _take_fall(falls: deque[_Fall], pod: RecentPod, now: float) -> tuple[str, ...]:
    """Return what was said of the oldest fall that can be the pod's; it is over."""
    while falls and falls[0].ends <= now:
        falls.popleft()
    asked = {name for name, _ in pod.request}
    for fall in falls:
        if fall.targets <= asked:
            falls.remove(fall)
            return fall.texts
    return ()


def _owner_text(owner: Owner | None) -> str:
    """Return kind and name of a controller; empty for none."""
    return "" if owner is None else f"{owner.kind}/{owner.name}"


def _noticed(
    pod: RecentPod, warnings: tuple[str, ...], fall: tuple[str, ...]
) -> NoticedPod:
    """Return what is to be told on a pod and its controller."""
    owner = pod.owner
    regarding = None
    if owner is not None and owner.uid and owner.name:
        regarding = Regarding(
            owner.api_version, owner.kind, pod.namespace, owner.name, owner.uid
        )
    notices = (
        Notice(WARNED, ADMISSION, warnings),
        Notice(FELL, ADMISSION, fall, is_warning=False),
    )
    return NoticedPod(
        Regarding("v1", "Pod", pod.namespace, pod.name, pod.uid),
        regarding,
        tuple(notice for notice in notices if notice.texts),
    )
