"""Small servers that stand where the service would and keep what they are sent."""

import json
import ssl
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, Final, Self

from tests.e2e.harness.builders import JsonObject
from tests.e2e.harness.certificates import ServingPair
from tests.e2e.harness.ports import LOOPBACK, free_port

MAX_EXTENDER_PRIORITY: Final = 10

# (path, decoded body) -> what to answer
Answer = Callable[[str, JsonObject], Any]


class RecordingServer:
    """Answers POST requests with JSON from a function and keeps the questions.

    With a certificate it speaks TLS. `status` may be changed while it runs.
    """

    def __init__(self, answer: Answer, pair: ServingPair | None = None) -> None:
        self.calls: list[tuple[str, JsonObject]] = []
        self.status = 200
        recorder = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                length = int(self.headers["Content-Length"])
                verb_call = json.loads(self.rfile.read(length))
                recorder.calls.append((self.path, verb_call))
                body = json.dumps(answer(self.path, verb_call)).encode()
                self.send_response(recorder.status)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: Any) -> None:
                """Keep quiet: the calls are kept."""

        self._server = ThreadingHTTPServer((LOOPBACK, free_port()), Handler)
        self._server.daemon_threads = True
        scheme = "http"
        if pair is not None:
            scheme = "https"
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(pair.certificate, pair.key)
            self._server.socket = context.wrap_socket(
                self._server.socket, server_side=True
            )
        self._thread = threading.Thread(target=self._server.serve_forever)
        self.url = f"{scheme}://{LOOPBACK}:{self._server.server_address[1]}"

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        _kind: type[BaseException] | None,
        _error: BaseException | None,
        _traceback: TracebackType | None,
    ) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    def asked(self, path: str) -> list[JsonObject]:
        """Return the bodies of the calls of one path, whatever their query."""
        return [
            verb_call
            for called, verb_call in self.calls
            if called.partition("?")[0] == path
        ]


def prefer(node: str) -> Answer:
    """Answer as an extender that passes every node and gives one the top score."""

    def answer(path: str, verb_call: JsonObject) -> Any:
        names = verb_call["NodeNames"]
        if path.endswith("/prioritize"):
            return [
                {"Host": name, "Score": MAX_EXTENDER_PRIORITY * (name == node)}
                for name in names
            ]
        return {"NodeNames": names}

    return answer


def allow(_path: str, review: JsonObject) -> Any:
    """Answer as a webhook that lets every object through unchanged."""
    return {
        "apiVersion": review["apiVersion"],
        "kind": review["kind"],
        "response": {"uid": review["request"]["uid"], "allowed": True},
    }
