"""`Holds`: what admitted pods were promised that the cluster does not show yet.

Between the answer of the webhook and the pod's appearance in the watch lies a moment in
which the next pod would be promised the same thing again.
"""

import threading
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias, TypeVar

from cluster.cache import NotSyncedError, SnapshotSource
from injector.facts import PodFacts
from injector.room import Claim
from scoring.objects import Arrival
from scoring.snapshot import Snapshot

DEFAULT_HOLD_SECONDS: Final = 10.0
# Beyond this many the oldest ends: it is nearest to its end in any case.
MAX_HOLDS: Final = 4096

_Result = TypeVar("_Result")
# namespace, name or generateName, and whether it is the latter
_PodKey: TypeAlias = tuple[str, str, bool]
Weigh: TypeAlias = Callable[[Snapshot, tuple[Claim, ...]], tuple[Claim | None, _Result]]


@dataclass(frozen=True, slots=True, eq=False)
class _Hold:
    """One promise.

    Attributes
    ----------
    pod : tuple of (str, str, bool)
        Namespace, name or generateName, and whether it is the latter.
    owner_uid : str
    request_uid : str
        Of the admission request that it was made for.
    claim : Claim
    ends : float
        By the monotonic clock.
    """

    pod: _PodKey
    owner_uid: str
    request_uid: str
    claim: Claim
    ends: float

    def is_of(self, arrival: Arrival) -> bool:
        """Say whether the pod that arrived can be the one that was promised to."""
        asked = {name for name, _ in arrival.request}
        return self.owner_uid == arrival.owner_uid and asked.issuperset(
            name for name, _ in self.claim.request
        )

    def is_for(self, facts: PodFacts) -> bool:
        """Say whether this is an earlier promise to the very same pod."""
        if facts.request_uid and facts.request_uid == self.request_uid:
            return True
        return bool(facts.name) and self.pod == _key_of(facts)


class Holds:
    """Chooses and holds in one step; any thread may call it.

    Parameters
    ----------
    source : SnapshotSource
    hold_seconds : float
        Longest life of a hold; above 0.
    limit : int
        Most holds at a time.
    monotonic : callable
        Returns seconds.

    Notes
    -----
    The snapshot is taken under the lock, so that each arrival is seen once and in
    order, and a pod that was there before a hold was made cannot end it. A hold ends

    - when a pod with its namespace, name or generateName, owner and resources appears,
      the oldest one first: from then on the snapshot shows the pod itself;
    - when the request that it was made for is refused after all (`release`);
    - when the same pod, by its name, or the same request is reviewed again: the new
      hold replaces it;
    - after `hold_seconds`: the pod was refused elsewhere and never came.
    """

    def __init__(
        self,
        source: SnapshotSource,
        *,
        hold_seconds: float = DEFAULT_HOLD_SECONDS,
        limit: int = MAX_HOLDS,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._source = source
        self._hold_seconds = hold_seconds
        self._limit = limit
        self._monotonic = monotonic
        self._lock = threading.Lock()
        self._holds: list[_Hold] = []  # oldest first
        self._last_sequence = 0

    def decide(self, facts: PodFacts, weigh: Weigh[_Result]) -> _Result:
        """Let `weigh` choose on the newest snapshot, and hold what it claims.

        Parameters
        ----------
        facts : PodFacts
            Of the pod that is admitted. For a dry run nothing is held.
        weigh : callable
            Takes a snapshot and the claims held for other pods, oldest first; returns
            what to hold, or None, and a result of its own. Called under the lock.

        Raises
        ------
        NotSyncedError
            If there is no snapshot yet.
        """
        with self._lock:
            snapshot = self._source.current()
            self._refresh(snapshot)
            others = [hold for hold in self._holds if not hold.is_for(facts)]
            claim, result = weigh(snapshot, tuple(hold.claim for hold in others))
            if not facts.is_dry_run:
                if claim is not None:
                    ends = self._monotonic() + self._hold_seconds
                    key, owner = _key_of(facts), facts.owner_uid
                    others.append(_Hold(key, owner, facts.request_uid, claim, ends))
                self._holds = others[-self._limit :]
        return result

    def release(self, facts: PodFacts) -> None:
        """End the hold of this request; without one, nothing happens."""
        with self._lock:
            self._holds = [
                hold for hold in self._holds if hold.request_uid != facts.request_uid
            ]

    def count(self) -> int:
        """Return how many holds there are, those left out that have ended."""
        with self._lock:
            try:
                snapshot = self._source.current()
            except NotSyncedError:
                snapshot = None
            self._refresh(snapshot)
            return len(self._holds)

    def _refresh(self, snapshot: Snapshot | None) -> None:
        """End the holds whose time is up or whose pod has arrived."""
        arrived = []
        for arrival in reversed(snapshot.arrivals if snapshot else ()):
            if arrival.sequence <= self._last_sequence:
                break
            arrived.append(arrival)
        if arrived:
            self._last_sequence = arrived[0].sequence
            self._end_arrived(arrived[::-1])
        # Only now: a pod that came in time ends its own hold, not a younger one.
        now = self._monotonic()
        self._holds = [hold for hold in self._holds if hold.ends > now]

    def _end_arrived(self, arrived: Sequence[Arrival]) -> None:
        """End the oldest hold of each pod that has arrived."""
        waiting: dict[_PodKey, list[_Hold]] = defaultdict(list)
        for hold in self._holds:
            waiting[hold.pod].append(hold)
        ended: set[int] = set()
        for arrival in arrived:
            keys = (
                (arrival.namespace, arrival.name, False),
                (arrival.namespace, arrival.generate_name, True),
            )
            held = [hold for key in keys for hold in waiting.get(key, ())]
            mine = next((hold for hold in held if hold.is_of(arrival)), None)
            if mine is not None:
                waiting[mine.pod].remove(mine)
                ended.add(id(mine))
        self._holds = [hold for hold in self._holds if id(hold) not in ended]


def _key_of(facts: PodFacts) -> _PodKey:
    """Return what is known at admission of who the pod will be."""
    if facts.name:
        return facts.namespace, facts.name, False
    return facts.namespace, facts.generate_name, True
