"""Inputs of subcommands: manifests, settings and a cluster, each fault told once."""

import logging
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final, TypeVar

from cluster.decode.records import RecordBuilder
from cluster.dump import list_items, load_dump, read_documents
from cluster.ledger.ledger import Ledger
from cluster.ledger.writer import LedgerWriter, SnapshotCell
from cluster.watch.cluster_watch import ClusterWatch
from cluster.yaml_text import UNREADABLE, one_line
from extender.explain.pod import TEMPLATES
from extender.wire.filter import WireError
from scoring.faults import Fault, FaultsError
from scoring.snapshot import Snapshot
from service.cluster_link import connect_to
from service.runtime import build_ledger, build_records
from service.settings.process import ClusterSettings
from service.settings.settings import Settings, read_settings

logger = logging.getLogger(__name__)

STDIN: Final = Path("/dev/stdin")

EXIT_FAULTY_INPUT: Final = 2

POD_KINDS: Final = frozenset({"Pod", *TEMPLATES})

_Value = TypeVar("_Value")


class ManifestError(FaultsError):
    """Manifests with faults, each with its file and path."""

    def __init__(self, faults: Sequence[Fault]) -> None:
        super().__init__(faults, "\n".join(map(str, faults)))


def attempt(action: Callable[[], _Value], messages: list[str]) -> _Value | None:
    """Return what `action` returns; None and a message if its input is faulty."""
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


class NoClusterError(ValueError):
    """The cluster could not be read in time."""


class _Unobserved:
    """A watch observer for a command that reads the cluster once."""

    def __init__(self) -> None:
        self._logged: set[tuple[str, str]] = set()

    def listed(self, kind: str, count: int) -> None:
        """Take no notice."""

    def events(self, kind: str, event_type: str, count: int) -> None:
        """Take no notice."""

    def decode_fault(self, kind: str) -> None:
        """Log it, on stderr."""
        logger.warning("object not fully decoded", extra={"fields": {"kind": kind}})

    def watch_restarted(self, kind: str, reason: str) -> None:
        """Log why it takes so long, once."""
        if (kind, reason) not in self._logged:
            self._logged.add((kind, reason))
            fields = {"kind": kind, "reason": reason}
            logger.warning(
                "list or watch ended, trying again", extra={"fields": fields}
            )


def read_once(
    settings: ClusterSettings,
    folder: Path,
    builder: RecordBuilder,
    ledger: Ledger,
    timeout_seconds: float = READ_ONCE_SECONDS,
) -> Snapshot:
    """Return the cluster as it is now.

    Raises
    ------
    ValueError
        `DumpError` with all faults of the dumps, `NoClusterError` if the API server
        does not answer in time, or a faulty kubeconfig.
    """
    if settings.source == "file":
        for change in load_dump([folder / name for name in settings.files], builder):
            ledger.apply(change)
        return ledger.build()
    cell = SnapshotCell()
    writer = LedgerWriter(ledger, cell, lambda: None)
    watch = ClusterWatch(
        connect_to(settings, folder), writer.submit, builder, _Unobserved()
    )
    writer.start()
    watch.start()
    try:
        if not cell.wait_newer(0, timeout_seconds):
            raise NoClusterError(f"cluster: not read within {timeout_seconds:.0f} s")
        return cell.current()
    finally:
        watch.stop()
        writer.stop()


def read_cluster(settings: Settings, config: Path | None) -> Snapshot:
    """Return the cluster as it is now; raise as `read_once` does."""
    records, ledger = build_records(settings), build_ledger(settings)
    return read_once(settings.cluster, folder_of(config), records, ledger)


def read_manifests(
    paths: Sequence[Path], read: Callable[[Any], _Value]
) -> list[_Value]:
    """Return what `read` makes of each object with pods in all manifests.

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
            documents = read_documents(STDIN if str(path) == "-" else path)
        except UNREADABLE as error:
            faults.append(Fault(str(path), one_line(error)))
            continue
        items = list(list_items(documents))
        with_pods = [item for item in items if item[2] in POD_KINDS] or items
        if not with_pods:
            faults.append(Fault(str(path), "wanted a Pod, got no object"))
        for where, tree, _ in with_pods:
            try:
                found.append(read(tree))
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
