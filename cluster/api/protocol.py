"""`Api`, the requests to an API server, and `ApiError`, in which they fail."""

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Protocol


class ApiError(RuntimeError):
    """The API server said no, said something unreadable, or did not answer.

    Attributes
    ----------
    reason : str
        One of few words, fit for a metric's label: ``unreachable``, ``silent``,
        ``undecodable``, ``error_event``, ``http_410`` and the like.
    status : int
        HTTP status, or the code of an ERROR event; 0 where there was no answer.
    retry_after_seconds : float
        What the server asked for; 0 if it did not.
    """

    def __init__(
        self,
        message: str,
        *,
        reason: str,
        status: int = 0,
        retry_after_seconds: float = 0.0,
    ) -> None:
        super().__init__(message)
        self.reason = reason
        self.status = status
        self.retry_after_seconds = retry_after_seconds


class ApiStream(Protocol):
    """The body of one answer, as it arrives."""

    def chunks(self) -> Iterator[bytes]:
        """Yield bytes as they come; raise `ApiError` when the stream breaks."""
        ...

    def read(self) -> bytes:
        """Return all that is left; raise `ApiError` when the stream breaks."""
        ...

    def interrupt(self) -> None:
        """End a read under way in another thread."""
        ...

    def close(self) -> None:
        """Give the connection back, or close it if the body was not read."""
        ...


class ObjectReader(Protocol):
    """Whoever has objects by their paths."""

    def read(self, path: str) -> bytes:
        """Return the object at `path`; raise `ApiError` without one."""
        ...


class Api(Protocol):
    """Raw requests to one API server; any thread may call it.

    Each raises `ApiError` if it is refused or not answered.
    """

    def get(self, path: str, query: Mapping[str, str]) -> ApiStream:
        """Return the body of a 200 answer, a list or watch."""
        ...

    def read(self, path: str) -> bytes:
        """Return the object at `path`."""
        ...

    def create(self, path: str, body: bytes) -> None:
        """Create an object in the collection at `path`."""
        ...

    def replace(self, path: str, body: bytes) -> None:
        """Replace the object at `path`, of the version that the body names."""
        ...

    def patch(self, path: str, body: bytes) -> None:
        """Merge a JSON object into the one at `path`."""
        ...

    def merge(self, path: str, body: bytes) -> None:
        """Merge an object into the one at `path`, and lists by their items' names."""
        ...


@dataclass(frozen=True, slots=True)
class ApiAnswer:
    """A small answer, and the server's time in seconds since 1970 if it says it."""

    body: bytes
    time_seconds: float | None


@dataclass(frozen=True, slots=True)
class TokenTimes:
    """When a token was issued and when it ends, in seconds since 1970."""

    issued_seconds: float
    ends_seconds: float


class ServerClock:
    """The API server's clock: its newest time, and what has passed since then here.

    Whatever is compared with times of the API server, such as since when a pod has been
    unschedulable, is compared with this: our own clock may be set, or be another one.
    Until the server has said a time, it is our clock at the start. Any thread may call.
    """

    def __init__(
        self,
        clock: Callable[[], float] = time.time,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._monotonic = monotonic
        self._offset_seconds = clock() - monotonic()

    def __call__(self) -> float:
        """Return seconds since 1970."""
        return self._monotonic() + self._offset_seconds

    def note(self, server_seconds: float) -> None:
        """Take in what the server says of its time."""
        self._offset_seconds = server_seconds - self._monotonic()


class NamedApi(Api, Protocol):
    """One API server, and what can be told of the connection to it."""

    @property
    def url(self) -> str:
        """Scheme, host and port."""
        ...

    @property
    def credentials(self) -> str:
        """Where address and credentials come from, for a message."""
        ...

    def ask(self, path: str, body: bytes) -> ApiAnswer:
        """Return the answer to an object that the server does not keep."""
        ...

    def token_times(self) -> TokenTimes | None:
        """Return the times of our token; None if there is none, or it has none."""
        ...
