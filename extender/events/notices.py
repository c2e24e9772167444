"""`NoticeQueue`: what is told of pods as soon as they are seen."""

from collections import deque
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from extender.events.event import NORMAL, WARNING, Event, Regarding, key_of
from scoring.bounded import BoundedDict

# Of one owner at a time; all others are told by the Event on the owner.
MAX_PODS_OF_OWNER: Final = 20

# Beyond, the oldest are dropped: at ten a second they would come minutes late.
MAX_WAITING: Final = 4096

MAX_OWNERS: Final = 4096

# For so long the API server keeps an Event by default.
REMEMBERED_SECONDS: Final = 3600.0


class Notice(NamedTuple):
    """What somebody should know of one pod, whether it is pending or not.

    Attributes
    ----------
    texts : tuple of str
        The same ones are told once.
    is_warning : bool
    """

    reason: str
    action: str
    texts: tuple[str, ...]
    is_warning: bool = True

    @property
    def key(self) -> str:
        """The same for the same texts."""
        return key_of(self.texts)

    def event_on(self, regarding: Regarding) -> Event:
        """Return it as an Event on a pod or its controller."""
        kind = WARNING if self.is_warning else NORMAL
        note = "; ".join(self.texts)
        return Event(regarding, self.reason, self.action, note, self.key, kind)


class NoticedPod(NamedTuple):
    """A pod, its controller if it has one, and what is to be known of it."""

    pod: Regarding
    owner: Regarding | None
    notices: tuple[Notice, ...]


@dataclass(slots=True, eq=False)
class _Owner:
    """What was told of a controller and its pods since a moment."""

    since: float
    told: set[tuple[str, str]] = field(default_factory=set)
    pods: set[str] = field(default_factory=set)


class NoticeQueue:
    """Notices that are to be told; any thread may call `add`, one the other methods."""

    def __init__(self) -> None:
        self._added: deque[NoticedPod] = deque(maxlen=MAX_WAITING)
        self._of_owners: deque[Event] = deque(maxlen=MAX_WAITING)
        self._of_pods: deque[Event] = deque(maxlen=MAX_WAITING)
        # UID of a controller -> what was told of it and its pods
        self._owners: BoundedDict[str, _Owner] = BoundedDict(MAX_OWNERS)

    def add(self, noticed: NoticedPod) -> None:
        """Have a pod and its controller told."""
        self._added.append(noticed)

    def next_of_owner(self, monotonic: float) -> Event | None:
        """Return the next Event on a controller, or one that was put back."""
        self._take_in(monotonic)
        return self._of_owners.popleft() if self._of_owners else None

    def next_of_pod(self, monotonic: float) -> Event | None:
        """Return the next Event on a pod."""
        self._take_in(monotonic)
        return self._of_pods.popleft() if self._of_pods else None

    def put_back(self, event: Event) -> None:
        """Have an Event told once more, which was not written."""
        self._of_owners.appendleft(event)

    def _take_in(self, monotonic: float) -> None:
        """Make Events of the pods that were added."""
        while self._added:
            pod, owner, notices = self._added.popleft()
            for notice in notices:
                if self._may_tell(pod, owner, notice, monotonic):
                    self._of_pods.append(notice.event_on(pod))

    def _may_tell(
        self, pod: Regarding, owner: Regarding | None, notice: Notice, monotonic: float
    ) -> bool:
        """Have the controller told; say whether the pod is to be told, too."""
        if owner is None:
            return True
        known = self._owners.get(owner.uid)
        if known is None or monotonic - known.since > REMEMBERED_SECONDS:
            known = _Owner(monotonic)
        self._owners.keep_newest(owner.uid, known)
        told = (notice.reason, notice.key)
        if told not in known.told and len(known.told) < MAX_PODS_OF_OWNER:
            known.told.add(told)
            self._of_owners.append(notice.event_on(owner))
        if pod.uid not in known.pods and len(known.pods) >= MAX_PODS_OF_OWNER:
            return False
        known.pods.add(pod.uid)
        return True
