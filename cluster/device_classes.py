"""The resources that DeviceClasses carry, kept up to date class by class."""

from cluster.changes import Change, DeviceClassesListed
from cluster.objects import DeviceClass


class DeviceClassTable:
    """The DeviceClasses; owned by their reflector's thread.

    The ledger wants to know the resources of all of them, not each.
    """

    def __init__(self) -> None:
        # DeviceClass name -> the extended resource that it carries, or empty
        self._resources: dict[str, str] = {}

    def listed(
        self, records: tuple[DeviceClass, ...], partial: frozenset[str]
    ) -> Change:
        """Replace all; one that did not decode keeps what was known of it."""
        kept = {
            name: resource
            for name, resource in self._resources.items()
            if name in partial
        }
        self._resources = {
            record.metadata.name: record.spec.extended_resource_name or ""
            for record in records
        } | kept
        return self._change()

    def seen(self, record: DeviceClass, is_partial: bool) -> Change:
        """Add or change one."""
        name = record.metadata.name
        if not (is_partial and name in self._resources):
            self._resources[name] = record.spec.extended_resource_name or ""
        return self._change()

    def gone(self, name: str) -> Change:
        """Remove one."""
        self._resources.pop(name, None)
        return self._change()

    def _change(self) -> Change:
        return DeviceClassesListed(frozenset(filter(None, self._resources.values())))
