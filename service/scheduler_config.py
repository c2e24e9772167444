"""``gpu-extender scheduler-config``: a KubeSchedulerConfiguration for one cluster."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final

import yaml

from scoring.resources import ResourceScope
from scoring.snapshot import Snapshot

WEIGHT: Final = 10
HTTP_TIMEOUT: Final = "1s"
HEADER: Final = """\
# What kube-scheduler must know of gpu-extender, written by `gpu-extender
# scheduler-config` from what the nodes offer. kube-scheduler takes exact names only,
# and sends us no pod that asks for none of them: write it anew when one appears.
"""


@dataclass(frozen=True, slots=True)
class SchedulerOptions:
    """What the command line says.

    Attributes
    ----------
    scheduler_name : str
    url_prefix : str
        Where the verbs are served.
    kubeconfig : str or None
        Path of kube-scheduler's kubeconfig; None for a pod with a service account.
    """

    scheduler_name: str
    url_prefix: str
    kubeconfig: str | None = None


def managed_resources(
    snapshot: Snapshot, scope: ResourceScope, chained: Iterable[str]
) -> list[str]:
    """Return the extended resources whose pods kube-scheduler is to send.

    Those that nodes offer, DeviceClasses carry, pods hold, the settings name exactly,
    and the fallback chains lead to.
    """
    named = {name for name in scope.gpu_resources if not name.endswith("*")}
    candidates = {*snapshot.resources, *snapshot.device_class_resources}
    return sorted(
        named | set(chained) | {name for name in candidates if scope.is_managed(name)}
    )


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
    return {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "clientConnection": connection,
        "profiles": [{"schedulerName": options.scheduler_name}],
        "extenders": [
            {
                "urlPrefix": options.url_prefix,
                "filterVerb": "filter",
                "prioritizeVerb": "prioritize",
                "preemptVerb": "preempt",
                "weight": WEIGHT,
                "httpTimeout": HTTP_TIMEOUT,
                "nodeCacheCapable": True,
                "ignorable": False,
                "managedResources": [
                    {"name": name, "ignoredByScheduler": False} for name in resources
                ],
            }
        ],
    }


def render_scheduler_config(config: dict[str, Any]) -> str:
    """Return the configuration as YAML."""
    return HEADER + yaml.safe_dump(config, sort_keys=False)
