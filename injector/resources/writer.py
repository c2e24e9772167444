"""Amounts and annotations written into a pod, with a note of what was filled in."""

import json
from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import Any, Final, TypeAlias

import msgspec

from injector.admitted_pod import FILLED_ANNOTATION
from injector.patch import member_of
from injector.resources.budget import Amount
from injector.resources.containers import (
    INIT,
    LIMITS,
    REGULAR,
    REQUESTS,
    ContainerAmounts,
    container_side,
    read_containers,
)
from injector.resources.fallen import BEFORE, FallenContainer
from injector.resources.limit_ranger import ORIGINALS, FilledIn
from injector.resources.pod_level import POD, PodLevel, show_derived
from injector.review import decode_pod
from scoring.quantity import shorten
from scoring.resources import CPU

# container -> `requests` or `limits` -> resource -> quantity
Filled: TypeAlias = dict[str, dict[str, dict[str, str]]]


def containers_of(pod: Mapping[str, Any]) -> list[Any]:
    """Return the containers and init containers of a pod as decoded from JSON."""
    spec = pod["spec"]
    return [*(spec.get(REGULAR) or ()), *(spec.get(INIT) or ())]


def have_own_names(containers: Sequence[Mapping[str, Any]]) -> bool:
    """Whether a note can tell the containers apart.

    The API server refuses the pod if not, but only once all webhooks have seen it.
    """
    names = [container.get("name") for container in containers]
    return all(names) and len(set(names)) == len(names)


def note_of(filled: Filled) -> str:
    """Return the value of the annotation."""
    return msgspec.json.encode(filled).decode()


def read_note(annotations: Mapping[str, str]) -> Filled:
    """Return what an earlier review filled in; nothing if that cannot be read."""
    text = annotations.get(FILLED_ANNOTATION)
    if not text:
        return {}
    try:
        return msgspec.json.decode(text, type=Filled)
    except (msgspec.DecodeError, UnicodeEncodeError):
        return {}


def still_filled(
    containers: Sequence[Mapping[str, Any]], annotations: Mapping[str, str]
) -> frozenset[tuple[str, str, str]]:
    """Return what an earlier review filled in and nobody has changed since.

    Parameters
    ----------
    containers : sequence of mapping
        As decoded from JSON.
    annotations : mapping
        Of the pod. A note that cannot be read says nothing.

    Returns
    -------
    frozenset of (str, str, str)
        Container name, ``requests`` or ``limits``, resource.
    """
    note = read_note(annotations)
    if not note or not have_own_names(containers):
        return frozenset()
    return frozenset(
        (name, side, resource)
        for container in containers
        for name in [container["name"]]
        for side, amounts in _asked(container).items()
        for resource, quantity in amounts.items()
        if quantity is not None
        # A quantity may be a number in a manifest.
        and note.get(name, {}).get(side, {}).get(resource) == str(quantity)
    )


def _asked(container: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Return what a container asks now, as `Filled` has it."""
    resources = container.get("resources") or {}
    return {side: resources.get(side) or {} for side in (REQUESTS, LIMITS)}


OVERWRITTEN: Final = "overwritten"

_SIDES: Final = (REQUESTS, LIMITS)


class PodWriter:
    """Changes one pod, a copy of our own, in place.

    Parameters
    ----------
    filled : frozenset of (str, str, str)
        Container, ``requests`` or ``limits``, resource of each value that nobody
        wrote: it counts as unset.
    is_keeping : bool
        Whether values that are set stay.

    Attributes
    ----------
    is_changed : bool
        Whether anything was written that was not there.
    """

    def __init__(
        self,
        pod: dict[str, Any],
        filled: frozenset[tuple[str, str, str]],
        *,
        is_keeping: bool,
    ) -> None:
        self._pod = pod
        self._filled = filled
        self._is_keeping = is_keeping
        self._overwritten: dict[str, str] = {}  # path -> value before
        self._replaced: dict[str, list[str]] = {}  # container -> what became of what
        self._noted: Filled = {}
        self.is_changed = False
        self.warnings: list[str] = []

    def is_open(self, container: ContainerAmounts, resource: str) -> bool:
        """Whether `fill` would write `resource` into `container`."""
        return not self._is_keeping or not self._is_set(container, REQUESTS, resource)

    def fill(self, container: ContainerAmounts, resource: str, amount: Amount) -> None:
        """Write `amount` as request and limit; under a limit that stays, as request."""
        text = amount.text
        if not self._is_keeping or not self._is_set(container, LIMITS, resource):
            self._note_replaced(container, resource, amount)
            self._fill_side(container, REQUESTS, resource, text)
            self._fill_side(container, LIMITS, resource, text)
            return
        limit = container.limits[resource]
        if amount.value > limit:
            kept = self._resources(container)[LIMITS][resource]
            self.warnings.append(
                f"container {shorten(container.name)}: {resource} {text} cut to the"
                f" limit {kept}; raise the limit to get more"
            )
            text = kept
        self._fill_side(container, REQUESTS, resource, text)

    def lower(self, value: FilledIn, amount: Fraction) -> None:
        """Write what is left of a request that LimitRanger filled in, and its limit.

        The note has what LimitRanger had set: a later review begins with that.
        """
        container, resource = value.container, value.resource
        originals = {REQUESTS: value.request, LIMITS: value.limit}
        is_lowered = amount < value.request
        for side, original in originals.items():
            if original is None:
                continue
            new = amount if is_lowered else original
            if container_side(container, side)[resource] != new:
                self._set(container, side, resource, show_derived(resource, new))
            if is_lowered:
                noted = self._noted.setdefault(container.name, {})
                text = self._resources(container)[side][resource]
                noted.setdefault(side, {})[resource] = str(text)
                noted.setdefault(ORIGINALS[side], {})[resource] = show_derived(
                    resource, original
                )
        if is_lowered:
            self.warnings.append(
                f"container {shorten(container.name)}: {resource}"
                f" {show_derived(resource, value.request)} from LimitRanger lowered to"
                f" {show_derived(resource, amount)}; set requests to choose"
            )

    def note_before(self, fallen: FallenContainer) -> None:
        """Note what a container asked before it fell."""
        noted = self._noted.setdefault(fallen.amounts.name, {})
        noted[BEFORE] = {source: str(count) for source, count in fallen.asked}

    def has_cpu_or_memory(self, container: ContainerAmounts) -> bool:
        """Whether a container asks what Kubernetes wants beside huge pages."""
        resources = self._pod["spec"][container.kind][container.index].get("resources")
        asked = {
            name for side in _SIDES for name in ((resources or {}).get(side) or {})
        }
        return not asked.isdisjoint((CPU, "memory"))

    def mirror(self, container: ContainerAmounts, resource: str) -> None:
        """Copy a value that only one of requests and limits has to the other."""
        resources = self._resources(container)
        for side, other in (_SIDES, _SIDES[::-1]):
            if resource in container_side(container, other):
                value = resources[other][resource]
                if resource not in container_side(container, side):
                    self._set(container, side, resource, value)

    def annotate(self, annotations: Mapping[str, str]) -> None:
        """Set annotations of the pod."""
        if not annotations:
            return
        metadata = member_of(self._pod, "metadata")
        current = member_of(metadata, "annotations")
        for key, value in annotations.items():
            before = current.get(key)
            if before == value or (self._is_keeping and before is not None):
                continue
            if before is not None:
                self._overwritten[f"annotations[{key}]"] = before
                self.warnings.append(f"annotation {key} was replaced")
            current[key] = value
            self.is_changed = True

    def derive_pod_level(self, before: PodLevel) -> None:
        """Have what the API server derived for the pod follow what is now asked.

        It derives what is missing and keeps what stands. A later review must know that
        nobody wrote either.
        """
        if not (before.requests or before.limits):
            return
        containers = read_containers(decode_pod(self._pod))
        own = member_of(self._pod["spec"], "resources")
        old = {REQUESTS: before.requests, LIMITS: before.limits}
        for side, amounts in before.derived_from(containers).items():
            for name, amount in amounts.items():
                text = show_derived(name, amount)
                if name in old[side]:
                    if old[side][name] == amount:
                        text = str(own[side][name])
                    else:
                        own[side][name] = text
                        self.is_changed = True
                self._noted.setdefault(POD, {}).setdefault(side, {})[name] = text

    def note_filled(self) -> None:
        """Note on the pod what was filled in, where what is set is kept."""
        if not self._noted or not have_own_names(containers_of(self._pod)):
            return
        annotations = member_of(member_of(self._pod, "metadata"), "annotations")
        note = note_of(self._noted)
        if annotations.get(FILLED_ANNOTATION) != note:
            annotations[FILLED_ANNOTATION] = note
            self.is_changed = True

    def replaced_warnings(self, gpu_type: str) -> list[str]:
        """Return one warning for each container whose values were replaced."""
        return [
            f"container {shorten(name)}: {', '.join(changes)} for GPU type"
            f" {shorten(gpu_type)}"
            for name, changes in self._replaced.items()
        ]

    def audit(self) -> dict[str, str]:
        """Return the values that were overwritten, as an audit annotation."""
        if not self._overwritten:
            return {}
        text = json.dumps(self._overwritten, sort_keys=True, separators=(",", ":"))
        return {OVERWRITTEN: text}

    def _is_set(self, container: ContainerAmounts, side: str, resource: str) -> bool:
        """Whether somebody wrote this value."""
        return (
            resource in container_side(container, side)
            and (container.name, side, resource) not in self._filled
        )

    def _note_replaced(
        self, container: ContainerAmounts, resource: str, amount: Amount
    ) -> None:
        """Keep what `amount` replaces, where somebody wrote another value."""
        before = {}
        for side in _SIDES:
            old = container_side(container, side).get(resource)
            if old is None or old == amount.value:
                continue
            if self._is_set(container, side, resource):
                value = str(self._resources(container)[side][resource])
                before[side.removesuffix("s")] = value
                path = f"{container.kind}[{container.name}].{side}.{resource}"
                self._overwritten[path] = value
        if not before:
            return
        values = sorted(set(before.values()))
        old_values = (
            values[0]
            if len(values) == 1
            else " and ".join(f"{side} {value}" for side, value in before.items())
        )
        change = f"{resource} {old_values} replaced by {amount.text}"
        self._replaced.setdefault(container.name, []).append(change)

    def _fill_side(
        self, container: ContainerAmounts, side: str, resource: str, value: Any
    ) -> None:
        """Write one value that nobody asked for."""
        self._set(container, side, resource, value)
        if self._is_keeping:
            noted = self._noted.setdefault(container.name, {})
            noted.setdefault(side, {})[resource] = str(value)

    def _set(
        self, container: ContainerAmounts, side: str, resource: str, value: Any
    ) -> None:
        """Write one value."""
        amounts = member_of(self._resources(container), side)
        if resource not in amounts or amounts[resource] != value:
            amounts[resource] = value
            self.is_changed = True

    def _resources(self, container: ContainerAmounts) -> dict[str, Any]:
        """Return the ``resources`` of a container, made if there are none."""
        return member_of(
            self._pod["spec"][container.kind][container.index], "resources"
        )
