"""Files that are read again when they change; faulty contents change nothing."""

import logging
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class WatchedFiles:
    """Files that are read together.

    Attributes
    ----------
    name : str
        For metrics and logs.
    load : callable
        Reads them and puts the result to use; raises `ValueError` or `OSError` with
        every fault, and then has changed nothing.
    is_due : callable
        Whether to read them again although they have not changed.
    """

    name: str
    paths: tuple[Path, ...]
    load: Callable[[], None]
    is_due: Callable[[], bool] = lambda: False


def fingerprint(paths: Sequence[Path]) -> tuple[tuple[int, int, int], ...]:
    """Return what changes when a file's contents do: identity, time and size."""
    found = []
    for path in paths:
        try:
            stat = path.stat()
        except OSError:
            found.append((0, 0, -1))
        else:
            found.append((stat.st_ino, stat.st_mtime_ns, stat.st_size))
    return tuple(found)


class ReloadObserver(Protocol):
    """Listener to whether the newest contents of a watched file are in use."""

    def __call__(self, name: str, *, is_ok: bool) -> None:
        """Take the news."""
        ...


class Reloader:
    """Looks at files at an interval and reads those that changed.

    The constructor reads all of them once, and lets their errors pass.

    Parameters
    ----------
    asked : threading.Event
        Set by whoever wants all files read again, changed or not.

    Attributes
    ----------
    faults : mapping
        Replaced by one assignment; any thread may read it.
    """

    def __init__(
        self,
        watched: Sequence[WatchedFiles],
        interval_seconds: float,
        on_result: ReloadObserver,
        asked: threading.Event | None = None,
    ) -> None:
        self._watched = tuple(watched)
        self._interval_seconds = interval_seconds
        self._on_result = on_result
        # name -> the faults of its newest contents, where they are refused
        self.faults: Mapping[str, str] = {}
        # Before reading: what changes meanwhile is read again.
        self._seen = [fingerprint(item.paths) for item in self._watched]
        for item in self._watched:
            item.load()
            on_result(item.name, is_ok=True)
        self._looked = time.monotonic()
        self._stopped = threading.Event()
        self._asked = asked or threading.Event()
        self._thread = threading.Thread(target=self._run, name="reload", daemon=True)

    def start(self) -> None:
        """Start looking."""
        self._thread.start()

    def stop(self) -> None:
        """Stop looking; returns when the thread has ended."""
        self._stopped.set()
        self._asked.set()
        if self._thread.is_alive():
            self._thread.join()

    def age_seconds(self) -> float:
        """Return how long ago the files were last looked at."""
        return time.monotonic() - self._looked

    def _run(self) -> None:
        while not self._stopped.is_set():
            is_asked = self._asked.wait(self._interval_seconds)
            self._asked.clear()
            if not self._stopped.is_set():
                self.look(reads_all=is_asked)

    def look(self, *, reads_all: bool = False) -> None:
        """Read what has changed since the last look, or is due; or all of it."""
        for position, item in enumerate(self._watched):
            now = fingerprint(item.paths)
            if reads_all or now != self._seen[position] or item.is_due():
                self._seen[position] = now
                faults = self._read(item)
                others = {k: v for k, v in self.faults.items() if k != item.name}
                self.faults = others | ({item.name: faults} if faults else {})
                self._on_result(item.name, is_ok=not faults)
        self._looked = time.monotonic()

    def _read(self, item: WatchedFiles) -> str:
        """Read the files and return their faults; empty if they are in use."""
        try:
            item.load()
        except (ValueError, OSError) as error:
            logger.warning(
                "file refused, the last good contents stay in use",
                extra={"fields": {"file": item.name, "faults": str(error)}},
            )
            return str(error)
        except Exception as error:
            logger.exception("file could not be read")
            return type(error).__name__
        logger.info("file reloaded", extra={"fields": {"file": item.name}})
        return ""
