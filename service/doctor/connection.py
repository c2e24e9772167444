"""Checks of the connection to the API server: address, token, clocks."""

from collections.abc import Iterator
from http import HTTPStatus
from typing import Final

from cluster.api.protocol import ApiError, NamedApi, TokenTimes
from service.doctor.certificate import day
from service.doctor.page import Facts, Finding, Unchecked, ends_soon, span_text
from service.doctor.rights import RIGHTS

CONNECTION: Final = "API server"

TOKEN: Final = "token"  # noqa: S105  a heading

CLOCK: Final = "clock"

# Replicas must agree to a few seconds about when certificates change.
MAX_OFFSET_SECONDS: Final = 5.0

_RENEW: Final = (
    "In a pod kubelet renews it: look at the pod's node. On a host, put another into"
    " the kubeconfig, or one that does not end (docs/install.md, step 2)."
)

_STALE: Final = (
    "Nodes and pods are no longer watched: verdicts are made on what was last seen,"
    " and after a restart every call is answered 503."
)


def explain_silence(error: ApiError, api: NamedApi) -> Iterator[Finding | Unchecked]:
    """Yield why an API server that does not answer us is a fault."""
    rest = [RIGHTS, CLOCK]
    if error.status == HTTPStatus.UNAUTHORIZED:
        yield Finding(
            TOKEN,
            f"The API server does not accept the token of {api.credentials}: 401"
            " Unauthorized.",
            _STALE,
            _RENEW,
        )
    elif error.reason == "credentials":
        what = f"The credentials of {api.credentials} cannot be read: {error}."
        yield Finding(TOKEN, what, _STALE, _RENEW)
    else:
        rest.append(TOKEN)
        yield Finding(
            CONNECTION,
            f"The API server {api.url} does not answer: {error}.",
            _STALE,
            f"Check the address in {api.credentials}, and the way there.",
        )
    for check in rest:
        yield Unchecked(check, "the API server has not answered")


def check_token(
    times: TokenTimes | None, credentials: str, now: float
) -> Iterator[Finding]:
    """Yield a finding about a token that nobody has renewed."""
    if times is None or not ends_soon(times.issued_seconds, times.ends_seconds, now):
        return
    left = times.ends_seconds - now
    when = f"in {span_text(left)}" if left > 0 else f"{span_text(-left)} ago"
    yield Finding(
        TOKEN,
        f"The token of {credentials} ends {day(times.ends_seconds)}, {when}, and"
        " nobody has renewed it.",
        "From then on the API server answers 401: the cluster is no longer watched,"
        " and verdicts are made on what was last seen.",
        _RENEW,
    )


def check_clock(facts: Facts) -> Iterator[Finding | Unchecked]:
    """Yield a finding about clocks that differ."""
    offset = facts.clock_offset_seconds
    if offset is None:
        yield Unchecked(CLOCK, "the API server does not tell its time")
    elif abs(offset) > MAX_OFFSET_SECONDS:
        order = "ahead of" if offset > 0 else "behind"
        yield Finding(
            CLOCK,
            f"The clock of {facts.hostname} is {span_text(abs(offset))} {order} that of"
            " the API server.",
            "Certificates count as expired or not valid yet, and replicas change theirs"
            " at different times.",
            "Set it right: let chrony or ntpd run on both machines.",
        )
