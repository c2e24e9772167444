"""Inputs of subcommands: manifests, settings and a cluster, each fault told once."""

import os
import sys
import threading
import time
from collections.abc import Callable, Sequence
from http import HTTPStatus
from pathlib import Path
from typing import Any, Final, TypeVar

from cluster.api.protocol import ApiError, NamedApi, ServerClock
from cluster.decode.records import RecordBuilder
from cluster.dump import list_items, load_dump, read_documents
from cluster.ledger.ledger import Ledger
from cluster.ledger.writer import LedgerWriter, SnapshotCell
from cluster.watch.cluster_watch import REQUIRED_KINDS, ClusterWatch
from cluster.yaml_text import UNREADABLE, describe_unreadable
from extender.explain.templates import POD_KINDS
from extender.wire.filter import WireError
from scoring.faults import Fault, FaultsError
from scoring.snapshot import Snapshot
from service.cluster_link import connect_to
from service.runtime import build_ledger, build_records
from service.settings.process import ClusterSettings
from service.settings.settings import Settings, read_settings

STDIN: Final = Path("/dev/stdin")

EXIT_FAULTY_INPUT: Final = 2

EXIT_NOT_REACHED: Final = 3

_Value = TypeVar("_Value")


class ManifestError(FaultsError):
    """Manifests with faults, each with its file and path."""

    def __init__(self, faults: Sequence[Fault]) -> None:
        super().__init__(faults, "\n".join(map(str, faults)))


def attempt(action: Callable[[], _Value], messages: list[str]) -> _Value | None:
    """Return what `action` returns; None and a message if its input is faulty.

    A cluster that is not reached is no fault of an input, and raises.
    """
    try:
        return action()
    except (ValueError, OSError) as error:
        messages.append(str(error))
        return None


def read_or_default(config: Path | None) -> Settings:
    """Return the settings of a file; all defaults without one."""
    return Settings() if config is None else read_settings(config)


def with_dumps(settings: Settings, dumps: Sequence[Path]) -> Settings:
    """Return the settings with a cluster from these files."""
    files = tuple(str(path.resolve()) for path in dumps)
    cluster = ClusterSettings(source="file", files=files)
    return settings.model_copy(update={"cluster": cluster})


def folder_of(config: Path | None) -> Path:
    """Return the folder that paths of the settings are relative to."""
    return Path.cwd() if config is None else config.resolve().parent


# A large cluster takes a few seconds.
READ_ONCE_SECONDS: Final = 20.0

# Within this an API server that can be reached has answered a small question.
REACH_SECONDS: Final = 4.0

# A list that failed is tried again for so long.
GIVE_UP_SECONDS: Final = 3.0

_LOOK_SECONDS: Final = 0.05


class NoClusterError(RuntimeError):
    """The API server was not reached, or let us not read what we must."""


def reach(api: NamedApi, paths: Sequence[str]) -> None:
    """Ask for each path once; raise `NoClusterError` with why that is in vain.

    The answer comes within `REACH_SECONDS`, whatever hangs: a name server, a plugin, a
    firewall.
    """
    failures: list[NoClusterError] = []

    def ask() -> None:
        for path in paths:
            try:
                api.read(path)
            except ApiError as error:
                failures.append(NoClusterError(explain_failure(error, api, path)))
                return

    thread = threading.Thread(target=ask, name="reach", daemon=True)
    thread.start()
    thread.join(REACH_SECONDS)
    if thread.is_alive():
        raise NoClusterError(
            f"cluster: {api.url} has not answered within {REACH_SECONDS:g} s;"
            f" {_check_address(api)}"
        )
    if failures:
        raise failures[0]


def explain_failure(error: ApiError, api: NamedApi, path: str) -> str:
    """Return a sentence on why an API server is of no use, and what to do."""
    what = path.partition("?")[0]
    match error.status, error.reason:
        case (HTTPStatus.UNAUTHORIZED, _) | (_, "credentials"):
            said = str(error) if error.reason == "credentials" else "401 Unauthorized"
            return (
                f"cluster: {api.url} does not accept the credentials of"
                f" {api.credentials}: {said}; renew them"
            )
        case HTTPStatus.FORBIDDEN, _:
            return (
                f"cluster: {api.url} forbids it: {error}; grant the right, as"
                " deploy/rbac.yaml does, or take other credentials than those of"
                f" {api.credentials}"
            )
        case 0, "silent":
            return (
                f"cluster: {api.url} takes the connection and says nothing;"
                f" {_check_address(api)}"
            )
        case 0, _:
            return (
                f"cluster: {api.url} cannot be reached: {error}; {_check_address(api)}"
            )
        case HTTPStatus.NOT_FOUND, _:
            return (
                f"cluster: {api.url} has no {what}: it is no Kubernetes API server;"
                f" {_check_address(api)}"
            )
    return f"cluster: {api.url} answers {error.status} for {what}: {error}; try again"


def _check_address(api: NamedApi) -> str:
    return f"check the address in {api.credentials}, and the way there"


class _Unobserved:
    """A watch observer for a command that reads the cluster once."""

    def __init__(self) -> None:
        # (kind, why, when) of the first list that failed
        self.failure: tuple[str, str, float] | None = None

    def listed(self, kind: str, count: int) -> None:
        """Take no notice."""

    def events(self, kind: str, event_type: str, count: int) -> None:
        """Take no notice."""

    def decode_fault(self, kind: str) -> None:
        """Take no notice: the log tells which."""

    def watch_restarted(self, kind: str, reason: str) -> None:
        """Note a failure."""
        if kind in REQUIRED_KINDS and self.failure is None:
            self.failure = kind, reason, time.monotonic()


def read_once(  # noqa: PLR0913 - the last one is the tests'
    settings: ClusterSettings,
    folder: Path,
    builder: RecordBuilder,
    ledger: Ledger,
    clock: ServerClock,
    *,
    timeout_seconds: float = READ_ONCE_SECONDS,
) -> Snapshot:
    """Return the cluster as it is now.

    Raises
    ------
    ValueError
        `DumpError` with all faults of the dumps, or a faulty kubeconfig.
    NoClusterError
        If the API server does not answer in time, or refuses.
    """
    if settings.source == "file":
        for change in load_dump([folder / name for name in settings.files], builder):
            ledger.apply(change)
        return ledger.build()
    api = connect_to(settings, folder, clock=clock)
    reach(api, [f"/api/v1/{kind}?limit=1" for kind in REQUIRED_KINDS])
    cell, observer = SnapshotCell(), _Unobserved()
    writer = LedgerWriter(ledger, cell, lambda: None)
    watch = ClusterWatch(api, writer.submit, builder, observer)
    writer.start()
    watch.start()
    try:
        return _await_snapshot(cell, observer, api, timeout_seconds)
    finally:
        watch.stop()
        writer.stop()


def _await_snapshot(
    cell: SnapshotCell, observer: _Unobserved, api: NamedApi, timeout_seconds: float
) -> Snapshot:
    """Return the first snapshot; raise `NoClusterError` if none comes."""
    ends = time.monotonic() + timeout_seconds
    while not cell.wait_newer(0, _LOOK_SECONDS):
        failure, now = observer.failure, time.monotonic()
        if failure is not None and now > failure[2] + GIVE_UP_SECONDS:
            kind, reason, _ = failure
            raise NoClusterError(
                f"cluster: {kind} could not be read from {api.url}: {reason}; try again"
            )
        if now > ends:
            raise NoClusterError(
                f"cluster: {api.url} has not listed all nodes and pods within"
                f" {timeout_seconds:g} s; try again, or take a dump with --cluster"
            )
    return cell.current()


def read_cluster(settings: Settings, config: Path | None) -> Snapshot:
    """Return the cluster as it is now; raise as `read_once` does."""
    clock = ServerClock()
    records, ledger = build_records(settings), build_ledger(settings, clock)
    return read_once(settings.cluster, folder_of(config), records, ledger, clock)


def read_manifests(
    paths: Sequence[Path], read: Callable[[Any], list[_Value]]
) -> list[_Value]:
    """Return what `read` makes of all objects with pods in all manifests.

    Objects that have no pods, such as a Service beside a Deployment, are passed over
    where a file has any that do.

    Parameters
    ----------
    paths : sequence of Path
        ``-`` is the standard input.
    read : callable
        Takes one object; raises `WireError` with its faults.

    Raises
    ------
    ManifestError
        With every fault of all files.
    """
    found: list[_Value] = []
    faults: list[Fault] = []
    for path in paths:
        try:
            source = STDIN if str(path) == "-" else path
            documents = read_documents(source, is_unique=True)
        except UNREADABLE as error:
            faults.append(Fault(str(path), describe_unreadable(error)))
            continue
        items = list(list_items(documents))
        with_pods = [item for item in items if item[2] in POD_KINDS] or items
        if not with_pods:
            faults.append(Fault(str(path), "wanted a Pod, got no object"))
        for where, tree, _ in with_pods:
            try:
                found += read(tree)
            except WireError as error:
                prefix = "" if where == "object" else f"{where}: "
                faults += [
                    Fault(str(path), f"{prefix}{fault}") for fault in error.faults
                ]
    if faults:
        raise ManifestError(faults)
    return found


def write_quietly(text: str) -> None:
    """Write to the standard output; a reader that has gone is no failure."""
    try:
        sys.stdout.write(text)
        sys.stdout.flush()
    except BrokenPipeError:
        # Python flushes once more at its end, and would complain then.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
