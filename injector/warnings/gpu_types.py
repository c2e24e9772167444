"""Warnings for pods whose choice of a GPU type has no effect, or stops them."""

from dataclasses import dataclass

from cluster.decode.gpu_requirements import GpuRequirementsReader
from cluster.ledger.writer import NotSyncedError, SnapshotSource
from injector.admitted_pod import AdmittedPod
from injector.rules.rules import Rules
from scoring.gpu.models import GpuTable, normal_name
from scoring.gpu.requirements import GpuRequirementsError, near_names, separated
from scoring.quantity import shorten
from scoring.resources import ResourceScope


@dataclass(frozen=True, slots=True)
class GpuTypeCheck:
    """Warns at once of what would else be seen when the pod is to be scheduled.

    It never refuses: rule keys are free, and a node may come whose label says just
    what the pod asks for.
    """

    gpu_reader: GpuRequirementsReader
    scope: ResourceScope
    source: SnapshotSource

    def apply(self, pod: AdmittedPod) -> tuple[str, ...]:
        """Return the warnings; change nothing."""
        if not any(map(self.scope.is_managed, pod.asked_resources())):
            return ()
        annotations = pod.annotations
        try:
            unknown = self.gpu_reader.unknown_types(annotations)
        except GpuRequirementsError as error:
            return tuple(
                f"the pod will not be scheduled: annotation {fault}"
                for fault in error.faults
            )
        warnings = tuple(
            unknown_type(self.gpu_reader, name)
            for name in unknown
            if not self._is_on_a_node(name)
        )
        key = self.gpu_reader.unknown_rule_key(annotations)
        if not key:
            return warnings
        name = self.gpu_reader.annotations.rule_key
        fault = "is no known GPU model: only rules go by it, nodes by"
        wanted = self.gpu_reader.annotations.gpu_type
        return (*warnings, f"annotation {name}: {shorten(key)} {fault} {wanted}")

    def _is_on_a_node(self, name: str) -> bool:
        """Whether some node has GPUs of that name, known or not."""
        try:
            kinds = self.source.current().gpus.kinds
        except NotSyncedError:
            return False
        normal = normal_name(name)
        return any(normal in gpus.names for gpus in kinds)


def unknown_type(gpu_reader: GpuRequirementsReader, name: str) -> str:
    """Return the warning of a type that is no known model or family."""
    said = unknown_name(gpu_reader.table, name)
    return f"annotation {gpu_reader.annotations.gpu_type}: {said}"


def unknown_name(table: GpuTable, name: str) -> str:
    """Return what is to be said of a name that is no known model or family."""
    return (
        f"{shorten(name)} is no known GPU model, only nodes labelled so match"
        f"{_hint(table, name)}"
    )


def _hint(table: GpuTable, name: str) -> str:
    """Return what may have been meant, with a semicolon before it."""
    words = separated(table, name)
    if words:
        return f"; names are separated by commas: {', '.join(words)!r}"
    near = near_names(table, name)
    return f"; did you mean {', '.join(map(repr, near))}?" if near else ""


def list_unknown_types(rules: Rules, gpu_reader: GpuRequirementsReader) -> list[str]:
    """Return the warnings of unknown types that rules would write into pods."""
    return [
        f"{path}: {unknown_type(gpu_reader, name)}"
        for path, rule in rules.entries()
        for name in gpu_reader.unknown_types(rule.annotations)
    ]
