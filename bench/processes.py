"""Starts the processes of a benchmark, and ends what it has started."""

import gc
import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, TypeVar

import msgspec

T = TypeVar("T")
P = TypeVar("P", bound=msgspec.Struct)

ROOT: Final = Path(__file__).resolve().parent.parent
START_SECONDS: Final = 60.0
STOP_SECONDS: Final = 15.0
RUN_SECONDS: Final = 300.0


class BenchError(RuntimeError):
    """A process did not start or a call failed."""


class AnswerError(RuntimeError):
    """A server answered something else than it must."""


@contextmanager
def started(module: str, *arguments: str, log: Path) -> Iterator[int]:
    """Run ``python -m module`` and yield the port that it says it listens on."""
    with log.open("w") as output:
        process = subprocess.Popen(
            [sys.executable, "-m", module, *arguments],
            cwd=ROOT,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
        )
    try:
        yield wait_for_port(process, log)
    finally:
        stop(process)


def stop(process: subprocess.Popen[bytes]) -> None:
    """End a process, if need be at once."""
    process.terminate()
    try:
        process.wait(STOP_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def wait_for_port(process: subprocess.Popen[bytes], log: Path) -> int:
    """Return the port once the process has said it."""
    deadline = time.monotonic() + START_SECONDS
    while process.poll() is None and time.monotonic() < deadline:
        for line in log.read_text().splitlines():
            port = said_port(line)
            if port is not None:
                return port
        time.sleep(0.05)
    raise BenchError(f"{log.stem}: not serving; it said\n{log.read_text()}")


def said_port(line: str) -> int | None:
    """Return the port in a line of the service's log, or the one the echo prints.

    >>> said_port("40123")
    40123
    >>> said_port('{"event": "serving", "address": "http://127.0.0.1:8888"}')
    8888
    >>> said_port('{"event": "draining started"}') is None
    True
    """
    said = _decoded(line)
    if isinstance(said, int):
        return said
    if not _is_serving(said):
        return None
    return int(said["address"].rpartition(":")[2])


def webhook_port(log: Path) -> int:
    """Return the port of the HTTPS listener of a service that is serving."""
    lines = map(_decoded, log.read_text().splitlines())
    return next(int(said["webhook_port"]) for said in lines if _is_serving(said))


def _decoded(line: str) -> Any:
    """Return what a line says, None while it is still being written."""
    try:
        return json.loads(line)
    except ValueError:
        return None


def _is_serving(said: Any) -> bool:
    """Say whether the service tells where it listens."""
    return isinstance(said, dict) and said.get("event") == "serving"


def run_client(module: str, plan: msgspec.Struct, answer: type[T]) -> T:
    """Let a client, a process of its own, carry out a plan; return what it measured."""
    try:
        done = subprocess.run(
            [sys.executable, "-m", module],
            cwd=ROOT,
            input=msgspec.msgpack.encode(plan),
            capture_output=True,
            timeout=RUN_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise BenchError(f"{module}: not done after {RUN_SECONDS:.0f} s") from error
    if done.returncode:
        raise BenchError(f"{module}: {done.stderr.decode().strip()}")
    return msgspec.msgpack.decode(done.stdout, type=answer)


def carry_out(kind: type[P], run: Callable[[P], msgspec.Struct]) -> None:
    """Be the client that `run_client` starts: read a plan, write what `run` measured.

    Whatever makes `run` fail ends the process.
    """
    plan = msgspec.msgpack.decode(sys.stdin.buffer.read(), type=kind)
    gc.disable()  # our own pauses shall not be timed
    try:
        timings = run(plan)
    except (AnswerError, msgspec.MsgspecError, OSError) as error:
        sys.exit(f"a call failed: {error}")
    sys.stdout.buffer.write(msgspec.msgpack.encode(timings))
