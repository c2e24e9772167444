"""Heads of HTTP/1.1 requests that the webhook refuses before it reads a body.

waitress finds where a request ends; whatever leaves a doubt about that is refused.
"""

from collections.abc import Iterator


class RefusedRequestError(ValueError):
    """A request that no worker shall see; `status` is the answer's."""

    def __init__(self, status: str) -> None:
        super().__init__(status)
        self.status = status


def check_head(head: bytes, max_body_bytes: int) -> None:
    """Raise `RefusedRequestError` for a request with this head that is not to be.

    That is a body which is too large or whose length is not given once and plainly.
    A chunked one is refused, too: none of our callers sends such, and a second reading
    of the framing is what request smuggling lives on.
    """
    lengths: list[bytes] = []
    for key, value in _headers(head):
        if key == b"transfer-encoding":
            raise RefusedRequestError("411 Length Required")
        if key == b"content-length":
            lengths.append(value)
    if not lengths:
        return
    if len(lengths) > 1 or not lengths[0].isdigit():
        raise RefusedRequestError("400 Bad Request")
    # More digits than the limit has: not worth a number.
    digits = lengths[0].lstrip(b"0") or b"0"
    if len(digits) > len(str(max_body_bytes)) or int(digits) > max_body_bytes:
        raise RefusedRequestError("413 Content Too Large")


def _headers(head: bytes) -> Iterator[tuple[bytes, bytes]]:
    """Yield each header's name in lower case and its value."""
    for line in head.rstrip(b"\r\n").split(b"\r\n")[1:]:
        name, colon, value = line.partition(b":")
        # The WSGI environment does not tell an underscore from a hyphen.
        if not colon or name != name.strip() or b"_" in name:
            raise RefusedRequestError("400 Bad Request")
        yield name.lower(), value.strip()
