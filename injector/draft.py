"""A copy of a pod for the steps of the webhook to change."""

from collections.abc import Callable
from typing import Any

from injector.review import copy_of


def draft_of(pod: dict[str, Any]) -> dict[str, Any]:
    """Return a copy of a pod that shares with it what no step changes.

    A draft has its own metadata and annotations, and of the spec its own affinity,
    tolerations and resources of containers.

    Parameters
    ----------
    pod : dict
        One that `read_pod` takes.

    Notes
    -----
    PERF: what is shared is neither copied nor compared for the patch;
    `bench/test_reviews.py`.
    """
    return _copied(pod, metadata=_draft_metadata, spec=_draft_spec)


def _draft_metadata(metadata: dict[str, Any]) -> dict[str, Any]:
    return _copied(metadata, annotations=dict)


def _draft_spec(spec: dict[str, Any]) -> dict[str, Any]:
    return _copied(
        spec,
        containers=_draft_containers,
        initContainers=_draft_containers,
        affinity=copy_of,
        tolerations=list,
    )


def _draft_containers(containers: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [_copied(container, resources=_draft_resources) for container in containers]


def _draft_resources(resources: dict[str, Any]) -> dict[str, Any]:
    return _copied(resources, requests=dict, limits=dict)


def _copied(parent: dict[str, Any], **copies: Callable[[Any], Any]) -> dict[str, Any]:
    """Return a copy of an object, with copies of those members that are named."""
    copied = dict(parent)
    for key, copy in copies.items():
        if parent.get(key) is not None:
            copied[key] = copy(parent[key])
    return copied
