"""Pods that come and go in the background while a test breaks something."""

import threading
import time
from collections import deque
from collections.abc import Callable
from http import HTTPStatus
from typing import Final, Self

from tests.e2e.harness.builders import JsonObject
from tests.e2e.harness.client import ApiClient
from tests.e2e.harness.connection import ApiError, UnreachableError
from tests.e2e.harness.pods import delete_quietly

LIFETIME_PODS: Final = 50
CATCH_UP_SECONDS: Final = 0.5


class Churn:
    """A thread that creates pods at a rate and deletes each a while later.

    `make` gets a running number and returns the pod. Calls that fail, since the API
    server is away just now, are counted and made up for; `total` pods are created.
    """

    def __init__(
        self,
        client: ApiClient,
        make: Callable[[int], JsonObject],
        *,
        total: int,
        per_second: float,
        keep: int = LIFETIME_PODS,
    ) -> None:
        self.created = 0
        self.deleted = 0
        self.failed_calls = 0
        self._client = client
        self._make = make
        self._total = total
        self._pause_seconds = 1.0 / per_second
        self._keep = keep
        self._alive: deque[tuple[str, str]] = deque()  # (namespace, name)
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="churn")

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopping.set()
        self._thread.join()

    def finish(self, timeout_seconds: float) -> None:
        """Wait until all pods were created; the last ones are left in place."""
        self._thread.join(timeout_seconds)
        if self._thread.is_alive():
            raise AssertionError(
                f"churn: wanted {self._total} pods within {timeout_seconds} s, "
                f"got {self.created}"
            )

    def _run(self) -> None:
        due = time.monotonic()
        while self.created < self._total and not self._stopping.is_set():
            try:
                self._step()
            except (ApiError, UnreachableError):
                self.failed_calls += 1
            # What was missed while the API server was away is not caught up in a burst.
            due = max(due + self._pause_seconds, time.monotonic() - CATCH_UP_SECONDS)
            self._stopping.wait(max(0.0, due - time.monotonic()))

    def _step(self) -> None:
        if len(self._alive) > self._keep:
            namespace, name = self._alive[0]
            delete_quietly(self._client, name, namespace=namespace)
            self._alive.popleft()
            self.deleted += 1
        pod = self._make(self.created)
        try:
            pod = self._client.create(pod)
        except ApiError as error:
            # An earlier answer was lost with the API server, the pod was not.
            if error.status != HTTPStatus.CONFLICT:
                raise
        metadata = {"namespace": "default", **pod["metadata"]}
        self._alive.append((metadata["namespace"], metadata["name"]))
        self.created += 1
