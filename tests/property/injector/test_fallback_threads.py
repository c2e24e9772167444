"""Pods reviewed by many threads at once: choosing and holding are one step."""

from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

import pytest

from tests.builders import Tree, make_node
from tests.fakes.admissions import MIG_1G, Admissions

GPUS = [make_node(name="a", gpus=4), make_node(name="b", gpus=4)]
SLICE = make_node(name="c", resources={MIG_1G: "1"})


@pytest.mark.parametrize(
    ("nodes", "pods", "records"),
    [
        pytest.param(GPUS, 10, {"2g.20gb->gpu": 10}, id="ten pods on eight cards"),
        pytest.param(
            [*GPUS, SLICE],
            9,
            {"2g.20gb->1g.10gb": 1, "2g.20gb->gpu": 8},
            id="one of nine takes the slice",
        ),
    ],
)
def test_pods_at_the_same_moment_are_as_pods_one_after_the_other(
    nodes: list[Tree], pods: int, records: dict[str, int]
) -> None:
    for _ in range(5):
        admissions = Admissions(nodes=nodes)
        ready = Barrier(pods, timeout=60)

        def review(
            _number: int, admissions: Admissions = admissions, ready: Barrier = ready
        ) -> str:
            ready.wait()
            return admissions.outcome()

        with ThreadPoolExecutor(pods) as threads:
            got = Counter(threads.map(review, range(pods)))

        assert got == records
        assert admissions.holds.count() == pods
