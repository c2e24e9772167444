"""Everything that happens to pods, in the API server's own order."""

import threading
from collections.abc import Iterator, Mapping
from typing import Final, Self, TypeAlias

from tests.e2e.harness.builders import JsonObject, make_pod
from tests.e2e.harness.client import ApiClient
from tests.e2e.harness.waiting import wait_for
from tests.e2e.harness.watching import WatchStream

SEEN_SECONDS: Final = 20.0
FINAL_PHASES: Final = ("Succeeded", "Failed")

# pod UID -> the pod as it was then
LivePods: TypeAlias = Mapping[str, JsonObject]


class PodHistory:
    """Watches all pods from now on, in a thread, and keeps each event."""

    def __init__(self, client: ApiClient) -> None:
        self._client = client
        page = client.list_page("Pod")
        self._first = page["items"]
        self._events: list[JsonObject] = []
        self._version = page["metadata"]["resourceVersion"]
        self._stopping = threading.Event()
        self._stream = self._watch()
        self._thread = threading.Thread(target=self._read, name="pod history")

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopping.set()
        self._stream.close()
        self._thread.join()

    def catch_up(self) -> None:
        """Wait until all that has happened up to now was seen."""
        marker = self._client.create(make_pod(generate_name="marker-"))["metadata"]
        self._client.delete("Pod", marker["name"], grace_seconds=0)
        wait_for(
            lambda: any(
                event["object"]["metadata"].get("uid") == marker["uid"]
                and event["type"] == "DELETED"
                for event in reversed(self._events)
            ),
            timeout_seconds=SEEN_SECONDS,
            what="own pod seen in the watch",
        )

    def moments(self) -> Iterator[LivePods]:
        """Yield the pods that were there and not over, after each event seen."""
        live = {pod["metadata"]["uid"]: pod for pod in self._first}
        yield live
        for event in tuple(self._events):
            pod = event["object"]
            uid = pod["metadata"]["uid"]
            is_over = pod["status"].get("phase") in FINAL_PHASES
            if event["type"] == "DELETED" or is_over:
                live.pop(uid, None)
            else:
                live[uid] = pod
            yield live

    def _watch(self) -> WatchStream:
        return self._client.watch("Pod", resource_version=self._version)

    def _read(self) -> None:
        """Read events; the API server ends a watch that does not keep up."""
        while not self._stopping.is_set():
            for event in self._stream:
                assert event["type"] != "ERROR", event
                self._version = event["object"]["metadata"]["resourceVersion"]
                self._events.append(event)
            self._stream = self._watch()
            if self._stopping.is_set():
                self._stream.close()
