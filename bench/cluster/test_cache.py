"""The replayed cluster is one that the cache takes without complaint."""

from itertools import islice
from typing import Any

from bench.cluster.cache.objects import event_lines, node_texts, pod_texts
from bench.cluster.cache.server import bookmark, pages
from cluster.decode.objects import PodRecord
from cluster.decode.records import RecordBuilder
from cluster.watch.kinds import Listing, WatchedKind, nodes_kind, pods_kind
from scoring.resources import ResourceScope
from service.settings.settings import Settings

BUILDER = RecordBuilder(
    ResourceScope(("nvidia.com/gpu",), ("nvidia.com/",)), Settings().gpu_annotations()
)


def body_of(page: bytes) -> bytes:
    """Return what a page holds between the marks of its chunks."""
    body = b""
    while page:
        size, _, page = page.partition(b"\r\n")
        body += page[: int(size, 16)]
        page = page[int(size, 16) + 2 :]
    return body


def test_nodes_and_pods_have_the_size_of_real_ones() -> None:
    nodes, pods = list(node_texts(20)), list(pod_texts(200, 20))

    assert 13_000 < sum(map(len, nodes)) / len(nodes) < 15_000
    assert 6200 < sum(map(len, pods)) / len(pods) < 7200


def test_pages_decode_without_fault() -> None:
    kind = pods_kind(BUILDER)
    listing: Listing[PodRecord] = Listing()
    tokens = []

    for page in pages("Pod", pod_texts(1200, 50), 1200):
        kind.read_page(body_of(page), listing)
        tokens.append(listing.continue_token)

    assert len(listing.records) == 1200
    assert not listing.faults
    assert tokens == ["1", "2", ""]


def test_events_decode_without_fault() -> None:
    kind = pods_kind(BUILDER)

    events = [kind.read_event(line) for line in islice(event_lines(50, 7), 1000)]

    assert {event.type for event in events} == {"ADDED", "MODIFIED", "DELETED"}
    assert not any(event.fault for event in events)
    assert int(events[-1].resource_version) == 7 + 1000


def test_a_bookmark_decodes() -> None:
    kinds: list[WatchedKind[Any, Any]] = [nodes_kind(BUILDER), pods_kind(BUILDER)]

    events = [
        kind.read_event(bookmark(name)[:-1])
        for kind, name in zip(kinds, ("Node", "Pod"), strict=True)
    ]

    assert [event.type for event in events] == ["BOOKMARK", "BOOKMARK"]
