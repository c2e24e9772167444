"""The floor of reviews: our own process, with an application that thinks of nothing.

``python -m bench.injector.https_echo serve --config FILE`` is ``gpu-extender`` but for
the application: listeners, TLS, limits and threads are whatever the product has. It
reads the UID of a review, and answers each with the same patch.
"""

import base64
import sys
from typing import Final
from unittest import mock

import falcon
import msgspec

from bench.injector.mutate_client import PATH
from service import runtime
from service.commands import cli

PATCH: Final = msgspec.json.encode(
    [
        {
            "op": "add",
            "path": "/spec/containers/0/env/-",
            "value": {"name": "NVIDIA_VISIBLE_DEVICES", "value": "all"},
        },
        {
            "op": "add",
            "path": "/metadata/annotations/example.com~1injected",
            "value": "true",
        },
    ]
)


class Request(msgspec.Struct, frozen=True):
    uid: str


class Review(msgspec.Struct, frozen=True):
    request: Request


class Response(msgspec.Struct, frozen=True, rename="camel"):
    uid: str
    allowed: bool = True
    patch: str = base64.b64encode(PATCH).decode()
    patch_type: str = "JSONPatch"


class Answer(msgspec.Struct, frozen=True, rename="camel"):
    response: Response
    api_version: str = "admission.k8s.io/v1"
    kind: str = "AdmissionReview"


class EchoResource:
    def on_post(self, req: falcon.Request, resp: falcon.Response) -> None:
        review = msgspec.json.decode(req.bounded_stream.read(), type=Review)
        resp.data = msgspec.json.encode(Answer(Response(review.request.uid)))


if __name__ == "__main__":
    app = falcon.App()
    app.add_route(PATH, EchoResource())
    with mock.patch.object(runtime, "create_app", return_value=app):
        sys.exit(cli.main())
