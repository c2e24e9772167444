"""The real process, on a free port of the loopback interface."""

import http.client
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

import yaml

ROOT: Final = Path(__file__).parent.parent
DEADLINE_SECONDS: Final = 90.0  # a process may take long on a crowded machine
POLL_SECONDS: Final = 0.02
# For calls, a minute: none is late on a crowded machine.
PATIENT: Final = {"deadlineMilliseconds": 60_000}


@dataclass(frozen=True, slots=True)
class Answer:
    """One HTTP answer."""

    status: int
    headers: Mapping[str, str]  # lower-case name -> value
    body: bytes

    def json(self) -> Any:
        """Return the body's value."""
        return json.loads(self.body)


def exchange(
    connection: http.client.HTTPConnection,
    method: str,
    path: str,
    body: bytes | None = None,
    headers: Mapping[str, str] | None = None,
) -> Answer:
    """Send one request on an open connection and read the answer."""
    connection.request(method, path, body, dict(headers or {}))
    response = connection.getresponse()
    return Answer(
        response.status,
        {name.lower(): value for name, value in response.getheaders()},
        response.read(),
    )


class ServiceProcess:
    """``python -m service serve``, started on entry and stopped on exit.

    Parameters
    ----------
    folder : Path
        Where its configuration and its logs are written.
    config : mapping
        The configuration; a free port is taken unless it names one.
    arguments : sequence of str
        More arguments of ``serve``.
    environment : mapping
        More variables of its environment.
    """

    def __init__(
        self,
        folder: Path,
        config: Mapping[str, Any],
        arguments: Sequence[str] = (),
        environment: Mapping[str, str] | None = None,
    ) -> None:
        server = {"port": 0, "drainSeconds": 0, **config.get("server", {})}
        self.config = folder / "config.yaml"
        self.config.write_text(yaml.safe_dump({**config, "server": server}))
        self._command = [sys.executable, "-m", "service", "serve"]
        self._command += ["--config", str(self.config), *arguments]
        self._environment = {**os.environ, **(environment or {})}
        self._stdout = folder / "stdout"
        self._stderr = folder / "stderr"
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        self.start()
        try:
            self.wait_serving()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(
        self,
        _kind: type[BaseException] | None,
        _error: BaseException | None,
        _trace: TracebackType | None,
    ) -> None:
        self.stop()

    def start(self) -> None:
        """Start the process, and do not wait for it."""
        with self._stdout.open("wb") as out, self._stderr.open("wb") as err:
            self._process = subprocess.Popen(  # noqa: S603  our own module
                self._command, cwd=ROOT, env=self._environment, stdout=out, stderr=err
            )

    @property
    def process(self) -> subprocess.Popen[bytes]:
        """The started process."""
        assert self._process is not None
        return self._process

    @property
    def stdout(self) -> str:
        """What it has printed so far."""
        return self._stdout.read_text()

    @property
    def stderr(self) -> str:
        """What it has logged or complained of so far."""
        return self._stderr.read_text()

    def logs(self, event: str) -> list[dict[str, Any]]:
        """Return the log lines of one event so far."""
        whole, _, _ = self.stderr.rpartition("\n")  # the last one may be half there
        lines = [json.loads(line) for line in whole.splitlines()]
        return [line for line in lines if line["event"] == event]

    @property
    def port(self) -> int:
        """The port that it said it listens on."""
        return int(self.logs("serving")[0]["address"].rpartition(":")[2])

    def wait_serving(self) -> None:
        """Wait until it answers its liveness probe."""

        def is_serving() -> bool:
            assert self.process.poll() is None, self.stderr
            text = self._stderr.read_text()
            return text.endswith("\n") and bool(self.logs("serving"))

        wait_until(is_serving, "the process serves")
        assert self.get("/healthz").status == 200

    def wait_ready(self) -> None:
        """Wait until it is ready for kube-scheduler."""
        wait_until(
            lambda: self.get("/readyz/extender").status == 200, "the extender is ready"
        )

    def connect(self) -> http.client.HTTPConnection:
        """Return a new keep-alive connection."""
        return http.client.HTTPConnection(
            "127.0.0.1", self.port, timeout=DEADLINE_SECONDS
        )

    def request(
        self,
        method: str,
        path: str,
        body: bytes | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> Answer:
        """Send one request on a connection of its own."""
        connection = self.connect()
        try:
            return exchange(connection, method, path, body, headers)
        finally:
            connection.close()

    def get(self, path: str) -> Answer:
        """Send one GET request."""
        return self.request("GET", path)

    def post(self, path: str, tree: Any) -> Answer:
        """Send one tree as JSON."""
        return self.request("POST", path, json.dumps(tree).encode())

    def generation(self) -> int:
        """Return the number of its newest snapshot."""
        return int(self.get("/cluster?limit=1").json()["generation"])

    def metric(self, name: str) -> float:
        """Return the value of one series of its metrics, 0 if there is none."""
        for line in self.get("/metrics").body.decode().splitlines():
            series, _, value = line.rpartition(" ")
            if series == name:
                return float(value)
        return 0.0

    def send(self, number: signal.Signals) -> None:
        """Send a signal."""
        os.kill(self.process.pid, number)

    def wait_stopped(self) -> int:
        """Wait for the process to end and return its exit status."""
        return self.process.wait(DEADLINE_SECONDS)

    def stop(self) -> None:
        """End the process if it still runs."""
        if self.process.poll() is None:
            self.send(signal.SIGINT)
            try:
                self.wait_stopped()
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
                raise


def run_command(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run one command to its end."""
    return subprocess.run(  # noqa: S603  our own module
        [sys.executable, "-m", "service", *arguments],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=DEADLINE_SECONDS,
        check=False,
    )


def wait_until(
    is_so: Callable[[], bool], what: str, timeout_seconds: float = DEADLINE_SECONDS
) -> None:
    """Poll until `is_so()`; fail with `what` was waited for after the deadline."""
    deadline = time.monotonic() + timeout_seconds
    while not is_so():
        assert time.monotonic() < deadline, f"waited in vain: {what}"
        time.sleep(POLL_SECONDS)
