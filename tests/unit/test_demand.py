from typing import Any, Final

import pytest

from cluster.decode import RecordBuilder
from scoring.card_reader import CardReader
from scoring.cards import NO_CARDS, NodeCards
from scoring.demand import NO_DEMAND, UNREADABLE, Demand
from scoring.demand_annotations import MAX_TYPES, DemandAnnotations, DemandError
from scoring.objects import Request
from scoring.suitability import Suitability, choice_of, suitability
from tests.builders import GPU, SCOPE, make_pod, make_pod_record

GIB: Final = 2**30
TYPE: Final = "gpu-extender.io/gpu-type"
MEMORY: Final = "gpu-extender.io/min-gpu-memory"
SHARING: Final = "gpu-extender.io/sharing"
EXCLUSIVE: Final = "gpu-extender.io/exclusive"
LINKED: Final = "gpu-extender.io/linked"
RULE_KEY: Final = "task.bkbcs.tencent.com/gpu-type"
PRODUCT: Final = "nvidia.com/gpu.product"


def demand_of(annotations: dict[str, str], **names: Any) -> Demand:
    return DemandAnnotations(**names).parse(annotations, CardReader().knows)


# --- annotations -------------------------------------------------------------


@pytest.mark.parametrize(
    ("annotations", "demand"),
    [
        pytest.param({}, NO_DEMAND, id="nothing"),
        pytest.param({"team": "a"}, NO_DEMAND, id="nothing of ours"),
        pytest.param({TYPE: "H100"}, Demand(types=("H100",)), id="one type"),
        pytest.param(
            {TYPE: " H100 ,A100-80GB,\tA100 "},
            Demand(types=("H100", "A100-80GB", "A100")),
            id="types in their order",
        ),
        pytest.param(
            {TYPE: "!L4, ! T4"}, Demand(excluded=("L4", "T4")), id="exclusions alone"
        ),
        pytest.param(
            {TYPE: "A100, !A100-40GB"},
            Demand(types=("A100",), excluded=("A100-40GB",)),
            id="a family without one of its models",
        ),
        pytest.param(
            {TYPE: "H100, NVIDIA-H100, h100"}, Demand(types=("H100",)), id="repeated"
        ),
        pytest.param(
            {TYPE: "NVIDIA A100-SXM4-80GB"},
            Demand(types=("NVIDIA A100-SXM4-80GB",)),
            id="as the driver's tool prints it",
        ),
        pytest.param({MEMORY: "40Gi"}, Demand(min_memory=40 * GIB), id="memory"),
        pytest.param({MEMORY: " 8e9 "}, Demand(min_memory=8 * 10**9), id="exponent"),
        pytest.param({MEMORY: "1Mi"}, Demand(min_memory=2**20), id="least memory"),
        pytest.param({SHARING: "allowed"}, Demand(is_sharing_allowed=True), id="share"),
        pytest.param({EXCLUSIVE: "true"}, Demand(is_exclusive=True), id="alone"),
        pytest.param({EXCLUSIVE: "false"}, NO_DEMAND, id="not alone"),
        pytest.param({LINKED: "required"}, Demand(linked="required"), id="linked"),
        pytest.param({LINKED: "preferred"}, Demand(linked="preferred"), id="rather"),
        pytest.param({RULE_KEY: "V100"}, Demand(preferred=("V100",)), id="a rule key"),
        pytest.param({RULE_KEY: "big-one"}, NO_DEMAND, id="a rule key of its own"),
        pytest.param({RULE_KEY: ""}, NO_DEMAND, id="an empty rule key"),
        pytest.param(
            {RULE_KEY: "V100", TYPE: "A100"}, Demand(types=("A100",)), id="list wins"
        ),
    ],
)
def test_annotations_say_what_a_pod_wants(
    annotations: dict[str, str], demand: Demand
) -> None:
    assert demand_of(annotations) == demand


def test_a_rule_key_can_filter_or_be_left_alone() -> None:
    annotations = {RULE_KEY: "V100"}

    assert demand_of(annotations, is_rule_key_filter=True) == Demand(types=("V100",))
    assert demand_of(annotations, rule_key="") == NO_DEMAND


def test_every_name_can_be_another() -> None:
    names = {"gpu_type": "t", "min_memory": "m", "sharing": "s", "exclusive": "e"}

    assert demand_of(
        {"t": "L4", "m": "8Gi", "s": "allowed", "e": "true", "l": "required"},
        **names,
        linked="l",
    ) == Demand(("L4",), (), (), 8 * GIB, True, True, "required")  # noqa: FBT003 - in order


@pytest.mark.parametrize(
    ("name", "value"),
    [
        pytest.param(TYPE, "", id="no type"),
        pytest.param(TYPE, "H100,,A100", id="a type left out"),
        pytest.param(TYPE, "H100,", id="a comma at the end"),
        pytest.param(TYPE, "!", id="nothing excluded"),
        pytest.param(TYPE, "!!L4", id="excluded twice"),
        pytest.param(TYPE, "A*", id="a pattern"),
        pytest.param(TYPE, "H100|A100", id="another separator"),
        pytest.param(TYPE, "\u041d100", id="a letter that looks like H"),
        pytest.param(TYPE, "H100\nA100", id="two lines"),
        pytest.param(TYPE, "A100, !a100", id="accepted and excluded"),
        pytest.param(TYPE, ",".join(["L4"] * (MAX_TYPES + 1)), id="too many"),
        pytest.param(MEMORY, "", id="no memory"),
        pytest.param(MEMORY, "40GB", id="no unit of Kubernetes"),
        pytest.param(MEMORY, "40", id="a number without a unit"),
        pytest.param(MEMORY, "0", id="none"),
        pytest.param(MEMORY, "-40Gi", id="less than none"),
        pytest.param(SHARING, "no", id="sharing"),
        pytest.param(EXCLUSIVE, "True", id="exclusive"),
        pytest.param(LINKED, "yes", id="linked"),
    ],
)
def test_a_value_that_means_nothing_is_named(name: str, value: str) -> None:
    with pytest.raises(DemandError) as caught:
        demand_of({name: value})

    ((fault_name, fault),) = caught.value.faults
    assert fault_name == name
    assert fault.startswith("wanted")
    assert ", got " in fault


def test_all_faults_are_told_at_once() -> None:
    with pytest.raises(DemandError, match="sharing: wanted 'allowed', got 'no'"):
        demand_of({SHARING: "no", LINKED: "no"})
    with pytest.raises(DemandError) as caught:
        demand_of({SHARING: "no", LINKED: "no", MEMORY: "no"})
    assert len(caught.value.faults) == 3


# --- what is kept of a pod ---------------------------------------------------


def kept_of(annotations: dict[str, str] | None, gpus: int | None = 1) -> Demand:
    return make_pod_record(make_pod(gpus=gpus, annotations=annotations)).demand


def test_a_record_holds_what_its_pod_wants() -> None:
    assert kept_of({TYPE: "L4"}) == Demand(types=("L4",))
    assert kept_of({TYPE: "L4"}) is kept_of({TYPE: "L4", "team": "b"})
    assert kept_of(None) is NO_DEMAND
    assert kept_of({"team": "a"}) is NO_DEMAND


def test_a_pod_without_gpu_wants_nothing_of_cards_whatever_it_says() -> None:
    assert kept_of({TYPE: ""}, gpus=None) is NO_DEMAND


def test_a_pod_whose_annotations_cannot_be_read_is_kept_without_a_fault() -> None:
    assert kept_of({TYPE: "", EXCLUSIVE: "true"}) is UNREADABLE


def test_demands_that_were_read_are_kept_in_bounds(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("cluster.demands._MAX_KNOWN", 2)
    demands = RecordBuilder(SCOPE).demands

    read = [demands.read({TYPE: name}).types for name in ("L4", "T4", "A10", "L4")]

    assert read == [("L4",), ("T4",), ("A10",), ("L4",)]


# --- suitability -------------------------------------------------------------

A100_80: Final = {PRODUCT: "NVIDIA-A100-SXM4-80GB"}
A100_SOME: Final = {"accelerator": "nvidia-tesla-a100"}
T4_SHARED: Final = {PRODUCT: "Tesla-T4-SHARED", "nvidia.com/gpu.replicas": "4"}
T4_RENAMED: Final = {PRODUCT: "Tesla-T4", "nvidia.com/gpu.replicas": "4"}
SLICES: Final = {PRODUCT: "NVIDIA-A100-SXM4-80GB-MIG-3g.40gb"}
UNKNOWN: Final = {PRODUCT: "Acme-1", "nvidia.com/gpu.memory": "38100"}
UNSIZED: Final = {PRODUCT: "Acme-1"}
ONE: Final = ((GPU, 1),)
SUITS, WRONG, OPEN, LITTLE = Suitability


def cards_of(labels: dict[str, str]) -> NodeCards:
    return CardReader().read(labels, ())


@pytest.mark.parametrize(
    ("labels", "demand", "found"),
    [
        pytest.param(A100_80, Demand(types=("A100",)), SUITS, id="family"),
        pytest.param(A100_80, Demand(types=("H100", "A100-80GB")), SUITS, id="second"),
        pytest.param(A100_80, Demand(types=("A100-40GB",)), WRONG, id="smaller"),
        pytest.param(A100_80, Demand(types=("A100X", "A10")), WRONG, id="like names"),
        pytest.param(A100_80, Demand(types=("A10", "acme")), WRONG, id="unheard of"),
        pytest.param(A100_80, Demand(excluded=("A100",)), WRONG, id="excluded family"),
        pytest.param(
            A100_80,
            Demand(types=("A100",), excluded=("A100-40GB",)),
            SUITS,
            id="another one is excluded",
        ),
        pytest.param(A100_SOME, Demand(types=("A100",)), SUITS, id="family of family"),
        pytest.param(A100_SOME, Demand(types=("A100-80GB",)), OPEN, id="maybe"),
        pytest.param(A100_SOME, Demand(types=("T4",)), WRONG, id="certainly not"),
        pytest.param(A100_SOME, Demand(excluded=("A100-40GB",)), OPEN, id="maybe not"),
        pytest.param(
            A100_SOME,
            Demand(types=("A100",), excluded=("A100-40GB",)),
            OPEN,
            id="maybe the excluded one",
        ),
        pytest.param({}, Demand(types=("A100",)), OPEN, id="no label"),
        pytest.param({}, Demand(excluded=("A100",)), OPEN, id="no label to exclude"),
        pytest.param(UNSIZED, Demand(types=("ACME 1",)), SUITS, id="own name"),
        pytest.param(UNSIZED, Demand(excluded=("L4",)), SUITS, id="not the excluded"),
        pytest.param(UNSIZED, Demand(types=("L4",)), WRONG, id="own name is another"),
        pytest.param(A100_80, UNREADABLE, WRONG, id="nobody knows what is wanted"),
    ],
)
def test_types_are_accepted_excluded_or_unknown(
    labels: dict[str, str], demand: Demand, found: Suitability
) -> None:
    assert suitability(cards_of(labels), demand, ONE) is found


@pytest.mark.parametrize(
    ("labels", "memory", "found"),
    [
        pytest.param(A100_80, 80 * GIB, SUITS, id="as much as its name says"),
        pytest.param(A100_80, 80 * GIB + 1, LITTLE, id="a byte more"),
        pytest.param(
            {PRODUCT: "NVIDIA-H100-80GB-HBM3", "nvidia.com/gpu.memory": "81559"},
            80 * GIB,
            SUITS,
            id="the label says less",
        ),
        pytest.param({PRODUCT: "Tesla-T4"}, 16 * GIB, SUITS, id="T4"),
        pytest.param(A100_SOME, 40 * GIB, SUITS, id="as each of them has"),
        pytest.param(A100_SOME, 41 * GIB, OPEN, id="as one of them has"),
        pytest.param(A100_SOME, 81 * GIB, LITTLE, id="as none of them has"),
        pytest.param(UNKNOWN, 40 * GIB, SUITS, id="unknown, 93 % of it"),
        pytest.param(UNKNOWN, 41 * GIB, LITTLE, id="unknown, less than 93 %"),
        pytest.param(UNSIZED, GIB, OPEN, id="unknown, without a label"),
        pytest.param({}, GIB, OPEN, id="no label at all"),
        pytest.param({"nvidia.com/gpu.memory": "40960"}, GIB, SUITS, id="memory alone"),
    ],
)
def test_memory_is_that_of_the_model_or_of_the_label(
    labels: dict[str, str], memory: int, found: Suitability
) -> None:
    assert suitability(cards_of(labels), Demand(min_memory=memory), ONE) is found


@pytest.mark.parametrize(
    "demand",
    [
        pytest.param(Demand(types=("T4", "A100")), id="a type"),
        pytest.param(Demand(excluded=("L4",)), id="an exclusion"),
        pytest.param(Demand(min_memory=2**20), id="memory"),
        pytest.param(Demand(is_exclusive=True), id="no other pod"),
        pytest.param(Demand(linked="required"), id="links"),
    ],
)
@pytest.mark.parametrize("labels", [T4_SHARED, T4_RENAMED, SLICES])
def test_a_demand_on_cards_is_met_by_whole_cards_unless_sharing_is_allowed(
    demand: Demand, labels: dict[str, str]
) -> None:
    cards = cards_of(labels)
    shared = Demand(demand.types, demand.excluded, (), demand.min_memory, True)  # noqa: FBT003 - in order

    assert suitability(cards, demand, ONE) is WRONG
    assert suitability(cards, shared, ONE) is SUITS


@pytest.mark.parametrize(
    ("labels", "request_", "gib", "found"),
    [
        pytest.param(T4_SHARED, ONE, 4, SUITS, id="a quarter of a T4"),
        pytest.param(T4_SHARED, ONE, 5, LITTLE, id="more than a quarter"),
        pytest.param(SLICES, ONE, 40, SUITS, id="a slice"),
        pytest.param(SLICES, ONE, 41, LITTLE, id="more than a slice"),
        pytest.param(A100_80, (("nvidia.com/mig-1g.10gb", 2),), 10, SUITS, id="MIG"),
        pytest.param(A100_80, (("nvidia.com/mig-1g.10gb", 2),), 11, LITTLE, id="more"),
        pytest.param(
            A100_80, (("nvidia.com/gpu.shared", 1),), 8, OPEN, id="a share of unknown"
        ),
        pytest.param(
            A100_80,
            ((GPU, 1), ("nvidia.com/mig-1g.10gb", 1)),
            40,
            LITTLE,
            id="the smallest of two",
        ),
    ],
)
def test_the_memory_asked_is_that_of_one_unit(
    labels: dict[str, str], request_: Request, gib: int, found: Suitability
) -> None:
    demand = Demand(min_memory=gib * GIB, is_sharing_allowed=True)

    assert suitability(cards_of(labels), demand, request_) is found


def test_slices_that_are_asked_by_name_need_no_whole_card() -> None:
    demand = Demand(types=("A100",))

    assert suitability(cards_of(SLICES), demand, (("nvidia.com/mig-1g.10gb", 1),)) is (
        SUITS
    )


def test_the_first_name_that_holds_is_the_choice() -> None:
    names = ("H100", "A100-80GB", "A100")

    assert choice_of(cards_of(A100_80), names) == 1
    assert choice_of(cards_of(A100_SOME), names) == 2
    assert choice_of(NO_CARDS, names) == 3
