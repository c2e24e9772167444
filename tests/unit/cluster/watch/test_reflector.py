"""`Reflector` over a scripted API server: its requests, and its use of answers."""

import itertools
import json
import threading
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from typing import Final

import pytest

from cluster.api.protocol import ApiError
from cluster.ledger.changes import Change, PodGone, PodSeen, PodsListed
from cluster.watch.backoff import Pace
from cluster.watch.kinds import pods_kind
from cluster.watch.reflector import MAX_LINE_BYTES, UNHEARD_SECONDS, Reflector
from tests.builders import BUILDER, Tree, make_pod
from tests.fakes.api import NoApi
from tests.fakes.watched_cluster import RecordingObserver

UNREACHABLE: Final = ApiError("refused", reason="unreachable")
BOOKMARK: Final = (
    b'{"type":"BOOKMARK","object":{"metadata":{"resourceVersion":"20"}}}\n'
)


def make_page(*pods: Tree, version: str = "10", following: str = "") -> bytes:
    """Return a page of a list."""
    metadata = {"resourceVersion": version, "continue": following}
    return json.dumps({"metadata": metadata, "items": list(pods)}).encode()


def make_line(event_type: str, pod: Tree, version: str) -> bytes:
    """Return a line of a watch."""
    pod["metadata"]["resourceVersion"] = version
    return json.dumps({"type": event_type, "object": pod}).encode() + b"\n"


class ScriptedStream:
    """Yields what it is given; an error among it is raised."""

    def __init__(self, parts: list[bytes | ApiError]) -> None:
        self.parts = parts
        self.was_interrupted = False

    def chunks(self) -> Iterator[bytes]:
        for part in self.parts:
            if isinstance(part, ApiError):
                raise part
            yield part

    def read(self) -> bytes:
        return b"".join(self.chunks())

    def interrupt(self) -> None:
        self.was_interrupted = True

    def close(self) -> None:
        """Hold nothing open."""


class ScriptedApi(NoApi):
    """Answers from a list, and stops the reflector when that is used up."""

    def __init__(self, *answers: ApiError | list[bytes | ApiError]) -> None:
        self._answers = deque(answers)
        self.queries: list[dict[str, str]] = []
        self.streams: list[ScriptedStream] = []
        self.on_request: Callable[[], None] = lambda: None
        self.stop: Callable[[], None] = lambda: None

    def get(self, path: str, query: Mapping[str, str]) -> ScriptedStream:
        assert path == "/api/v1/pods"
        self.on_request()
        self.queries.append(dict(query))
        answer = self._answers.popleft()
        if not self._answers:
            self.stop()
        if isinstance(answer, ApiError):
            raise answer
        self.streams.append(ScriptedStream(answer))
        return self.streams[-1]


class Bench:
    """A reflector that runs in the test's own thread, and all it hands on."""

    def __init__(self, *answers: ApiError | list[bytes | ApiError]) -> None:
        self.api = ScriptedApi(*answers)
        self.changes: list[Change] = []
        self.delays: list[float] = []
        self.observer = RecordingObserver()
        self.now = 0.0
        self.reflector = Reflector(
            pods_kind(BUILDER),
            self.api,
            self.submit,
            self.observer,
            Pace(monotonic=lambda: self.now, wait=self._wait),
        )
        self.api.stop = self.reflector.request_stop

    def submit(self, *changes: Change) -> None:
        self.changes.extend(changes)

    def _wait(self, stopping: threading.Event, seconds: float) -> bool:
        self.delays.append(seconds)
        return stopping.is_set()

    def run(self) -> None:
        self.reflector.run()

    def reasons(self) -> list[str]:
        """Return why lists and watches ended, in no order."""
        return [
            detail
            for what, _, detail in self.observer.counts
            if what == "watch_restarted"
        ]


def test_pages_are_followed_by_their_tokens() -> None:
    bench = Bench(
        [make_page(make_pod(name="a"), following="next")],
        [make_page(make_pod(name="b"), version="11")],
        [],
    )

    bench.run()

    first, second, watch = bench.api.queries
    assert first == {"limit": "500"}
    assert second == {"limit": "500", "continue": "next"}
    assert watch["resourceVersion"] == "11"
    listed = bench.changes[0]
    assert isinstance(listed, PodsListed)
    assert [record.name for record in listed.records] == ["a", "b"]


def test_lines_are_joined_across_chunks() -> None:
    line = make_line("ADDED", make_pod(name="a"), "11")
    gone = make_line("DELETED", make_pod(name="a"), "12")
    bench = Bench(
        [make_page()],
        [line[:5], line[5:9], line[9:] + gone[:7], gone[7:] + b"\n"],
        UNREACHABLE,
    )

    bench.run()

    _, seen, removed = bench.changes
    assert isinstance(seen, PodSeen)
    assert isinstance(removed, PodGone)
    assert bench.api.queries[-1]["resourceVersion"] == "12"
    assert bench.observer.counts["events", "pods", "ADDED"] == 1
    assert bench.observer.counts["events", "pods", "DELETED"] == 1


def test_events_before_an_error_in_one_chunk_are_kept() -> None:
    line = make_line("ADDED", make_pod(name="a"), "11")
    error = b'{"type":"ERROR","object":{"code":410}}\n'
    bench = Bench([make_page()], [line + error], UNREACHABLE)

    bench.run()

    assert isinstance(bench.changes[-1], PodSeen)
    assert "limit" in bench.api.queries[-1]


def test_a_type_of_event_that_is_not_known_changes_as_its_object_says() -> None:
    line = make_line("REVISED", make_pod(name="a"), "11")
    bench = Bench([make_page()], [line], UNREACHABLE)

    bench.run()

    assert isinstance(bench.changes[-1], PodSeen)


def test_an_event_without_a_version_keeps_the_last_one() -> None:
    line = make_line("ADDED", make_pod(name="a"), "")
    bench = Bench([make_page()], [line], UNREACHABLE)

    bench.run()

    assert bench.api.queries[-1]["resourceVersion"] == "10"


def test_a_watch_that_lasted_and_ended_empty_is_no_failure() -> None:
    bench = Bench([make_page()], [], UNREACHABLE)

    def let_time_pass() -> None:
        bench.now += 300

    bench.api.on_request = let_time_pass
    bench.run()

    assert "ended" in bench.reasons()
    assert "closed" not in bench.reasons()


def test_a_fault_of_our_own_is_counted_and_heals_with_a_list(
    caplog: pytest.LogCaptureFixture,
) -> None:
    bench = Bench([make_page()], [make_page()], UNREACHABLE)
    answers = iter([RuntimeError("ours")])

    def submit(*changes: Change) -> None:
        for error in answers:
            raise error
        bench.changes.extend(changes)

    bench.reflector._submit = submit
    bench.run()

    assert len(bench.changes) == 1
    assert bench.reasons() == ["fault"]
    assert "watch failed" in caplog.text


def test_the_first_failure_of_many_is_the_one_that_warns(
    caplog: pytest.LogCaptureFixture,
) -> None:
    bench = Bench(
        *[UNREACHABLE] * 5,
        [make_page()],
        [make_line("ADDED", make_pod(), "11")],
        UNREACHABLE,
    )

    with caplog.at_level("INFO", logger="cluster.watch.reflector"):
        bench.run()

    messages = [record.message for record in caplog.records]
    assert messages == ["watch interrupted", "objects listed", "watch resumed"]


@pytest.mark.parametrize(
    ("versions", "last"),
    [
        pytest.param(["12", "11"], "12", id="an older one last"),
        pytest.param(["12", "9"], "12", id="numbers, not texts"),
        pytest.param(["11", "12"], "12", id="in order"),
        pytest.param(["9"], "10", id="older than the list"),
        pytest.param(["12", "12"], "12", id="the same twice"),
        pytest.param(["12", "x-1"], "x-1", id="no number: as it was said"),
        pytest.param(["340282366920938463463374607431768211456", "7"],
                     "340282366920938463463374607431768211456", id="beyond 64 bits"),
    ],
)  # fmt: skip
def test_a_watch_goes_on_from_the_newest_version(
    versions: list[str], last: str
) -> None:
    lines = [make_line("MODIFIED", make_pod(name="a"), version) for version in versions]
    bench = Bench([make_page(make_pod(name="a"))], [b"".join(lines)], [])

    bench.run()

    assert bench.api.queries[-1]["resourceVersion"] == last


def test_lists_on_demand_that_do_not_help_become_rare() -> None:
    page: list[bytes | ApiError] = [make_page()]
    bench = Bench(*[page, []] * 12)
    asked_at: list[float] = []

    def ask_every_ten_seconds() -> None:
        if len(bench.api.streams) % 2:  # it watches: the counts are still wrong
            while not bench.reflector.restart("counts"):
                bench.now += 10.0
            asked_at.append(bench.now)
            if len(asked_at) == 10:
                bench.now += 1200.0  # it helped for a while

    bench.api.on_request = ask_every_ten_seconds

    bench.run()

    pauses = [after - before for before, after in itertools.pairwise(asked_at)]
    assert asked_at[0] == 30.0
    assert pauses == [60, 120, 240, 480, 600, 600, 600, 600, 600, 1230, 60]


def test_a_restart_before_the_first_list_does_nothing() -> None:
    bench = Bench(UNREACHABLE)

    assert not bench.reflector.restart("counts")


def test_a_restart_asked_for_between_two_watches_is_not_lost() -> None:
    bench = Bench(
        [make_page()],
        [make_line("ADDED", make_pod(), "11")],
        [make_line("ADDED", make_pod(), "12")],
        [make_page()],
        UNREACHABLE,
    )
    done: list[bool] = []

    def restart_before_the_second_watch() -> None:
        if len(bench.api.queries) == 2:
            bench.now += 100
            done.append(bench.reflector.restart("counts"))

    bench.api.on_request = restart_before_the_second_watch
    bench.run()

    assert done == [True]
    assert bench.api.streams[2].was_interrupted
    assert "limit" in bench.api.queries[3]
    assert "counts" in bench.reasons()


def test_the_age_of_a_kind_is_that_of_its_last_contact() -> None:
    bench = Bench([make_page()], UNREACHABLE)
    ages = [bench.reflector.contact_age]

    def pass_time() -> None:
        bench.now += 30
        ages.append(bench.reflector.contact_age)

    bench.api.on_request = pass_time
    bench.run()

    # the list was a contact, the refused watch after it was none
    assert ages == [0.0, 30.0, 30.0]
    assert bench.reflector.contact_age == 30.0


OPEN: Final = b'{"type":"ADDED","object":{"metadata":'


@pytest.mark.parametrize(
    "answers",
    [
        pytest.param([[]], id="headers, then silence"),
        pytest.param([[b"\n", b"\n"]], id="blank lines"),
        pytest.param([[OPEN]], id="half a line"),
        pytest.param([[b"<html>oops</html>\n"]], id="no JSON"),
        pytest.param([[b'{"type":"MODIFIED","object":{}}\n']], id="an object, unnamed"),
        pytest.param([[b'{"type":"MODIFIED","object":5}\n']], id="no object"),
        pytest.param([[b'{"type":"BOOKMARK","object":{}}\n']], id="an empty bookmark"),
        pytest.param([[b'{"type":"BOOKMARK","object":5}\n']], id="no bookmark"),
        pytest.param([[b'{"type":"ERROR","object":{"code":410}}\n']], id="an error"),
        pytest.param(
            [ApiError("gone", reason="expired", status=410), [b"<html>"]],
            id="410, then a list that is a page of HTML",
        ),
        pytest.param(
            [
                ApiError("gone", reason="expired", status=410),
                [make_page(make_pod(), following="more")],
                ApiError("busy", reason="http_503", status=503),
            ],
            id="410, then a list that breaks between two pages",
        ),
        pytest.param(
            [ApiError("gone", reason="expired", status=410), [b'{"metadata":{}}']],
            id="410, then a list without a version",
        ),
        pytest.param([ApiError("no", reason="http_401", status=401)], id="refused"),
    ],
)
def test_what_cannot_be_read_keeps_nothing_fresh(
    answers: list[ApiError | list[bytes | ApiError]],
) -> None:
    bench = Bench([make_page()], *answers, UNREACHABLE)

    def pass_time() -> None:
        bench.now += 30

    bench.api.on_request = pass_time
    bench.run()

    assert bench.reflector.contact_age == 30 * (len(answers) + 1)
    listed = [change for change in bench.changes if isinstance(change, PodsListed)]
    assert len(listed) == 1  # and nothing was replaced


@pytest.mark.parametrize(
    "answers",
    [
        pytest.param([[BOOKMARK]], id="a bookmark"),
        pytest.param([[BOOKMARK[:20], BOOKMARK[20:]]], id="a bookmark in two pieces"),
        pytest.param([[make_line("ADDED", make_pod(), "11")]], id="an event"),
        pytest.param([[make_line("DELETED", make_pod(), "11")]], id="an end"),
        pytest.param(
            [[make_line("MODIFIED", make_pod(spec={"nodeSelector": 5}), "11")]],
            id="an object of which a part decodes",
        ),
        pytest.param(
            [ApiError("gone", reason="expired", status=410), [make_page()]],
            id="an empty list",
        ),
        pytest.param(
            [
                ApiError("gone", reason="expired", status=410),
                [make_page(make_pod(), following="more")],
                [make_page(make_pod(name="b"))],
            ],
            id="the last page of a list",
        ),
    ],
)
def test_what_says_how_things_are_counts_as_contact(
    answers: list[ApiError | list[bytes | ApiError]],
) -> None:
    bench = Bench([make_page()], *answers, UNREACHABLE)

    def pass_time() -> None:
        bench.now += 30

    bench.api.on_request = pass_time
    bench.run()

    assert bench.reflector.contact_age == 30  # since the refused request


@pytest.mark.parametrize(
    ("seconds", "heard", "is_listed"),
    [
        pytest.param(UNHEARD_SECONDS, [], True, id="of a kind that nothing changes"),
        pytest.param(UNHEARD_SECONDS, [BOOKMARK], False, id="after a bookmark"),
        pytest.param(UNHEARD_SECONDS - 1, [], False, id="sooner"),
    ],
)
def test_a_list_follows_a_watch_that_brought_nothing_for_as_long_as_bookmarks_take(
    seconds: float, heard: list[bytes | ApiError], is_listed: bool
) -> None:
    class Silent(ScriptedStream):
        """Says nothing more until it is taken for dead."""

        def chunks(self) -> Iterator[bytes]:
            yield from super().chunks()
            bench.now += seconds
            raise ApiError("no byte within the read timeout", reason="silent")

    bench = Bench([make_page()], heard, [make_page()], UNREACHABLE)
    get = bench.api.get

    def get_silent(path: str, query: Mapping[str, str]) -> ScriptedStream:
        stream = get(path, query)
        return Silent(stream.parts) if len(bench.api.queries) == 2 else stream

    bench.api.get = get_silent  # type: ignore[method-assign]
    bench.run()

    assert ("limit" in bench.api.queries[2]) == is_listed


@pytest.mark.parametrize(
    ("first", "endless", "reason"),
    [
        pytest.param([], b" ", "silent", id="a list that never ends"),
        pytest.param(
            [[make_page(following="more")]], b" ", "silent", id="its second page"
        ),
        pytest.param([[make_page()]], b"\n", "silent", id="blank lines for ever"),
        pytest.param([[make_page()]], b"x", "silent", id="a line that trickles in"),
        pytest.param(
            [[make_page()]],
            b"x" * (MAX_LINE_BYTES // 8),
            "undecodable",
            id="a line that never ends",
        ),
        pytest.param(
            [[make_page()]],
            b'{"type":"MODIFIED","object":{}}\n',
            "silent",
            id="events that say nothing",
        ),
    ],
)
def test_a_stream_that_brings_bytes_and_no_sense_is_given_up(
    first: list[ApiError | list[bytes | ApiError]], endless: bytes, reason: str
) -> None:
    chunks: list[bytes | ApiError] = [endless] * 50
    bench = Bench(*first, chunks, UNREACHABLE)
    clock = itertools.count(0, 7)
    bench.reflector._pace = Pace(monotonic=lambda: float(next(clock)), wait=bench._wait)

    bench.run()

    assert reason in bench.reasons()
    assert bench.observer.counts["watch_restarted", "pods", "unreachable"] == 0


def test_blank_lines_do_not_have_a_server_stormed() -> None:
    blank: list[bytes | ApiError] = [b"\n"]
    bench = Bench([make_page()], *[blank] * 6, UNREACHABLE)

    bench.run()

    assert bench.observer.counts["watch_restarted", "pods", "closed"] == 6
    assert max(bench.delays) > 2.0
