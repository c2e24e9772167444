"""What the watched cache does with an API server that is at fault."""

import json
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from cluster.api.protocol import ApiError, ApiStream
from cluster.watch.backoff import Pace
from cluster.watch.cluster_watch import ClusterWatch
from tests.builders import BUILDER, GPU, Tree, make_node, make_pod
from tests.fakes.api import NoApi
from tests.fakes.api_http import Fault, Held, Lines, Silence, Status
from tests.fakes.api_server import FakeApiServer
from tests.fakes.api_state import event_line, expired_line, status_tree
from tests.fakes.watched_cluster import (
    DEADLINE_SECONDS,
    RecordingObserver,
    WatchedCluster,
    free_gpus,
)


def make_bound(name: str, gpus: int = 1, **more: Any) -> Tree:
    """Return a pod on node ``a``."""
    return make_pod(name=name, gpus=gpus, node_name="a", **more)


def make_broken(name: str, gpus: int = 1) -> Tree:
    """Return a pod on node ``a`` that does not decode, but for its requests."""
    return make_bound(name, gpus, spec={"nodeSelector": "no mapping"})


@pytest.fixture
def full(api: FakeApiServer) -> FakeApiServer:
    """An API server with one node of 8 GPUs, 3 of them in use."""
    api.put(make_node(name="a", gpus=8), make_bound("x", 3))
    return api


@pytest.mark.parametrize(
    ("faults", "reason"),
    [
        pytest.param([Lines(expired_line(1, 5))], "expired", id="410 as an event"),
        pytest.param([Status(410, "Expired")], "expired", id="410 as a status"),
        pytest.param(
            [Status(410, "Expired"), Lines(expired_line(1, 5)), Status(410)],
            "expired",
            id="410 three times in a row",
        ),
        pytest.param(
            [Lines(event_line("ERROR", status_tree(500, "InternalError", "oops")))],
            "error_event",
            id="another error as an event",
        ),
        pytest.param(
            [Lines(event_line("ERROR", {"code": "?"}))],
            "error_event",
            id="an error that is no Status",
        ),
        pytest.param([Lines(b"{not json}\n")], "undecodable", id="no JSON"),
        pytest.param([Lines(b'{"type": 1}\n')], "undecodable", id="no event"),
        pytest.param([Status(403, "Forbidden")], "http_403", id="forbidden"),
    ],
)
def test_a_useless_version_leads_to_a_list_that_replaces(
    full: FakeApiServer, cluster: WatchedCluster, faults: list[Fault], reason: str
) -> None:
    # the list, which is read first, still has the pod
    full.script("watch", "pods", Held(), *faults)
    held = full._faults["watch", "pods"][0]
    assert isinstance(held, Held)

    with cluster.synced():
        full.wait_seen("watch", "pods", 1)
        with full.state.changed:  # gone, and no event tells of it
            full.state.remove(make_bound("x"))
            full.state.log.pop()
        held.release.set()
        full.cut()
        full.wait_seen("list", "pods", len(faults) + 1)
        cluster.wait_free(a=8)
        full.put(make_bound("y"))
        cluster.wait_free(a=7)

    assert cluster.observer.counts["watch_restarted", "pods", reason] >= 1
    assert len(full.seen("list", "pods")) == len(faults) + 1


def test_a_server_that_expires_every_version_is_not_stormed(
    full: FakeApiServer, cluster: WatchedCluster
) -> None:
    full.script("watch", "pods", *[Status(410, "Expired")] * 8)

    with cluster.synced():
        full.wait_seen("watch", "pods", 9)
        delays = [delay for delay in cluster.delays if delay != 0.05]

    # 0.2 s doubled seven times, half of it random, 10 s at most
    assert len(delays) >= 8
    assert sum(delays) > 8.0
    assert max(delays) <= 10.0


def test_a_list_that_expires_between_two_pages_starts_again(
    full: FakeApiServer, cluster: WatchedCluster
) -> None:
    full.put(*(make_bound(f"y{index}") for index in range(4)))
    no_fault = Held()
    no_fault.release.set()
    full.script("list", "pods", no_fault, Status(410, "Expired"))

    with cluster.synced():
        cluster.wait_free(a=1)

    tokens = ["continue" in request.query for request in full.seen("list", "pods")]
    assert tokens == [False, True, False, True, True]


@pytest.mark.parametrize(
    ("is_reset", "reason"),
    [
        pytest.param(True, "unreachable", id="and a reset"),
        pytest.param(False, "closed", id="and a polite end"),
    ],
)
def test_half_a_line_loses_no_event(
    full: FakeApiServer, cluster: WatchedCluster, is_reset: bool, reason: str
) -> None:
    half = b'{"type":"ADDED","object":{"kind":"Pod","metadata":{"na'
    full.script("watch", "pods", Lines(half, is_reset))

    with cluster.synced():
        full.put(make_bound("y", 2))
        cluster.wait_free(a=3)

    assert cluster.observer.counts["watch_restarted", "pods", reason] == 1
    assert len(full.seen("list", "pods")) == 1


@pytest.mark.parametrize("has_headers", [True, False])
def test_a_silent_stream_is_given_up(
    full: FakeApiServer, tmp_path: Path, has_headers: bool
) -> None:
    full.script("watch", "pods", Silence(has_headers))
    cluster = WatchedCluster(full.kubeconfig(tmp_path), read_timeout_seconds=0.2)

    with cluster.synced():
        full.wait_seen("watch", "pods", 1)
        full.put(make_bound("y", 2))
        cluster.wait_free(a=3)
        cluster.observer.wait_for("watch_restarted", "pods", "silent")

    assert len(full.seen("list", "pods")) == 1


def test_a_stream_that_ends_after_each_event_goes_on_for_ever(
    full: FakeApiServer, cluster: WatchedCluster
) -> None:
    full.ends_after_each_event = True

    with cluster.synced():
        for index in range(5):
            full.put(make_bound(f"y{index}"))
        cluster.wait_free(a=0)

    assert len(full.seen("list", "pods")) == 1


def test_a_stream_that_ends_at_once_is_not_stormed(
    full: FakeApiServer, cluster: WatchedCluster
) -> None:
    full.script("watch", "pods", *[Lines(b"")] * 6)

    with cluster.synced():
        full.wait_seen("watch", "pods", 7)

    assert cluster.observer.counts["watch_restarted", "pods", "closed"] == 6
    assert max(cluster.delays) > 2.0


def test_a_watch_goes_on_from_its_last_bookmark(
    full: FakeApiServer, cluster: WatchedCluster
) -> None:
    with cluster.synced():
        full.wait_seen("watch", "pods", 1)
        full.put(make_node(name="b"))  # moves the version that all kinds share
        full.bookmark()
        cluster.observer.wait_for("events", "pods", "BOOKMARK")
        full.cut()
        requests = full.wait_seen("watch", "pods", 2)

    first, second = (int(item.query["resourceVersion"]) for item in requests[:2])
    assert second == first + 1
    assert requests[0].query["allowWatchBookmarks"] == "true"
    assert 300 <= int(requests[0].query["timeoutSeconds"]) <= 600


def test_a_slow_list_keeps_everything_waiting(
    full: FakeApiServer, cluster: WatchedCluster
) -> None:
    slow = Held()
    full.script("list", "pods", slow)

    with cluster:
        cluster.observer.wait_for("listed", "nodes", "1")
        is_early = cluster.cell.is_synced
        slow.release.set()
        cluster.wait_synced()

    assert not is_early


@pytest.mark.parametrize("verb", ["list", "watch"])
@pytest.mark.parametrize(
    ("status", "reason"),
    [
        pytest.param(Status(429, "TooManyRequests", "7"), "http_429", id="429"),
        pytest.param(Status(500), "http_500", id="500"),
        pytest.param(Status(503, retry_after="7"), "http_503", id="503"),
    ],
)
def test_a_busy_server_is_asked_again_later(
    full: FakeApiServer,
    cluster: WatchedCluster,
    verb: str,
    status: Status,
    reason: str,
) -> None:
    full.script(verb, "pods", status, status)

    with cluster.synced():
        full.put(make_bound("y", 2))
        cluster.wait_free(a=3)

    assert cluster.observer.counts["watch_restarted", "pods", reason] == 2
    waits = [delay for delay in cluster.delays if delay >= 7.0]
    assert len(waits) == (2 if status.retry_after else 0)
    assert len(full.seen("list", "pods")) == (3 if verb == "list" else 1)


def test_a_new_object_counts_what_decodes_of_it(
    full: FakeApiServer, cluster: WatchedCluster
) -> None:
    full.put(make_broken("listed", 1))

    with cluster.synced():
        cluster.wait_free(a=4)
        full.put(make_broken("watched", 2))
        cluster.wait_free(a=2)

    assert cluster.observer.counts["decode_fault", "pods", ""] == 2


def test_a_known_object_that_stops_decoding_keeps_its_record(
    full: FakeApiServer, cluster: WatchedCluster
) -> None:
    with cluster.synced():
        full.put(make_broken("x", 7), make_bound("y"))
        cluster.wait_free(a=4)
        full.script("watch", "pods", Status(410, "Expired"))
        full.cut()
        cluster.observer.wait_for("listed", "pods", "2")
        full.put(make_bound("z"))
        cluster.wait_free(a=3)
        full.put(make_bound("x", 5))
        cluster.wait_free(a=1)

    assert cluster.observer.counts["decode_fault", "pods", ""] == 2


def test_a_node_that_stops_decoding_keeps_its_record(
    full: FakeApiServer, cluster: WatchedCluster
) -> None:
    broken = make_node(name="a", gpus=2, resources={"cpu": "many"})

    with cluster.synced():
        full.put(broken, make_node(name="b", gpus=1))
        cluster.wait_free(a=5, b=1)

    assert cluster.observer.counts["decode_fault", "nodes", ""] == 1


def test_an_object_that_does_not_decode_can_be_deleted(
    full: FakeApiServer, cluster: WatchedCluster
) -> None:
    broken = make_broken("x")

    with cluster.synced():
        full.put(broken)
        full.remove(broken)
        cluster.wait_free(a=8)


def test_an_object_without_a_name_of_its_own_is_left_out(
    full: FakeApiServer, cluster: WatchedCluster
) -> None:
    full.put(make_bound("unnamed", metadata={"uid": 5}))

    with cluster.synced():
        full.put(make_bound("another", metadata={"uid": 6}), make_bound("y", 2))
        cluster.wait_free(a=3)

    assert cluster.observer.counts["decode_fault", "pods", ""] == 2


def test_a_list_that_is_no_list_is_asked_for_again(
    full: FakeApiServer, cluster: WatchedCluster
) -> None:
    full.script("list", "pods", Lines(b"<html>"), Lines(b'{"metadata":5}'), Lines(b""))

    with cluster.synced():
        cluster.wait_free(a=5)

    assert cluster.observer.counts["watch_restarted", "pods", "undecodable"] == 3


def test_items_may_be_null(api: FakeApiServer, cluster: WatchedCluster) -> None:
    empty = {"kind": "PodList", "metadata": {"resourceVersion": "1"}, "items": None}
    api.script("list", "pods", Lines(json.dumps(empty).encode()))

    with cluster.synced():
        api.put(make_node(name="a", gpus=1), make_bound("x"))
        cluster.wait_free(a=0)


@pytest.mark.parametrize("code", [403, 404])
def test_an_api_without_device_classes_will_do(
    full: FakeApiServer, cluster: WatchedCluster, code: int
) -> None:
    full.withhold("deviceclasses", code)

    with cluster.synced():
        full.wait_seen("list", "deviceclasses", 7)
        snapshot = cluster.cell.current()
        full.withhold("deviceclasses", None)
        full.put(
            {
                "kind": "DeviceClass",
                "metadata": {"name": "gpu.example.com"},
                "spec": {"extendedResourceName": GPU},
            }
        )
        cluster.wait_for(lambda s: s.device_class_resources == {GPU}, "the resource")

    assert snapshot.device_class_resources == frozenset()
    assert 300.0 in cluster.delays


def test_a_starting_api_server_that_refuses_for_a_moment_costs_no_device_class(
    full: FakeApiServer, cluster: WatchedCluster
) -> None:
    full.put(
        {
            "kind": "DeviceClass",
            "metadata": {"name": "gpu.example.com"},
            "spec": {"extendedResourceName": GPU},
        }
    )

    with cluster.synced():
        cluster.wait_for(lambda s: s.device_class_resources == {GPU}, "the resource")
        full.withhold("deviceclasses", 403)
        full.cut()
        cluster.observer.wait_for("watch_restarted", "deviceclasses", "http_403", 3)
        snapshot = cluster.cell.current()
        full.withhold("deviceclasses", None)
        cluster.observer.wait_for("listed", "deviceclasses", "1", 2)

    assert snapshot.device_class_resources == {GPU}
    assert 300.0 not in cluster.delays


def test_changed_credentials_are_read_after_a_refusal(
    full: FakeApiServer, tmp_path: Path
) -> None:
    full.token = "first"  # noqa: S105  nobody else's
    kubeconfig = full.kubeconfig(tmp_path)
    cluster = WatchedCluster(kubeconfig)

    with cluster.synced():
        full.token = "second"  # noqa: S105  nobody else's
        full.cut()
        cluster.observer.wait_for("watch_restarted", "pods", "http_401")
        full.kubeconfig(tmp_path)
        full.put(make_bound("y", 2))
        cluster.wait_free(a=3)

    assert full.requests[-1].headers["user-agent"] == "gpu-extender"


def test_credentials_that_cannot_be_read_are_asked_for_again(
    full: FakeApiServer, tmp_path: Path
) -> None:
    kubeconfig = full.kubeconfig(tmp_path)
    cluster = WatchedCluster(kubeconfig)

    with cluster.synced():
        kubeconfig.write_text("half a fi")
        full.token = "new"  # noqa: S105  nobody else's
        full.cut()
        cluster.observer.wait_for("watch_restarted", "pods", "credentials")
        full.kubeconfig(tmp_path)
        full.put(make_bound("y", 2))
        cluster.wait_free(a=3)


def test_a_restart_on_demand_lists_anew(
    full: FakeApiServer, cluster: WatchedCluster
) -> None:
    with cluster.synced():
        full.wait_seen("watch", "pods", 1)
        is_too_soon = cluster.watch.restart_pods("counts")
        with full.state.changed:  # gone, and no event tells of it
            full.state.remove(make_bound("x"))
            full.state.log.pop()
        cluster.skew_seconds = 60.0
        is_done = cluster.watch.restart_pods("counts")
        cluster.wait_free(a=8)

    assert not is_too_soon
    assert is_done
    assert cluster.observer.counts["watch_restarted", "pods", "counts"] == 1


@pytest.mark.parametrize(
    ("verb", "fault"),
    [
        pytest.param("watch", None, id="in a quiet watch"),
        pytest.param("watch", Silence(), id="in a silent watch"),
        pytest.param("list", Silence(), id="in a list that hangs"),
        pytest.param("list", Status(500), id="between two attempts"),
    ],
)
def test_a_stop_ends_all_threads(
    full: FakeApiServer, tmp_path: Path, verb: str, fault: Fault | None
) -> None:
    if fault is not None:
        full.script(verb, "pods", *[fault] * 3)
    cluster = WatchedCluster(full.kubeconfig(tmp_path), longest_wait_seconds=60.0)

    with cluster:
        full.wait_seen(verb, "pods", 1)

    names = {thread.name for thread in threading.enumerate()}
    assert not {name for name in names if name.startswith("watch-")}


def test_events_while_the_watcher_is_stopped_do_no_harm(
    full: FakeApiServer, cluster: WatchedCluster
) -> None:
    with cluster.synced():
        stop = threading.Thread(target=cluster.watch.stop)
        stop.start()
        full.put(*(make_bound(f"y{index}", 0) for index in range(50)))
        stop.join()

    free = free_gpus(cluster.cell.current(), "a")
    assert free == 5


class HangingStream:
    """Brings nothing, and does not heed who wants to end it."""

    def __init__(self, hang: Callable[[], None]) -> None:
        self._hang = hang

    def chunks(self) -> Iterator[bytes]:
        self._hang()
        yield b""

    def read(self) -> bytes:
        return b"".join(self.chunks())

    def interrupt(self) -> None:
        """Do not heed it."""

    def close(self) -> None:
        """Hold nothing open."""


class HangingApi(NoApi):
    """Answers nobody about some paths before `released`."""

    def __init__(self, *paths: str, has_headers: bool) -> None:
        self._paths = paths
        self._has_headers = has_headers
        self.released = threading.Event()
        self.asked = threading.Semaphore(0)

    def get(self, path: str, query: Mapping[str, str]) -> ApiStream:
        del query
        if not path.endswith(self._paths):
            raise ApiError("away", reason="unreachable")
        if not self._has_headers:
            self._hang()
        return HangingStream(self._hang)

    def _hang(self) -> None:
        self.asked.release()
        assert self.released.wait(DEADLINE_SECONDS)
        raise ApiError("away", reason="unreachable")


@pytest.mark.parametrize("has_headers", [False, True], ids=["no answer", "half of one"])
@pytest.mark.parametrize(
    "paths",
    [
        pytest.param(("/nodes",), id="nodes"),
        pytest.param(("/pods",), id="pods"),
        pytest.param(("/deviceclasses",), id="an optional kind"),
        pytest.param(("/nodes", "/pods"), id="both that are needed"),
        pytest.param(
            ("/nodes", "/pods", "/deviceclasses", "/limitranges"), id="all of them"
        ),
    ],
)
def test_calls_that_hang_do_not_keep_the_watch_from_ending(
    paths: tuple[str, ...], has_headers: bool
) -> None:
    api = HangingApi(*paths, has_headers=has_headers)
    watch = ClusterWatch(
        api, lambda *_: None, BUILDER, RecordingObserver(), Pace(page_size=2)
    )
    watch.start()
    for _ in paths:
        assert api.asked.acquire(timeout=DEADLINE_SECONDS)
    began = time.monotonic()

    watch.stop(0.2)

    seconds = time.monotonic() - began
    api.released.set()
    assert 0.1 < seconds < 2.0  # once for all of them, not for each
