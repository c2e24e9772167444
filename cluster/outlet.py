"""Where a reflector's findings go: the ledger, the age of contact, the metrics."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from cluster.health import SourceHealth


class WatchObserver(Protocol):
    """Who counts what happens to the watches; called by reflectors' threads."""

    def listed(self, kind: str, count: int) -> None:
        """Note that a complete list of so many objects was handed on."""
        ...

    def events(self, kind: str, event_type: str, count: int) -> None:
        """Note events of one type."""
        ...

    def decode_fault(self, kind: str) -> None:
        """Note an object of which at least a part did not decode."""
        ...

    def watch_restarted(self, kind: str, reason: str) -> None:
        """Note that a list or watch ended, and why; it is taken up again."""
        ...


@dataclass(frozen=True, slots=True)
class Outlet:
    """Where a reflector's findings go.

    Attributes
    ----------
    submit : callable
        Hands changes to the ledger's thread.
    health : SourceHealth
    observer : WatchObserver
    """

    submit: Callable[..., None]
    health: SourceHealth
    observer: WatchObserver
