"""What is read of the processes while pods are bound, and the figures from it."""

import os
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from bench.processes import BenchError

TIMED_FROM: Final = 0.1
TIMED_UNTIL: Final = 0.9
# Samples are some way apart; what they leave of the timed part must be most of it.
LEAST_TIMED: Final = 0.5
TICKS_PER_SECOND: Final = os.sysconf("SC_CLK_TCK")
_ATTEMPTS: Final = re.compile(
    r'^scheduler_schedule_attempts_total\{[^}]*result="(\w+)"[^}]*\} (\S+)$',
    re.MULTILINE,
)


@dataclass(frozen=True, slots=True)
class Sample:
    """One look at the processes.

    Attributes
    ----------
    at : float
        Seconds on a monotonic clock.
    bound : int
        Pods bound so far.
    retried : int
        Attempts so far that bound no pod.
    cpu_seconds : mapping
        Process name -> processor time that it has used.
    """

    at: float
    bound: int
    retried: int
    cpu_seconds: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class Figures:
    """What one run came to. `cpu_ms` is process name -> milliseconds for each pod."""

    pods_per_second: float
    retried: int
    cpu_ms: Mapping[str, float]


def attempts(metrics: str) -> tuple[int, int]:
    """Return how many attempts bound a pod and how many did not.

    >>> line = 'scheduler_schedule_attempts_total{profile="a",result="%s"} %s\\n'
    >>> attempts(line % ("scheduled", "1.2e+03") + line % ("unschedulable", "4"))
    (1200, 4)
    """
    counts = {result: int(float(count)) for result, count in _ATTEMPTS.findall(metrics)}
    bound = counts.pop("scheduled", 0)
    return bound, sum(counts.values())


def cpu_seconds(pid: int) -> float:
    """Return the processor time that a process has used, of all its threads."""
    stat = Path(f"/proc/{pid}/stat").read_text()
    return parse_cpu_ticks(stat) / TICKS_PER_SECOND


def parse_cpu_ticks(stat: str) -> int:
    """Return user and system time from the text of ``/proc/PID/stat``.

    >>> parse_cpu_ticks("7 (a b) c) S 1 7 7 0 -1 4194560 9 0 0 0 120 34 0 0 20 0 9 0")
    154
    """
    # The name may hold blanks and parentheses; utime and stime are fields 14 and 15.
    fields = stat.rpartition(")")[2].split()
    return int(fields[11]) + int(fields[12])


def figures(samples: Iterable[Sample], pods: int) -> Figures:
    """Return the figures of the timed part, between a tenth and nine tenths of pods."""
    kept = timed(list(samples), pods)
    first, last = kept[0], kept[-1]
    bound = last.bound - first.bound
    if bound < LEAST_TIMED * pods:
        raise BenchError(f"only {bound} of {pods} pods were timed: take more pods")
    return Figures(
        pods_per_second=bound / (last.at - first.at),
        retried=last.retried - first.retried,
        cpu_ms={
            name: (seconds - first.cpu_seconds[name]) * 1000 / bound
            for name, seconds in last.cpu_seconds.items()
        },
    )


def timed(samples: Sequence[Sample], pods: int) -> Sequence[Sample]:
    """Return the samples of the timed part."""
    kept = [
        sample
        for sample in samples
        if TIMED_FROM * pods <= sample.bound <= TIMED_UNTIL * pods
    ]
    if not kept:
        raise BenchError(f"no sample between a tenth and nine tenths of {pods} pods")
    return kept
