"""Medians with their range, and the lines that say whether a bar is met."""

import statistics
from collections.abc import Iterable, Sequence
from typing import NamedTuple, Self


class Spread(NamedTuple):
    """The median of all rounds, and the smallest and largest of them."""

    median: float
    low: float
    high: float

    @classmethod
    def of(cls, values: Iterable[float]) -> Self:
        """Return the spread of some values.

        >>> Spread.of([3.0, 1.0, 2.0])
        Spread(median=2.0, low=1.0, high=3.0)
        """
        kept = list(values)
        return cls(statistics.median(kept), min(kept), max(kept))

    def text(self, digits: int = 2) -> str:
        """Return the median, and the range in brackets.

        >>> Spread(1.5, 1.25, 2.0).text()
        '1.50 [1.25 to 2.00]'
        """
        median, low, high = (f"{value:.{digits}f}" for value in self)
        return f"{median} [{low} to {high}]"


def paired_ratios(above: Sequence[float], below: Sequence[float]) -> Spread:
    """Return how the values of the same rounds relate.

    >>> paired_ratios([2.0, 3.0], [1.0, 2.0])
    Spread(median=1.75, low=1.5, high=2.0)
    """
    return Spread.of(one / other for one, other in zip(above, below, strict=True))


class Bar(NamedTuple):
    """A figure and what it has to be: at most or, where said, at least the target."""

    name: str
    value: float
    target: float
    is_least: bool = False

    @property
    def is_met(self) -> bool:
        """Whether the figure as it is printed meets the target."""
        value = round(self.value, 2)
        return value >= self.target if self.is_least else value <= self.target

    def line(self) -> str:
        """Return the line that says so.

        >>> Bar("names_growth", 8.004, 8).line()
        'bar names_growth 8.00 <=8 pass'
        >>> Bar("noop_ratio_1000_one", 1.386, 1.4, is_least=True).line()
        'bar noop_ratio_1000_one 1.39 >=1.4 miss'
        """
        sign = ">=" if self.is_least else "<="
        verdict = "pass" if self.is_met else "miss"
        return f"bar {self.name} {self.value:.2f} {sign}{self.target:g} {verdict}"


def percentile_ms(seconds: Sequence[float], percent: int) -> float:
    """Return a percentile of some durations, in milliseconds.

    >>> percentile_ms([0.001, 0.002, 0.003], 50)
    2.0
    """
    return statistics.quantiles(seconds, n=100)[percent - 1] * 1000
