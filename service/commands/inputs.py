"""Inputs of subcommands: manifests, settings and a cluster, each fault told once."""

import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final, TypeVar

from cluster.dump import list_items, read_documents
from cluster.yaml_text import UNREADABLE, one_line
from extender.explain.pod import TEMPLATES
from extender.wire.filter import WireError
from scoring.faults import Fault, FaultsError
from scoring.snapshot import Snapshot
from service.runtime import build_ledger, build_records
from service.settings.process import ClusterSettings
from service.settings.settings import Settings, read_settings
from service.sources import read_once

STDIN: Final = Path("/dev/stdin")

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


def read_cluster(settings: Settings, config: Path | None) -> Snapshot:
    """Return the cluster as it is now."""
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
                place = "" if where == "object" else f"{where}: "
                faults += [
                    Fault(str(path), f"{place}{fault}") for fault in error.faults
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
