"""The mix of pods that the ledger learns, and the GPUs that it says there are."""

import itertools
from typing import Any, Final

import pytest

from cluster.ledger import pods as ledger_pods
from cluster.ledger.changes import NodeSeen, PodGone, PodSeen
from cluster.ledger.ledger import Ledger
from cluster.ledger.pods import MIN_NEW_PODS
from scoring.packing import learning
from scoring.packing.learning import NOTHING_LEARNED, ExpectedShape
from scoring.packing.prices import outlook_of
from scoring.packing.shapes import Shape
from scoring.topology.devices import CONTRADICTED, NOT_TOLD
from service.runtime import build_verb_options
from tests.builders import (
    Tree,
    make_ledger,
    make_node,
    make_node_record,
    make_pod,
    make_pod_record,
)
from tests.extender_app import make_settings

TYPE: Final = "gpu-extender.io/gpu-type"
SHARED: Final = "nvidia.com/gpu.shared"
ALLOCATED: Final = "gpu-extender.io/allocated"
QUARTERS: Final[dict[str, Any]] = {
    "resources": {SHARED: "8"},
    "labels": {
        "nvidia.com/gpu.product": "Tesla-T4-SHARED",
        "nvidia.com/gpu.replicas": "4",
    },
}


ANY: Final = ExpectedShape(Shape(0, 1))
H100: Final = ExpectedShape(Shape(0, 1), frozenset({"h100"}), is_whole=True)
NUMBERS: Final = itertools.count()


PRODUCT: Final = "nvidia.com/gpu.product"
REQUIRED: Final = "requiredDuringSchedulingIgnoredDuringExecution"
IN_T4: Final = {"key": PRODUCT, "operator": "In", "values": ["Tesla-T4"]}


def required(*expressions: Tree) -> Tree:
    """Return the spec of a pod whose affinity has one term."""
    terms = [{"matchExpressions": list(expressions)}]
    return {"affinity": {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": terms}}}}


def came(*pods: Tree, nodes: tuple[Tree, ...] = ()) -> Ledger:
    """Return a ledger that has seen each of the pods as often as makes it look."""
    ledger = make_ledger(nodes=nodes or (make_node(gpus=8),))
    for number in range(MIN_NEW_PODS):
        for place, pod in enumerate(pods):
            uid = f"{place}-{number}"
            tree = {**pod, "metadata": {**pod["metadata"], "name": uid, "uid": uid}}
            ledger.apply(PodSeen(make_pod_record(tree)))
    return ledger


@pytest.mark.parametrize(
    ("pod", "shape"),
    [
        pytest.param({"gpus": 2, "cpu": "3"}, (3000, 2, 1000), id="waiting"),
        pytest.param({"gpus": 2, "node_name": "node-1"}, (0, 2, 1000), id="bound"),
        pytest.param({"cpu": "3"}, (0, 0, 1000), id="without GPUs, whatever it asks"),
        pytest.param({"requests": {SHARED: "3"}}, (0, 1, 750), id="a share"),
    ],
)
def test_pods_that_come_are_expected_again(
    pod: dict[str, Any], shape: tuple[int, int, int]
) -> None:
    nodes = (make_node(gpus=8), make_node(name="shares", **QUARTERS))

    expected = came(make_pod(**pod), nodes=nodes).build().expected

    assert expected.parts == {ExpectedShape(Shape(*shape)): 1.0}
    assert expected.pods == MIN_NEW_PODS


def test_types_that_a_pod_accepts_are_expected_with_it() -> None:
    pod = make_pod(gpus=1, annotations={TYPE: "H100, A100-80GB, !L4"})

    (shape,) = came(pod).build().expected.parts

    assert shape.accepted == {"h100", "a100-80gb"}


@pytest.mark.parametrize(
    ("pod", "insisted"),
    [
        pytest.param({}, ("", ""), id="on nothing"),
        pytest.param({"annotations": {TYPE: "H100"}}, ("h100", ""), id="by list"),
        pytest.param({"annotations": {TYPE: "!T4"}}, ("", "t4"), id="by exclusion"),
        pytest.param(
            {"spec": {"nodeSelector": {"nvidia.com/gpu.product": "Tesla-T4"}}},
            ("t4", ""),
            id="by selector",
        ),
        pytest.param(
            {"spec": {"nodeSelector": {"accelerator": "v100"}}, "node_name": "node-1"},
            ("v100", ""),
            id="by selector, when it has a node",
        ),
        pytest.param(
            {"spec": {"nodeSelector": {"pool": "gpus"}}}, ("", ""), id="by no model"
        ),
        pytest.param({"spec": required(IN_T4)}, ("t4", ""), id="by affinity"),
        pytest.param(
            {"spec": required(IN_T4), "node_name": "node-1"},
            ("t4", ""),
            id="by affinity, when it has a node",
        ),
        pytest.param(
            {"spec": required(IN_T4) | {"nodeSelector": {PRODUCT: "NVIDIA-L4"}}},
            ("l4", ""),
            id="by selector before affinity",
        ),
        pytest.param(
            {"spec": required(IN_T4), "annotations": {TYPE: "H100"}},
            ("h100", ""),
            id="by list before affinity",
        ),
    ],
)
def test_models_that_a_pod_insists_on_are_expected_with_it(
    pod: dict[str, Any], insisted: tuple[str, str]
) -> None:
    (shape,) = came(make_pod(gpus=1, **pod)).build().expected.parts

    accepted, excluded = (frozenset(filter(None, (name,))) for name in insisted)
    assert (shape.accepted, shape.excluded) == (accepted, excluded)


def test_each_term_of_an_affinity_adds_its_models() -> None:
    pool = {"key": "pool", "operator": "In", "values": ["a"]}
    either = {"key": PRODUCT, "operator": "In", "values": ["NVIDIA-L4", "Tesla-T4"]}
    v100 = {"key": "accelerator", "operator": "In", "values": ["v100"]}
    spec = required(pool, either)
    spec["affinity"]["nodeAffinity"][REQUIRED]["nodeSelectorTerms"] += [
        {"matchExpressions": [v100]}
    ]

    (shape,) = came(make_pod(gpus=1, spec=spec)).build().expected.parts

    assert shape.accepted == {"l4", "t4", "v100"}


@pytest.mark.parametrize(
    "more",
    [
        pytest.param(
            {"matchExpressions": [{**IN_T4, "operator": "NotIn"}]}, id="not in"
        ),
        pytest.param(
            {"matchExpressions": [{"key": PRODUCT, "operator": "Exists"}]}, id="exists"
        ),
        pytest.param({"matchExpressions": [{**IN_T4, "values": []}]}, id="no values"),
        pytest.param(
            {"matchExpressions": [{**IN_T4, "key": "pool"}]}, id="of no model"
        ),
        pytest.param(
            {"matchExpressions": [IN_T4], "matchFields": [{**IN_T4, "key": "m"}]},
            id="fields",
        ),
    ],
)
def test_a_term_that_leaves_any_model_opens_an_affinity(more: dict[str, Any]) -> None:
    spec = required(IN_T4)
    spec["affinity"]["nodeAffinity"][REQUIRED]["nodeSelectorTerms"].append(more)

    (shape,) = came(make_pod(gpus=1, spec=spec)).build().expected.parts

    assert shape.accepted == frozenset()


@pytest.mark.parametrize("more", [{}, {"matchExpressions": [], "matchFields": []}])
def test_a_term_that_matches_no_node_opens_nothing(more: dict[str, Any]) -> None:
    spec = required(IN_T4)
    spec["affinity"]["nodeAffinity"][REQUIRED]["nodeSelectorTerms"].append(more)

    (shape,) = came(make_pod(gpus=1, spec=spec)).build().expected.parts

    assert shape.accepted == {"t4"}


def test_pods_that_ended_before_they_were_seen_do_not_count() -> None:
    assert came(make_pod(gpus=1, phase="Failed")).build().expected.pods == float("inf")


def test_pods_count_once_however_often_they_change() -> None:
    ledger = came(make_pod(gpus=1))
    bound = make_pod(gpus=1, node_name="node-1", uid="0-0", name="0-0")

    ledger.apply(PodSeen(make_pod_record(bound)))
    ledger.apply(PodGone("0-1"))

    assert ledger.build().expected.pods == MIN_NEW_PODS


def test_few_pods_are_waited_for() -> None:
    ledger = make_ledger(nodes=[make_node(gpus=8)])
    ledger.apply(PodSeen(make_pod_record(make_pod(gpus=1))))

    assert ledger.build().expected.parts is NOTHING_LEARNED


def test_a_mix_stays_until_it_has_changed_much() -> None:
    ledger = came(make_pod(gpus=1))
    first = ledger.build().expected
    for number in range(100):
        pod = make_pod(gpus=1, uid=f"more-{number}", name=f"more-{number}")
        ledger.apply(PodSeen(make_pod_record(pod)))
    assert ledger.build().expected is first
    for number in range(30):
        pod = make_pod(gpus=4, uid=f"other-{number}", name=f"other-{number}")
        ledger.apply(PodSeen(make_pod_record(pod)))

    assert ledger.build().expected is not first


def seen(ledger: Ledger, pod: Tree, count: int) -> None:
    """Have so many more of a pod seen."""
    for _ in range(count):
        uid = f"seen-{next(NUMBERS)}"
        tree = {**pod, "metadata": {**pod["metadata"], "name": uid, "uid": uid}}
        ledger.apply(PodSeen(make_pod_record(tree)))


def test_shapes_too_rare_to_be_typical_count_for_who_insists() -> None:
    ledger = came(make_pod(gpus=1))
    seen(ledger, make_pod(gpus=1), 100 - MIN_NEW_PODS)
    seen(ledger, make_pod(gpus=4, annotations={TYPE: "H100"}), 1)

    expected = ledger.build().expected

    assert expected.parts == {ANY: 1.0}
    assert expected.asked == pytest.approx({ANY: 100 / 104, H100: 4 / 104})


def test_a_mix_changes_with_who_insists_in_rare_shapes_alone() -> None:
    ledger = came(make_pod(gpus=1))
    seen(ledger, make_pod(gpus=1), 400 - MIN_NEW_PODS)
    assert ledger.build().expected.asked == {ANY: 1.0}
    for cores in range(10):
        pod = make_pod(gpus=4, cpu=str(cores), annotations={TYPE: "H100"})
        seen(ledger, pod, 1)

    expected = ledger.build().expected

    assert expected.parts == {ANY: 1.0}
    assert expected.asked == pytest.approx({ANY: 400 / 440, H100: 40 / 440})


def test_a_mix_with_rare_shapes_alone_that_insist_becomes_surer() -> None:
    ledger = came(make_pod(gpus=1))
    for usual in (99 - MIN_NEW_PODS, 99):
        seen(ledger, make_pod(gpus=1), usual)
        seen(ledger, make_pod(gpus=1, annotations={TYPE: "H100"}), 1)
        ledger.build()

    assert ledger.build().expected.pods == 200


def test_a_mix_is_renewed_once_as_many_more_have_come_as_count(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for module in (learning, ledger_pods):
        monkeypatch.setattr(module, "WINDOW", 100)
    ledger = came(make_pod(gpus=1))
    seen(ledger, make_pod(gpus=1), 190 - MIN_NEW_PODS)
    before = ledger.build().expected
    # A hundredth of the GPUs: too few to tell by what is asked.
    seen(ledger, make_pod(gpus=1, annotations={TYPE: "H100"}), 1)
    seen(ledger, make_pod(gpus=1), 98)
    assert ledger.build().expected is before
    seen(ledger, make_pod(gpus=1), MIN_NEW_PODS)

    assert H100 in (ledger.build().expected.asked or {})


def test_a_mix_that_stays_the_same_becomes_surer_of_who_insists() -> None:
    t4, h100 = (
        make_node(name=name, gpus=8, labels={"nvidia.com/gpu.product": product})
        for name, product in (("t4", "Tesla-T4"), ("h100", "NVIDIA-H100-80GB-HBM3"))
    )
    pod = make_pod(gpus=1, annotations={TYPE: "H100"})
    ledger = came(pod, make_pod(gpus=1), nodes=(t4, h100))
    few = ledger.build()
    for number in range(MIN_NEW_PODS, 64 * MIN_NEW_PODS):
        for place, kind in enumerate((pod, make_pod(gpus=1))):
            uid = f"{place}-{number}"
            tree = {**kind, "metadata": {**kind["metadata"], "name": uid, "uid": uid}}
            ledger.apply(PodSeen(make_pod_record(tree)))
        ledger.build()
    many = ledger.build()

    before, after = (
        outlook_of(snapshot.expected, snapshot.gpus.supply).insistence.tolist()
        for snapshot in (few, many)
    )

    assert many.expected.parts == few.expected.parts
    assert many.expected.pods >= 32 * few.expected.pods
    # Half of the pods insist on H100, and nobody on T4.
    assert before == pytest.approx([75 / 16, 1 + 75 / 16])
    assert after[0] < 75 / 256  # what few pods leave open fades
    assert after[1] == pytest.approx(1 + after[0])


def test_supply_stays_until_nodes_change_in_it() -> None:
    ledger = make_ledger(nodes=[make_node(gpus=8)])
    first = ledger.build().gpus.supply
    ledger.apply(PodSeen(make_pod_record(make_pod(gpus=1, node_name="node-1"))))
    assert ledger.build().gpus.supply is first
    ledger.apply(NodeSeen(make_node_record(make_node(gpus=8, labels={"a": "b"}))))
    assert ledger.build().gpus.supply is first
    ledger.apply(NodeSeen(make_node_record(make_node(gpus=7))))

    assert ledger.build().gpus.supply.counts.tolist() == [7]


def test_shares_are_counted_by_gpu() -> None:
    ledger = make_ledger(
        nodes=[make_node(gpus=8), make_node(name="shares", **QUARTERS)],
        pods=[
            make_pod(
                name="told",
                requests={SHARED: "1"},
                node_name="shares",
                annotations={ALLOCATED: "1=250"},
            ),
            make_pod(name="untold", requests={SHARED: "3"}, node_name="shares"),
        ],
    )

    gpus = ledger.build().gpus

    assert gpus.share_counts.tolist() == [0, 2]
    assert gpus.share_units.tolist() == [0, 250]
    assert gpus.free_shares.tolist() == [[0, 1000], [0, 0]]
    ledger.apply(PodGone("uid-of-default-untold"))
    assert ledger.build().gpus.free_shares.tolist() == [[0, 1000], [0, 750]]


@pytest.mark.parametrize(
    "annotation",
    [
        pytest.param("0=250", id="less than it asks"),
        pytest.param("0", id="a whole GPU"),
        pytest.param("2=750", id="a GPU that is not there"),
        pytest.param("MIG-a=750", id="no GPU"),
        pytest.param("0=400, 00=350", id="one twice"),
        pytest.param("0=750,", id="written by half"),
    ],
)
def test_shares_that_a_pod_cannot_hold_count_as_not_told(annotation: str) -> None:
    pod = make_pod(
        requests={SHARED: "3"},
        node_name="shares",
        annotations={ALLOCATED: annotation},
    )

    gpus = make_ledger(nodes=[make_node(name="shares", **QUARTERS)], pods=[pod]).build()

    assert sorted(gpus.gpus.free_shares[:, 0].tolist()) == [250, 1000]
    assert gpus.gpus.free_sets.tolist() == [CONTRADICTED]


def test_a_share_of_a_gpu_whose_uuid_nobody_knows_is_not_told() -> None:
    pod = make_pod(
        requests={SHARED: "3"},
        node_name="shares",
        annotations={ALLOCATED: "GPU-a=750"},
    )

    gpus = make_ledger(nodes=[make_node(name="shares", **QUARTERS)], pods=[pod]).build()

    assert sorted(gpus.gpus.free_shares[:, 0].tolist()) == [250, 1000]
    assert gpus.gpus.free_sets.tolist() == [NOT_TOLD]


@pytest.mark.parametrize("beside", [{}, {"nvidia.com/gpu": "2"}])
def test_a_share_of_a_gpu_is_told_by_a_uuid_that_the_node_names(
    beside: dict[str, str],
) -> None:
    links = '{"matrix": [["X", "SYS"], ["SYS", "X"]], "ids": ["GPU-a", "GPU-b"]}'
    tree = make_node(
        name="shares",
        resources=QUARTERS["resources"] | beside,
        labels=QUARTERS["labels"],
        annotations={"gpu-extender.io/links": links},
    )
    pods = [
        make_pod(
            name=name,
            requests={SHARED: units},
            node_name="shares",
            annotations={ALLOCATED: told},
        )
        for name, units, told in (("p", "1", "GPU-a=250"), ("q", "2", "GPU-b=500"))
    ]

    gpus = make_ledger(nodes=[tree], pods=pods).build().gpus

    assert gpus.free_shares[:, 0].tolist() == [750, 500]


def test_shares_that_are_no_whole_number_of_thousandths_may_be_rounded() -> None:
    thirds = make_node(
        name="thirds",
        resources={SHARED: "3"},
        labels={**QUARTERS["labels"], "nvidia.com/gpu.replicas": "3"},
    )
    pods = [
        make_pod(
            name=name,
            requests={SHARED: "1"},
            node_name="thirds",
            annotations={ALLOCATED: f"0={share}"},
        )
        for name, share in (("down", 333), ("up", 334))
    ]

    gpus = make_ledger(nodes=[thirds], pods=pods).build().gpus

    assert gpus.free_shares.tolist() == [[333]]
    assert gpus.free_sets.tolist() == [NOT_TOLD]


@pytest.mark.parametrize(
    "labels",
    [
        {PRODUCT: "NVIDIA-A100-SXM4-80GB-MIG-1g.10gb"},
        {PRODUCT: "NVIDIA-A100-SXM4-80GB-SHARED", "nvidia.com/gpu.replicas": "7"},
    ],
)
def test_shares_and_slices_are_no_supply_for_pods_that_ask_a_type(
    labels: dict[str, str],
) -> None:
    expected = [{"types": ["A100"]}, {"weight": 9}]
    settings = make_settings({"scoring": {"expectedPods": expected}})
    given = build_verb_options(settings).score_options.expected
    assert given is not None
    nodes = [
        make_node(name="a", gpus=8, labels={PRODUCT: "NVIDIA-A100-SXM4-80GB"}),
        make_node(name="p", gpus=16, labels=labels),
        make_node(name="t", gpus=16, labels={PRODUCT: "Tesla-T4"}),
    ]
    gpus = make_ledger(nodes=nodes).build().gpus

    insisted = outlook_of(given, gpus.supply).insistence[
        gpus.supply.model_of[gpus.codes]
    ]

    assert insisted.tolist() == pytest.approx([0.1 / (8 / 40), 0, 0])
