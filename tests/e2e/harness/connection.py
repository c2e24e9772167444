"""HTTP to the API server with one identity, and what can go wrong with it."""

import json
import ssl
import urllib.parse
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import urllib3

from tests.e2e.harness.builders import JsonObject
from tests.e2e.harness.watching import WatchStream

TIMEOUT_SECONDS: Final = 30.0
DEFAULT_CONNECTIONS: Final = 8
FIRST_ERROR_STATUS: Final = 400


class ApiError(RuntimeError):
    """The API server refused a call."""

    def __init__(self, call: str, status: int, body: bytes) -> None:
        try:
            answer = json.loads(body)
        except ValueError:
            answer = {}
        self.status = status
        self.reason: str = answer.get("reason", "")
        self.message: str = answer.get("message", body[:500].decode(errors="replace"))
        super().__init__(f"{call}: got {status} {self.reason}: {self.message}")


class UnreachableError(RuntimeError):
    """The API server did not answer at all."""


class ApiConnection:
    """Calls over a few kept connections; safe to share between threads."""

    def __init__(
        self,
        server: str,
        token: str,
        ca_file: Path,
        *,
        connections: int = DEFAULT_CONNECTIONS,
    ) -> None:
        address = urllib.parse.urlsplit(server)
        context = ssl.create_default_context(cafile=str(ca_file))
        self.connections = connections
        self._headers = {"Authorization": f"Bearer {token}"}
        self._pool = urllib3.HTTPSConnectionPool(
            address.hostname or "",
            address.port,
            maxsize=connections,
            block=True,
            retries=False,
            ssl_context=context,
            timeout=TIMEOUT_SECONDS,
        )
        # A watch occupies its connection, so it must not take one from the calls.
        self._watch_pool = urllib3.HTTPSConnectionPool(
            address.hostname or "",
            address.port,
            maxsize=connections,
            retries=False,
            ssl_context=context,
        )

    def close(self) -> None:
        """Close the kept connections."""
        self._pool.close()
        self._watch_pool.close()

    def request(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        query: Mapping[str, str] | None = None,
        content_type: str = "application/json",
    ) -> tuple[JsonObject, tuple[str, ...]]:
        """Make one call; return the decoded answer and its `Warning` headers."""
        url = _with_query(path, query)
        headers = dict(self._headers)
        data = None
        if body is not None:
            headers["Content-Type"] = content_type
            data = json.dumps(body).encode()
        try:
            answer = self._pool.request(method, url, body=data, headers=headers)
        except (urllib3.exceptions.HTTPError, OSError) as error:
            raise UnreachableError(f"{method} {url}: {error}") from error
        if answer.status >= FIRST_ERROR_STATUS:
            raise ApiError(f"{method} {url}", answer.status, answer.data)
        return _decode(answer.data), tuple(answer.headers.getlist("Warning"))

    def open_watch(self, path: str, query: Mapping[str, str]) -> WatchStream:
        """Open a watch, which ends when the server ends it or it is closed."""
        url = _with_query(path, {"watch": "1", **query})
        try:
            answer = self._watch_pool.request(
                "GET", url, headers=self._headers, preload_content=False
            )
        except (urllib3.exceptions.HTTPError, OSError) as error:
            raise UnreachableError(f"GET {url}: {error}") from error
        if answer.status >= FIRST_ERROR_STATUS:
            raise ApiError(f"GET {url}", answer.status, answer.data)
        return WatchStream(answer)


def _with_query(path: str, query: Mapping[str, str] | None) -> str:
    return f"{path}?{urllib.parse.urlencode(query)}" if query else path


def _decode(data: bytes) -> JsonObject:
    """Decode a JSON object; health endpoints answer with plain text."""
    try:
        answer: JsonObject = json.loads(data)
    except ValueError:
        answer = {"text": data.decode(errors="replace")}
    return answer
