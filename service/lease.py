"""`Elector`: the thread by which one of all replicas answers for the whole cluster.

It holds the Lease by the rules of `cluster.api.lease`, and keeps the label that the
webhook's Service selects by on the pod of whoever holds it.
"""

import logging
import random
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any, Final
from urllib.parse import quote

import msgspec

from cluster.api.lease import (
    LeaseStore,
    Observed,
    Step,
    format_time,
    next_record,
    next_step,
    observe,
)
from cluster.api.protocol import Api, ApiError

logger = logging.getLogger(__name__)

# Until then the watch shows what the holder before has promised.
LABEL_DELAY_SECONDS: Final = 1.0

# Until then others may still be called, and what they promise is not seen yet.
SETTLE_SECONDS: Final = 1.0

# Lest all replicas ask at the same moment.
JITTER: Final = 0.2

# How often it is looked whether another replica is called in our place.
LEAVING_SECONDS: Final = 0.1

# For so long an end waits for a lease to be given up that nobody is called by.
RELEASE_SECONDS: Final = 1.0

STOP_SECONDS: Final = 2.0

# Between two lines that say the same.
LOG_SECONDS: Final = 60.0

NEVER: Final = float("-inf")

POD_VARIABLES: Final = ("POD_NAME", "POD_NAMESPACE", "POD_UID")


@dataclass(frozen=True, slots=True)
class OwnPod:
    """The pod that this process runs in."""

    name: str
    namespace: str
    uid: str


def read_own_pod(environment: Mapping[str, str]) -> OwnPod | None:
    """Return the pod that the environment names, None outside of one."""
    name, namespace, uid = (environment.get(key, "") for key in POD_VARIABLES)
    return OwnPod(name, namespace, uid) if name and namespace and uid else None


def settle_seconds_within(deadline_seconds: float) -> float:
    """Return for how long decisions wait after a change of who is called.

    A review may wait twice as long, and must then still be in time.

    >>> settle_seconds_within(4.0), settle_seconds_within(0.5)
    (1.0, 0.125)
    """
    return min(SETTLE_SECONDS, deadline_seconds / 4)


@dataclass(frozen=True, slots=True)
class LeaseTimes:
    """Times of an election, in seconds.

    Attributes
    ----------
    lease_seconds : int
        For how long others leave the lease to a holder of whom nothing new is seen.
    renew_deadline_seconds : float
        For how long a holder counts itself as such without a renewal; shorter.
    retry_seconds : float
        Between two looks at the lease.
    settle_seconds : float
        For how long decisions wait for what others have promised until now.
    """

    lease_seconds: int
    renew_deadline_seconds: float
    retry_seconds: float
    settle_seconds: float = SETTLE_SECONDS

    @property
    def takeover_seconds(self) -> float:
        """Within what a replica that waits for it takes a lease that is given up."""
        return self.retry_seconds * (1 + JITTER) + 1.0


class _Meta(msgspec.Struct):
    name: str = ""
    uid: str = ""
    labels: dict[str, str] | None = None


class _Pod(msgspec.Struct):
    metadata: _Meta


class _PodList(msgspec.Struct):
    items: list[_Pod] | None = None


class ActiveLabel:
    """The label of the replica that is called; one thread calls it.

    Each method raises `ApiError` if the API server refuses, or does not answer.
    """

    def __init__(self, api: Api, own: OwnPod, label: str) -> None:
        self._api = api
        self._own = own
        self._label = label
        self._path = f"/api/v1/namespaces/{own.namespace}/pods"

    def take(self, on_shared: Callable[[], None]) -> bool:
        """Set it on the own pod, and then take it off all others; say if it was not so.

        In this order: in between two are called, but never nobody. `on_shared` is told
        just before.
        """
        pods = self._labelled()
        others = [pod for pod in pods if pod.uid != self._own.uid]
        is_set = any(
            pod.uid == self._own.uid and (pod.labels or {}).get(self._label) == "true"
            for pod in pods
        )
        if others and not is_set:
            on_shared()
        if not is_set:
            self._patch(self._own.name, self._own.uid, "true")
        failed: ApiError | None = None
        for pod in others:
            try:
                self._patch(pod.name, pod.uid, None)
            except ApiError as error:
                if error.status not in {HTTPStatus.NOT_FOUND, HTTPStatus.CONFLICT}:
                    failed = error  # and the next one, first
        if failed is not None:
            raise failed
        return bool(others) or not is_set

    def is_ours(self) -> bool:
        """Whether it is on the own pod."""
        return any(pod.uid == self._own.uid for pod in self._labelled())

    def _labelled(self) -> list[_Meta]:
        """Return the pods that have the label, whatever its value."""
        data = self._api.read(f"{self._path}?labelSelector={quote(self._label)}")
        try:
            found = msgspec.json.decode(data, type=_PodList).items or []
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            raise ApiError(f"pods: {error}", reason="undecodable") from error
        return [pod.metadata for pod in found]

    def _patch(self, name: str, uid: str, value: str | None) -> None:
        """Set the label on the pod of that UID, or take it off."""
        metadata: dict[str, Any] = {"uid": uid, "labels": {self._label: value}}
        body = msgspec.json.encode({"metadata": metadata})
        self._api.patch(f"{self._path}/{quote(name)}", body)


class Elector:
    """Says whether this replica is the one that answers for the cluster.

    Its own thread calls `look`; any thread may call what is above that, and none of it
    waits but `leave`, and `before_choice` for a moment.

    Parameters
    ----------
    identity : str
        Of this replica, and of no other.
    is_wanted : callable
        Whether there is anything to be elected for. While not, nothing is asked.
    is_ready : callable
        Whether this replica may hold the lease.
    is_called : callable
        Whether the holder alone is to be called. While not, the label is left alone.
    on_alone : callable
        Told of each decision that is made without the lease.
    waiting_limit : int
        How many decisions may wait at the same time; one more is made at once.
    monotonic : callable
        Returns seconds by the monotonic clock, by which all is measured.
    clock : callable
        Returns seconds since 1970, which are written into the Lease and never read.
    pause : callable, optional
        Waits so many seconds, by default until the end at the latest.
    """

    def __init__(  # noqa: PLR0913 - the last three are the tests'
        self,
        store: LeaseStore,
        label: ActiveLabel,
        identity: str,
        times: LeaseTimes,
        *,
        is_wanted: Callable[[], bool],
        is_ready: Callable[[], bool],
        is_called: Callable[[], bool] = lambda: True,
        on_alone: Callable[[], None],
        waiting_limit: int,
        monotonic: Callable[[], float] = time.monotonic,
        clock: Callable[[], float] = time.time,
        pause: Callable[[float], object] | None = None,
    ) -> None:
        self._store = store
        self._label = label
        self._identity = identity
        self._times = times
        self._is_wanted = is_wanted
        self._is_ready = is_ready
        self._is_called = is_called
        self._on_alone = on_alone
        self._monotonic = monotonic
        self._clock = clock
        # What other threads read is swapped by one assignment.
        self._held_until = NEVER
        self._is_held = False
        self._settled_from = NEVER
        self._trouble = "it has not been asked for yet"
        # The thread's own.
        self._observed: Observed | None = None
        self._was_holding = False
        self._label_from = NEVER
        self._shared_from: float | None = None
        self._left_seconds: float | None = None
        self._alone = _Repeated("decided without the lease", monotonic)
        self._failed = _Repeated("lease not renewed or taken", monotonic)
        self._unlabelled = _Repeated("active label not set", monotonic)
        self._waiting = threading.BoundedSemaphore(waiting_limit)
        self._leaving = threading.Event()
        self._left = threading.Event()
        self._woken = threading.Event()
        self._stopped = threading.Event()
        self._pause = pause or self._stopped.wait
        self._thread = threading.Thread(target=self._run, name="lease", daemon=True)

    # --- what is asked of it -------------------------------------------------

    @property
    def is_holding(self) -> bool:
        """Whether this replica holds the lease at this very moment."""
        return self._monotonic() < self._held_until

    @property
    def is_elsewhere(self) -> bool:
        """Whether callers had better come back on a new connection.

        It then leads to the replica that holds the lease, where that one alone is
        called. One that was cut off cannot know who that is, but that it is no longer
        itself.
        """
        is_held_elsewhere = self._is_held and not self.is_holding
        return self._is_called() and (self._leaving.is_set() or is_held_elsewhere)

    @property
    def lets_go(self) -> bool:
        """Whether connections that callers leave idle are to end, too.

        Not while this replica leaves: they end with it. Calls pile up while another
        takes over, and callers begin to use connections that were idle for long, which
        fails at the moment of their end.
        """
        return self.is_elsewhere and not self._leaving.is_set()

    def before_choice(self) -> None:
        """Note a decision that is about to be made for the whole cluster.

        Just after another was called in our place, it waits until what that one has
        promised is seen.
        """
        self._settle()
        if not self.is_holding:
            self._on_alone()
            self._alone.tell(self._trouble)

    def _settle(self) -> None:
        """Wait until nobody else is called any more, if that was so a moment ago."""
        if self._monotonic() >= self._settled_from:
            return
        if not self._waiting.acquire(blocking=False):
            return
        try:
            while not self._stopped.is_set():
                seconds = self._settled_from - self._monotonic()
                if seconds <= 0:
                    return
                self._pause(seconds)
        finally:
            self._waiting.release()

    def start(self) -> None:
        """Start."""
        self._thread.start()

    def leave(self, interrupted: threading.Event) -> None:
        """Give the lease up, and wait until another replica is called in our place.

        Where none takes it, that is waited for in vain, for a few seconds; where the
        holder is called as often as others, not at all.
        """
        was_holding = self.is_holding
        self._leaving.set()
        self._woken.set()
        seconds = self._times.takeover_seconds + LABEL_DELAY_SECONDS + 1.0
        if not self._is_called():
            seconds = RELEASE_SECONDS
        deadline = self._monotonic() + seconds
        while was_holding and self._thread.is_alive() and not self._left.is_set():
            if interrupted.is_set() or self._monotonic() >= deadline:
                break
            self._left.wait(LEAVING_SECONDS)

    def stop(self, within_seconds: float = STOP_SECONDS) -> None:
        """Stop looking; a call under way is left behind after a while."""
        self._held_until = NEVER
        self._stopped.set()
        self._woken.set()
        if self._thread.is_alive():
            self._thread.join(min(within_seconds, STOP_SECONDS))

    # --- how it comes to hold it ---------------------------------------------

    def _run(self) -> None:
        while not self._stopped.is_set():
            self.look()
            self._woken.wait(self._pause_seconds())
            self._woken.clear()

    def _pause_seconds(self) -> float:
        if self._leaving.is_set() and not self._left.is_set():
            return LEAVING_SECONDS
        retry = self._times.retry_seconds
        until_label = self._label_from - self._monotonic()
        if self.is_holding and 0 < until_label < retry:
            return until_label
        return retry * random.uniform(1, 1 + JITTER)  # noqa: S311 - no secret

    def look(self) -> None:
        """Take one step, whatever comes of it."""
        try:
            self._elect()
        except ApiError as error:
            self._fail(error)
        except Exception:
            logger.exception("lease could not be looked at")
            self._trouble = "a fault of our own, see the log"
        self._note_change()
        if self._left_seconds is not None:
            self._look_for_successor()
        elif (
            self.is_holding
            and self._is_called()
            and self._monotonic() >= self._label_from
        ):
            self._keep_label()

    def _elect(self) -> None:
        """Read the lease and take the next step; raise `ApiError` if that fails."""
        is_mine = (
            self._observed is not None
            and self._observed.record.holder == self._identity
        )
        is_leaving = self._leaving.is_set()
        is_wanted = self._is_wanted()
        if not (is_wanted or is_mine):
            self._forget()
            return
        is_candidate = is_wanted and not is_leaving and self._is_ready()
        begun = self._monotonic()
        stored = self._store.read()
        seen = self._monotonic()
        self._observed = observe(self._observed, stored.record, seen)
        step = next_step(
            self._observed, self._identity, begun, is_candidate=is_candidate
        )
        if stored.record.holder != self._identity or step is Step.RELEASE:
            self._held_until = NEVER  # before anybody else can take it
        record = stored.record
        if step is not Step.WAIT:
            written = format_time(self._clock())
            lease_seconds = self._times.lease_seconds
            record = next_record(step, record, self._identity, written, lease_seconds)
            self._store.write(stored, record)
            self._observed = observe(self._observed, record, self._monotonic())
        if step in {Step.TAKE, Step.RENEW}:
            self._hold_from(begun)
        self._is_held = bool(record.holder) and self._observed.is_valid(seen)
        self._trouble = self._describe(
            record.holder, is_ready=is_candidate, is_leaving=is_leaving
        )
        if is_leaving and self._left_seconds is None:
            self._left_seconds = self._monotonic()
        self._failed.end()

    def _describe(self, holder: str, *, is_ready: bool, is_leaving: bool) -> str:
        """Return why this replica does not hold the lease, or soon will not."""
        if holder == self._identity:  # which is told only once its time is up
            return "it was not renewed in time"
        if holder:
            return f"held by {holder}"
        if is_leaving:
            return "this replica is leaving"
        return "nobody holds it" if is_ready else "this replica is not ready to hold it"

    def _hold_from(self, begun: float) -> None:
        """Count as the holder since before the write that made or kept us it."""
        if not self.is_holding:
            self._label_from = self._monotonic() + LABEL_DELAY_SECONDS
            self._shared_from = None
        self._held_until = begun + self._times.renew_deadline_seconds

    def _forget(self) -> None:
        """Know nothing of the lease, and hold nothing."""
        self._observed = None
        self._held_until = NEVER
        self._is_held = False
        if self._leaving.is_set():
            self._left.set()

    def _fail(self, error: ApiError) -> None:
        """Note that the API server did not do what was asked."""
        if error.status == HTTPStatus.NOT_FOUND:
            self._forget()  # made anew, it may be anybody's
            self._trouble = "there is no Lease of that name"
        elif error.status == HTTPStatus.FORBIDDEN:
            self._trouble = "no right to the Lease"
        elif error.status == HTTPStatus.CONFLICT:
            self._trouble = "another replica was faster"
            return  # it is read again
        else:
            self._trouble = f"the API server did not say: {error.reason}"
        if not self._leaving.is_set():
            self._failed.tell(str(error))

    def _note_change(self) -> None:
        """Log that the lease has come, or gone."""
        is_holding = self.is_holding
        if is_holding != self._was_holding:
            self._was_holding = is_holding
            if is_holding:
                logger.info("lease taken")
            elif self._leaving.is_set():
                logger.info("lease given up")
            else:
                fields = {"reason": self._trouble}
                logger.warning("lease not held any more", extra={"fields": fields})

    def _keep_label(self) -> None:
        """Have the label on our own pod alone."""
        try:
            if self._label.take(self._note_shared):
                logger.info("active label set")
            if self._shared_from is not None:
                self._shared_from = None
                self._settled_from = self._monotonic() + self._times.settle_seconds
            self._unlabelled.end()
        except ApiError as error:
            self._unlabelled.tell(str(error))

    def _note_shared(self) -> None:
        """Note that another is called beside us from now on, until `take` succeeds.

        A label that is refused again and again must not keep every decision waiting.
        """
        now, seconds = self._monotonic(), self._times.settle_seconds
        if self._shared_from is None:
            self._shared_from = now
        self._settled_from = min(now + seconds, self._shared_from + 2 * seconds)

    def _look_for_successor(self) -> None:
        """Look whether another replica is called in our place, or nobody will be."""
        assert self._left_seconds is not None  # noqa: S101 - the caller has looked
        if not self._is_called():
            self._left.set()
            return
        holder = "" if self._observed is None else self._observed.record.holder
        waited = self._monotonic() - self._left_seconds
        if holder in {"", self._identity}:
            if waited > self._times.takeover_seconds:
                self._left.set()
            return
        try:
            if not self._label.is_ours():
                self._left.set()
        except ApiError as error:
            self._unlabelled.tell(str(error))


class _Repeated:
    """Says something again and again, but only once a minute; any thread may call it.

    Two lines are the worst that a race can bring about.
    """

    def __init__(self, event: str, monotonic: Callable[[], float]) -> None:
        self._event = event
        self._monotonic = monotonic
        self._count = 0
        self._next = NEVER

    def tell(self, reason: str) -> None:
        """Say it, unless it was said within the last minute."""
        self._count += 1
        now = self._monotonic()
        if now < self._next:
            return
        self._next = now + LOG_SECONDS
        count, self._count = self._count, 0
        fields = {"reason": reason, "times": count}
        logger.warning(self._event, extra={"fields": fields})

    def end(self) -> None:
        """Count anew: it is over for now."""
        self._count = 0
