"""Fill a KubeSchedulerConfiguration in for a run."""

import copy
import urllib.parse
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import yaml

from tests.e2e.harness.builders import JsonObject

PLAIN: Final[Mapping[str, Any]] = {
    "apiVersion": "kubescheduler.config.k8s.io/v1",
    "kind": "KubeSchedulerConfiguration",
}


def fill_in(
    template: Mapping[str, Any] | str,
    *,
    kubeconfig: Path,
    extender_url: str | None = None,
) -> JsonObject:
    """Return a configuration for this run from a template, a mapping or YAML text.

    `extender_url` replaces scheme, host and port of each extender's `urlPrefix`; the
    template's path stays, unless the URL has one itself.
    """
    loaded = yaml.safe_load(template) if isinstance(template, str) else template
    config: JsonObject = copy.deepcopy(dict(loaded))
    connection = config.setdefault("clientConnection", {})
    connection["kubeconfig"] = str(kubeconfig)
    # Nobody competes for the lease, and waiting for it would cost each start seconds.
    config.setdefault("leaderElection", {})["leaderElect"] = False
    if extender_url is not None:
        for extender in config.get("extenders", ()):
            extender["urlPrefix"] = _moved(extender.get("urlPrefix", ""), extender_url)
    return config


def with_extender(text: str, **fields: Any) -> JsonObject:
    """Return a configuration from YAML with fields of its one extender replaced.

    A field whose value is None is left out.
    """
    config: JsonObject = yaml.safe_load(text)
    (extender,) = config["extenders"]
    changed = {**extender, **fields}
    kept = {key: value for key, value in changed.items() if value is not None}
    return {**config, "extenders": [kept]}


def write(config: Mapping[str, Any], path: Path) -> Path:
    """Write a configuration for `kube-scheduler --config`."""
    path.write_text(yaml.safe_dump(dict(config), sort_keys=False))
    return path


def _moved(prefix: str, url: str) -> str:
    wanted, present = urllib.parse.urlsplit(url), urllib.parse.urlsplit(prefix)
    path = wanted.path.rstrip("/") or present.path
    return urllib.parse.urlunsplit((wanted.scheme, wanted.netloc, path, "", ""))
