"""Injection of one pod in exact fractions, from its page: values that are set are
overwritten, and nothing is set for the pod as a whole."""

import copy
from collections.abc import Mapping
from fractions import Fraction
from math import floor
from typing import Any, Final

from tests.oracles.pods import Tree, asked_by
from tests.oracles.quantities import exact

TRIGGER: Final = "task.bkbcs.tencent.com/gpu-type"
# resource -> what it is handed out in, and the least that a container must get
STANDARD: Final = {
    "cpu": (Fraction(1, 1000), Fraction(1, 1000)),
    "memory": (Fraction(1), Fraction(4096)),
    "ephemeral-storage": (Fraction(1), Fraction(4096)),
}
_MILLIONTH: Final = 10**6
_UNITS: Final = ("requests", "limits")


def inject(rules: Mapping[str, Any], pod: Tree, namespace: str) -> Tree | None:
    """Return the pod with fractions in place of quantities; None for a refusal."""
    plain = _plain(pod)
    by_resource = _rules_of(rules, pod, namespace)
    running = _running(plain)
    asked = sorted(
        resource for resource in by_resource if any(_gpus(c, resource) for c in running)
    )
    if len(asked) > 1:
        return None
    if not asked:
        return plain
    gpu, rule = asked[0], by_resource[asked[0]]
    users = [container for container in running if _gpus(container, gpu)]
    if any(_is_refused_by_kubernetes(container, gpu, rule) for container in users):
        return plain
    given = _given(rule, gpu, users, running)
    if given is None:
        return None
    mirrored = [gpu, *(name for name, _ in given if name not in STANDARD)]
    for container in users:
        _mirror(container, mirrored)
    for name, shares in given:
        for container, share in zip(users, shares, strict=True):
            if share:
                _set(container, name, share)
    annotations = rule.get("annotations") or {}
    plain["metadata"].setdefault("annotations", {}).update(annotations)
    return plain


def _given(
    rule: Mapping[str, Any], gpu: str, users: list[Tree], running: list[Tree]
) -> list[tuple[str, list[Fraction]]] | None:
    """Return what each container with GPUs gets, by resource; None for a refusal."""
    given = []
    for entry in rule["resourceList"]:
        name, per_gpu = entry["name"], _coefficient(entry)
        shares: list[Fraction] | None = [
            Fraction(floor(_rounded(per_gpu * _gpus(container, gpu))))
            for container in users
        ]
        if name in STANDARD:
            shares = _shares(name, per_gpu, gpu, users, running)
        if shares is None:
            return None
        given.append((name, shares))
    return given


def _rules_of(
    rules: Mapping[str, Any], pod: Tree, namespace: str
) -> Mapping[str, Mapping[str, Any]]:
    """Return the rules of the pod's type by GPU resource."""
    gpu_type = (pod["metadata"].get("annotations") or {}).get(TRIGGER)
    if gpu_type is None or namespace in rules.get("namespaceWhiteList", ()):
        return {}
    own = rules.get("namespaceResourceMap", {}).get(namespace, {})
    return {
        **rules.get("resourceMap", {}).get(gpu_type, {}),
        **own.get(gpu_type, {}),
    }


def _plain(pod: Tree) -> Tree:
    """Return a copy with exact fractions in place of containers' quantities."""
    plain = copy.deepcopy(pod)
    for key in ("containers", "initContainers"):
        for container in plain["spec"].get(key, ()):
            resources = container.get("resources") or {}
            for side in _UNITS:
                if resources.get(side):
                    resources[side] = {
                        name: exact(quantity)
                        for name, quantity in resources[side].items()
                    }
    return plain


def as_fractions(pod: Tree) -> Tree:
    """Return a pod as `inject` returns it."""
    return _plain(pod)


def _running(pod: Tree) -> list[Tree]:
    """Return what runs side by side: containers, then sidecars."""
    spec = pod["spec"]
    sidecars = [
        container
        for container in spec.get("initContainers", ())
        if container.get("restartPolicy") == "Always"
    ]
    return [*spec["containers"], *sidecars]


def _gpus(container: Tree, resource: str) -> Fraction:
    """Return how many GPUs a container has: its limit, else its request."""
    resources = container.get("resources") or {}
    for side in ("limits", "requests"):
        if resource in (resources.get(side) or {}):
            return exact(resources[side][resource])
    return Fraction(0)


def _is_refused_by_kubernetes(
    container: Tree, gpu: str, rule: Mapping[str, Any]
) -> bool:
    """Return whether the API server will not take what the container asks anyway."""
    requests = container["resources"].get("requests") or {}
    limits = container["resources"].get("limits") or {}
    for name in (gpu, *(entry["name"] for entry in rule["resourceList"])):
        said = [amounts[name] for amounts in (requests, limits) if name in amounts]
        if name in STANDARD:
            if len(said) == 2 and said[0] > said[1]:
                return True
        elif len(set(said)) > 1 or any(amount.denominator > 1 for amount in said):
            return True
    return False


def _coefficient(entry: Mapping[str, Any]) -> Fraction:
    return Fraction(str(entry["coefficient"])) * exact(f"1{entry.get('unit', '')}")


def _rounded(amount: Fraction) -> Fraction:
    """Return an amount in base units, to a millionth of one."""
    return Fraction(round(amount * _MILLIONTH), _MILLIONTH)


def _shares(
    name: str, per_gpu: Fraction, gpu: str, users: list[Tree], running: list[Tree]
) -> list[Fraction] | None:
    """Return what each container with GPUs gets; None where the budget is short."""
    unit, least = STANDARD[name]
    counts = [_gpus(container, gpu) for container in users]
    budget = floor(_rounded(per_gpu * sum(counts) / unit)) * unit
    others = sum(
        (
            asked_by(container).get(name, Fraction(0))
            for container in running
            if not _gpus(container, gpu)
        ),
        Fraction(0),
    )
    pieces = floor((budget - others) / unit)
    if pieces <= 0:
        return None
    exact_shares = [pieces * count / sum(counts) for count in counts]
    whole = [floor(share) for share in exact_shares]
    by_fraction = sorted(
        range(len(users)), key=lambda i: (whole[i] - exact_shares[i], i)
    )
    for index in by_fraction[: pieces - sum(whole)]:
        whole[index] += 1
    shares = [pieces * unit for pieces in whole]
    return None if min(shares) < least else shares


def _mirror(container: Tree, names: list[str]) -> None:
    """Give requests and limits what the other one says of some resources."""
    resources = container["resources"]
    for name in names:
        for side, other in (_UNITS, _UNITS[::-1]):
            if name in (resources.get(other) or {}):
                if not resources.get(side):
                    resources[side] = {}
                resources[side].setdefault(name, resources[other][name])


def _set(container: Tree, name: str, amount: Fraction) -> None:
    for side in _UNITS:
        if not container["resources"].get(side):
            container["resources"][side] = {}
        container["resources"][side][name] = amount
