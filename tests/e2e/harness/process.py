"""One process of the control plane: start, stop, kill, start again."""

import os
import signal
import subprocess
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final

from tests.e2e.harness.reaper import Reaper
from tests.e2e.harness.waiting import DeadlineError, wait_for

READY_SECONDS: Final = 90.0
STOP_SECONDS: Final = 60.0
LOG_TAIL_BYTES: Final = 3_000


class ProcessError(RuntimeError):
    """A process ended, or did not end, against what the test wanted."""


class ManagedProcess:
    """A child process that is only ever signalled by the id it was started with.

    Its output is appended to one file over all its starts. Owned by the test's
    thread; no method may be called from two threads at once.
    """

    def __init__(  # noqa: PLR0913 - every argument is named
        self,
        name: str,
        command: Sequence[str | Path],
        *,
        log_path: Path,
        is_ready: Callable[[], bool],
        reaper: Reaper,
        env: Mapping[str, str] | None = None,
        cwd: Path | None = None,
    ) -> None:
        self.name = name
        self.log_path = log_path
        self._command = [str(part) for part in command]
        self._is_ready = is_ready
        self._reaper = reaper
        self._env = {**os.environ, **(env or {})}
        self._cwd = cwd
        self._child: subprocess.Popen[bytes] | None = None
        # An earlier process of that name may have written to the file, too.
        self._log_start = self.log_size()

    @property
    def is_running(self) -> bool:
        """Whether the process was started and has not ended."""
        return self._child is not None and self._child.poll() is None

    @property
    def pid(self) -> int:
        """The id of the running process."""
        return self._running().pid

    def start(self, *, wait: bool = True) -> None:
        """Start the process and, unless told otherwise, wait until it is ready."""
        if self.is_running:
            raise ProcessError(f"{self.name}: wanted to start it, is running")
        with self.log_path.open("ab") as log:
            # A session of its own, so that Ctrl-C reaches the test run alone, which
            # then stops everything in order.
            self._child = subprocess.Popen(
                self._command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env=self._env,
                cwd=self._cwd,
                start_new_session=True,
            )
        self._reaper.add(self._child.pid)
        if wait:
            self.wait_ready()

    def wait_ready(self, timeout_seconds: float = READY_SECONDS) -> None:
        """Wait until the process answers as ready; fail at once when it has ended."""
        try:
            wait_for(
                self._ready_or_ended,
                timeout_seconds=timeout_seconds,
                what=f"{self.name} ready",
            )
        except (DeadlineError, ProcessError) as error:
            raise ProcessError(f"{error}\n{self.log_tail()}") from error

    def stop(self, timeout_seconds: float = STOP_SECONDS) -> int:
        """Send SIGTERM, wait for the end and return the exit code."""
        child = self._running()
        child.send_signal(signal.SIGTERM)
        try:
            child.wait(timeout_seconds)
        except subprocess.TimeoutExpired as error:
            self.kill()
            raise ProcessError(
                f"{self.name}: wanted an end within {timeout_seconds} s of SIGTERM, "
                f"had to kill it\n{self.log_tail()}"
            ) from error
        except KeyboardInterrupt:
            # Nobody will wait for it again, and its end is no fault.
            self.kill()
            raise
        return self._ended(child)

    def kill(self) -> int:
        """Send SIGKILL, wait for the end and return the exit code."""
        child = self._running()
        child.kill()
        child.wait()
        return self._ended(child)

    def restart(self, *, wait: bool = True) -> None:
        """Stop with SIGTERM and start again with the same command."""
        self.stop()
        self.start(wait=wait)

    def freeze(self) -> None:
        """Stop the process from running at all, sockets open, until `thaw`."""
        self._running().send_signal(signal.SIGSTOP)

    def thaw(self) -> None:
        """Let a frozen process go on."""
        self._running().send_signal(signal.SIGCONT)

    def wait_end(self, timeout_seconds: float = STOP_SECONDS) -> int:
        """Wait until the process ends by itself and return the exit code."""
        child = self._child
        if child is None:
            raise ProcessError(f"{self.name}: wanted its end, was not started")
        try:
            child.wait(timeout_seconds)
        except subprocess.TimeoutExpired as error:
            raise ProcessError(
                f"{self.name}: wanted an end within {timeout_seconds} s, still runs"
            ) from error
        return self._ended(child)

    def close(self, *, at_once: bool = False) -> None:
        """End the process if it runs; one that ended by itself is a fault."""
        if self._child is None:
            return
        if not self.is_running:
            code = self._ended(self._child)
            raise ProcessError(
                f"{self.name}: wanted it running, ended with {code}\n{self.log_tail()}"
            )
        self.thaw()  # a frozen process does not see SIGTERM
        if at_once:
            self.kill()
        else:
            self.stop()

    def log_size(self) -> int:
        """Return the size of the log in bytes, a position for `log_text`."""
        return self.log_path.stat().st_size if self.log_path.exists() else 0

    def log_text(self, since: int = 0) -> str:
        """Return what this process has logged, or only that after a position."""
        if not self.log_path.exists():
            return ""
        with self.log_path.open("rb") as log:
            log.seek(max(since, self._log_start))
            return log.read().decode(errors="replace")

    def log_tail(self) -> str:
        """Return the end of the log, for messages."""
        tail = self.log_text(self.log_size() - LOG_TAIL_BYTES)
        return f"--- {self.log_path} ends with:\n{tail}"

    def _running(self) -> subprocess.Popen[bytes]:
        if self._child is None or self._child.poll() is not None:
            raise ProcessError(f"{self.name}: wanted it running, is not")
        return self._child

    def _ended(self, child: subprocess.Popen[bytes]) -> int:
        self._reaper.remove(child.pid)
        self._child = None
        return child.returncode

    def _ready_or_ended(self) -> bool:
        child = self._child
        if child is None or child.poll() is not None:
            code = None if child is None else self._ended(child)
            raise ProcessError(f"{self.name}: wanted ready, ended with {code}")
        return self._is_ready()
