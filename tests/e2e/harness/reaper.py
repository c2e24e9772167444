"""Kill the processes of a run that ended without stopping them.

Fixtures stop what they started, also on Ctrl-C. If the test process itself is killed,
nobody is left to do so; the reaper is a child that notices, since its standard input
ends, and kills by process id whatever was still registered.
"""

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Self


class Reaper:
    """Owned by the test session; registers the ids of running processes."""

    def __init__(self) -> None:
        # A session of its own: Ctrl-C in a terminal must not reach it.
        self._child = subprocess.Popen(
            [sys.executable, str(Path(__file__).resolve())],
            stdin=subprocess.PIPE,
            start_new_session=True,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._child.stdin is not None:
            self._child.stdin.close()
        self._child.wait()

    def add(self, pid: int) -> None:
        """Register a process that was started."""
        self._write(f"+{pid}\n")

    def remove(self, pid: int) -> None:
        """Forget a process that has ended, since its id may be given out again."""
        self._write(f"-{pid}\n")

    def _write(self, line: str) -> None:
        if self._child.stdin is not None:
            self._child.stdin.write(line.encode())
            self._child.stdin.flush()


def watch(lines: Iterable[str]) -> None:
    """Follow the registrations until they end, then kill what is left."""
    alive: set[int] = set()
    for line in lines:
        pid = int(line[1:])
        if line.startswith("+"):
            alive.add(pid)
        else:
            alive.discard(pid)
    for pid in alive:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


if __name__ == "__main__":
    watch(sys.stdin)
