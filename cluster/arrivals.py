"""Pods that lately came, and those that lately went, as a snapshot has them."""

from collections import deque
from typing import Final

import msgspec

from cluster.objects import PodConstraints, PodRecord
from scoring.objects import Request

# More than come in the seconds that an admission can be in flight.
MAX_ARRIVALS: Final = 4096
# More than go in the seconds that a placement can be under way.
MAX_DEPARTURES: Final = 1024


class PodArrival(msgspec.Struct, frozen=True, gc=False):
    """A pod with a managed resource, as it was first seen.

    ``constraints`` are empty for one that had a node already.
    """

    sequence: int
    namespace: str
    name: str
    generate_name: str
    owner_uid: str
    request: Request
    constraints: PodConstraints


class Arrivals:
    """The latest arrivals, numbered; owned by the ledger."""

    def __init__(self) -> None:
        self._latest: deque[PodArrival] = deque(maxlen=MAX_ARRIVALS)
        self._count = 0

    def note(self, record: PodRecord) -> None:
        """Note a pod that is seen for the first time."""
        self._count += 1
        self._latest.append(
            PodArrival(
                self._count,
                record.namespace,
                record.name,
                record.generate_name,
                record.owner_uid,
                record.request,
                record.constraints,
            )
        )

    def publish(self) -> tuple[PodArrival, ...]:
        """Return the arrivals as they are now, oldest first."""
        return tuple(self._latest)


class Departures:
    """UIDs of the pods that ended or were deleted last; owned by the ledger."""

    def __init__(self) -> None:
        self._latest: deque[str] = deque(maxlen=MAX_DEPARTURES)
        self._published: frozenset[str] | None = frozenset()

    def note(self, record: PodRecord) -> None:
        """Note a pod that has ended or is gone, by its last record before that."""
        if record.is_managed and not record.is_terminal:
            self._latest.append(record.uid)
            self._published = None

    def publish(self) -> frozenset[str]:
        """Return the UIDs as they are now."""
        if self._published is None:
            self._published = frozenset(self._latest)
        return self._published
