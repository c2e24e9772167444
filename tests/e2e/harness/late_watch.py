"""Rounds in which our watch shows late that there is room: how soon is it used?"""

import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from tests.e2e.harness.builders import JsonObject
from tests.e2e.harness.client import ApiClient
from tests.e2e.harness.pods import delete_quietly, wait_until_bound, wait_until_refused
from tests.e2e.harness.waiting import DeadlineError

LAG_SECONDS: Final = 0.3
# Beyond the lag: what the refusal itself set going is over before the next change.
REST_SECONDS: Final = 0.3


@dataclass(frozen=True, slots=True)
class Situation:
    """What makes a pod pending, and what ends it.

    `pending` gives the round's pod, `change` is what makes room for it, `undo` what
    takes the room away again; all get the number of the round.
    """

    pending: Callable[[int], JsonObject]
    change: Callable[[int], object]
    undo: Callable[[int], object]


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of some rounds: seconds until the pod was bound, None if it was not."""

    seconds: Sequence[float | None]

    @property
    def bound(self) -> Sequence[float]:
        """The seconds of the rounds whose pod was bound in time, in rising order."""
        return sorted(took for took in self.seconds if took is not None)

    @property
    def left(self) -> int:
        """How many rounds left their pod unbound."""
        return len(self.seconds) - len(self.bound)

    def __str__(self) -> str:
        bound = self.bound
        text = f"{len(bound)} of {len(self.seconds)} bound in time"
        if bound:
            text += f", median {statistics.median(bound):.3f} s, last {bound[-1]:.3f} s"
        return text


def live_rounds(  # noqa: PLR0913 - every argument is named
    client: ApiClient,
    situation: Situation,
    *,
    rounds: int,
    timeout_seconds: float,
    lag_seconds: float = LAG_SECONDS,
    enough_left: int | None = None,
) -> Outcome:
    """Live through rounds one by one, in a cluster that is quiet in between.

    With `enough_left`, no more rounds follow once so many pods were left unbound.
    """
    seconds: list[float | None] = []
    for number in range(rounds):
        rest_seconds = lag_seconds + REST_SECONDS
        seconds.append(
            _live_round(client, situation, number, timeout_seconds, rest_seconds)
        )
        if enough_left is not None and seconds.count(None) == enough_left:
            break
    return Outcome(seconds)


def _live_round(
    client: ApiClient,
    situation: Situation,
    number: int,
    timeout_seconds: float,
    rest_seconds: float,
) -> float | None:
    pod = client.create(situation.pending(number))["metadata"]["name"]
    wait_until_refused(client, pod)
    time.sleep(rest_seconds)
    situation.change(number)
    changed = time.monotonic()
    took: float | None = None
    try:
        wait_until_bound(client, pod, timeout_seconds=timeout_seconds)
        took = time.monotonic() - changed
    except DeadlineError:
        delete_quietly(client, pod)
    situation.undo(number)
    time.sleep(rest_seconds)  # so that the next round finds us in step
    return took
