from collections.abc import Callable, Iterable
from typing import Any

from service.http.waitress_channel import StripConnectionHeader


def answering(*headers: tuple[str, str]) -> Callable[..., Iterable[bytes]]:
    """Return an application that answers with these headers."""

    def app(_environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
        start_response("200 OK", list(headers))
        return [b"body"]

    return app


def test_the_header_that_belongs_to_the_server_is_kept_back() -> None:
    seen: list[object] = []
    app = StripConnectionHeader(
        answering(("Content-Type", "text/plain"), ("connection", "close"))
    )

    body = app({}, lambda status, headers: seen.extend((status, headers)))

    assert seen == ["200 OK", [("Content-Type", "text/plain")]]
    assert list(body) == [b"body"]
