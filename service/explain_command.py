"""``gpu-extender explain``: where pods could go, from manifests and a cluster."""

import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TypeVar

import msgspec
import yaml

from cluster.dump import list_items, one_line, read_documents
from extender.explain import Explanation, explain
from extender.explanation_page import build_page
from extender.manifest import TEMPLATES
from extender.question import VerbOptions
from extender.subject import Subject, read_subject
from extender.wire import WireError
from scoring.snapshot import Snapshot
from service.explain_table import render
from service.logs import configure_logs
from service.process_settings import ClusterSettings
from service.runtime import build_ledger, build_records, build_verb_options
from service.settings import Settings, read_settings
from service.sources import read_once

EXIT_NO_NODE: Final = 1
EXIT_FAULTY_INPUT: Final = 2
STDIN: Final = Path("/dev/stdin")
POD_KINDS: Final = frozenset({"Pod", *TEMPLATES})

_Value = TypeVar("_Value")


@dataclass(frozen=True, slots=True)
class ExplainOptions:
    """What the command line says.

    Attributes
    ----------
    pods : sequence of Path
        Manifests; ``-`` for the standard input.
    dumps : sequence of Path
        Where the cluster is read from; else an API server, or what the configuration
        says.
    kubeconfig : Path or None
    config : Path or None
        Without it, all settings have their defaults.
    output : str
        ``table`` or ``json``.
    """

    pods: Sequence[Path]
    dumps: Sequence[Path] = ()
    kubeconfig: Path | None = None
    config: Path | None = None
    output: str = "table"


class ManifestError(ValueError):
    """Manifests with faults; the text has each with its file and path."""


def explain_pods(options: ExplainOptions) -> int:
    """Print an explanation of each pod, or all faults; return the exit status."""
    messages: list[str] = []
    settings = _attempt(lambda: _read_settings(options.config), messages)
    # Other faults shall be told, too: a dump on the command line is read all the same.
    has_cluster = settings is not None or bool(options.dumps)
    settings = _with_cluster(settings or Settings(), options)
    configure_logs(settings.logging.level)
    verb_options = build_verb_options(settings)
    subjects = _attempt(lambda: read_pods(options.pods, verb_options), messages)
    snapshot = None
    if has_cluster:
        snapshot = _attempt(lambda: _read_cluster(settings, options), messages)
    if subjects is None or snapshot is None or messages:
        sys.stderr.write("\n".join(messages) + "\n")
        return EXIT_FAULTY_INPUT
    explanations = [explain(subject, snapshot, verb_options) for subject in subjects]
    write_quietly(_rendered(explanations, options.output))
    fits = all(explanation.answered.any() for explanation in explanations)
    return 0 if fits else EXIT_NO_NODE


def _attempt(action: Callable[[], _Value], messages: list[str]) -> _Value | None:
    """Return what `action` returns; None and a message if its input is faulty."""
    try:
        return action()
    except (ValueError, OSError) as error:
        messages.append(str(error))
        return None


def _read_settings(config: Path | None) -> Settings:
    """Return the settings of a file; all defaults without one."""
    return Settings() if config is None else read_settings(config)


def _with_cluster(settings: Settings, options: ExplainOptions) -> Settings:
    """Return the settings with the cluster that the command line names."""
    if options.dumps:
        files = tuple(str(path.resolve()) for path in options.dumps)
        cluster = ClusterSettings(source="file", files=files)
    elif options.kubeconfig is not None:
        cluster = ClusterSettings(kubeconfig=str(options.kubeconfig.resolve()))
    else:
        return settings
    return settings.model_copy(update={"cluster": cluster})


def _read_cluster(settings: Settings, options: ExplainOptions) -> Snapshot:
    """Return the cluster as it is now."""
    folder = Path.cwd() if options.config is None else options.config.resolve().parent
    return read_once(
        settings.cluster, folder, build_records(settings), build_ledger(settings)
    )


def read_pods(paths: Sequence[Path], options: VerbOptions) -> list[Subject]:
    """Return the pods of all manifests; raise `ManifestError` with every fault.

    Objects that have no pods, such as a Service beside a Deployment, are passed over
    where a file has any that do.
    """
    subjects: list[Subject] = []
    faults: list[str] = []
    for path in paths:
        try:
            documents = read_documents(STDIN if str(path) == "-" else path)
        except (OSError, ValueError, RecursionError, yaml.YAMLError) as error:
            faults.append(f"{path}: {one_line(error)}")
            continue
        items = list(list_items(documents))
        with_pods = [item for item in items if item[2] in POD_KINDS] or items
        if not with_pods:
            faults.append(f"{path}: wanted a Pod, got no object")
        for where, tree, _ in with_pods:
            try:
                subjects.append(read_subject(tree, options))
            except WireError as error:
                place = "" if where == "object" else f"{where}: "
                faults += [f"{path}: {place}{fault}" for fault in error.faults]
    if faults:
        raise ManifestError("\n".join(faults))
    return subjects


def _rendered(explanations: Sequence[Explanation], output: str) -> str:
    """Return the explanations as text, one after the other, or as JSON."""
    pages = [build_page(explanation) for explanation in explanations]
    if output == "table":
        return "\n".join(map(render, pages))
    shown: Any = pages[0] if len(pages) == 1 else pages
    return msgspec.json.format(msgspec.json.encode(shown)).decode() + "\n"


def write_quietly(text: str) -> None:
    """Write to the standard output; a reader that has gone is no failure."""
    try:
        sys.stdout.write(text)
        sys.stdout.flush()
    except BrokenPipeError:
        # Python flushes once more at its end, and would complain then.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
