"""`Campaign`: seeded mutated bodies against the application itself, without sockets."""

import io
import json
import random
import signal
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import FrameType, MappingProxyType
from typing import Any, Final

from cluster.decode.records import MAX_KNOWN_REQUESTS
from cluster.dump import load_dump
from cluster.ledger.changes import NodeSeen, PodGone, PodSeen
from cluster.ledger.ledger import Ledger
from tests.builders import (
    BUILDER,
    LABEL_KEYS,
    make_node,
    make_node_record,
    make_pod,
    make_pod_record,
)
from tests.extender_app import ExtenderApp
from tests.fuzz.contract import Answer, ContractError, Terms, check, read
from tests.fuzz.corpus import (
    DUMP,
    EXPLAIN,
    FILTER,
    NAMES,
    PRIORITIZE,
    ROUTES,
    build_corpus,
)
from tests.fuzz.mutations import mutate

# A body may go to another route than its own this often.
STRAY: Final = 0.05
WEIGHTS: Final = (6, 6, 5, 3)  # of the routes; an explanation costs several calls
CHANGE_EVERY: Final = 500
DOUBTFUL_SECONDS: Final = 0.1
SETTINGS: Final[tuple[tuple[Mapping[str, Any], Terms], ...]] = (
    ({"extender": {"freshnessMilliseconds": 0}}, Terms()),
    (
        {
            "extender": {"counts": "trust", "freshnessMilliseconds": 0},
            "scoring": {"shortlist": 1, "normalize": "rank", "maxScore": 100},
        },
        Terms(max_score=100, shortlist=1),
    ),
)


class HangError(RuntimeError):
    """A call that did not come back."""


@dataclass(frozen=True, slots=True)
class Violation:
    """A body whose answer broke the contract."""

    route: str
    body: bytes
    said: str

    def __str__(self) -> str:
        return f"{self.route}: {self.said}, for {self.body!r}"


@dataclass(slots=True)
class Tally:
    """What has come of a campaign so far."""

    bodies: int = 0
    calls: int = 0
    # route and status -> answers
    statuses: Counter[tuple[str, int]] = field(default_factory=Counter)
    slowest_seconds: float = 0.0
    slowest_body: bytes = b""
    current: tuple[str, bytes] = ("", b"")  # what is being answered
    violations: list[Violation] = field(default_factory=list)

    def of_status(self, status: int) -> int:
        """Return how many answers had a status."""
        return sum(
            count for (_, given), count in self.statuses.items() if given == status
        )


class Campaign:
    """Sends bodies one after the other; the same ones for the same seed.

    Parameters
    ----------
    seed : int
    hang_seconds : float
        A call that takes as long is broken off. It is there to end a run that would
        never end, so it is far above what a call takes on a busy machine.
    """

    def __init__(self, seed: int, hang_seconds: float) -> None:
        self.tally = Tally()
        self._chance = random.Random(seed)  # noqa: S311  the same bodies in every run
        self._hang_seconds = hang_seconds
        self._corpus = build_corpus()
        self._ledger = Ledger(LABEL_KEYS)
        for change in load_dump([DUMP], BUILDER):
            self._ledger.apply(change)
        self._apps = [
            (ExtenderApp(is_synced=False, settings=settings), terms)
            for settings, terms in SETTINGS
        ]
        self._publish()

    def fill(self) -> None:
        """Have the largest cache that bodies can fill filled, by pods of all sizes."""
        for number in range(MAX_KNOWN_REQUESTS):
            pod = make_pod(gpus=1, cpu=f"{number}m")
            for app, _ in self._apps:
                call(app, EXPLAIN, json.dumps(pod).encode())

    def run(self, bodies: int, until: Callable[[], bool] = lambda: False) -> None:
        """Send so many bodies, or fewer if `until` says so."""
        before = signal.signal(signal.SIGALRM, _break_off)
        try:
            for _ in range(bodies):
                if until():
                    break
                self._send_one()
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, before)

    def _send_one(self) -> None:
        """Make one body, send it, and what kube-scheduler would send next."""
        chance = self._chance
        (home,) = chance.choices(ROUTES, WEIGHTS)
        route = chance.choice(ROUTES) if chance.random() < STRAY else home
        body = mutate(chance.choice(self._corpus[home]), chance)
        app, terms = chance.choice(self._apps)
        self.tally.bodies += 1
        answer = self._ask(app, terms, route, body)
        if route == FILTER and answer.status == 200:
            following = following_call(body, answer.body)
            if following is not None:
                self._ask(app, terms, PRIORITIZE, following)
        if self.tally.bodies % CHANGE_EVERY == 0:
            self._change_cluster()

    def _ask(self, app: ExtenderApp, terms: Terms, route: str, body: bytes) -> Answer:
        """Call the application and look at what comes back."""
        tally = self.tally
        tally.current = (route, body)
        answer, seconds = self._time(app, route, body)
        if seconds > DOUBTFUL_SECONDS:
            # A busy machine stops any process for a while; a slow body is slow twice.
            answer, again = self._time(app, route, body)
            seconds = min(seconds, again)
        if seconds > tally.slowest_seconds:
            tally.slowest_seconds, tally.slowest_body = seconds, body
        tally.calls += 1
        tally.statuses[route, answer.status] += 1
        try:
            check(route, body, answer, terms)
        except (ContractError, ValueError, LookupError, TypeError) as error:
            said = f"{type(error).__name__}: {error}"
            tally.violations.append(Violation(route, body, said))
        return answer

    def _time(self, app: ExtenderApp, route: str, body: bytes) -> tuple[Answer, float]:
        """Call the application; return the answer and the seconds that it took."""
        signal.setitimer(signal.ITIMER_REAL, self._hang_seconds)
        started = time.perf_counter()
        answer = call(app, route, body)
        seconds = time.perf_counter() - started
        signal.setitimer(signal.ITIMER_REAL, 0)
        return answer, seconds

    def _change_cluster(self) -> None:
        """Let a pod come or go and a node change, as they do around any call."""
        chance = self._chance
        uid, node = f"fuzz-{chance.randrange(20)}", chance.choice(NAMES)
        if chance.random() < 0.3:
            self._ledger.apply(PodGone(uid))
        else:
            pod = make_pod(uid=uid, gpus=chance.randrange(1, 9), node_name=node)
            self._ledger.apply(PodSeen(make_pod_record(pod), is_partial=False))
        labels = {"nvidia.com/mig.config.state": chance.choice(("success", "pending"))}
        name = f"fuzz-node-{chance.randrange(5)}"
        changed = make_node(name=name, gpus=chance.randrange(9), labels=labels)
        self._ledger.apply(NodeSeen(make_node_record(changed), is_partial=False))
        self._publish()

    def _publish(self) -> None:
        """Show the applications the cluster as it is now."""
        snapshot = self._ledger.build()
        for app, _ in self._apps:
            app.cell.publish(snapshot)


def _break_off(_number: int, _frame: FrameType | None) -> None:
    raise HangError("a call did not come back")


def following_call(body: bytes, answer: bytes) -> bytes | None:
    """Return the prioritize call about what passed, as kube-scheduler writes it.

    None for a filter call that was not written so itself.
    """
    head, joint, _ = body.partition(b',"Nodes":null,"NodeNames":')
    names = read(answer)["NodeNames"] if joint else None
    if not names:
        return None
    return head + joint + json.dumps(names, separators=(",", ":")).encode() + b"}"


ENVIRON: Final[Mapping[str, Any]] = MappingProxyType(
    {
        "REQUEST_METHOD": "POST",
        "QUERY_STRING": "",
        "SERVER_NAME": "localhost",
        "SERVER_PORT": "80",
        "SERVER_PROTOCOL": "HTTP/1.1",
        "CONTENT_TYPE": "application/json",
        "wsgi.url_scheme": "http",
    }
)


def call(app: ExtenderApp, path: str, body: bytes) -> Answer:
    """Call the application of a test."""
    return call_application(app.client.app, path, body)


def call_application(app: Any, path: str, body: bytes) -> Answer:
    """Call an application as a WSGI server does, at a tenth of a client's cost."""
    given: list[tuple[str, dict[str, str]]] = []

    def start_response(
        status: str, headers: list[tuple[str, str]], *_rest: object
    ) -> Callable[[bytes], object]:
        given.append((status, {key.lower(): value for key, value in headers}))
        return str  # nobody writes this way

    environ = {
        **ENVIRON,
        "PATH_INFO": path,
        # Explanations have a row for each node only when asked.
        "QUERY_STRING": "nodes=true" if path == EXPLAIN else "",
        "CONTENT_LENGTH": str(len(body)),
        "wsgi.input": io.BytesIO(body),
        "wsgi.errors": io.StringIO(),
    }
    data = b"".join(app(environ, start_response))
    status, headers = given[-1]
    return Answer(int(status[:3]), headers.get("content-type", ""), data)
