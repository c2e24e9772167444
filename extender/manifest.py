"""Pods in manifests: bare ones and templates, and what of them is not modelled."""

from collections.abc import Iterator, Mapping
from typing import Any, Final

from cluster.decode import Fault
from extender.wire import WireError
from scoring.resources import shorten

# kind -> where its pods' template is
TEMPLATES: Final[Mapping[str, tuple[str, ...]]] = {
    "CronJob": ("spec", "jobTemplate", "spec", "template"),
    "PodTemplate": ("template",),
    **dict.fromkeys(
        ("DaemonSet", "Deployment", "Job", "ReplicaSet", "ReplicationController"),
        ("spec", "template"),
    ),
    "StatefulSet": ("spec", "template"),
}


def pod_in(tree: Any) -> tuple[dict[str, Any], str, str]:
    """Return the pod in a tree, the path to it, and what is to be said of it."""
    if not isinstance(tree, dict):
        raise WireError([Fault("object", f"wanted a Pod, got {shorten(tree)}")])
    kind = tree.get("kind", "Pod")
    if kind == "Pod":
        return tree, "", ""
    steps = TEMPLATES.get(kind) if isinstance(kind, str) else None
    if steps is None:
        wanted = ", ".join(sorted(TEMPLATES))
        said = f"wanted Pod or one of {wanted}, got {shorten(kind)}"
        raise WireError([Fault("kind", said)])
    found: Any = tree
    for place, step in enumerate(steps, 1):
        found = found.get(step)
        if not isinstance(found, dict):
            path = ".".join(steps[:place])
            raise WireError([Fault(path, f"wanted an object, got {shorten(found)}")])
    # Pods of a template are named by their controller.
    owner = tree.get("metadata")
    inherited = {
        key: owner[key]
        for key in ("name", "namespace")
        if isinstance(owner, dict) and key in owner
    }
    meta = found.get("metadata")
    if meta is None or isinstance(meta, dict):
        found = {**found, "metadata": {**inherited, **(meta or {})}}
    name = shorten(inherited.get("name", ""))
    return (
        found,
        ".".join(steps) + ".",
        f"The pod is the template of the {kind} {name}.",
    )


def list_not_modelled(spec: Any) -> Iterator[str]:
    """Yield what a pod's spec says to kube-scheduler that nobody looks at here."""
    if not isinstance(spec, dict):
        return
    if spec.get("topologySpreadConstraints"):
        yield "topology spread"
    affinity = spec.get("affinity")
    if isinstance(affinity, dict) and (
        affinity.get("podAffinity") or affinity.get("podAntiAffinity")
    ):
        yield "pod affinity"
    volumes = spec.get("volumes")
    if any(
        isinstance(volume, dict)
        and (volume.get("persistentVolumeClaim") or volume.get("ephemeral"))
        for volume in (volumes if isinstance(volumes, list) else [])
    ):
        yield "volumes"
    if any(map(_has_host_port, _containers(spec))):
        yield "host ports"
    if spec.get("resourceClaims"):
        yield "resource claims"


def _containers(spec: Mapping[str, Any]) -> Iterator[Any]:
    """Yield the containers of a spec, whatever they are."""
    for key in ("containers", "initContainers"):
        found = spec.get(key)
        yield from found if isinstance(found, list) else []


def _has_host_port(container: Any) -> bool:
    """Say whether a container asks for a port of its node."""
    ports = container.get("ports") if isinstance(container, dict) else None
    return isinstance(ports, list) and any(
        isinstance(port, dict) and port.get("hostPort") for port in ports
    )
