"""etcd through the JSON gateway that it has on its client port."""

import base64
import http.client
import json
from typing import Any, Final

from tests.e2e.harness.ports import LOOPBACK

TIMEOUT_SECONDS: Final = 30.0


def is_healthy(port: int) -> bool:
    """Whether etcd says that it can serve."""
    try:
        answer = _call(port, "GET", "/health")
    except (OSError, ValueError, http.client.HTTPException):
        return False
    return bool(answer.get("health") == "true")


def compact(port: int) -> int:
    """Drop all history up to the present revision, and return that."""
    any_key = base64.b64encode(b"/").decode()
    header = _call(port, "POST", "/v3/kv/range", {"key": any_key})["header"]
    revision = int(header["revision"])
    _call(port, "POST", "/v3/kv/compaction", {"revision": revision, "physical": True})
    return revision


def _call(port: int, method: str, path: str, body: Any = None) -> dict[str, Any]:
    connection = http.client.HTTPConnection(LOOPBACK, port, timeout=TIMEOUT_SECONDS)
    try:
        data = None if body is None else json.dumps(body)
        connection.request(method, path, data)
        response = connection.getresponse()
        text = response.read()
        if response.status != http.client.OK:
            raise ValueError(f"etcd {path}: wanted 200, got {response.status} {text!r}")
        answer: dict[str, Any] = json.loads(text)
        return answer
    finally:
        connection.close()
