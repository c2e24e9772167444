"""``gpu-extender explain``: where pods could go, from manifests and a cluster."""

import sys
from collections.abc import Sequence
from copy import deepcopy
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Final

import msgspec
import yaml

from cluster.api.protocol import ApiError
from cluster.ledger.writer import SnapshotCell
from extender.explain.explain import explain
from extender.explain.page import ExplanationPage, PageQuery, build_page
from extender.explain.pod import Admit, Subject, read_template
from extender.explain.summary_text import render_page
from extender.explain.templates import PodTemplate, templates_in
from extender.verbs.options import VerbOptions
from scoring.snapshot import Snapshot
from service.cluster_link import connect_to
from service.commands.inputs import (
    EXIT_FAULTY_INPUT,
    attempt,
    folder_of,
    read_cluster,
    read_manifests,
    read_or_default,
    with_dumps,
    write_quietly,
)
from service.commands.quota import (
    ResourceQuota,
    find_quota_obstacles,
    quotas_of_dumps,
    quotas_of_server,
)
from service.runtime import build_verb_options
from service.settings.process import ClusterSettings
from service.settings.settings import Settings
from service.submission import preview_by, read_submission
from service.webhook import Uncounted, Webhook

EXIT_NO_NODE: Final = 1

TEXT: Final = "text"

WIDE: Final = "wide"


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
        ``text``, ``wide``, ``json`` or ``yaml``.
    is_as_is : bool
        Whether the pods are not taken through the webhook's steps.
    has_nodes : bool
        Whether a row is shown for each node.
    node : str
        Shows this node in full; empty for none.
    limit : int or None
        Of rows; None for all.
    is_without_colours : bool
        Whether a terminal gets none either.
    """

    pods: Sequence[Path]
    dumps: Sequence[Path]
    kubeconfig: Path | None
    config: Path | None
    output: str = TEXT
    is_as_is: bool = False
    has_nodes: bool = False
    node: str = ""
    limit: int | None = None
    is_without_colours: bool = False

    @property
    def query(self) -> PageQuery:
        """The rows that are asked for."""
        has_rows = self.has_nodes or self.output == WIDE or self.limit is not None
        if self.node:
            return PageQuery(node=self.node)
        return PageQuery(limit=self.limit if has_rows else 0)


def explain_pods(options: ExplainOptions) -> int:
    """Print an explanation of each pod, or all faults; return the exit status."""
    messages: list[str] = []
    settings = attempt(partial(read_or_default, options.config), messages)
    # Other faults shall be told, too: a dump on the command line is read all the same.
    has_cluster = settings is not None or bool(options.dumps)
    settings = _with_cluster(settings or Settings(), options)
    verb_options, cell = build_verb_options(settings), SnapshotCell()
    webhook = Webhook(cell, settings, Uncounted(), folder_of(options.config))
    if not options.is_as_is:
        attempt(webhook.load_rules, messages)
    read = partial(read_templates, options=verb_options, is_as_is=options.is_as_is)
    templates = attempt(partial(read_manifests, options.pods, read), messages)
    snapshot = None
    is_in_vain = bool(messages) and settings.cluster.source == "kubernetes"
    if has_cluster and not is_in_vain:
        snapshot = attempt(partial(read_cluster, settings, options.config), messages)
    if snapshot is not None:
        messages += _faults_of(snapshot, settings, options)
    if templates is not None and snapshot is not None and not messages:
        cell.publish(snapshot)
        admit = None if options.is_as_is else preview_by(webhook.admission.preview)
        read_all = partial(read_admitted, templates, verb_options, admit)
        subjects = attempt(read_all, messages)
        if subjects is not None:
            if settings.cluster.source == "file":
                _warn_of_no_pods(snapshot, settings)
            subjects = _with_quotas(subjects, settings, options)
            return _print(subjects, snapshot, verb_options, options)
    sys.stderr.write("\n".join(messages) + "\n")
    return EXIT_FAULTY_INPUT


def read_templates(
    tree: Any, options: VerbOptions, *, is_as_is: bool = False
) -> list[PodTemplate]:
    """Return the pods of one object, each readable; raise `WireError` if one is not.

    Unless it is judged as it is, each can be reviewed, too.
    """
    templates = templates_in(tree)
    for template in templates:
        # Whoever reads a tree prunes it.
        read_template(replace(template, tree=deepcopy(template.tree)), options)
        if not is_as_is:
            read_submission(template)
    return templates


def read_admitted(
    templates: Sequence[PodTemplate], options: VerbOptions, admit: Admit | None
) -> list[Subject]:
    """Return each pod as it would be admitted; raise `WireError` with its faults."""
    return [read_template(template, options, admit) for template in templates]


def _faults_of(
    snapshot: Snapshot, settings: Settings, options: ExplainOptions
) -> list[str]:
    """Return why a cluster that was read is of no use."""
    if settings.cluster.source == "file" and not snapshot.nodes.names:
        return [f"cluster: {_dumps_of(settings)}: the dump has no nodes"]
    if options.node and options.node not in snapshot.nodes.column_of:
        return [f"--node: the cluster has no node {options.node!r}"]
    return []


def _dumps_of(settings: Settings) -> str:
    return ", ".join(settings.cluster.files)


def _warn_of_no_pods(snapshot: Snapshot, settings: Settings) -> None:
    """Say that a dump has no pods: its nodes would look empty."""
    if not snapshot.pending and not snapshot.bound_pods:
        sys.stderr.write(
            f"Warning: {_dumps_of(settings)}: the dump has no pods, so its nodes count"
            " as empty; `kubectl get nodes,pods -A -o yaml` has both\n"
        )


def _with_quotas(
    subjects: Sequence[Subject], settings: Settings, options: ExplainOptions
) -> list[Subject]:
    """Return the pods with the quotas that would refuse them, as far as we may look."""
    folder = folder_of(options.config)
    if settings.cluster.source == "file":
        quotas = quotas_of_dumps([folder / name for name in settings.cluster.files])
        return [_with_quota(subject, quotas) for subject in subjects]
    api, found = connect_to(settings.cluster, folder), []
    for subject in subjects:
        try:
            quotas = quotas_of_server(api, subject.namespace)
            found.append(_with_quota(subject, quotas))
        except ApiError as error:
            note = (
                f"Quotas of namespace {subject.namespace} were not looked at: {error}"
            )
            found.append(replace(subject, notes=(*subject.notes, note)))
    return found


def _with_quota(subject: Subject, quotas: Sequence[ResourceQuota]) -> Subject:
    if subject.is_created:  # it is counted in them
        return subject
    obstacles = (*subject.obstacles, *find_quota_obstacles(subject, quotas))
    return replace(subject, obstacles=obstacles)


def _print(
    subjects: Sequence[Subject],
    snapshot: Snapshot,
    verb_options: VerbOptions,
    options: ExplainOptions,
) -> int:
    """Print the explanations; return the exit status."""
    pages = [
        build_page(explain(subject, snapshot, verb_options), options.query)
        for subject in subjects
    ]
    write_quietly(_rendered(pages, options))
    fits = all(page.summary is not None and page.summary.fits for page in pages)
    return 0 if fits else EXIT_NO_NODE


def _with_cluster(settings: Settings, options: ExplainOptions) -> Settings:
    """Return the settings with the cluster that the command line names."""
    if options.dumps:
        return with_dumps(settings, options.dumps)
    if options.kubeconfig is None:
        return settings
    cluster = ClusterSettings(kubeconfig=str(options.kubeconfig.resolve()))
    return settings.model_copy(update={"cluster": cluster})


def _rendered(pages: Sequence[ExplanationPage], options: ExplainOptions) -> str:
    """Return the explanations as text, one after the other, or as JSON or YAML."""
    if options.output in {TEXT, WIDE}:
        has_colours = sys.stdout.isatty() and not options.is_without_colours
        is_wide = options.output == WIDE
        texts = [
            render_page(page, options.node, is_wide=is_wide, has_colours=has_colours)
            for page in pages
        ]
        return "\n".join(texts)
    shown: Any = pages[0] if len(pages) == 1 else pages
    if options.output == "yaml":
        tree = msgspec.json.decode(msgspec.json.encode(shown))
        return yaml.safe_dump(tree, sort_keys=False, allow_unicode=True)
    return msgspec.json.format(msgspec.json.encode(shown)).decode() + "\n"
