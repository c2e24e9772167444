"""Nodes on which pods fail before they run, and until when they are avoided."""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

from scoring.protocols import FailingNode


@dataclass(frozen=True, slots=True)
class FailureLimits:
    """When a node counts as failing.

    Attributes
    ----------
    owners : int
        So many different owners' pods must have failed; 0 switches the check off.
    seconds : float
        Within so much time; and for so long the node then counts as failing.
    """

    owners: int
    seconds: float


# No node is ever avoided.
NO_LIMITS: Final = FailureLimits(0, 0.0)


class _Failure(NamedTuple):
    """When a pod failed, and its namespace and name."""

    at: float
    pod: str


class Failures:
    """Failures of pods by node; only the ledger's thread may call it.

    Parameters
    ----------
    clock : callable
        Seconds since the epoch, as the times of pods are.

    Notes
    -----
    The pods of one owner are one: a job whose command is wrong fails everywhere. Of
    each owner the latest failure is kept, which is exact as long as failures are noted
    in the order of their times.
    """

    def __init__(
        self,
        limits: FailureLimits,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._limits = limits
        self._clock = clock
        # node name -> owner -> when a pod of that owner last failed there, and which
        self._failed: dict[str, dict[str, _Failure]] = {}
        # node name -> until when it counts as failing
        self._until: dict[str, float] = {}
        # node name -> the failure that made it count so
        self._since: dict[str, float] = {}

    @property
    def nodes(self) -> Mapping[str, float]:
        """The failing nodes, each with the time until when."""
        return self._until

    def describe(self, node_name: str) -> FailingNode:
        """Return since when a failing node is one, and which pods failed on it."""
        failed = sorted(self._failed.get(node_name, {}).values())
        pods = tuple(failure.pod for failure in failed if failure.pod)
        return FailingNode(self._since.get(node_name, 0.0), pods)

    def note(self, node_name: str, owner: str, failed_at: float, pod: str = "") -> bool:
        """Note that a pod failed on a node before it ran.

        Parameters
        ----------
        failed_at : float
            Seconds since the epoch. A time to come, infinity too, counts as now.
        pod : str
            Its namespace and name.

        Returns
        -------
        bool
            Whether the node counts as failing from now on, and did not before.
        """
        now, span = self._clock(), self._limits.seconds
        failed_at = min(failed_at, now)
        if not self._limits.owners or failed_at + 2 * span <= now:
            return False  # even a later failure beside it would be too long ago
        others = {
            other: failure
            for other, failure in self._failed.get(node_name, {}).items()
            if failure.at + 2 * span > now
        }
        failure = _Failure(failed_at, pod)
        own = others.pop(owner, failure)
        self._failed[node_name] = {**others, owner: max(own, failure)}
        near = [f.at for f in others.values() if abs(f.at - failed_at) <= span]
        until = max([failed_at, *near]) + span
        if len(near) + 1 < self._limits.owners or until <= now:
            return False
        is_new = node_name not in self._until
        if is_new:
            self._since[node_name] = failed_at
        self._until[node_name] = max(until, self._until.get(node_name, until))
        return is_new

    def forget(self, node_name: str) -> None:
        """Forget a node that was deleted: one that comes back may be another."""
        self._failed.pop(node_name, None)
        self._until.pop(node_name, None)
        self._since.pop(node_name, None)

    def seconds_to_expiry(self) -> float | None:
        """Return how long the next node has to go, None if no node is failing."""
        if not self._until:
            return None
        return max(min(self._until.values()) - self._clock(), 0.0)

    def expire(self) -> tuple[str, ...]:
        """Let nodes whose time is over count as sound again, and return their names."""
        now = self._clock()
        over = tuple(name for name, until in self._until.items() if until <= now)
        for name in over:
            del self._until[name], self._since[name]
        return over
