"""Times as Kubernetes writes them."""

from datetime import datetime

from scoring.resources import shorten


def parse_time(text: str) -> float:
    """Return an RFC 3339 time in seconds since the epoch; raise `ValueError`."""
    moment = datetime.fromisoformat(text)
    if moment.tzinfo is None:  # it would be read in the time zone of this machine
        raise ValueError(f"time: wanted an offset from UTC, got {shorten(text)}")
    return moment.timestamp()
