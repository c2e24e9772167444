"""Fallback and the injection after it, bytes in and bytes out."""

import json
from dataclasses import replace
from typing import Any

import pytest

from cluster.ledger.writer import SnapshotCell
from injector.fallback.chains import Chains
from injector.fallback.fallback import Fallback
from injector.fallback.holds import Holds
from tests.builders import Tree, make_node
from tests.defaults import FALLBACK_OPTIONS, HOLD_SECONDS
from tests.fakes.admissions import (
    LONG_CHAIN,
    MARK,
    MIG_1G,
    MIG_2G,
    MIG_3G,
    RECORD,
    Admissions,
)
from tests.fakes.webhook import (
    C1,
    GPU,
    NETWORKS,
    TRIGGER,
    Answered,
    both,
    container,
    make_pod,
    make_webhook,
)

SLICES_OF_1G = make_node(name="a", resources={MIG_1G: "28"})
CORDONED_1G = make_node(name="a", resources={MIG_1G: "28"}, is_cordoned=True)
FOUR_GPUS = make_node(name="b", gpus=4)
ONE_2G = both({MIG_2G: "1"})
UNCHANGED = None


def send(nodes: list[Tree], *containers: Tree, gpu_type: str | None = None) -> Answered:
    """Send one pod to a webhook of its own."""
    webhook = make_webhook(C1, fallback=Admissions(nodes=nodes).fallback)
    return webhook.send(make_pod(*containers, gpu_type=gpu_type))


@pytest.mark.parametrize(
    ("nodes", "quantity", "final", "record"),
    [
        pytest.param([SLICES_OF_1G], 1, MIG_1G, "2g.20gb->1g.10gb", id="1g is free"),
        pytest.param([FOUR_GPUS], 1, GPU, "2g.20gb->gpu", id="only cards"),
        pytest.param(
            [make_node(name="a", resources={MIG_2G: "1"})],
            1,
            MIG_2G,
            UNCHANGED,
            id="2g is free",
        ),
        pytest.param(
            [make_node(name="a", resources={MIG_2G: "1", MIG_1G: "2"})],
            2,
            MIG_1G,
            "2g.20gb->1g.10gb",
            id="two asked, one 2g and two 1g free",
        ),
        pytest.param(
            [CORDONED_1G, FOUR_GPUS], 1, GPU, "2g.20gb->gpu", id="1g is cordoned"
        ),
    ],
)
def test_one_container_takes_what_one_node_has(
    nodes: list[Tree], quantity: int, final: str, record: str | None
) -> None:
    answered = send(nodes, container("a", both({MIG_2G: str(quantity)})))

    assert answered.amounts("a") == {final: str(quantity)}
    assert answered.annotations[MARK] == final
    assert answered.annotations.get(RECORD) == record
    assert len(answered.warnings) == (record is not UNCHANGED)


def test_without_any_node_that_offers_gpus_a_pod_is_left_alone_with_a_warning() -> None:
    answered = send([make_node(name="a")], container("a", ONE_2G))

    assert answered.amounts("a") == {MIG_2G: "1"}
    assert answered.annotations == {MARK: MIG_2G}
    assert answered.warnings == [
        f"no ready node has {MIG_2G}, or a fallback, and all else it asks: unchanged"
    ]


def test_while_the_nodes_cannot_be_listed_a_pod_is_left_alone_with_a_warning() -> None:
    options = replace(FALLBACK_OPTIONS, chains=Chains((LONG_CHAIN,)))
    webhook = make_webhook(
        C1, fallback=Fallback(Holds(SnapshotCell(), hold_seconds=HOLD_SECONDS), options)
    )

    answered = webhook.send(make_pod(container("a", ONE_2G), gpu_type=None))

    assert not answered.operations
    assert answered.warnings == [
        (
            "the cluster has not been read yet: no fallback was weighed for"
            f" {MIG_2G}; create the pod again"
        )
    ]


@pytest.mark.parametrize(
    ("containers", "asked", "record"),
    [
        pytest.param(
            [both({MIG_3G: "1", MIG_2G: "1"})],
            [{MIG_1G: "2"}],
            "3g.30gb->1g.10gb,2g.20gb->1g.10gb",
            id="two sources in one container add up",
        ),
        pytest.param(
            [both({MIG_2G: "1", MIG_1G: "2"})],
            [{MIG_1G: "3"}],
            "2g.20gb->1g.10gb",
            id="a target that is asked already is added to",
        ),
        pytest.param(
            [ONE_2G, both({MIG_3G: "1"})],
            [{MIG_1G: "1"}, {MIG_1G: "1"}],
            "c0=2g.20gb->1g.10gb,c1=3g.30gb->1g.10gb",
            id="containers that differ are recorded by name",
        ),
    ],
)
def test_all_containers_and_resources_fall_together(
    containers: list[dict[str, Any]], asked: list[dict[str, str]], record: str
) -> None:
    answered = send(
        [SLICES_OF_1G],
        *(container(f"c{place}", item) for place, item in enumerate(containers)),
    )

    assert [answered.amounts(f"c{place}") for place in range(len(asked))] == asked
    assert answered.annotations == {RECORD: record, MARK: MIG_1G}


def test_what_a_container_asked_before_is_in_the_audit_log() -> None:
    answered = send(
        [SLICES_OF_1G], container("c0", ONE_2G), container("c1", both({MIG_3G: "1"}))
    )

    assert answered.response["auditAnnotations"]["fallback-original"] == (
        f"c0:{MIG_2G}=1,c1:{MIG_3G}=1"
    )


def test_one_patch_carries_fallback_and_injection() -> None:
    answered = send([FOUR_GPUS], container("a", ONE_2G), gpu_type="V100")

    assert answered.amounts("a") == {GPU: "1", "cpu": "4", "memory": "8Gi"}
    assert answered.annotations == {
        TRIGGER: "V100",
        RECORD: "2g.20gb->gpu",
        MARK: GPU,
        NETWORKS: "tke-route-eni",
    }
    assert MIG_2G not in json.dumps(answered.pod["spec"])
