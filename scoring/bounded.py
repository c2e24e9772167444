"""A mapping that remembers results and never grows beyond its limit."""

from collections.abc import Iterable
from typing import TypeVar

_Key = TypeVar("_Key")

_Value = TypeVar("_Value")


class BoundedDict(dict[_Key, _Value]):
    """A dict whose entries are added by `keep` or by `keep_newest`.

    Reading is that of a dict, from any thread and without a lock. `keep` needs none
    either: each of its steps is atomic, and threads that meet may exceed the limit by
    one entry each. `keep_newest` and whatever else reorders wants a lock of the owner.

    Parameters
    ----------
    limit : int
        Entries at most, above 0.

    Notes
    -----
    PERF: a subclass of dict, so that a look-up costs what it costs there.

    Examples
    --------
    >>> kept = BoundedDict(2)
    >>> for number in range(3):
    ...     _ = kept.keep(number, -number)
    >>> kept
    {2: -2}
    >>> kept.keep_newest(1, -1), kept.keep_newest(2, 0), kept.keep_newest(3, -3)
    (None, None, None)
    >>> kept
    {2: 0, 3: -3}
    """

    def __init__(self, limit: int) -> None:
        super().__init__()
        self.limit = limit

    def keep(self, key: _Key, value: _Value) -> _Value:
        """Keep and return a value; a full mapping forgets all before."""
        if len(self) >= self.limit:
            self.clear()
        self[key] = value
        return value

    def keep_all(self, items: Iterable[tuple[_Key, _Value]]) -> None:
        """Keep a few values; a full mapping forgets all before."""
        if len(self) >= self.limit:
            self.clear()
        self.update(items)

    def keep_newest(self, key: _Key, value: _Value) -> None:
        """Keep a value as the newest; beyond the limit the oldest goes."""
        self.pop(key, None)
        self[key] = value
        if len(self) > self.limit:
            del self[next(iter(self))]
