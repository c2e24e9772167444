import pytest

from service.http.framing import RefusedRequestError, check_head

LIMIT = 1000


def head(*lines: str) -> bytes:
    """Return the head of a request with these header lines."""
    return "\r\n".join(["POST /mutate HTTP/1.1", "Host: x", *lines, "", ""]).encode()


@pytest.mark.parametrize(
    "lines",
    [
        pytest.param([], id="no length"),
        pytest.param(["Content-Length: 0"], id="nothing"),
        pytest.param(["content-LENGTH:12"], id="any case, no space"),
        pytest.param(["Content-Length: \t1000 "], id="as much as is allowed"),
        pytest.param(["Content-Length: 0000000012"], id="leading zeros"),
        pytest.param(["Content-Length: 5", "Expect: rain"], id="something else"),
    ],
)
def test_a_length_that_is_given_once_and_plainly_is_taken(lines: list[str]) -> None:
    check_head(head(*lines), LIMIT)


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
        check_head(head(*lines), LIMIT)

    assert caught.value.status.startswith(status)
