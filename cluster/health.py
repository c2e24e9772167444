"""`SourceHealth`: when each kind was last heard of, and whether it is listed."""

import time
from collections.abc import Callable, Iterable


class SourceHealth:
    """Age of the last contact with the API server, by kind.

    Each kind has one writer, its reflector's thread; any thread may read.

    Parameters
    ----------
    kinds : iterable of str
        The kinds without which the cluster is not known; others are not looked at.
    monotonic : callable
    """

    def __init__(
        self, kinds: Iterable[str], monotonic: Callable[[], float] = time.monotonic
    ) -> None:
        self._monotonic = monotonic
        # kind -> time of the last contact; the start where there was none
        self._contacts = dict.fromkeys(kinds, monotonic())
        # kind -> whether a complete list was handed to the ledger
        self._listed = dict.fromkeys(self._contacts, False)

    def contact(self, kind: str) -> None:
        """Note that the server sent something that keeps this kind up to date."""
        if kind in self._contacts:
            self._contacts[kind] = self._monotonic()

    def listed(self, kind: str) -> None:
        """Note that a complete list was handed to the ledger."""
        if kind in self._listed:
            self._listed[kind] = True

    @property
    def is_listed(self) -> bool:
        """Whether each kind was listed; that all is counted, only a snapshot says."""
        return all(self._listed.values())

    def ages(self) -> dict[str, float]:
        """Return seconds since the last contact, by kind."""
        now = self._monotonic()
        return {kind: now - seen for kind, seen in self._contacts.items()}
