"""What each bound pod holds, as an immutable mapping that is cheap to publish."""

from collections.abc import Iterator, Mapping
from typing import Final

from cluster.objects import PodRecord

# Above this many changed shares the base of the overlay is made anew.
MAX_OVERLAY: Final = 2048


class ShareMap(Mapping[str, PodRecord]):
    """An immutable mapping: a large base under a small overlay.

    Publishing copies the overlay alone. In the overlay, None stands for a share that
    is gone.
    """

    __slots__ = ("_base", "_overlay")

    def __init__(
        self, base: Mapping[str, PodRecord], overlay: Mapping[str, PodRecord | None]
    ) -> None:
        self._base = base
        self._overlay = overlay

    def __getitem__(self, uid: str) -> PodRecord:
        record = self._overlay[uid] if uid in self._overlay else self._base[uid]
        if record is None:
            raise KeyError(uid)
        return record

    def __iter__(self) -> Iterator[str]:
        for uid in self._base:
            if uid not in self._overlay:
                yield uid
        for uid, record in self._overlay.items():
            if record is not None:
                yield uid

    def __len__(self) -> int:
        return sum(1 for _ in self)


class Shares:
    """The ledger's table of shares, published as a `ShareMap`."""

    def __init__(self) -> None:
        self._base: dict[str, PodRecord] = {}
        self._overlay: dict[str, PodRecord | None] = {}
        # node name -> how many pods have a share there, and how many are exclusive
        self._tenants: dict[str, tuple[int, int]] = {}

    def count(self, record: PodRecord, sign: int) -> None:
        """Take up (+1) or forget (-1) what a pod holds."""
        pods, exclusive = self.tenants_of(record.node_name)
        tenants = (pods + sign, exclusive + sign * record.demand.is_exclusive)
        if tenants[0]:
            self._tenants[record.node_name] = tenants
        else:
            self._tenants.pop(record.node_name, None)
        self._overlay[record.uid] = record if sign > 0 else None

    def tenants_of(self, node_name: str) -> tuple[int, int]:
        """Return how many pods have a share on a node, and how many are exclusive."""
        return self._tenants.get(node_name, (0, 0))

    def publish(self) -> ShareMap:
        """Return all shares as they are now."""
        if len(self._overlay) > MAX_OVERLAY:
            self._base = dict(ShareMap(self._base, self._overlay))
            self._overlay = {}
        return ShareMap(self._base, dict(self._overlay))
