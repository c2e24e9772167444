"""What on a node says that its GPUs are not ready."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType


@dataclass(frozen=True, slots=True)
class FaultSignals:
    """What on a node says that its GPUs are not ready.

    Attributes
    ----------
    label_values : mapping
        label key -> values with which the GPUs can be used; any other value, the
        label being there, is a fault
    product_labels : tuple of str
        Labels that carry the product name; ``-MIG-INVALID`` at its end is a fault.
    conditions : mapping
        condition type -> status that is a fault
    """

    label_values: Mapping[str, frozenset[str]] = field(
        default_factory=lambda: MappingProxyType({})
    )
    product_labels: tuple[str, ...] = ()
    conditions: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))

    def found_on(self, labels: Mapping[str, str], statuses: Mapping[str, str]) -> bool:
        """Say whether any signal is raised."""
        return (
            any(
                labels[key] not in usable
                for key, usable in self.label_values.items()
                if key in labels
            )
            or any(
                labels.get(key, "").endswith("-MIG-INVALID")
                for key in self.product_labels
            )
            or any(
                statuses.get(kind) == status for kind, status in self.conditions.items()
            )
        )
