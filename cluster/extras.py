"""What a snapshot has beside nodes and pods: kept whole, replaced whole."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from cluster.changes import DeviceClassesListed, LimitRangesListed
from scoring.objects import LimitMaxima


@dataclass(slots=True)
class Extras:
    """DeviceClasses and LimitRanges; only the ledger thread may call it."""

    device_class_resources: frozenset[str] = frozenset()
    limit_maxima: Mapping[str, LimitMaxima] = field(
        default_factory=lambda: MappingProxyType({})
    )

    def take(self, change: DeviceClassesListed | LimitRangesListed) -> bool:
        """Take a change; say whether it is one."""
        if isinstance(change, DeviceClassesListed):
            is_new = change.resources != self.device_class_resources
            self.device_class_resources = change.resources
            return is_new
        is_new = change.maxima != self.limit_maxima
        self.limit_maxima = change.maxima
        return is_new
