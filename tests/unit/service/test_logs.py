import io
import json
import logging
import re
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from service.logs import (
    REQUEST_ID,
    JsonFormatter,
    configure_command_logs,
    configure_logs,
)


@pytest.fixture
def stream(root_logger_as_it_was: None) -> io.StringIO:
    """Send the logs to a text."""
    del root_logger_as_it_was  # it is put back afterwards
    text = io.StringIO()
    configure_logs("info", text)
    return text


def lines_of(stream: io.StringIO) -> list[dict[str, Any]]:
    """Return each line's object."""
    return [json.loads(line) for line in stream.getvalue().splitlines()]


def test_a_line_has_time_level_logger_event_and_fields(stream: io.StringIO) -> None:
    logging.getLogger("cluster.ledger.ledger").info(
        "snapshot published", extra={"fields": {"generation": 42, "name": "größe"}}
    )

    (line,) = lines_of(stream)
    text = line.pop("ts")
    moment = datetime.fromisoformat(text)
    assert abs(moment - datetime.now(UTC)) < timedelta(hours=1)
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", text)
    assert line == {
        "level": "info",
        "logger": "cluster.ledger.ledger",
        "event": "snapshot published",
        "generation": 42,
        "name": "größe",
    }
    assert "größe" in stream.getvalue()


def test_lines_below_the_level_are_left_out(stream: io.StringIO) -> None:
    logger = logging.getLogger("x")

    logger.debug("no")
    logger.warning("yes")

    assert [line["event"] for line in lines_of(stream)] == ["yes"]


def test_a_request_marks_its_lines(stream: io.StringIO) -> None:
    token = REQUEST_ID.set("7f3a")
    logging.getLogger("x").info("inside")
    REQUEST_ID.reset(token)
    logging.getLogger("x").info("outside")

    inside, outside = lines_of(stream)
    assert inside["request_id"] == "7f3a"
    assert "request_id" not in outside


def test_a_traceback_stays_on_its_line(stream: io.StringIO) -> None:
    lookup: dict[str, str] = {}
    try:
        lookup["lost"]
    except KeyError:
        logging.getLogger("x").exception("failed")

    (line,) = lines_of(stream)
    assert line["level"] == "error"
    assert line["traceback"].endswith("KeyError: 'lost'")


def test_a_value_that_json_does_not_know_is_written_as_text() -> None:
    record = logging.makeLogRecord(
        {
            "msg": "event",
            "fields": {
                "value": {
                    1,
                }
            },
        }
    )

    assert json.loads(JsonFormatter().format(record))["value"] == "{1}"


def test_fields_that_are_no_mapping_are_left_out() -> None:
    record = logging.makeLogRecord({"msg": "event", "fields": "text"})

    assert json.loads(JsonFormatter().format(record))["event"] == "event"


def test_waitress_does_not_report_each_queued_call(stream: io.StringIO) -> None:
    logging.getLogger("waitress.queue").warning("Task queue depth is 1")

    assert lines_of(stream) == []


def test_the_time_of_a_line_is_utc_to_the_millisecond() -> None:
    record = logging.LogRecord("x", logging.INFO, "", 0, "done", None, None)
    texts = {}
    for created in (0.0, 1_700_000_000.0004, 1_700_000_000.9996, 4_102_444_800.125):
        record.created = created
        texts[created] = json.loads(JsonFormatter().format(record))["ts"]

    assert list(texts.values()) == [
        "1970-01-01T00:00:00.000Z",
        "2023-11-14T22:13:20.000Z",
        "2023-11-14T22:13:20.999Z",
        "2100-01-01T00:00:00.125Z",
    ]


def test_commands_say_warnings_in_words_and_nothing_of_interruptions(
    root_logger_as_it_was: None,
) -> None:
    del root_logger_as_it_was
    text = io.StringIO()
    configure_command_logs(text)
    logger = logging.getLogger("cluster.watch.reflector")

    logger.info("objects listed")
    logger.warning("watch interrupted", extra={"fields": {"reason": "http_500"}})
    fields = {"kind": "nodes", "count": 2}
    logger.warning("objects did not decode", extra={"fields": fields})
    logger.error("plain")

    assert text.getvalue() == (
        "Warning: objects did not decode: kind nodes, count 2\nError: plain\n"
    )
