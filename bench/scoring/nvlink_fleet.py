"""A mixed NVLink fleet: how good the sets of GPUs are that jobs get, by policy.

200 nodes of six layouts; 20,000 jobs of 1, 2, 4 and 8 GPUs (40, 25, 20, 15 %) come and
go so that 85 to 95 % of the GPUs are in use. A job goes to the node that our own
functions give the highest priority, lots among equals, of the nodes that kube-scheduler
would offer; there it gets what the device plugin's policy takes. Its set is compared
with the best that any node with enough free GPUs had for it at that moment. Jobs of one
GPU need no links: they are left out of the figure, and only in its way.

``python -m bench.scoring.nvlink_fleet --seeds 5``
"""

import argparse
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from concurrent.futures import Executor, Future, ProcessPoolExecutor
from dataclasses import dataclass, field, replace
from multiprocessing import get_context
from typing import Any, Final, TypeAlias

import msgspec
import numpy as np

from bench.figures import Bar, Spread
from cluster.decode.objects import Node
from cluster.ledger.changes import NodesListed, PodsListed
from cluster.ledger.ledger import Ledger
from extender.verbs.options import VerbOptions
from scoring.candidates import Candidates, PodRequest, take_columns
from scoring.normalization import normalize
from scoring.resources import NVIDIA_GPU
from scoring.snapshot import Float64Array, IndexArray, Snapshot
from scoring.topology.devices import NOT_TOLD
from scoring.topology.layouts import LinkLayout
from scoring.topology.tables import table_of
from service.runtime import build_verb_options
from service.settings.settings import Settings

JOBS: Final = 20_000
SIZES: Final = (1, 2, 4, 8)
SHARES: Final = (0.40, 0.25, 0.20, 0.15)
BUSY: Final = (0.85, 0.95)
FIRST_SEED: Final = 42
SEEDS: Final = 5
PROCESSES: Final = 2

# How much is in use goes up and down within the bounds.
JOBS_OF_A_WAVE: Final = 2_000

# kube-scheduler's numFeasibleNodesToFind for 200 nodes: never fewer than a hundred.
OFFERED: Final = 100

# number of nodes, GPUs of each, product label, layout by annotation, linked by label
FLEET: Final = (
    (30, 8, "Tesla-V100-SXM2-16GB", "", True),
    (10, 16, "Tesla-V100-SXM3-32GB", "", True),
    (40, 8, "NVIDIA-A100-SXM4-80GB", "", True),
    (40, 8, "NVIDIA-H100-80GB-HBM3", "", True),
    (40, 8, "NVIDIA-A100-80GB-PCIe", "bridged-pairs-8", True),
    (40, 8, "NVIDIA-L40S", "", False),
)


@dataclass(frozen=True, slots=True)
class Placement:
    """One way to place jobs.

    Attributes
    ----------
    scoring : mapping
        Settings under ``scoring``.
    knows_devices : bool
        Whether pods say which GPUs they hold.
    """

    name: str
    scoring: Mapping[str, Any]
    knows_devices: bool = True


def _weights(**weights: int) -> dict[str, int]:
    return {"utilization": 0, "typeMatch": 0, "topology": 0, **weights}


_GRADED: Final = {
    "topology": "graded",
    "normalize": "rank",
    "weights": _weights(topology=100),
}

_BY_COUNT: Final = {"normalize": "rank", "weights": _weights(utilization=100)}

PLACEMENTS: Final = (
    Placement("graded", _GRADED),
    Placement("graded, counts known", _GRADED, knows_devices=False),
    Placement("label 100/50", {"topology": "label"}),
    Placement("by count, fullest", {**_BY_COUNT, "strategy": "binpack"}),
    Placement("by count, emptiest", {**_BY_COUNT, "strategy": "spread"}),
)


def build_snapshot(options: VerbOptions) -> Snapshot:
    """Return the empty fleet, decoded as the service does, in a mixed order."""
    records = []
    for number, gpus, product, layout, is_linked in FLEET:
        for index in range(number):
            labels = {"nvidia.com/gpu.product": product}
            if is_linked:
                labels["gpu-interconnect"] = "nvlink"
            said = {"gpu-extender.io/links": f'{{"layout": "{layout}"}}'}
            amounts = {NVIDIA_GPU: str(gpus)}
            node = {
                "metadata": {
                    "name": f"{index:03}-{product}".lower(),
                    "labels": labels,
                    "annotations": said if layout else {},
                },
                "status": {"allocatable": amounts, "capacity": amounts},
            }
            record, faults = options.builder.node_record(msgspec.convert(node, Node))
            assert not faults, faults
            records.append(record)
    ledger = Ledger(("accelerator", "gpu-interconnect"))
    ledger.apply(NodesListed(tuple(sorted(records, key=lambda record: record.name))))
    ledger.apply(PodsListed(()))
    return ledger.build()


@dataclass(slots=True)
class Outcome:
    """Figures of one placement with one seed.

    Attributes
    ----------
    ratios : list of float
        Bandwidth obtained by the best there was, of jobs of two GPUs and more.
    refused : Counter
        Jobs that no node had room for, by size.
    busy : list of float
    """

    ratios: list[float] = field(default_factory=list)
    refused: Counter[int] = field(default_factory=Counter)
    busy: list[float] = field(default_factory=list)
    jobs: int = 0


# name of a placement -> its figures with each seed
Fleets: TypeAlias = Mapping[str, Sequence[Future[Outcome]]]


class Fleet:
    """The fleet under one placement; jobs come and go."""

    def __init__(self, placement: Placement, seed: int) -> None:
        scoring = dict(placement.scoring)
        base = {"cluster": {"source": "file", "files": ["x"]}, "scoring": scoring}
        settings = Settings.model_validate_json(msgspec.json.encode(base))
        self._options = build_verb_options(settings)
        snapshot = build_snapshot(self._options)
        self._knows_devices = placement.knows_devices
        self._order = snapshot.nodes.order
        self._sizes = np.random.default_rng(seed)
        self._lots = np.random.default_rng(seed + 1_000)
        self._offer_from = 0
        every = np.arange(len(snapshot.nodes.names), dtype=np.intp)
        self._requests = {
            size: PodRequest("", ((NVIDIA_GPU, size),), NVIDIA_GPU, None, "")
            for size in SIZES
        }
        self._empty: dict[int, Candidates] = {
            size: take_columns(snapshot, every, request, self._options.label_keys)
            for size, request in self._requests.items()
        }
        kinds, codes = snapshot.gpus.link_kinds, snapshot.gpus.link_codes
        layouts = [kinds[code].layout for code in codes.tolist()]
        assert all(layout is not None for layout in layouts)
        self.layouts: list[LinkLayout] = [found for found in layouts if found]
        self._total = np.array([layout.count for layout in self.layouts])
        self.free = np.array([layout.full for layout in self.layouts])
        self.running: list[tuple[int, int]] = []

    @property
    def busy(self) -> float:
        """Part of the GPUs in use."""
        return 1.0 - float(np.bitwise_count(self.free).sum() / self._total.sum())

    def draw_size(self) -> int:
        """Return the size of the next job."""
        return int(self._sizes.choice(SIZES, p=SHARES))

    def make_room(self, size: int, busy: float) -> None:
        """Let jobs end, drawn by lot, until with the next one so much is in use."""
        while self.busy > busy - size / float(self._total.sum()):
            index = int(self._lots.integers(len(self.running)))
            node, held = self.running[index]
            self.running[index] = self.running[-1]
            self.running.pop()
            self.free[node] |= held

    def best(self, size: int) -> float:
        """Return the bandwidth of the best set that any node has."""
        return max(
            float(table_of(layout, size).best[free])
            for layout, free in zip(self.layouts, self.free.tolist(), strict=True)
            if layout.count >= size
        )

    def place(self, size: int) -> float | None:
        """Place a job; return the bandwidth that it gets, None if it is refused."""
        offered = self._offered(size)
        if not len(offered):
            return None
        node = int(offered[self._choose(size, offered)])
        layout = self.layouts[node]
        held = int(table_of(layout, size).picked[self.free[node]])
        self.free[node] &= ~held
        self.running.append((node, held))
        return float(layout.bandwidth[held])

    def _offered(self, size: int) -> IndexArray:
        """Return the nodes with room that kube-scheduler offers: it goes round."""
        count = len(self.free)
        around = (np.arange(count) + self._offer_from) % count
        room = np.bitwise_count(self.free[around]) >= size
        found = np.flatnonzero(room)[:OFFERED]
        looked_at = int(found[-1]) + 1 if len(found) == OFFERED else count
        self._offer_from = (self._offer_from + looked_at) % count
        return around[found]

    def _choose(self, size: int, offered: IndexArray) -> int:
        """Return the index of the offered node with the highest priority."""
        empty, request = self._empty[size], self._requests[size]
        in_use = self._total - np.bitwise_count(self.free)
        known = (in_use == 0) | (in_use == self._total)
        free_sets = (
            self.free if self._knows_devices else np.where(known, self.free, NOT_TOLD)
        )
        candidates = _taken(
            replace(
                empty, requested=in_use[None, :].astype(np.int64), free_sets=free_sets
            ),
            offered,
        )
        totals, taking_part = self._options.total_up(candidates, request)
        priorities = normalize(
            totals, taking_part, self._options.scale, None, self._order[offered]
        )
        best = np.flatnonzero(priorities == priorities.max())
        return int(self._lots.choice(best))


def _taken(candidates: Candidates, columns: IndexArray) -> Candidates:
    """Return some of the candidates."""
    taken: dict[str, Any] = {}
    for name in (
        *("known", "columns", "faulted", "failing", "type_codes", "linked"),
        *("nominated", "gpu_codes", "instead", "gpu_pods", "exclusive_gpu_pods"),
        *("link_codes", "free_sets", "mig"),
    ):
        taken[name] = getattr(candidates, name)[columns]
    for name in ("allocatable", "requested", "offered", "claimed"):
        taken[name] = getattr(candidates, name)[:, columns]
    return replace(candidates, **taken)


def run(placement: Placement, seed: int, jobs: int = JOBS) -> Outcome:
    """Return the figures of one placement; the filling up does not count."""
    fleet, outcome = Fleet(placement, seed), Outcome()
    while fleet.busy < BUSY[0]:
        fleet.place(fleet.draw_size())
    low, high = BUSY
    for number in range(jobs):
        size = fleet.draw_size()
        wave = math.sin(2 * math.pi * number / JOBS_OF_A_WAVE)
        fleet.make_room(size, (low + high + (high - low) * wave) / 2)
        best = fleet.best(size)
        obtained = fleet.place(size)
        outcome.jobs += 1
        outcome.busy.append(fleet.busy)
        if obtained is None:
            outcome.refused[size] += 1
        elif size > 1:
            outcome.ratios.append(obtained / best)
    return outcome


def submit(pool: Executor, seeds: int = SEEDS, jobs: int = JOBS) -> Fleets:
    """Have all placements worked on with so many seeds."""
    return {
        placement.name: [
            pool.submit(run, placement, FIRST_SEED + seed, jobs)
            for seed in range(seeds)
        ]
        for placement in PLACEMENTS
    }


def report(fleets: Fleets) -> list[Bar]:
    """Print the table; return the bars."""
    mean_of: dict[str, Float64Array] = {}
    print("set obtained / best there was, mean over jobs of 2, 4 and 8 GPUs by seed")
    for name, futures in fleets.items():
        outcomes = [future.result() for future in futures]
        means = np.array([np.mean(outcome.ratios) for outcome in outcomes])
        mean_of[name] = means
        refused = {
            size: f"{sum(o.refused[size] for o in outcomes) / len(outcomes):.0f}"
            for size in SIZES
        }
        busy = Spread.of(value for outcome in outcomes for value in outcome.busy)
        print(
            f"{name:22} {Spread.of(means.tolist()).text(4)}  refused of"
            f" {outcomes[0].jobs}: {refused}  busy {busy.text()}",
            flush=True,
        )
    return bars(mean_of)


def bars(mean_of: Mapping[str, Float64Array]) -> list[Bar]:
    """Return the bars: ours, and how much closer to 1 than placement by count."""
    ours = float(mean_of["graded"].mean())
    by_count = max(
        float(means.mean()) for name, means in mean_of.items() if "by count" in name
    )
    return [
        Bar("nvlink_fleet", ours, 0.95, is_least=True),
        Bar(
            "nvlink_fleet_closer_than_count",
            (1 - by_count) / max(1 - ours, 1e-9),
            2.0,
            is_least=True,
        ),
    ]


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the table and the bars."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=SEEDS)
    parser.add_argument("--jobs", type=int, default=JOBS)
    options = parser.parse_args(arguments)
    with ProcessPoolExecutor(PROCESSES, get_context("spawn")) as pool:
        for bar in report(submit(pool, options.seeds, options.jobs)):
            print(bar.line())


if __name__ == "__main__":
    main()
