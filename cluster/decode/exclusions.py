"""What a pod keeps others from, read of a spec that nobody has checked."""

from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from typing import Any, Final

from cluster.decode.objects import Pod, PodSpec
from scoring.exclusions import (
    ANY_ADDRESS,
    Exclusions,
    HostPort,
    LabelCondition,
    RepelledPods,
)

_REQUIRED: Final = "requiredDuringSchedulingIgnoredDuringExecution"

# Of one pod, of one term and of one condition: pods of a cluster are kept by the
# hundred thousand.
_MAX_PORTS: Final = 64

_MAX_TERMS: Final = 16

_MAX_CONDITIONS: Final = 32

_MAX_VALUES: Final = 64

_MAX_PORT: Final = 65535


class _UnreadableError(ValueError):
    """A term that is not as Kubernetes writes one, or has more than is kept."""


def read_exclusions(pod: Pod) -> Exclusions | None:
    """Return what a pod keeps others from; None for nothing. Equal ones are shared."""
    ports = tuple(_ports_of(pod.spec))
    affinity = pod.spec.affinity
    given = affinity.pod_anti_affinity if affinity is not None else None
    if not ports and not given:  # PERF: which most pods have not
        return None
    terms = given.get(_REQUIRED) if isinstance(given, dict) else None
    found: list[RepelledPods] = []
    is_whole = True
    for term in _listed(terms):
        try:
            found.append(_repelled(term, pod.metadata.namespace or "default"))
        except _UnreadableError:
            is_whole = False
    is_whole &= len(found) <= _MAX_TERMS and len(ports) <= _MAX_PORTS
    if not ports and not found and is_whole:
        return None
    return _shared(Exclusions(ports[:_MAX_PORTS], tuple(found[:_MAX_TERMS]), is_whole))


@lru_cache(maxsize=8192)
def _shared(exclusions: Exclusions) -> Exclusions:
    return exclusions


def _listed(items: object) -> list[Any]:
    return items if isinstance(items, list) else []


def _ports_of(spec: PodSpec) -> Iterator[HostPort]:
    """Yield the host ports of all that runs until the pod ends.

    On the host's network, each port is one of the host.
    """
    sidecars = (c for c in spec.init_containers or () if c.restart_policy == "Always")
    for container in (*sidecars, *(spec.containers or ())):
        for port in _listed(container.ports) if container.ports else ():
            if not isinstance(port, dict):
                continue
            number = port.get("hostPort")
            if not number and spec.host_network is True:
                number = port.get("containerPort")
            if isinstance(number, int) and 0 < number <= _MAX_PORT:
                yield HostPort(
                    int(number),
                    _text(port.get("protocol")) or "TCP",
                    _text(port.get("hostIP")) or ANY_ADDRESS,
                )


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""


def _repelled(term: Any, namespace: str) -> RepelledPods:
    """Return one term of required anti-affinity; raise `_UnreadableError`."""
    if not isinstance(term, dict) or not _text(term.get("topologyKey")):
        raise _UnreadableError
    named = _texts(term.get("namespaces"))
    further = _conditions(term.get("namespaceSelector"))
    return RepelledPods(
        _text(term["topologyKey"]),
        (namespace,) if not named and further is None else named,
        further,
        _conditions(term.get("labelSelector")),
    )


def _conditions(selector: Any) -> tuple[LabelCondition, ...] | None:
    """Return the requirements of a label selector; None where there is none."""
    if selector is None:
        return None
    if not isinstance(selector, dict):
        raise _UnreadableError
    labels = selector.get("matchLabels") or {}
    if not isinstance(labels, Mapping):
        raise _UnreadableError
    found = [
        LabelCondition(key, "In", _texts([value])) for key, value in labels.items()
    ]
    for item in _listed(selector.get("matchExpressions")):
        if not isinstance(item, dict):
            raise _UnreadableError
        key, operator = _text(item.get("key")), _text(item.get("operator"))
        found.append(LabelCondition(key, operator, _texts(item.get("values"))))
    if len(found) > _MAX_CONDITIONS:
        raise _UnreadableError
    return tuple(found)


def _texts(values: Iterable[object] | None) -> tuple[str, ...]:
    """Return texts; raise `_UnreadableError` for anything else, and for many."""
    given = _listed(values)
    texts = tuple(value for value in given if isinstance(value, str))
    if len(texts) != len(given) or len(texts) > _MAX_VALUES:
        raise _UnreadableError
    return texts
