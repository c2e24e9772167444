"""`NoApi`: an API server of which nothing is asked."""

from collections.abc import Mapping

from cluster.api.protocol import ApiStream


class NoApi:
    """Fails whatever is asked; a fake overrides what its test is about."""

    def get(self, path: str, query: Mapping[str, str]) -> ApiStream:
        raise AssertionError(f"GET {path} {query}")

    def read(self, path: str) -> bytes:
        raise AssertionError(f"GET {path}")

    def create(self, path: str, body: bytes) -> None:
        raise AssertionError(f"POST {path} {body!r}")

    def replace(self, path: str, body: bytes) -> None:
        raise AssertionError(f"PUT {path} {body!r}")

    def patch(self, path: str, body: bytes) -> None:
        raise AssertionError(f"PATCH {path} {body!r}")

    def merge(self, path: str, body: bytes) -> None:
        raise AssertionError(f"PATCH {path} {body!r}")
