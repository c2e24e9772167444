"""Where one HTTP/1.1 request ends: as much of the protocol as that takes.

What it lets through, the server's own parser reads again, and in full.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

HEAD_END: Final = b"\r\n\r\n"


class RefusedRequestError(ValueError):
    """A request that no worker shall see; `status` is the answer's."""

    def __init__(self, status: str) -> None:
        super().__init__(status)
        self.status = status


@dataclass(frozen=True, slots=True)
class Frame:
    """How long a request is.

    Attributes
    ----------
    length : int
        Bytes of head and body.
    is_expecting : bool
        Whether the client waits for ``100 Continue`` before it sends the body.
    """

    length: int
    is_expecting: bool


def read_frame(head: bytes, max_body_bytes: int) -> Frame:
    """Return the extent of the request with this head, its empty line included.

    Raises
    ------
    RefusedRequestError
        For a body that is too large or whose length is not given once and plainly.
        A chunked one is refused, too: none of our callers sends such, and a second
        reading of the framing is what request smuggling lives on.
    """
    lengths: list[bytes] = []
    is_expecting = False
    for key, value in _headers(head):
        if key == b"transfer-encoding":
            raise RefusedRequestError("411 Length Required")
        if key == b"content-length":
            lengths.append(value)
        elif key == b"expect":
            is_expecting = value.lower() == b"100-continue"
    if not lengths:
        return Frame(len(head), is_expecting=False)
    if len(lengths) > 1 or not lengths[0].isdigit():
        raise RefusedRequestError("400 Bad Request")
    # More digits than the limit has: not worth a number.
    digits = lengths[0].lstrip(b"0") or b"0"
    if len(digits) > len(str(max_body_bytes)) or int(digits) > max_body_bytes:
        raise RefusedRequestError("413 Content Too Large")
    body_bytes = int(digits)
    return Frame(len(head) + body_bytes, is_expecting and body_bytes > 0)


def _headers(head: bytes) -> Iterator[tuple[bytes, bytes]]:
    """Yield each header's name in lower case and its value."""
    for line in head[: -len(HEAD_END)].split(b"\r\n")[1:]:
        name, colon, value = line.partition(b":")
        # The WSGI environment does not tell an underscore from a hyphen.
        if not colon or name != name.strip() or b"_" in name:
            raise RefusedRequestError("400 Bad Request")
        yield name.lower(), value.strip()
