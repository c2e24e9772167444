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

    def put(self, record: PodRecord) -> None:
        """Take up what a pod holds."""
        self._overlay[record.uid] = record

    def drop(self, uid: str) -> None:
        """Forget what a pod held."""
        self._overlay[uid] = None

    def publish(self) -> ShareMap:
        """Return all shares as they are now."""
        if len(self._overlay) > MAX_OVERLAY:
            self._base = dict(ShareMap(self._base, self._overlay))
            self._overlay = {}
        return ShareMap(self._base, dict(self._overlay))
