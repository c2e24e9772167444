"""``gpu-extender check-config``: all faults of a configuration, then of its files."""

import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

from cluster.decode.gpu_requirements import GpuRequirementsReader
from cluster.dump import load_dump
from injector.rules.conflicts import (
    RuleContext,
    list_fallback_gaps,
    list_tiny_amounts,
)
from injector.rules.file import load_rules
from injector.warnings.gpu_types import list_unknown_types, unknown_name
from scoring.gpu.node_gpus import GpuLabelReader
from service.certificates.files import check_pair, make_context
from service.cluster_link import connect_to
from service.commands.inputs import EXIT_FAULTY_INPUT
from service.doctor.page import empty_facts
from service.doctor.scheduler import (
    SchedulerConfigError,
    check_scheduler_config,
    read_scheduler_config,
)
from service.runtime import build_records
from service.settings.settings import Settings, SettingsError, read_settings
from service.webhook import build_rule_context


def check_config(config: Path) -> int:
    """Print all faults of a configuration file and of the files it names."""
    messages = find_faults(config)
    if messages:
        sys.stderr.write("\n".join(messages) + "\n")
        return EXIT_FAULTY_INPUT
    for warning in find_warnings(config):
        sys.stderr.write(f"Warning: {warning}\n")
    sys.stdout.write(f"{config.name}: no faults\n")
    return 0


def find_faults(config: Path) -> list[str]:
    """Return a message for each faulty file; empty if there is none.

    A faulty configuration hides the files that it names.
    """
    try:
        settings = read_settings(config)
    except SettingsError as error:
        return [str(error)]
    messages = []
    for check in _checks(settings, config.resolve().parent):
        try:
            check()
        except (ValueError, OSError) as error:
            messages.append(str(error))
    return messages


def find_warnings(config: Path) -> list[str]:
    """Return warnings for a configuration without faults that still looks wrong.

    Parameters
    ----------
    config : Path
        One in which `find_faults` finds none.
    """
    settings, folder = read_settings(config), config.resolve().parent
    return [
        *_warn_of_scheduler_config(settings, folder),
        *_warn_of_rules(settings, folder),
        *_warn_of_expected_pods(settings),
        *_warn_of_idle_scoring(settings),
    ]


def _warn_of_scheduler_config(settings: Settings, folder: Path) -> list[str]:
    """Return what of kube-scheduler's configuration does not fit the settings.

    The service starts with it all the same: it is kube-scheduler's file.
    """
    name = settings.extender.scheduler_config_file
    if name is None or not settings.server.port:
        return []
    try:
        scheduler = read_scheduler_config(folder / name)
    except SchedulerConfigError as error:
        return [f"extender.schedulerConfigFile: {error}"]
    found = check_scheduler_config(empty_facts(settings), scheduler, name)
    return [finding.what for finding in found]


def _warn_of_rules(settings: Settings, folder: Path) -> list[str]:
    """Return what in a rule file without faults still looks wrong."""
    rules_file = settings.injection.rules_file
    if rules_file is None:
        return []
    rules = load_rules(folder / rules_file, _rule_context(settings))
    gpus = GpuLabelReader(settings.gpu_types.rules())
    reader = GpuRequirementsReader(settings.gpu_annotations(), gpus)
    return [
        *list_unknown_types(rules, reader),
        *list_fallback_gaps(rules, settings.fallback.chains),
        *list_tiny_amounts(rules),
    ]


def _warn_of_expected_pods(settings: Settings) -> Iterator[str]:
    """Yield which types of the expected pods are no known models or families."""
    table = settings.gpu_types.rules().table
    for index, pods in enumerate(settings.scoring.expected_pods):
        path = f"scoring.expectedPods.{index}.types"
        for place, name in enumerate(pods.types):
            if not table.find(name):
                yield f"{path}.{place}: {unknown_name(table, name)}"


def _warn_of_idle_scoring(settings: Settings) -> Iterator[str]:
    """Yield which keys about scores no score goes by."""
    scoring, labels = settings.scoring, settings.labels
    weights = scoring.weights
    if scoring.expected_pods and not (weights.fragmentation or weights.scarcity):
        yield (
            "scoring.expectedPods has no effect: fragmentation and scarcity weigh 0;"
            " give them a weight, or take profile packing"
        )
    if scoring.topology != "auto" and not weights.topology:
        yield (
            f"scoring.topology {scoring.topology!r} has no effect: topology weighs 0;"
            " give it a weight, or take profile training"
        )
    if labels.job is not None and not weights.domain:
        yield (
            "labels.job has no effect: domain weighs 0;"
            " give it a weight, or take profile training"
        )
    if weights.domain and not labels.domains:
        yield "scoring.weights.domain has no effect: labels.domains is empty"


def _rule_context(settings: Settings) -> RuleContext:
    return build_rule_context(
        settings.injection, settings.fallback, settings.gpu_annotations()
    )


def _checks(settings: Settings, folder: Path) -> list[Callable[[], object]]:
    """Return what reads each file that the settings name."""
    checks: list[Callable[[], object]] = []
    cluster = settings.cluster
    # Where the file names neither, what stands there is of the machine it runs on.
    names_api_server = cluster.kubeconfig is not None or cluster.context is not None
    if cluster.source == "kubernetes" and names_api_server:
        checks.append(partial(connect_to, cluster, folder))
    files = [folder / name for name in cluster.files]
    if files:
        checks.append(partial(load_dump, files, build_records(settings)))
    injection, webhook = settings.injection, settings.webhook
    if injection.rules_file is not None:
        path = folder / injection.rules_file
        checks.append(partial(load_rules, path, _rule_context(settings)))
    client_ca = None
    if webhook.client_ca_file is not None:
        client_ca = folder / webhook.client_ca_file
    if webhook.certificate_file is not None and webhook.key_file is not None:
        pair = (folder / webhook.certificate_file, folder / webhook.key_file)
        checks.append(partial(check_pair, *pair, client_ca))
    elif client_ca is not None:
        checks.append(partial(make_context, client_ca))
    return checks
