"""``gpu-extender scheduler-config``: a KubeSchedulerConfiguration for one cluster."""

import sys
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import yaml

from service.commands.inputs import EXIT_FAULTY_INPUT, read_cluster
from service.doctor.scheduler import managed_resources
from service.settings.settings import read_settings

# Priority of the best node times our weight, as far as that can be: 10 times 10 by
# kube-scheduler's contract.
FULL_SCORE: Final = 100

MAX_WEIGHT: Final = 10

HEADER: Final = """\
# What kube-scheduler must know of gpu-extender, written by `gpu-extender
# scheduler-config` from what the nodes offer. kube-scheduler takes exact names only,
# and sends us no pod that asks for none of them: write it anew when one appears.
"""

HEADER_FOR_ALL: Final = """\
# What kube-scheduler must know of gpu-extender, written by `gpu-extender
# scheduler-config`. It sends us all pods: while we are away it places none, our own
# pods neither.
"""

# Score plugins that draw pods to the emptiest nodes.
SPREADING_PLUGINS: Final = ("NodeResourcesFit", "NodeResourcesBalancedAllocation")

NO_KUBECONFIG: Final = """\
# A kube-scheduler that is not a pod with a service account needs the path of its own
# kubeconfig in `clientConnection.kubeconfig` (`--scheduler-kubeconfig`): with --config,
# its option --kubeconfig counts no more.
"""


@dataclass(frozen=True, slots=True)
class SchedulerOptions:
    """Options of the command line and the settings.

    Attributes
    ----------
    url_prefix : str
        Where the verbs are served.
    kubeconfig : str or None
        Path of kube-scheduler's kubeconfig; None for a pod with a service account.
    timeout_seconds : int
        When kube-scheduler gives a call up.
    is_packing : bool
        Whether our scores fill nodes: its own score plugins that spread are then off.
    sends_all : bool
        Whether pods that ask for no GPU are sent, too.
    """

    scheduler_name: str
    url_prefix: str
    kubeconfig: str | None
    weight: int
    timeout_seconds: int
    is_packing: bool = False
    sends_all: bool = False


def print_scheduler_config(
    config: Path,
    scheduler_name: str,
    url_prefix: str | None,
    kubeconfig: str | None,
    *,
    sends_all: bool = False,
) -> int:
    """Print a KubeSchedulerConfiguration that fits the cluster.

    Without a prefix, kube-scheduler is to call where we listen.
    """
    try:
        settings = read_settings(config)
        snapshot = read_cluster(settings, config)
    except ValueError as error:
        sys.stderr.write(f"{error}\n")
        return EXIT_FAULTY_INPUT
    chained = (name for chain in settings.fallback.chains for name in chain)
    resources = managed_resources(snapshot, settings.scope(), chained)
    options = SchedulerOptions(
        scheduler_name,
        url_prefix or f"{settings.server.url()}/scheduler",
        kubeconfig,
        weight=weight_for(settings.scoring.max_score),
        timeout_seconds=timeout_for(settings.extender.deadline_milliseconds),
        is_packing=settings.scoring.is_packing,
        sends_all=sends_all,
    )
    sys.stdout.write(
        render_scheduler_config(build_scheduler_config(resources, options))
    )
    return 0


def weight_for(max_score: int) -> int:
    """Return the weight with which the best node is worth the same as ever.

    >>> [weight_for(max_score) for max_score in (1, 10, 20, 30, 100)]
    [10, 10, 5, 3, 1]
    """
    return min(MAX_WEIGHT, max(1, FULL_SCORE // max_score))


def timeout_for(deadline_milliseconds: int) -> int:
    """Return the smallest number of whole seconds above our own deadline.

    >>> [timeout_for(deadline) for deadline in (10, 800, 999, 1000, 2500)]
    [1, 1, 1, 2, 3]
    """
    return deadline_milliseconds // 1000 + 1


def build_scheduler_config(
    resources: Iterable[str], options: SchedulerOptions
) -> dict[str, Any]:
    """Return the configuration as plain values.

    `ignorable` is false: were it true, a pod would be bound without us while we are
    away. `ignoredByScheduler` is false: kube-scheduler counts with assumed pods that
    nobody else can see yet.
    """
    # The default of 50 calls a second is what would limit the scheduler.
    connection: dict[str, Any] = {"qps": 1000, "burst": 2000}
    if options.kubeconfig is not None:
        # With --config, kube-scheduler takes no notice of its option --kubeconfig.
        connection["kubeconfig"] = options.kubeconfig
    profile: dict[str, Any] = {"schedulerName": options.scheduler_name}
    if options.is_packing:
        disabled = [{"name": name} for name in SPREADING_PLUGINS]
        profile["plugins"] = {"score": {"disabled": disabled}}
    extender: dict[str, Any] = {
        "urlPrefix": options.url_prefix,
        "filterVerb": "filter",
        "prioritizeVerb": "prioritize",
        "preemptVerb": "preempt",
        "weight": options.weight,
        "httpTimeout": f"{options.timeout_seconds}s",
        "nodeCacheCapable": True,
        "ignorable": False,
    }
    if not options.sends_all:
        extender["managedResources"] = [
            {"name": name, "ignoredByScheduler": False} for name in resources
        ]
    return {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "clientConnection": connection,
        "profiles": [profile],
        "extenders": [extender],
    }


def render_scheduler_config(config: dict[str, Any]) -> str:
    """Return the configuration as YAML."""
    is_limited = "managedResources" in config["extenders"][0]
    header = HEADER if is_limited else HEADER_FOR_ALL
    note = "" if "kubeconfig" in config["clientConnection"] else NO_KUBECONFIG
    return header + note + yaml.safe_dump(config, sort_keys=False)
