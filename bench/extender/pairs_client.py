"""One caller of filter and prioritize, who notes when each pair of calls was made.

It reads a `PairsPlan` from standard input and writes `Pairs` to standard output. It
knows nothing of what goes on beside it.
"""

import time
from contextlib import closing

import msgspec

from bench.client import Connection, Load, prepare, time_round
from bench.processes import carry_out


class PairsPlan(msgspec.Struct, frozen=True):
    """What to send where, and for how long."""

    port: int
    load: Load
    seconds: float


class Pairs(msgspec.Struct, frozen=True):
    """When each pair was begun, and how long it took."""

    started: list[float]
    seconds: list[float]

    def between(self, start: float, end: float) -> list[float]:
        """Return the seconds of those that were begun and ended in between.

        >>> Pairs([1.0, 2.0, 3.0], [0.5, 0.5, 0.5]).between(1.5, 3.2)
        [0.5]
        """
        return [
            seconds
            for started, seconds in zip(self.started, self.seconds, strict=True)
            if started >= start and started + seconds <= end
        ]


def run(plan: PairsPlan) -> Pairs:
    """Carry out a plan."""
    pairs = Pairs([], [])
    with closing(Connection(plan.port)) as connection:
        prepared = prepare(connection, plan.load, [])
        end = time.perf_counter() + plan.seconds
        turn = 0
        while (started := time.perf_counter()) < end:
            pair = prepared[turn % len(prepared)]
            pairs.seconds.extend(time_round(connection, [pair], 1))
            pairs.started.append(started)
            turn += 1
    return pairs


if __name__ == "__main__":
    carry_out(PairsPlan, run)
