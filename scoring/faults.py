"""Faults of an input, and the one error that carries all of them."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Fault:
    """One thing wrong with an input: its path, and what was wanted and received.

    Attributes
    ----------
    path : str
        Empty where the message says it all.
    """

    path: str
    message: str

    def __str__(self) -> str:
        return f"{self.path}: {self.message}" if self.path else self.message


class FaultsError(ValueError):
    """An input with faults; `faults` is the tuple of all of them.

    Parameters
    ----------
    message : str, optional
        Without it, the faults on one line.
    """

    def __init__(self, faults: Iterable[Fault], message: str | None = None) -> None:
        self.faults = tuple(faults)
        if message is None:
            message = "; ".join(map(str, self.faults))
        super().__init__(message)


def list_faults(
    source: str, faults: Sequence[Fault], max_shown: int | None = None
) -> str:
    """Return a message of one line for each fault, below their number.

    Parameters
    ----------
    source : str
        The file or input.
    max_shown : int, optional
        A last line has the number of those beyond.

    Examples
    --------
    >>> print(list_faults("pods.yaml", [Fault("kind", "wanted text, got 1")]))
    pods.yaml: 1 fault(s)
      kind: wanted text, got 1
    """
    lines = [f"  {fault}" for fault in faults[:max_shown]]
    if len(lines) < len(faults):
        lines.append(f"  and {len(faults) - len(lines)} more")
    return "\n".join((f"{source}: {len(faults)} fault(s)", *lines))
