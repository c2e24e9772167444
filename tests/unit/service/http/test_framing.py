import pytest

from service.http.framing import Frame, RefusedRequestError, read_frame

LIMIT = 1000


def head(*lines: str) -> bytes:
    """Return the head of a request with these header lines."""
    return "\r\n".join(["POST /mutate HTTP/1.1", "Host: x", *lines, "", ""]).encode()


@pytest.mark.parametrize(
    ("lines", "body_bytes"),
    [
        pytest.param([], 0, id="no length"),
        pytest.param(["Content-Length: 0"], 0, id="nothing"),
        pytest.param(["content-LENGTH:12"], 12, id="any case, no space"),
        pytest.param(["Content-Length: \t1000 "], 1000, id="as much as is allowed"),
        pytest.param(["Content-Length: 0000000012"], 12, id="leading zeros"),
    ],
)
def test_a_request_is_as_long_as_its_head_and_what_the_head_says(
    lines: list[str], body_bytes: int
) -> None:
    given = head(*lines)

    frame = read_frame(given, LIMIT)

    assert frame == Frame(len(given) + body_bytes, is_expecting=False)


@pytest.mark.parametrize(
    ("lines", "is_expecting"),
    [
        pytest.param(["Content-Length: 5", "Expect: 100-Continue"], True, id="asked"),
        pytest.param(["Expect: 100-continue"], False, id="asked for no body"),
        pytest.param(["Content-Length: 5", "Expect: rain"], False, id="something else"),
    ],
)
def test_a_client_may_wait_to_be_told_to_go_on(
    lines: list[str], is_expecting: bool
) -> None:
    assert read_frame(head(*lines), LIMIT).is_expecting is is_expecting


@pytest.mark.parametrize(
    ("lines", "status"),
    [
        pytest.param(["Content-Length: 1001"], "413", id="one byte too many"),
        pytest.param(["Content-Length: " + "9" * 5000], "413", id="a huge number"),
        pytest.param(["Transfer-Encoding: chunked"], "411", id="chunked"),
        pytest.param(
            ["Content-Length: 5", "Transfer-Encoding: chunked"],
            "411",
            id="both, as smugglers do",
        ),
        pytest.param(["Content-Length: -1"], "400", id="negative"),
        pytest.param(["Content-Length: +1"], "400", id="with a sign"),
        pytest.param(["Content-Length: 1_0"], "400", id="with an underscore"),
        pytest.param(["Content-Length: "], "400", id="an empty length"),
        pytest.param(["Content-Length: \u0661"], "400", id="a digit of another script"),
        pytest.param(["Content-Length: 5", "Content-Length: 5"], "400", id="twice"),
        pytest.param(["Content-Length : 5"], "400", id="a space before the colon"),
        pytest.param(["Content_Length: 5"], "400", id="an underscore in the name"),
        pytest.param(["X: 1", " folded"], "400", id="a folded line"),
        pytest.param(["no colon"], "400", id="no colon"),
    ],
)
def test_a_request_whose_end_is_unclear_or_too_far_is_refused(
    lines: list[str], status: str
) -> None:
    with pytest.raises(RefusedRequestError, match=f"^{status} ") as caught:
        read_frame(head(*lines), LIMIT)

    assert caught.value.status.startswith(status)
