"""List and watch of one kind, in a thread, whatever becomes of the API server."""

import threading
from collections.abc import Callable, Mapping
from typing import Final

from tests.e2e.harness.builders import JsonObject
from tests.e2e.harness.client import ApiClient
from tests.e2e.harness.connection import ApiError, UnreachableError
from tests.e2e.harness.watching import WatchStream

RETRY_SECONDS: Final = 0.1

Key = tuple[str, str, str]  # namespace, name, UID


def key_of(item: JsonObject) -> Key:
    """Return what tells an object from all others."""
    metadata = item["metadata"]
    return metadata.get("namespace", ""), metadata["name"], metadata["uid"]


class Follower:
    """Tells of each object as it is now, and of those that are gone.

    Both are called in the follower's thread and must not raise but for faults of the
    API server, upon which everything is listed again.
    """

    def __init__(  # noqa: PLR0913 - every argument is named
        self,
        client: ApiClient,
        kind: str,
        *,
        on_change: Callable[[JsonObject], None],
        on_end: Callable[[Key], None],
        api_version: str = "v1",
        query: Mapping[str, str] | None = None,
    ) -> None:
        self._client = client
        self._kind = kind
        self._on_change = on_change
        self._on_end = on_end
        self._api_version = api_version
        self._query = query
        self._known: set[Key] = set()
        self._stopping = threading.Event()
        self._stream: WatchStream | None = None
        self._lock = threading.Lock()  # around `_stream` and `_stopping`
        self._thread = threading.Thread(target=self._run, name=f"follow {kind}")

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def stop(self) -> None:
        """End the watch and the thread."""
        with self._lock:
            self._stopping.set()
            if self._stream is not None:
                self._stream.close()
        if self._thread.is_alive():
            self._thread.join()

    def _run(self) -> None:
        while not self._stopping.is_set():
            try:
                self._list_and_watch()
            except (ApiError, UnreachableError):
                self._stopping.wait(RETRY_SECONDS)

    def _list_and_watch(self) -> None:
        page = self._client.list_page(
            self._kind, api_version=self._api_version, query=self._query
        )
        listed = {key_of(item): item for item in page["items"]}
        for key in self._known - set(listed):
            self._end(key)
        for item in listed.values():
            self._change(item)
        stream = self._client.watch(
            self._kind,
            resource_version=page["metadata"]["resourceVersion"],
            api_version=self._api_version,
            query=self._query,
        )
        with self._lock:
            self._stream = stream
            if self._stopping.is_set():
                stream.close()
        with stream:
            for event in stream:
                if event["type"] in {"ADDED", "MODIFIED"}:
                    self._change(event["object"])
                elif event["type"] == "DELETED":
                    self._end(key_of(event["object"]))
                elif event["type"] == "ERROR":
                    return

    def _change(self, item: JsonObject) -> None:
        self._known.add(key_of(item))
        self._on_change(item)

    def _end(self, key: Key) -> None:
        self._known.discard(key)
        self._on_end(key)
