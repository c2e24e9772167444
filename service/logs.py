"""JSON log lines with a request id."""

import contextvars
import json
import logging
import sys
from typing import Final, TextIO

# Set for the time of one HTTP request.
REQUEST_ID: Final[contextvars.ContextVar[str]] = contextvars.ContextVar(
    "request_id", default=""
)


class JsonFormatter(logging.Formatter):
    """One JSON object a line: a fixed phrase as the event, data in fields."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line for `record`."""
        line: dict[str, object] = {
            "ts": round(record.created, 3),
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
