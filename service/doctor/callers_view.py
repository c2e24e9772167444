"""The caller's view: what the rights of whoever asks show of an installation.

The command reads the objects itself; `kubectl gpu` sends what its kubectl has read.
"""

from collections.abc import Iterable, Iterator
from http import HTTPStatus
from urllib.parse import quote

import msgspec

from cluster.api.protocol import ApiError, ObjectReader
from service.certificates.store import REGISTRATIONS
from service.doctor.leases import (
    LEASE,
    check_own_lease,
    check_scheduler_lease,
    leader_host,
    read_lease,
)
from service.doctor.page import Facts, Finding, Page, Unchecked
from service.doctor.registration import REGISTRATION, Registration, check_registration
from service.doctor.scheduler import (
    CALLS,
    CONFIGURATION,
    SchedulerConfig,
    check_calls,
    check_scheduler_config,
    parse_scheduler_config,
)
from service.doctor.services import check_services

_Found = Finding | Unchecked


class SentFile(msgspec.Struct, frozen=True):
    """A file of the caller's."""

    name: str
    text: str


class SentObjects(msgspec.Struct, frozen=True, rename="camel"):
    """Objects that a caller has read, in place of an API server.

    Attributes
    ----------
    objects : dict
        path, with its query -> the answer to a GET; null where there is none
    unread : dict
        path -> why it was not read
    scheduler_config : SentFile or None
        What kube-scheduler is started with; None where it was not named.
    """

    objects: dict[str, msgspec.Raw]
    unread: dict[str, str] = {}
    scheduler_config: SentFile | None = None

    def read(self, path: str) -> bytes:
        """Return the object at `path`; raise `ApiError` without one."""
        if path not in self.objects:
            why = self.unread.get(path, "it was not sent")
            raise ApiError(why, reason="not_sent")
        found = bytes(self.objects[path])
        if found == b"null":
            gone = HTTPStatus.NOT_FOUND
            raise ApiError("there is none", reason="http_404", status=gone)
        return found


def with_sent(page: Page, sent: SentObjects, now: float) -> Page:
    """Return a page with what a caller has sent beside; `now` since 1970.

    Raises `SchedulerConfigError` for a file that is none.
    """
    file = sent.scheduler_config
    if file is not None:
        config = parse_scheduler_config(file.text.encode(), file.name)
        page = with_scheduler_config(page, config, file.name)
    if file is not None and not sent.objects and not sent.unread:
        return page
    return with_callers_view(page, sent, now)


def with_callers_view(page: Page, api: ObjectReader, now: float) -> Page:
    """Return a page with what the caller's rights show beside; `now` since 1970."""
    facts = page.facts
    found: list[_Found] = [*page.findings, *page.unchecked]
    try:
        lease = read_lease(api, facts.scheduler_lease)
        leader = "" if lease is None else leader_host(lease)
        # We know better than the service, perhaps.
        found = [*_without(page, CALLS), *check_calls(facts, leader)]
    except (ApiError, msgspec.MsgspecError):
        pass
    found += _examine_registration(api, facts, now)
    found += _examine_leases(api, facts, now)
    return _page_of(found, facts)


def with_scheduler_config(page: Page, config: SchedulerConfig, name: str) -> Page:
    """Return a page with what is wrong with a configuration that the caller names."""
    found = check_scheduler_config(page.facts, config, name)
    return _page_of([*_without(page, CONFIGURATION), *found], page.facts)


def _without(page: Page, check: str) -> Iterator[_Found]:
    """Yield all of a page but what one check has found."""
    yield from (item for item in page.findings if item.check != check)
    yield from (item for item in page.unchecked if item.check != check)


def _page_of(found: Iterable[_Found], facts: Facts) -> Page:
    """Return a page that says nothing twice."""
    once = list(dict.fromkeys(found))
    findings = tuple(item for item in once if isinstance(item, Finding))
    unchecked = tuple(item for item in once if isinstance(item, Unchecked))
    return Page(findings, unchecked, facts)


def _examine_registration(
    api: ObjectReader, facts: Facts, now: float
) -> Iterator[_Found]:
    """Yield what is wrong with the registration, and with whom it calls."""
    path = f"{REGISTRATIONS}/{quote(facts.registration_name)}"
    registration: Registration | None = None
    try:
        registration = msgspec.json.decode(api.read(path), type=Registration)
    except ApiError as error:
        if error.status != HTTPStatus.NOT_FOUND:
            may_not = error.status == HTTPStatus.FORBIDDEN
            why = "you may not read it" if may_not else "it cannot be read"
            yield Unchecked(REGISTRATION, f"{why}: {error}")
            return
    except msgspec.MsgspecError as error:
        yield Unchecked(REGISTRATION, f"it cannot be read: {error}")
        return
    yield from check_registration(facts, registration, now)
    if registration is not None:
        yield from check_services(api, facts, registration)


def _examine_leases(api: ObjectReader, facts: Facts, now: float) -> Iterator[_Found]:
    """Yield what is wrong with the Leases."""
    for check in (check_scheduler_lease, check_own_lease):
        try:
            yield from check(api, facts, now)
        except (ApiError, msgspec.MsgspecError) as error:
            yield Unchecked(LEASE, f"it cannot be read: {error}")
