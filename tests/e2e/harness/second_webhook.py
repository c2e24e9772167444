"""A mutating webhook beside ours, such as one that adds sidecars."""

import base64
import copy
import json
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Final, TypeAlias

import jsonpatch

from tests.e2e.harness.builders import JsonObject, make_pod
from tests.e2e.harness.control_plane import ControlPlane
from tests.e2e.harness.ports import LOOPBACK
from tests.e2e.harness.waiting import wait_for

# Changes a pod in place, also when it has changed it before.
Change: TypeAlias = Callable[[JsonObject], None]

LABEL: Final = {"second-webhook": "yes"}
REGISTRATION: Final = "MutatingWebhookConfiguration"
CALLED_SECONDS: Final = 20.0


def change_nothing(_pod: JsonObject) -> None:
    """Leave a pod as it is."""


class SecondWebhook:
    """Changes the pods with the label `LABEL` as it is told.

    Attributes
    ----------
    change : callable
        What it does to a pod; may be exchanged between two pods.
    seen : list
        The pods as they came to it, oldest first.
    """

    def __init__(self) -> None:
        self.change: Change = change_nothing
        self.seen: list[JsonObject] = []

    def stop_changing(self) -> None:
        """Let pods pass from now on, and forget those that came."""
        self.change = change_nothing
        self.seen.clear()

    def answer(self, review: JsonObject) -> JsonObject:
        """Return the review with its response."""
        request = review["request"]
        pod = request["object"]
        self.seen.append(pod)
        changed = copy.deepcopy(pod)
        self.change(changed)
        response: JsonObject = {"uid": request["uid"], "allowed": True}
        operations = jsonpatch.make_patch(pod, changed).patch
        if operations:
            text = json.dumps(operations).encode()
            response["patchType"] = "JSONPatch"
            response["patch"] = base64.b64encode(text).decode()
        return {**review, "response": response}


@contextmanager
def second_webhook(
    plane: ControlPlane, name: str, *, reinvocation: str = "Never"
) -> Iterator[SecondWebhook]:
    """Serve a second webhook; the API server calls webhooks in the order of names."""
    webhook = SecondWebhook()
    with _serve(webhook, plane) as port:
        plane.client.apply(_registration(plane, name, port, reinvocation))
        try:
            wait_for(
                lambda: _is_called(webhook, plane),
                timeout_seconds=CALLED_SECONDS,
                what="call of the second webhook",
            )
            yield webhook
        finally:
            plane.kubectl("delete", REGISTRATION.lower(), name)


def _is_called(webhook: SecondWebhook, plane: ControlPlane) -> bool:
    plane.client.create(make_pod(labels=LABEL), query={"dryRun": "All"})
    was_called = bool(webhook.seen)
    webhook.seen.clear()
    return was_called


@contextmanager
def _serve(webhook: SecondWebhook, plane: ControlPlane) -> Iterator[int]:
    """Answer reviews over HTTPS on a port of loopback."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            length = int(self.headers["Content-Length"])
            body = json.dumps(webhook.answer(json.loads(self.rfile.read(length))))
            self.send_response(HTTPStatus.OK)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body.encode())))
            self.end_headers()
            self.wfile.write(body.encode())

        def log_message(self, *_: Any) -> None:
            """Say nothing of each request."""

    pair = plane.authority.issue("second-webhook")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(pair.certificate, pair.key)
    server = ThreadingHTTPServer((LOOPBACK, 0), Handler)
    server.daemon_threads = True
    server.socket = context.wrap_socket(server.socket, server_side=True)
    thread = threading.Thread(target=server.serve_forever, name="second webhook")
    thread.start()
    try:
        yield int(server.server_address[1])
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def _registration(
    plane: ControlPlane, name: str, port: int, reinvocation: str
) -> JsonObject:
    created = {
        "apiGroups": [""],
        "apiVersions": ["v1"],
        "operations": ["CREATE"],
        "resources": ["pods"],
    }
    return {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": REGISTRATION,
        "metadata": {"name": name},
        "webhooks": [
            {
                "name": "pods.second.example.org",
                "admissionReviewVersions": ["v1"],
                "sideEffects": "None",
                "failurePolicy": "Fail",
                "reinvocationPolicy": reinvocation,
                "objectSelector": {"matchLabels": LABEL},
                "rules": [created],
                "clientConfig": {
                    "url": f"https://{LOOPBACK}:{port}/",
                    "caBundle": plane.authority.bundle,
                },
            }
        ],
    }
