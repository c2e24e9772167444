"""`Group`: refused pods of one kind, which are judged together."""

from dataclasses import dataclass, field

from cluster.objects import PodRecord
from extender.refused import RefusedPod
from extender.takers import Kind, Takers
from scoring.snapshot import IndexArray, Snapshot


@dataclass(slots=True, eq=False)
class Group:
    """Refused pods of one kind; owned by one thread.

    Attributes
    ----------
    record : PodRecord
        One of them, for the constraints that they share.
    generation : int
        Of the snapshot that it was judged on; -1 before that.
    is_partial : bool
        Whether some nodes of that were not looked at yet.
    complete : int
        Generation of the last snapshot of which all nodes were; -1 before that.
    has_takers : bool
        Whether some node would take them.
    has_news : bool
        Whether a pod came, or was refused again, since it was judged.
    """

    record: PodRecord
    pods: dict[str, RefusedPod] = field(default_factory=dict)
    generation: int = -1
    is_partial: bool = False
    complete: int = -1
    has_takers: bool = False
    has_news: bool = True

    def is_judged(self, snapshot: Snapshot) -> bool:
        """Say whether what is known of it is about this snapshot."""
        return not self.has_news and self.generation == snapshot.generation

    def is_due(self, snapshot: Snapshot) -> bool:
        """Say whether it is to be judged, or judged further."""
        return self.is_partial or not self.is_judged(snapshot)

    def judge(
        self,
        takers: Takers,
        kind: Kind,
        snapshot: Snapshot,
        all_changed_at: int,
        now: float,
    ) -> None:
        """Weigh the pods on a snapshot."""
        # Where nothing took them, only what has changed since can take them now.
        since = -1 if self.has_takers else self.complete
        taking = takers.of(snapshot, kind, self.record.constraints, since)
        self.generation = snapshot.generation
        self.is_partial = taking.is_partial
        self.has_takers = bool(len(taking.columns))
        self.has_news = False
        if not taking.is_partial:
            self.complete = snapshot.generation
        elif not self.has_takers:
            return  # nothing is known of its pods yet
        changes = _changes(snapshot, taking.columns, all_changed_at)
        for pod in self.pods.values():
            if not pod.is_woken:
                pod.weigh(changes, len(snapshot.nodes.names), now)


def _changes(
    snapshot: Snapshot, columns: IndexArray, all_changed_at: int
) -> tuple[int, int] | None:
    """Return when the first and the last of some nodes changed; None without any."""
    if not len(columns):
        return None
    if snapshot.changed_at is None:
        return snapshot.generation, snapshot.generation
    changed_at = snapshot.changed_at.take(columns)
    oldest, newest = int(changed_at.min()), int(changed_at.max())
    return max(oldest, all_changed_at), max(newest, all_changed_at)
