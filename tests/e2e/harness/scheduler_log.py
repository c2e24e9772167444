"""What kube-scheduler's log says about its extender."""

import re
import urllib.parse
from collections.abc import Iterator, Sequence
from typing import Final

# klog: severity, month and day, time; what does not look so continues a line.
LINE_START: Final = re.compile(r"[IWEF]\d{4} \d\d:\d\d:\d\d")
# A verdict of the extender, with which it names itself and which is no error.
VERDICT: Final = "Node is not known to gpu-extender"
# Errors of ignorable extenders, and of scores, are logged as information.
SAYS_ERROR: Final = re.compile(r"\berr(?:or)?=", re.IGNORECASE)


def extender_error_lines(log: str, extender_url: str) -> Sequence[str]:
    """Return the entries that report an error and name the extender.

    An entry names the extender if it has the word or the extender's host and port.
    """
    address = urllib.parse.urlsplit(extender_url).netloc
    return tuple(
        entry
        for entry in _entries(log)
        if (entry[0] in "EF" or SAYS_ERROR.search(entry))
        and ("xtender" in entry.replace(VERDICT, "") or address in entry)
    )


def _entries(log: str) -> Iterator[str]:
    """Split a log into entries, continuation lines included."""
    entry: list[str] = []
    for line in log.splitlines():
        if LINE_START.match(line) and entry:
            yield "\n".join(entry)
            entry = []
        if entry or LINE_START.match(line):
            entry.append(line)
    if entry:
        yield "\n".join(entry)
