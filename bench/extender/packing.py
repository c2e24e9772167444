"""Time what the packing profile costs beside the classic one, over HTTP and alone.

Over HTTP, two processes serve the same cluster, each by one profile, and are asked in
rounds that alternate. Alone, the totals of 5,000 nodes are brought up to date after
each binding, as between two calls: one node has changed. For a request that is new, all
nodes are computed.
"""

import statistics
import time
from collections.abc import Mapping
from dataclasses import replace
from typing import Final, NamedTuple

import numpy as np

from bench.client import Load, Plan, Timings
from bench.clusters import bound_pod, build_ledger, sampled_bodies
from bench.figures import Bar, Spread, paired_ratios, percentile_ms
from bench.processes import run_client
from cluster.ledger.changes import PodSeen
from extender.verbs.options import VerbOptions
from scoring.candidates import PodRequest
from scoring.snapshot import Snapshot
from service.runtime import build_verb_options
from service.settings.policy import ScoringSettings
from service.settings.settings import Settings

CLASSIC, PACKING = "classic", "packing"

NAMES: Final = 1000
PAIRS: Final = 70
BODIES: Final = 8
ROUNDS: Final = 30
WARM_UP_ROUNDS: Final = 3
CANDIDATES: Final = 5000
BINDINGS: Final = 300
UNSEEN_EVERY: Final = 10

HTTP_BAR: Final = 1.25
KERNEL_BAR: Final = 3.0


class Kernels(NamedTuple):
    """Seconds by profile: after each binding, and for a request that is new."""

    renewed: Mapping[str, list[float]]
    unseen: Mapping[str, list[float]]


def time_pairs(ports: Mapping[str, int]) -> Timings:
    """Time pairs of calls about 1,000 names; `ports` is profile -> where it listens."""
    load = Load(NAMES, PAIRS, sampled_bodies(NAMES, NAMES, BODIES), dict(ports))
    return run_client("bench.client", Plan([load], ROUNDS, WARM_UP_ROUNDS), Timings)


def time_kernels(count: int = CANDIDATES, bindings: int = BINDINGS) -> Kernels:
    """Time the totals of so many nodes while pods are bound."""
    options = {
        profile: build_verb_options(
            Settings(scoring=ScoringSettings().with_profile(profile))
        )
        for profile in (CLASSIC, PACKING)
    }
    ledger = build_ledger(count, options[CLASSIC].label_keys)
    snapshot = ledger.build()
    kernels = Kernels({CLASSIC: [], PACKING: []}, {CLASSIC: [], PACKING: []})
    for number in range(bindings):
        # A cpu of its own, so that the node is in a state that nobody has seen.
        name = snapshot.nodes.names[number * 17 % count]
        ledger.apply(PodSeen(bound_pod(f"bound-{number}", 1000 + number, name)))
        snapshot = ledger.build()
        for profile, own in options.items():
            kernels.renewed[profile].append(_seconds(own, snapshot))
            if number % UNSEEN_EVERY == 0:  # a copy remembers nothing
                kernels.unseen[profile].append(_seconds(replace(own), snapshot))
    return kernels


def _seconds(options: VerbOptions, snapshot: Snapshot) -> float:
    """Return the time until totals and verdicts of all nodes are there."""
    cpu = 8000 if options.reads_cpu else None
    gpu = "nvidia.com/gpu"
    ask = PodRequest("", ((gpu, 2),), gpu, None, "", cpu=cpu)
    every = np.arange(len(snapshot.nodes.names), dtype=np.intp)
    started = time.perf_counter()
    options.shared_results.take(snapshot, every, ask)
    return time.perf_counter() - started


def http_ratio(timings: Timings) -> Spread:
    """Return how the medians of packing and of classic relate, round by round."""
    (packing,), (classic,) = timings.seconds[PACKING], timings.seconds[CLASSIC]
    return paired_ratios(
        [statistics.median(one) for one in packing],
        [statistics.median(one) for one in classic],
    )


def table(timings: Timings, kernels: Kernels) -> str:
    """Return medians, and ratios with their range."""
    lines = ["packing beside classic: p50 in ms", ""]
    for profile in (CLASSIC, PACKING):
        pairs = [pair for one in timings.seconds[profile][0] for pair in one]
        lines.append(
            f"{profile:8} pair of {NAMES} names {percentile_ms(pairs, 50):6.2f}"
            f"   one node of {CANDIDATES} changed"
            f" {percentile_ms(kernels.renewed[profile], 50):6.3f}"
            f"   new request {percentile_ms(kernels.unseen[profile], 50):6.3f}"
        )
    lines.append(f"ratio of pairs {http_ratio(timings).text()}")
    return "\n".join(lines) + "\n"


def bars(timings: Timings, kernels: Kernels) -> list[Bar]:
    """Return what the profile costs a pair of calls, and its totals alone."""
    renewed = (
        statistics.median(kernels.renewed[profile]) for profile in (PACKING, CLASSIC)
    )
    above, below = renewed
    return [
        Bar(f"packing_http_{NAMES}", http_ratio(timings).median, HTTP_BAR),
        Bar(f"packing_kernel_{CANDIDATES}", above / below, KERNEL_BAR),
    ]
