"""Replicas elect a holder by the rules of client-go, and never two of them hold."""

from dataclasses import dataclass
from typing import Any, Final

from hypothesis import given, settings
from hypothesis import strategies as st

from cluster.api.protocol import ApiError
from tests.fakes.leases import LeaseObjects, Replica

NAMES: Final = ("a", "b", "c")
FOREIGN: Final[tuple[dict[str, Any], ...]] = (
    {},
    {"holderIdentity": "x", "leaseDurationSeconds": 2},
    {"holderIdentity": "x", "leaseDurationSeconds": 9, "leaseTransitions": 7},
    {"holderIdentity": "uid-b", "leaseDurationSeconds": 6},
    {"leaseDurationSeconds": 30},
)


# --- the rules ---------------------------------------------------------------


@dataclass
class ClientGo:
    """`LeaderElector` of client-go, line by line, over a Lease of its own.

    Left out are the shortcut of a leader that writes without reading first, and the
    creation of a Lease, which is refused.
    """

    objects: LeaseObjects
    identity: str
    observed_record: dict[str, Any]
    observed_time: float = 0.0

    def is_leader(self) -> bool:
        return bool(self.observed_record.get("holderIdentity") == self.identity)

    def is_lease_valid(self, now: float) -> bool:
        seconds = self.observed_record.get("leaseDurationSeconds", 0)
        return bool(self.observed_time + seconds > now)

    def set_observed_record(self, record: dict[str, Any]) -> None:
        self.observed_record = dict(record)
        self.observed_time = self.objects.now

    def try_acquire_or_renew(self) -> None:
        now = self.objects.now
        record = {
            "holderIdentity": self.identity,
            "leaseDurationSeconds": 6,
            "renewTime": now,
            "acquireTime": now,
        }
        if not self.get():
            return
        old = self.objects.spec
        is_held = bool(old.get("holderIdentity")) and self.is_lease_valid(now)
        if is_held and not self.is_leader():
            return
        if self.is_leader():
            record["acquireTime"] = old.get("acquireTime", now)
            record["leaseTransitions"] = old.get("leaseTransitions", 0)
        else:
            record["leaseTransitions"] = old.get("leaseTransitions", 0) + 1
        self.objects.put(record)
        self.set_observed_record(record)

    def release(self) -> None:
        if self.get() and self.is_leader():
            record = {
                "leaseTransitions": self.observed_record.get("leaseTransitions", 0),
                "leaseDurationSeconds": 1,
                "renewTime": self.objects.now,
                "acquireTime": self.objects.now,
            }
            self.objects.put(record)
            self.set_observed_record(record)

    def get(self) -> bool:
        """Read and observe; whether there is a Lease."""
        if self.objects.lease is None:
            self.observed_record = {}
            return False
        if self.observed_record != self.objects.spec or not self.observed_time:
            self.set_observed_record(self.objects.spec)
        return True


def plain(spec: dict[str, Any]) -> dict[str, Any]:
    """Return a ``spec`` without its times, which the two write differently."""
    return {
        key: value
        for key, value in spec.items()
        if key not in {"renewTime", "acquireTime"}
    }


EVENTS: Final = st.one_of(
    st.tuples(st.just("look"), st.sampled_from(NAMES)),
    st.tuples(st.just("look"), st.sampled_from(NAMES)),
    st.tuples(st.just("look"), st.sampled_from(NAMES)),
    st.tuples(st.just("pass"), st.sampled_from((0.25, 1.0, 1.0, 2.0, 5.0, 7.0))),
    st.tuples(st.just("ready"), st.sampled_from(NAMES)),
    st.tuples(st.just("write"), st.sampled_from(FOREIGN)),
    st.tuples(st.just("delete"), st.none()),
)


@settings(max_examples=300)
@given(st.lists(EVENTS, max_size=60))
def test_what_is_written_is_what_client_go_would_write(
    events: list[tuple[str, Any]],
) -> None:
    ours, theirs = LeaseObjects(), LeaseObjects()
    replicas = {name: Replica(ours, name) for name in NAMES}
    reference = {name: ClientGo(theirs, f"uid-{name}", {}) for name in NAMES}

    for event, detail in events:
        match event:
            case "look":
                replicas[detail].elector.look()
                if replicas[detail].is_ready:
                    reference[detail].try_acquire_or_renew()
                else:
                    reference[detail].release()
            case "pass":
                ours.now += detail
                theirs.now += detail
            case "ready":
                replicas[detail].is_ready = not replicas[detail].is_ready
            case "write":
                # Times that differ from all others, as every real writer's do.
                for objects in (ours, theirs):
                    times = {"renewTime": f"{event}{objects._version}"}
                    objects.put({**detail, **times} if detail else {})
            case "delete":
                for objects in (ours, theirs):
                    objects.put(None)
        assert plain(ours.spec) == plain(theirs.spec)


# --- what they are for -------------------------------------------------------


MISHAPS: Final = st.sampled_from(
    (
        "look",
        "look",
        "look",
        "look",
        "wait",
        "cut off",
        "reach again",
        "freeze in a call",
        "freeze after a write",
        "lose an answer",
        "ready",
        "restart",
        "leave",
    )
)


class History:
    """Three replicas, what befalls them, and that no two hold the lease at a time."""

    def __init__(self) -> None:
        self.objects = LeaseObjects()
        self.replicas = [Replica(self.objects, name) for name in NAMES]

    def happen(self, what: str, place: int, seconds: float) -> None:
        """Let one thing happen to one replica."""
        replica = self.replicas[place]
        match what:
            case "look":
                self._pass(min(seconds, 1.0))
                replica.elector.look()
            case "wait":
                self._pass(seconds)
            case "cut off":
                replica.api.error = ApiError("no answer", reason="silent")
            case "reach again":
                replica.api.error = None
            case "ready":
                replica.is_ready = not replica.is_ready
            case "leave":
                replica.elector._leaving.set()
            case "restart":
                # Its pod is another one: in the same pod, the old process has ended.
                name = f"{NAMES[place]}{self.objects._version}"
                self.replicas[place] = Replica(self.objects, name)
            case _:
                self._spoil_look(what, place, seconds)
        self.check()

    def _spoil_look(self, what: str, place: int, seconds: float) -> None:
        """Let a replica look, and something go wrong in the midst of it."""
        api = self.replicas[place].api
        match what:
            case "freeze in a call":
                api.before_call = lambda: self._stall(place, seconds)
            case "freeze after a write":
                api.after_write = lambda: self._stall(place, seconds)
            case "lose an answer":
                api.after_write = self._lose
        self.replicas[place].elector.look()
        api.before_call = api.after_write = lambda: None

    def _stall(self, place: int, seconds: float) -> None:
        """Stand still while the others go on."""
        for _ in range(int(seconds) + 1):
            self._pass(1.0)
            for number, other in enumerate(self.replicas):
                if number != place and not other.api.error:
                    other.elector.look()
                    self.check()

    def _lose(self) -> None:
        raise ApiError("no answer", reason="silent")

    def _pass(self, seconds: float) -> None:
        self.objects.now += seconds
        self.check()

    def check(self) -> None:
        holding = [r.identity for r in self.replicas if r.elector.is_holding]
        assert len(holding) <= 1
        if holding:
            assert self.objects.holder == holding[0]


@settings(max_examples=300)
@given(
    st.lists(
        st.tuples(MISHAPS, st.integers(0, 2), st.sampled_from((0.5, 2, 3.9, 6, 20))),
        max_size=60,
    )
)
def test_whatever_befalls_them_no_two_replicas_hold_it_and_soon_one_does(
    mishaps: list[tuple[str, int, float]],
) -> None:
    history = History()
    for what, place, seconds in mishaps:
        history.happen(what, place, seconds)

    for place, replica in enumerate(history.replicas):
        replica.api.error = None
        replica.is_ready = True
        if replica.elector._leaving.is_set():
            history.happen("restart", place, 0)
    for _ in range(9):
        for place in range(3):
            history.happen("look", place, 1.0)

    (holder,) = [r for r in history.replicas if r.elector.is_holding]
    assert history.objects.labels == {holder.identity.removeprefix("uid-"): "true"}
