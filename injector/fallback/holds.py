"""`Holds`: what admitted pods were promised that the cluster does not show yet.

Between the answer of the webhook and the pod's appearance in the watch lies a moment in
which the next pod would be promised the same thing again.
"""

import threading
import time
from collections import defaultdict, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, TypeAlias, TypeVar

from cluster.ledger.writer import NotSyncedError, SnapshotSource
from injector.fallback.matching import Kind, kind_of, likeness
from injector.fallback.simulation import Claim
from injector.steps import PodFacts
from scoring.protocols import RecentPod
from scoring.resources import Request
from scoring.snapshot import Snapshot

# Beyond this many the oldest ends: it is nearest to its end in any case.
MAX_HOLDS: Final = 4096

_Result = TypeVar("_Result")

# namespace, name or generateName, and whether it is the latter
_PodKey: TypeAlias = tuple[str, str, bool]

# what was promised -> whether that was an earlier promise to the pod in question
IsEarlier: TypeAlias = Callable[[Request], bool]

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
    is_settled : bool
        Whether its pod has been reviewed again since.
    kind : tuple
        What `is_of` and `likeness` look at.
    """

    pod: _PodKey
    owner_uid: str
    request_uid: str
    claim: Claim
    ends: float
    is_settled: bool = False
    kind: Kind = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "kind", (self.owner_uid, *kind_of(self.claim)))

    def is_of(self, arrival: RecentPod) -> bool:
        """Say whether the pod that arrived can be the one that was promised to."""
        asked = {name for name, _ in arrival.request}
        return self.owner_uid == arrival.owner_uid and asked.issuperset(
            name for name, _ in self.claim.request
        )

    def likeness(self, arrival: RecentPod) -> tuple[bool, bool, int]:
        """Return how like the pod that arrived is to the one that was promised to."""
        return likeness(arrival, self.claim)

    def is_for(self, facts: PodFacts) -> bool:
        """Say whether this is an earlier promise to the very same pod."""
        if facts.request_uid and facts.request_uid == self.request_uid:
            return True
        return bool(facts.name) and self.pod == _key_of(facts)

    def is_alike(self, facts: PodFacts) -> bool:
        """Say whether this can be an earlier promise to the same pod."""
        return self.pod == _key_of(facts) and self.owner_uid == facts.owner_uid


# what holds have in common -> those holds, oldest first
_Lines: TypeAlias = dict[Kind, deque[_Hold]]


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

    - when a pod with its namespace, name or generateName, owner and resources appears:
      of several holds that whose amounts, node selector and affinity are most like the
      pod's, the oldest one first. From then on the snapshot shows the pod itself;
    - when the request that it was made for is refused after all (`release`);
    - when the same pod, by its name, or the same request is reviewed again: the new
      hold replaces it. Of a pod whose name is yet to be generated, its fellows may
      hold as much: which of these holds it replaces makes no difference;
    - after `hold_seconds`: the pod was refused elsewhere and never came.
    """

    def __init__(
        self,
        source: SnapshotSource,
        *,
        hold_seconds: float,
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

    def decide(
        self,
        facts: PodFacts,
        weigh: Weigh[_Result],
        is_earlier: IsEarlier = lambda _: False,
    ) -> _Result:
        """Let `weigh` choose on the newest snapshot, and hold what it claims.

        Parameters
        ----------
        facts : PodFacts
            Of the pod that is admitted. For a dry run nothing is held.
        weigh : callable
            Takes a snapshot and the claims held for other pods, oldest first; returns
            what to hold, or None, and a result of its own. Called under the lock.
        is_earlier : callable
            Says which promise to such a pod this one replaces.

        Raises
        ------
        NotSyncedError
            If there is no snapshot yet.
        """
        with self._lock:
            snapshot = self._source.current()
            self._refresh(snapshot)
            others = self._of_others(facts, is_earlier)
            claim, result = weigh(snapshot, tuple(hold.claim for hold in others))
            if not facts.is_dry_run:
                if claim is not None:
                    ends = self._monotonic() + self._hold_seconds
                    key, owner, uid = _key_of(facts), facts.owner_uid, facts.request_uid
                    is_again = len(others) < len(self._holds)
                    others.append(_Hold(key, owner, uid, claim, ends, is_again))
                self._holds = others[-self._limit :]
        return result

    def has(self, facts: PodFacts, is_earlier: IsEarlier) -> bool:
        """Say whether there is an earlier promise to this pod."""
        with self._lock:
            return self._earlier(facts, is_earlier) is not None

    def adopt(
        self, facts: PodFacts, is_earlier: IsEarlier, *, is_first: bool = False
    ) -> bool:
        """Make an earlier promise to this pod one of the present request.

        Returns whether there was one. With `is_first`, a promise whose pod has been
        reviewed again already is none: it is another pod's.
        """
        with self._lock:
            earlier = self._earlier(facts, is_earlier)
            if earlier is None or (is_first and earlier.is_settled):
                return False
            place = self._holds.index(earlier)
            self._holds[place] = replace(
                earlier, request_uid=facts.request_uid, is_settled=True
            )
            return True

    def end(self, facts: PodFacts, is_earlier: IsEarlier) -> None:
        """End an earlier promise to this pod."""
        with self._lock:
            earlier = self._earlier(facts, is_earlier)
            self._holds = [hold for hold in self._holds if hold is not earlier]

    def _of_others(self, facts: PodFacts, is_earlier: IsEarlier) -> list[_Hold]:
        """Return the holds of all pods but this one."""
        others = [hold for hold in self._holds if not hold.is_for(facts)]
        if len(others) == len(self._holds):
            earlier = self._earlier(facts, is_earlier)
            others = [hold for hold in others if hold is not earlier]
        return others

    def _earlier(self, facts: PodFacts, is_earlier: IsEarlier) -> _Hold | None:
        """Return the youngest hold that may be this pod's.

        One whose own pod has been reviewed again already comes last.
        A dry run has none of its own, and would see another pod's as free.
        """
        if facts.is_dry_run:
            return None
        found = (
            hold
            for hold in reversed(self._holds)
            if hold.is_alike(facts) and is_earlier(hold.claim.request)
        )
        return min(found, key=lambda hold: hold.is_settled, default=None)

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
        for arrival in reversed(snapshot.recent_pods if snapshot else ()):
            if arrival.sequence <= self._last_sequence:
                break
            arrived.append(arrival)
        if arrived:
            self._last_sequence = arrived[0].sequence
            self._end_arrived(arrived[::-1])
        # Only now: a pod that came in time ends its own hold, not a younger one.
        now = self._monotonic()
        self._holds = [hold for hold in self._holds if hold.ends > now]

    def _end_arrived(self, arrived: Sequence[RecentPod]) -> None:
        """End a hold of each pod that arrived: of those most like it, the oldest."""
        waiting: dict[_PodKey, _Lines] = defaultdict(lambda: defaultdict(deque))
        for hold in self._holds:
            waiting[hold.pod][hold.kind].append(hold)
        ended: set[int] = set()
        for arrival in arrived:
            keys = (
                (arrival.namespace, arrival.name, False),
                (arrival.namespace, arrival.generate_name, True),
            )
            lines = [line for key in keys for line in waiting.get(key, {}).values()]
            first = [line[0] for line in lines if line and line[0].is_of(arrival)]
            if first:
                # PERF: the holds of one kind are as like, so one of each is looked at.
                mine = max(first, key=lambda hold: (hold.likeness(arrival), -hold.ends))
                waiting[mine.pod][mine.kind].popleft()
                ended.add(id(mine))
        self._holds = [hold for hold in self._holds if id(hold) not in ended]


def _key_of(facts: PodFacts) -> _PodKey:
    """Return what is known at admission of who the pod will be."""
    if facts.name:
        return facts.namespace, facts.name, False
    return facts.namespace, facts.generate_name, True
