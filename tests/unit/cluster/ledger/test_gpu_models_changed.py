"""Other rules of the GPU types, and the nodes and pods that are there already."""

from typing import Final

import pytest

from cluster.decode.gpu_requirements import GpuRequirementsReader
from cluster.ledger.changes import GpuModelsChanged
from scoring.gpu.models import GIB, GpuModel, default_table, extended_table
from scoring.gpu.node_gpus import GpuLabelReader, GpuLabelRules
from scoring.gpu.requirements import NO_GPU_REQUIREMENTS, UNREADABLE, GpuRequirements
from scoring.snapshot import Snapshot
from tests.builders import make_ledger, make_node, make_pod
from tests.defaults import GPU_ANNOTATIONS

TYPE: Final = "gpu-extender.io/gpu-type"
RULE_KEY: Final = "task.bkbcs.tencent.com/gpu-type"
WITH_ACME: Final = GpuLabelRules(extended_table([GpuModel("Acme-1", GIB)], {}))


def by_rules(rules: GpuLabelRules) -> GpuModelsChanged:
    gpus = GpuLabelReader(rules)
    return GpuModelsChanged(
        gpus.read, GpuRequirementsReader(GPU_ANNOTATIONS, gpus).reread
    )


def gpu_requirements_in(snapshot: Snapshot) -> list[GpuRequirements]:
    pending = [pod.gpu_requirements for pod in snapshot.pending]
    return pending + [pod.gpu_requirements for pod in snapshot.bound_pods.values()]


def test_other_rules_are_applied_to_the_nodes_that_are_there() -> None:
    labels = {"nvidia.com/gpu.product": "Acme-1"}
    acme, other = make_node(name="a", labels=labels), make_node(name="b")
    ledger = make_ledger(nodes=[acme, other])
    before = ledger.build()

    ledger.apply(by_rules(WITH_ACME))
    after = ledger.build()

    assert after.facts[0].gpus.memory.low == GIB
    assert after.changed_since(before.generation).tolist() == [0]
    ledger.apply(by_rules(WITH_ACME))
    assert not ledger.has_changes


@pytest.mark.parametrize("node_name", ["", "node-1"], ids=["pending", "bound"])
@pytest.mark.parametrize(
    ("annotations", "before", "after"),
    [
        pytest.param(
            {RULE_KEY: "Acme-1"},
            NO_GPU_REQUIREMENTS,
            GpuRequirements(preferred=("Acme-1",)),
            id="a rule key that means something now",
        ),
        pytest.param(
            {RULE_KEY: "Acme-1", TYPE: "!L4"},
            GpuRequirements(excluded=("L4",)),
            GpuRequirements(excluded=("L4",), preferred=("Acme-1",)),
            id="beside exclusions",
        ),
        pytest.param(
            {RULE_KEY: "Acme-1", TYPE: "L4"},
            GpuRequirements(types=("L4",)),
            GpuRequirements(types=("L4",)),
            id="a list of its own decides",
        ),
        pytest.param(
            {RULE_KEY: "Acme-1", TYPE: "!"}, UNREADABLE, UNREADABLE, id="unreadable"
        ),
    ],
)
def test_other_rules_are_applied_to_the_pods_that_are_there(
    annotations: dict[str, str],
    before: GpuRequirements,
    after: GpuRequirements,
    node_name: str,
) -> None:
    pod = make_pod(gpus=1, annotations=annotations, node_name=node_name)
    ledger = make_ledger(nodes=[make_node()], pods=[pod])
    assert gpu_requirements_in(ledger.build()) == [before]

    ledger.apply(by_rules(WITH_ACME))

    assert ledger.has_changes == (before != after)
    assert gpu_requirements_in(ledger.build()) == [after]
    ledger.apply(by_rules(GpuLabelRules(default_table())))
    assert gpu_requirements_in(ledger.build()) == [before]


def test_pods_that_ask_alike_share_what_they_want() -> None:
    pods = [
        make_pod(name=name, gpus=1, annotations={RULE_KEY: "Acme-1"})
        for name in ("a", "b")
    ]
    ledger = make_ledger(pods=pods)

    ledger.apply(by_rules(WITH_ACME))

    first, second = gpu_requirements_in(ledger.build())
    assert first is second


def test_a_reader_of_requirements_follows_the_table_of_its_gpus() -> None:
    gpus = GpuLabelReader()
    reader = GpuRequirementsReader(GPU_ANNOTATIONS, gpus)
    assert reader.read({RULE_KEY: "Acme-1"}) == NO_GPU_REQUIREMENTS

    gpus.use(WITH_ACME)

    assert reader.read({RULE_KEY: "Acme-1"}) == GpuRequirements(preferred=("Acme-1",))
