"""`Holds`: promises to admitted pods that the cluster does not show yet.

Between the answer of the webhook and the pod's appearance in the watch lies a moment in
which the next pod would be promised the same thing again.

Pods of one controller, or of one ``generateName``, need not be alike: those of a
DaemonSet each want a node of their own. Whose hold ends when one of them appears is
decided by how well it matches each claim.
"""

import threading
import time
from collections import defaultdict, deque
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, TypeAlias, TypeVar

from cluster.ledger.writer import NotSyncedError, SnapshotSource
from injector.admitted_pod import PodIdentity
from injector.fallback.simulation import PendingClaim
from scoring.protocols import Constraints, RecentPod, SelectorTerm
from scoring.resources import Request
from scoring.snapshot import Snapshot

# Beyond this many the oldest ends: it is nearest to its end in any case.
MAX_HOLDS: Final = 4096

# Pairs of terms. Of more, only terms that are all the same are told to be kept: a pod
# may have thousands, and other reviews wait.
MAX_COMPARED: Final = 4096

# Of claims that are equal here, each is as good as another for a pod that appears.
MatchKey: TypeAlias = tuple[Hashable, ...]

_Result = TypeVar("_Result")

# namespace, name or generateName, and whether it is the latter
_PodKey: TypeAlias = tuple[str, str, bool]

# what was promised -> whether that was an earlier promise to the pod in question
IsEarlier: TypeAlias = Callable[[Request], bool]

Choose: TypeAlias = Callable[
    [Snapshot, tuple[PendingClaim, ...]], tuple[PendingClaim | None, _Result]
]


@dataclass(frozen=True, slots=True, eq=False)
class _Hold:
    """A promise.

    Attributes
    ----------
    pod : tuple of (str, str, bool)
        Namespace, name or generateName, and whether it is the latter.
    request_uid : str
        Of the admission request that it was made for.
    ends : float
        By the monotonic clock.
    is_settled : bool
        Whether its pod has been reviewed again since.
    match_key : tuple
        What `is_of` and `match_score` look at.
    """

    pod: _PodKey
    owner_uid: str
    request_uid: str
    claim: PendingClaim
    ends: float
    is_settled: bool = False
    match_key: MatchKey = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "match_key", (self.owner_uid, *match_key(self.claim)))

    def is_of(self, arrival: RecentPod) -> bool:
        """Whether the pod that arrived can be the one that was promised to."""
        asked = {name for name, _ in arrival.request}
        return self.owner_uid == arrival.owner_uid and asked.issuperset(
            name for name, _ in self.claim.request
        )

    def match_score(self, arrival: RecentPod) -> tuple[bool, bool, int]:
        """Return how well the pod that arrived matches the promise."""
        return match_score(arrival, self.claim)

    def is_for(self, identity: PodIdentity) -> bool:
        """Whether this is an earlier promise to the very same pod."""
        if identity.request_uid and identity.request_uid == self.request_uid:
            return True
        return bool(identity.name) and self.pod == _key_of(identity)

    def is_alike(self, identity: PodIdentity) -> bool:
        """Whether this can be an earlier promise to the same pod."""
        return self.pod == _key_of(identity) and self.owner_uid == identity.owner_uid


# what holds match by -> those holds, oldest first
_Queues: TypeAlias = dict[MatchKey, deque[_Hold]]


class Holds:
    """Chooses and holds in one step; any thread may call it.

    Parameters
    ----------
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
        identity: PodIdentity,
        choose: Choose[_Result],
        is_earlier: IsEarlier = lambda _: False,
    ) -> _Result:
        """Let `choose` choose on the newest snapshot, and hold what it claims.

        Parameters
        ----------
        identity : PodIdentity
            Of the pod that is admitted. For a dry run nothing is held.
        choose : callable
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
            others = self._of_others(identity, is_earlier)
            claim, result = choose(snapshot, tuple(hold.claim for hold in others))
            if not identity.is_dry_run:
                if claim is not None:
                    ends = self._monotonic() + self._hold_seconds
                    key, owner, uid = (
                        _key_of(identity),
                        identity.owner_uid,
                        identity.request_uid,
                    )
                    is_again = len(others) < len(self._holds)
                    others.append(_Hold(key, owner, uid, claim, ends, is_again))
                self._holds = others[-self._limit :]
        return result

    def has(self, identity: PodIdentity, is_earlier: IsEarlier) -> bool:
        """Whether there is an earlier promise to this pod."""
        with self._lock:
            return self._earlier(identity, is_earlier) is not None

    def adopt(
        self, identity: PodIdentity, is_earlier: IsEarlier, *, is_first: bool = False
    ) -> bool:
        """Make an earlier promise to this pod one of the present request.

        Returns whether there was one. With `is_first`, a promise whose pod has been
        reviewed again already is none: it is another pod's.
        """
        with self._lock:
            earlier = self._earlier(identity, is_earlier)
            if earlier is None or (is_first and earlier.is_settled):
                return False
            index = self._holds.index(earlier)
            self._holds[index] = replace(
                earlier, request_uid=identity.request_uid, is_settled=True
            )
            return True

    def end(self, identity: PodIdentity, is_earlier: IsEarlier) -> None:
        """End an earlier promise to this pod."""
        with self._lock:
            earlier = self._earlier(identity, is_earlier)
            self._holds = [hold for hold in self._holds if hold is not earlier]

    def _of_others(self, identity: PodIdentity, is_earlier: IsEarlier) -> list[_Hold]:
        """Return the holds of all pods but this one."""
        others = [hold for hold in self._holds if not hold.is_for(identity)]
        if len(others) == len(self._holds):
            earlier = self._earlier(identity, is_earlier)
            others = [hold for hold in others if hold is not earlier]
        return others

    def _earlier(self, identity: PodIdentity, is_earlier: IsEarlier) -> _Hold | None:
        """Return the youngest hold that may be this pod's.

        One whose own pod has been reviewed again already comes last.
        A dry run has none of its own, and would see another pod's as free.
        """
        if identity.is_dry_run:
            return None
        found = (
            hold
            for hold in reversed(self._holds)
            if hold.is_alike(identity) and is_earlier(hold.claim.request)
        )
        return min(found, key=lambda hold: hold.is_settled, default=None)

    def release(self, identity: PodIdentity) -> None:
        """End the hold of this request; without one, nothing happens."""
        with self._lock:
            self._holds = [
                hold for hold in self._holds if hold.request_uid != identity.request_uid
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
        waiting: dict[_PodKey, _Queues] = defaultdict(lambda: defaultdict(deque))
        for hold in self._holds:
            waiting[hold.pod][hold.match_key].append(hold)
        ended: set[int] = set()
        for arrival in arrived:
            keys = (
                (arrival.namespace, arrival.name, False),
                (arrival.namespace, arrival.generate_name, True),
            )
            queues = [queue for key in keys for queue in waiting.get(key, {}).values()]
            first = [item[0] for item in queues if item and item[0].is_of(arrival)]
            if first:
                # PERF: holds with one key match equally: one of each is looked at.
                mine = max(
                    first, key=lambda hold: (hold.match_score(arrival), -hold.ends)
                )
                waiting[mine.pod][mine.match_key].popleft()
                ended.add(id(mine))
        self._holds = [hold for hold in self._holds if id(hold) not in ended]


def _key_of(identity: PodIdentity) -> _PodKey:
    """Return what is known at admission of who the pod will be."""
    if identity.name:
        return identity.namespace, identity.name, False
    return identity.namespace, identity.generate_name, True


def match_key(claim: PendingClaim) -> MatchKey:
    """Return all of `claim` that `match_score` looks at."""
    constraints = claim.constraints
    selector = tuple(sorted(constraints.node_selector.items()))
    return claim.request, selector, constraints.affinity_terms


def match_score(arrival: RecentPod, claim: PendingClaim) -> tuple[bool, bool, int]:
    """Return how well a pod matches a claim; the greater, the better.

    Returns
    -------
    tuple of (bool, bool, int)
        Whether the amounts are those claimed, whether the node selector is, and how
        many requirements of affinity are; -1 where one of them is not there. Others
        may have come on top: our own steps and later webhooks add to them.
    """
    now, then = arrival.constraints, claim.constraints
    return (
        set(claim.request).issubset(arrival.request),
        now.node_selector == then.node_selector,
        _count_kept(now, then),
    )


def _count_kept(now: Constraints, then: Constraints) -> int:
    """Return how many requirements `then` had, -1 if `now` does not keep them."""
    if then.affinity_terms is None:
        return 0
    terms = then.affinity_terms
    if now.affinity_terms != terms and not _all_keep(now.affinity_terms, terms):
        return -1
    return sum(len(term.expressions or ()) + len(term.fields or ()) for term in terms)


def _all_keep(now: Sequence[SelectorTerm] | None, then: Sequence[SelectorTerm]) -> bool:
    """Whether each term has all requirements that an earlier one had."""
    if now is None or len(now) * len(then) > MAX_COMPARED:
        return False
    return all(any(_keeps(term, earlier) for earlier in then) for term in now)


def _keeps(now: SelectorTerm, then: SelectorTerm) -> bool:
    """Whether a term has all requirements that another had."""
    return set(then.expressions or ()).issubset(now.expressions or ()) and set(
        then.fields or ()
    ).issubset(now.fields or ())
