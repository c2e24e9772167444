"""The chart, rendered by both Helms."""

import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import yaml

from service.settings.settings import Settings, read_settings
from tests.e2e import build

ROOT: Final = Path(__file__).parents[2]
CHART: Final = ROOT / "deploy" / "chart"
HELMS: Final = tuple(build.HELMS)
NAMESPACE: Final = "gpu-extender"
HOOK: Final = "helm.sh/hook"
IMAGE: Final = {"image": {"repository": "registry.example/gpu-extender"}}

# Values of each mode, and of each source of the certificate.
MODES: Final[Mapping[str, Mapping[str, Any]]] = {
    "own scheduler": {},
    "existing scheduler": {"scheduler": {"enabled": False}},
    "cert-manager": {
        "certManager": {"enabled": True},
        "webhook": {"selfSigned": {"enabled": False}},
    },
    "rendered registration": {
        "webhook": {
            "registration": "rendered",
            "selfSigned": {"enabled": False},
            "existingSecret": "pair",
            "caBundle": "PEM",
        },
    },
    "existing scheduler without webhook": {
        "scheduler": {"enabled": False},
        "webhook": {"enabled": False},
    },
    "own scheduler on the nodes' network": {"hostNetwork": True},
    "scheduler name policy": {"schedulerNamePolicy": {"enabled": True}},
    "own scheduler without webhook": {
        "webhook": {"enabled": False},
        "schedulerNamePolicy": {"enabled": True},
    },
    "everything": {
        "certManager": {"enabled": True, "issuerRef": {"name": "ours"}},
        "webhook": {"registration": "rendered", "selfSigned": {"enabled": False}},
        "config": {"fallback": {"chains": [["nvidia.com/mig-9g.1gb", "amd.com/gpu"]]}},
        "rules": {"resourceMap": {"T4": {"nvidia.com/gpu": {"cpu": "4"}}}},
        "networkPolicy": {"enabled": True},
        "metrics": {
            "podMonitor": {"enabled": True, "labels": {"release": "prometheus"}},
            "prometheusRule": {"enabled": True},
        },
        "grafana": {"enabled": True},
        "commonLabels": {"team": "gpu"},
        "imagePullSecrets": [{"name": "pull"}],
        "global": {"imageRegistry": "mirror.example"},
        "nodeSelector": {"pool": "system"},
        "tolerations": [{"operator": "Exists"}],
        "extraEnv": [{"name": "TZ", "value": "UTC"}],
    },
}

# Modes that older minors have no objects for -> the oldest one that has.
OLDEST_MINORS: Final[Mapping[str, str]] = {
    "scheduler name policy": "1.36",
    "own scheduler without webhook": "1.36",
}


class HelmError(RuntimeError):
    """What Helm said when it refused."""


def command(name: str) -> Path:
    """Return the path of kubectl, of a Helm or of promtool."""
    return build.locate(build.DEFAULT_MINOR, [name])[name]


def run(name: str, *arguments: str | Path, text: str = "") -> str:
    """Return what a tool prints; raise `HelmError` with what it says instead."""
    done = subprocess.run(  # noqa: S603  tools that we built
        [command(name), *arguments],
        input=text,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        raise HelmError(done.stderr + done.stdout)
    return done.stdout


def merged(*trees: Mapping[str, Any]) -> dict[str, Any]:
    """Return values with those of later trees put into earlier ones."""
    result: dict[str, Any] = {}
    for tree in trees:
        for key, value in tree.items():
            old = result.get(key)
            is_both = isinstance(old, dict) and isinstance(value, Mapping)
            result[key] = merged(old, value) if is_both and old is not None else value
    return result


def render(
    helm: str,
    values: Mapping[str, Any],
    *,
    kubernetes: str = "1.36.3",
    namespace: str = NAMESPACE,
) -> list[dict[str, Any]]:
    """Return the objects that are installed, in the order of their names."""
    return [
        item
        for item in render_with_hooks(
            helm, values, kubernetes=kubernetes, namespace=namespace
        )
        if item["metadata"].get("annotations", {}).get(HOOK) != "pre-delete"
    ]


def render_with_hooks(
    helm: str,
    values: Mapping[str, Any],
    *,
    kubernetes: str = "1.36.3",
    namespace: str = NAMESPACE,
) -> list[dict[str, Any]]:
    """Return those of an uninstall, too, in the order of their names."""
    text = run(
        helm,
        *("template", "gpu-extender", CHART, "--namespace", namespace),
        *("--kube-version", kubernetes, "--values", "-"),
        text=yaml.safe_dump(merged(IMAGE, values)),
    )
    objects = (item for item in yaml.safe_load_all(text) if item)
    return sorted(objects, key=lambda item: (item["kind"], item["metadata"]["name"]))


def find(objects: list[dict[str, Any]], kind: str, name: str = "") -> dict[str, Any]:
    """Return the one object of a kind, or of a name that begins so."""
    (found,) = (
        item
        for item in objects
        if item["kind"] == kind and item["metadata"]["name"].startswith(name)
    )
    return found


def settings_of(objects: list[dict[str, Any]], folder: Path) -> Settings:
    """Return the configuration as the process reads it."""
    file = folder / "config.yaml"
    config = find(objects, "ConfigMap", "gpu-extender-config-")
    file.write_text(config["data"]["config.yaml"])
    return read_settings(file)
