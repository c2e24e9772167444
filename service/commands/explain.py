"""``gpu-extender explain``: where pods could go, from manifests and a cluster."""

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final

import msgspec

from extender.explain.explain import Explanation, explain
from extender.explain.page import build_page
from extender.explain.pod import read_subject
from extender.explain.table import render
from service.commands.inputs import (
    EXIT_FAULTY_INPUT,
    attempt,
    read_cluster,
    read_manifests,
    read_or_default,
    with_dumps,
    write_quietly,
)
from service.runtime import build_verb_options
from service.settings.process import ClusterSettings
from service.settings.settings import Settings

EXIT_NO_NODE: Final = 1


@dataclass(frozen=True, slots=True)
class ExplainOptions:
    """Options of the command line.

    Attributes
    ----------
    pods : sequence of Path
        Manifests; ``-`` for the standard input.
    dumps : sequence of Path
        Where the cluster is read from; else an API server, or what the configuration
        says.
    config : Path or None
        Without it, all settings have their defaults.
    output : str
        ``table`` or ``json``.
    """

    pods: Sequence[Path]
    dumps: Sequence[Path]
    kubeconfig: Path | None
    config: Path | None
    output: str


def explain_pods(options: ExplainOptions) -> int:
    """Print an explanation of each pod, or all faults; return the exit status."""
    messages: list[str] = []
    settings = attempt(partial(read_or_default, options.config), messages)
    # Other faults shall be told, too: a dump on the command line is read all the same.
    has_cluster = settings is not None or bool(options.dumps)
    settings = _with_cluster(settings or Settings(), options)
    verb_options = build_verb_options(settings)
    read = partial(read_subject, options=verb_options)
    subjects = attempt(partial(read_manifests, options.pods, read), messages)
    snapshot = None
    is_in_vain = bool(messages) and settings.cluster.source == "kubernetes"
    if has_cluster and not is_in_vain:
        snapshot = attempt(partial(read_cluster, settings, options.config), messages)
    if subjects is None or snapshot is None or messages:
        sys.stderr.write("\n".join(messages) + "\n")
        return EXIT_FAULTY_INPUT
    explanations = [explain(subject, snapshot, verb_options) for subject in subjects]
    write_quietly(_rendered(explanations, options.output))
    fits = all(explanation.answered.any() for explanation in explanations)
    return 0 if fits else EXIT_NO_NODE


def _with_cluster(settings: Settings, options: ExplainOptions) -> Settings:
    """Return the settings with the cluster that the command line names."""
    if options.dumps:
        return with_dumps(settings, options.dumps)
    if options.kubeconfig is None:
        return settings
    cluster = ClusterSettings(kubeconfig=str(options.kubeconfig.resolve()))
    return settings.model_copy(update={"cluster": cluster})


def _rendered(explanations: Sequence[Explanation], output: str) -> str:
    """Return the explanations as text, one after the other, or as JSON."""
    pages = [build_page(explanation) for explanation in explanations]
    if output == "table":
        return "\n".join(map(render, pages))
    shown: Any = pages[0] if len(pages) == 1 else pages
    return msgspec.json.format(msgspec.json.encode(shown)).decode() + "\n"
