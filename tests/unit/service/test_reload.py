import logging
import threading
from pathlib import Path

import pytest

from service.reload import Reloader, WatchedFiles, fingerprint
from tests.service_process import wait_until


class Contents:
    """A file's contents as a loader would use them, and what was said of each load."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.in_use: list[str] = []
        self.results: list[tuple[str, bool]] = []

    def load(self) -> None:
        """Take text that is sound."""
        text = self.path.read_text()
        if text == "faulty":
            raise ValueError("line 1: faulty")
        if text == "buggy":
            raise KeyError("a fault of our own")
        self.in_use.append(text)

    def note(self, name: str, *, is_ok: bool) -> None:
        """Take the news of a load."""
        self.results.append((name, is_ok))


@pytest.fixture
def contents(tmp_path: Path) -> Contents:
    path = tmp_path / "file"
    path.write_text("one")
    return Contents(path)


def watch(contents: Contents, asked: threading.Event | None = None) -> Reloader:
    """Return a reloader that has read the file once."""
    return Reloader(
        [WatchedFiles("things", (contents.path,), contents.load)],
        3600.0,
        contents.note,
        asked,
    )


def replace(path: Path, text: str) -> None:
    """Put another file in the place of `path`."""
    draft = path.with_suffix(".new")
    draft.write_text(text)
    draft.replace(path)


def test_files_are_read_once_at_first(contents: Contents) -> None:
    watch(contents)

    assert contents.in_use == ["one"]
    assert contents.results == [("things", True)]


def test_the_first_reading_lets_errors_pass(contents: Contents) -> None:
    contents.path.write_text("faulty")

    with pytest.raises(ValueError, match="line 1: faulty"):
        watch(contents)


def test_an_unchanged_file_is_not_read_again(contents: Contents) -> None:
    reloader = watch(contents)

    reloader.look()

    assert contents.in_use == ["one"]


def test_a_changed_file_is_read_again(
    contents: Contents, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    reloader = watch(contents)
    replace(contents.path, "two")

    reloader.look()

    assert contents.in_use == ["one", "two"]
    assert contents.results[-1] == ("things", True)
    assert caplog.messages == ["file reloaded"]


@pytest.mark.parametrize(
    ("text", "level", "event"),
    [
        pytest.param(
            "faulty",
            "WARNING",
            "file refused, the last good contents stay in use",
            id="a faulty file",
        ),
        pytest.param("buggy", "ERROR", "file could not be read", id="a bug of ours"),
    ],
)
def test_faulty_contents_change_nothing_and_are_said_once(
    contents: Contents,
    caplog: pytest.LogCaptureFixture,
    text: str,
    level: str,
    event: str,
) -> None:
    reloader = watch(contents)
    replace(contents.path, text)

    reloader.look()
    reloader.look()

    assert contents.in_use == ["one"]
    assert contents.results == [("things", True), ("things", False)]
    assert [(r.levelname, r.message) for r in caplog.records] == [(level, event)]


def test_a_file_that_is_gone_is_noticed_and_so_is_its_return(
    contents: Contents,
) -> None:
    reloader = watch(contents)
    contents.path.unlink()
    reloader.look()
    replace(contents.path, "back")

    reloader.look()

    assert contents.in_use == ["one", "back"]
    assert [is_ok for _, is_ok in contents.results] == [True, False, True]


def test_a_fingerprint_tells_files_of_equal_size_apart(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_text("aa")
    before = fingerprint([path])

    replace(path, "bb")

    assert fingerprint([path]) != before


def test_the_age_is_that_of_the_last_look(contents: Contents) -> None:
    reloader = watch(contents)
    first = reloader.age_seconds()

    reloader.look()

    assert first >= 0
    assert reloader.age_seconds() < 60


def test_files_are_read_at_once_when_that_is_asked_for(contents: Contents) -> None:
    asked = threading.Event()
    reloader = watch(contents, asked)
    reloader.start()

    asked.set()  # nothing has changed, and the interval is long

    wait_until(lambda: contents.in_use == ["one", "one"], "it is read again")
    assert not asked.is_set()
    reloader.stop()


def test_a_reloader_that_was_never_started_stops(contents: Contents) -> None:
    reloader = watch(contents)

    reloader.stop()

    assert contents.in_use == ["one"]
