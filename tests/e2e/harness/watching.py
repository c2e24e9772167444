"""Events of one watch, line by line."""

import contextlib
import json
from collections.abc import Iterator
from types import TracebackType
from typing import Self

import urllib3

from tests.e2e.harness.builders import JsonObject


class WatchStream:
    """An open watch; iterating ends when the server ends it or `close` is called.

    One thread iterates, any thread may close.
    """

    def __init__(self, answer: urllib3.BaseHTTPResponse) -> None:
        self._answer = answer
        self._is_closed = False

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        _kind: type[BaseException] | None,
        _error: BaseException | None,
        _traceback: TracebackType | None,
    ) -> None:
        self.close()

    def __iter__(self) -> Iterator[JsonObject]:
        pending = b""
        for chunk in self._chunks():
            *lines, pending = (pending + chunk).split(b"\n")
            for line in lines:
                event: JsonObject = json.loads(line)
                yield event

    def close(self) -> None:
        """End the watch, also while another thread waits for its next event."""
        if not self._is_closed:
            self._is_closed = True
            # Nothing is left to shut down when the server has ended the watch.
            with contextlib.suppress(ValueError, OSError):
                self._answer.shutdown()

    def _chunks(self) -> Iterator[bytes]:
        try:
            yield from self._answer.stream()
        except (urllib3.exceptions.HTTPError, OSError, ValueError):
            # What a connection that was shut down or cut raises depends on the moment;
            # for a reader of events all of it means that there are no more.
            return
        finally:
            self._answer.close()
