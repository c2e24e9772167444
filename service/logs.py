"""JSON log lines with a request id."""

import contextvars
import json
import logging
import sys
from datetime import UTC, datetime
from typing import Final, TextIO

from cluster.watch.reflector import INTERRUPTED

# Set for the time of one HTTP request.
REQUEST_ID: Final[contextvars.ContextVar[str]] = contextvars.ContextVar(
    "request_id", default=""
)


class JsonFormatter(logging.Formatter):
    """One JSON object a line: a fixed phrase as the event, data in fields."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line for `record`."""
        moment = datetime.fromtimestamp(record.created, UTC)
        line: dict[str, object] = {
            "ts": moment.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "event": record.getMessage(),
        }
        request_id = REQUEST_ID.get()
        if request_id:
            line["request_id"] = request_id
        fields = getattr(record, "fields", None)
        if isinstance(fields, dict):
            line.update(fields)
        if record.exc_info:
            line["traceback"] = self.formatException(record.exc_info)
        return json.dumps(line, default=str, ensure_ascii=False)


def configure_logs(level: str, stream: TextIO | None = None) -> None:
    """Send all logs at `level` or above to `stream` (stderr) as JSON lines."""
    handler = logging.StreamHandler(stream or sys.stderr)
    handler.setFormatter(JsonFormatter())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level.upper())
    # It warns of each task that waits for a thread, at every burst of calls.
    logging.getLogger("waitress.queue").setLevel(logging.ERROR)


class PlainFormatter(logging.Formatter):
    """One sentence a line, for a person at a terminal."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line for `record`."""
        fields = getattr(record, "fields", None) or {}
        rest = ", ".join(f"{name} {value}" for name, value in fields.items())
        line = f"{record.levelname.capitalize()}: {record.getMessage()}"
        return f"{line}: {rest}" if rest else line


def configure_command_logs(stream: TextIO | None = None) -> None:
    """Have warnings said in plain words on `stream` (stderr), and nothing else.

    Interruptions of a watch are left out: a command that fails says why itself.
    """
    handler = logging.StreamHandler(stream or sys.stderr)
    handler.setFormatter(PlainFormatter())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(logging.WARNING)
    handler.addFilter(lambda record: record.getMessage() != INTERRUPTED)
