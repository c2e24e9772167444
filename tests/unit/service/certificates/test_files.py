import datetime as dt
from pathlib import Path

import pytest

from service.certificates.files import (
    Certificate,
    CertificateError,
    check_pair,
    load_pair,
)
from tests.certificates import END, START, write_pair

DAY = dt.timedelta(days=1)
MIDDLE = dt.datetime(2030, 1, 1, tzinfo=dt.UTC)


class Calendar:
    """A clock that a test sets."""

    def __init__(self, now: dt.datetime) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now.timestamp()


def open_pair(folder: Path, now: dt.datetime) -> tuple[Certificate, Calendar]:
    """Return the pair in a folder at a moment of the test's own."""
    calendar = Calendar(now)
    return Certificate(folder / "tls.crt", folder / "tls.key", calendar), calendar


@pytest.mark.parametrize(
    ("now", "not_ready_reasons"),
    [
        pytest.param(
            START - DAY,
            ["certificate tls.crt: not valid before 2024-01-01T00:00:00+00:00"],
            id="too early",
        ),
        pytest.param(START, [], id="from its start on"),
        pytest.param(END - DAY, [], id="on its last day"),
        pytest.param(
            END,
            ["certificate tls.crt: expired 2123-01-01T00:00:00+00:00"],
            id="expired",
        ),
    ],
)
def test_a_certificate_is_valid_from_its_start_to_its_end(
    tmp_path: Path, now: dt.datetime, not_ready_reasons: list[str]
) -> None:
    write_pair(tmp_path)

    pair, _ = open_pair(tmp_path, now)

    assert pair.not_ready_reasons() == not_ready_reasons
    assert pair.ends_seconds == END.timestamp()


@pytest.mark.parametrize(
    ("file", "text"),
    [
        pytest.param("tls.crt", "no certificate", id="no certificate"),
        pytest.param("tls.key", "no key", id="no key"),
    ],
)
def test_files_that_are_no_pair_are_an_error_that_names_them(
    tmp_path: Path, file: str, text: str
) -> None:
    paths = write_pair(tmp_path)
    (tmp_path / file).write_text(text)

    with pytest.raises(CertificateError, match=r"certificate tls\.crt, key tls\.key: "):
        load_pair(*paths)


def test_an_expired_pair_is_a_fault_when_it_is_checked(tmp_path: Path) -> None:
    check_pair(*write_pair(tmp_path))
    expired = write_pair(tmp_path, end=START + DAY)

    with pytest.raises(CertificateError, match="expired 2024-01-02"):
        check_pair(*expired)


def test_a_renewed_pair_is_taken(tmp_path: Path) -> None:
    write_pair(tmp_path, end=MIDDLE + DAY)
    pair, _ = open_pair(tmp_path, MIDDLE)
    old = pair.context
    write_pair(tmp_path, 2)

    pair.load()

    assert pair.context is not old
    assert pair.ends_seconds == END.timestamp()


@pytest.mark.parametrize(
    ("start", "end"),
    [
        pytest.param(START, MIDDLE - DAY, id="expired"),
        pytest.param(MIDDLE + DAY, END, id="not valid yet"),
    ],
)
def test_a_pair_that_is_not_valid_now_replaces_no_valid_one(
    tmp_path: Path, start: dt.datetime, end: dt.datetime
) -> None:
    write_pair(tmp_path)
    pair, _ = open_pair(tmp_path, MIDDLE)
    old = pair.context
    write_pair(tmp_path, 2, start=start, end=end)

    with pytest.raises(CertificateError):
        pair.load()

    assert pair.context is old
    assert pair.not_ready_reasons() == []


def test_a_pair_that_came_too_early_is_taken_when_it_becomes_valid(
    tmp_path: Path,
) -> None:
    write_pair(tmp_path)
    pair, calendar = open_pair(tmp_path, MIDDLE)
    old = pair.context
    write_pair(tmp_path, 2, start=MIDDLE + DAY)
    with pytest.raises(CertificateError, match="not valid before 2030-01-02"):
        pair.load()
    is_due_at_once = pair.is_due()

    calendar.now = MIDDLE + DAY

    assert not is_due_at_once
    assert pair.is_due()
    pair.load()
    assert pair.context is not old
    assert not pair.is_due()


def test_with_no_valid_pair_the_newest_is_taken(tmp_path: Path) -> None:
    write_pair(tmp_path, end=START + DAY)
    pair, _ = open_pair(tmp_path, MIDDLE)
    old = pair.context
    write_pair(tmp_path, 2, end=START + 2 * DAY)

    pair.load()

    assert pair.context is not old
    assert pair.not_ready_reasons() == [
        "certificate tls.crt: expired 2024-01-03T00:00:00+00:00"
    ]
