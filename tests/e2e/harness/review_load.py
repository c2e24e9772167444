"""Pods that are created at a steady rate, whatever becomes of them."""

import itertools
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from types import TracebackType
from typing import Final, Self

from tests.e2e.harness.builders import JsonObject
from tests.e2e.harness.client import ApiClient
from tests.e2e.harness.connection import ApiError
from tests.e2e.harness.slices import resource_of

# For which the pods of a full pool stay, at least.
KEPT_SECONDS: Final = 2.0


@dataclass(frozen=True, slots=True)
class Review:
    """What became of one pod.

    Attributes
    ----------
    pool : int
        Its number.
    sent_seconds, answered_seconds : float
        By the monotonic clock.
    asks : str
        The resource that it ended with; empty if it was not created.
    error : str
        Why it was not.
    scheduler : str
        The scheduler that it ended with.
    """

    pool: int
    sent_seconds: float
    answered_seconds: float
    asks: str
    error: str
    scheduler: str = ""


class ReviewLoad:
    """Creates pods until the block ends, so many in each pool one after the other.

    A call that hangs holds up no other. The pods of a full pool are deleted after a
    while, so that the cluster does not fill up.

    Parameters
    ----------
    client : ApiClient
        With connections for all calls that may hang at once.
    asking : callable
        Returns a pod for the pool of a number.
    label : str
        By which the pods of a pool are told.
    """

    def __init__(
        self,
        client: ApiClient,
        asking: Callable[[int], JsonObject],
        *,
        label: str,
        per_second: float,
        pods_of_a_pool: int,
    ) -> None:
        self._client = client
        self._asking = asking
        self._label = label
        self._pause_seconds = 1 / per_second
        self._pods_of_a_pool = pods_of_a_pool
        self._threads = ThreadPoolExecutor(client.connection.connections)
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="reviews")
        self._futures: list[Future[Review]] = []
        self._cleared = 0  # pools whose pods were deleted, from the first on

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        _kind: type[BaseException] | None,
        _error: BaseException | None,
        _traceback: TracebackType | None,
    ) -> None:
        self._stopping.set()
        self._thread.join()
        self._threads.shutdown()

    @property
    def count(self) -> int:
        """How many pods were asked for so far."""
        return len(self._futures)

    @property
    def answered(self) -> int:
        """How many of these were created or refused so far."""
        return sum(future.done() for future in self._futures)

    def reviews(self) -> Sequence[Review]:
        """Return what became of all, once the block has ended."""
        return [future.result() for future in self._futures]

    def _run(self) -> None:
        due = time.monotonic()
        for number in itertools.count():
            if self._stopping.wait(max(0.0, due - time.monotonic())):
                return
            pool, place = divmod(number, self._pods_of_a_pool)
            self._futures.append(self._threads.submit(self._create, pool))
            if place == 0:
                self._clear(pool)
            due += self._pause_seconds

    def _clear(self, pool: int) -> None:
        """Delete the pods of pools whose last answer has come long enough ago."""
        count = self._pods_of_a_pool
        end = pool - 1 - int(KEPT_SECONDS / self._pause_seconds / count)
        for full in range(self._cleared, end):
            started = self._futures[full * count : (full + 1) * count]
            if not all(future.done() for future in started):
                return
            path = "/api/v1/namespaces/default/pods?labelSelector="
            path += f"{self._label}%3Dpool-{full}"
            self._threads.submit(self._client.request, "DELETE", path)
            self._cleared = full + 1

    def _create(self, pool: int) -> Review:
        sent = time.monotonic()
        asks = error = scheduler = ""
        try:
            pod = self._client.create(self._asking(pool))
            asks, scheduler = resource_of(pod), pod["spec"]["schedulerName"]
        except ApiError as refusal:
            error = refusal.message
        return Review(pool, sent, time.monotonic(), asks, error, scheduler)


def excess_of(
    reviews: Sequence[Review], resource: str, places: Callable[[int], int]
) -> Mapping[int, int]:
    """Return pool -> how many more pods were promised a resource than it has places."""
    promised = Counter(review.pool for review in reviews if review.asks == resource)
    return {
        pool: count - places(pool)
        for pool, count in promised.items()
        if count > places(pool)
    }
