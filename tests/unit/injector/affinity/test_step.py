"""The webhook writes what a pod demands of its GPUs into its affinity."""

import sys
from dataclasses import replace
from typing import Any, Final

import pytest

from cluster.decode.gpu_requirements import GpuRequirementsReader
from cluster.ledger.writer import SnapshotCell
from injector.admitted_pod import AdmittedPod, PodIdentity
from injector.affinity.step import TOO_MANY_TERMS, AffinityStep, KnownGpus
from injector.fallback.chains import Chains
from injector.warnings.gpu_types import GpuTypeCheck
from scoring.gpu.models import default_table, extended_table
from scoring.gpu.node_gpus import GpuLabelRules
from tests.builders import SCOPE, make_node, make_snapshot
from tests.defaults import FALLBACK_OPTIONS, GPU_ANNOTATIONS
from tests.fakes.admissions import GPU, MIG_1G, MIG_2G, Admissions
from tests.fakes.admissions import make_review as make_slice_pod
from tests.fakes.webhook import (
    Answered,
    both,
    container,
    gpus,
    make_pod,
    make_webhook,
)

TYPE: Final = "gpu-extender.io/gpu-type"
MEMORY: Final = "gpu-extender.io/min-gpu-memory"
PRODUCT: Final = "nvidia.com/gpu.product"
REQUIRED: Final = "requiredDuringSchedulingIgnoredDuringExecution"
RULES: Final = GpuLabelRules(default_table(), (PRODUCT,), ())
L4: Final = {
    "key": PRODUCT,
    "operator": "In",
    "values": ["L4", "NVIDIA-L4", "Tesla-L4"],
}
NOT_T4: Final = {"key": PRODUCT, "operator": "NotIn", "values": ["Tesla-T4"]}
ZONE: Final = {"key": "zone", "operator": "Exists"}

IDENTITY: Final = PodIdentity("request", "ml", "p", "", "", is_dry_run=False)


def make_cell(*products: str) -> SnapshotCell:
    """Return a cluster with a node for each product."""
    cell = SnapshotCell()
    publish(cell, *products)
    return cell


def publish(cell: SnapshotCell, *products: str) -> None:
    nodes = [
        make_node(name=f"node-{number}", gpus=4, labels={PRODUCT: product})
        for number, product in enumerate(products)
    ]
    generation = cell.current().generation + 1 if cell.is_synced else 1
    cell.publish(replace(make_snapshot(nodes=nodes), generation=generation))


def send(
    pod: dict[str, Any],
    cell: SnapshotCell | None = None,
    demands: GpuRequirementsReader | None = None,
) -> Answered:
    """Have a pod reviewed, twice."""
    demands = demands or GpuRequirementsReader(GPU_ANNOTATIONS)
    cell = cell or make_cell()
    known = KnownGpus(cell, RULES)
    steps = (AffinityStep(known, demands, SCOPE), GpuTypeCheck(demands, SCOPE, cell))
    return make_webhook(steps=steps).send(pod)


def wanting(
    amounts: dict[str, Any] | None = None, **annotations: str
) -> dict[str, Any]:
    """Return a pod with one GPU unless told, and a demand."""
    keys = {"types": TYPE, "memory": MEMORY, "exclusive": "gpu-extender.io/exclusive"}
    wanted = {keys[name]: value for name, value in annotations.items()}
    resources = gpus(1) if amounts is None else amounts
    return make_pod(container("a", resources), gpu_type=None, annotations=wanted)


def terms_of(pod: dict[str, Any]) -> list[dict[str, Any]] | None:
    affinity = pod["spec"].get("affinity", {}).get("nodeAffinity", {})
    terms: list[dict[str, Any]] | None = affinity.get(REQUIRED, {}).get(
        "nodeSelectorTerms"
    )
    return terms


def test_a_type_becomes_required_node_affinity() -> None:
    answered = send(wanting(types="L4"))

    assert terms_of(answered.pod) == [{"matchExpressions": [L4]}]
    assert [item["path"] for item in answered.operations] == ["/spec/affinity"]
    assert answered.warnings == []


def test_it_goes_into_the_terms_of_the_pod_and_into_nothing_else() -> None:
    pod = wanting(types="L4")
    pinned = [{"key": "metadata.name", "operator": "In", "values": ["node-1"]}]
    terms = [{"matchExpressions": [ZONE]}, {"matchFields": pinned}]
    required = {"nodeSelectorTerms": terms}
    pod["spec"]["affinity"] = {"nodeAffinity": {REQUIRED: required}}

    answered = send(pod)

    assert terms_of(answered.pod) == [
        {"matchExpressions": [ZONE, L4]},
        {"matchFields": pinned, "matchExpressions": [L4]},
    ]
    assert all("Terms" in item["path"] for item in answered.operations)
    assert {item["op"] for item in answered.operations} == {"add"}


def test_a_rule_key_that_filters_is_a_type() -> None:
    demands = GpuRequirementsReader(replace(GPU_ANNOTATIONS, is_rule_key_filter=True))
    pod = make_pod(container("a", gpus(1)), gpu_type="L4")

    answered = send(pod, demands=demands)

    assert terms_of(answered.pod) == [{"matchExpressions": [L4]}]


def test_memory_keeps_the_pod_off_what_is_known_to_be_too_small() -> None:
    answered = send(wanting(memory="40Gi"), make_cell("Tesla-T4", "NVIDIA-H200"))

    assert terms_of(answered.pod) == [{"matchExpressions": [NOT_T4]}]


@pytest.mark.parametrize(
    "pod",
    [
        pytest.param(wanting(), id="no demand"),
        pytest.param(wanting(exclusive="true"), id="nothing that labels can answer"),
        pytest.param(wanting({"limits": {"cpu": "1"}}, types="L4"), id="no GPU"),
        pytest.param(wanting(both({GPU: "0"}), types="L4"), id="0 GPUs"),
        pytest.param(wanting(memory="40Gi"), id="no node that is too small"),
        pytest.param(
            make_pod(container("a", gpus(1)), annotations={}, gpu_type="L4"),
            id="a rule key that only scores",
        ),
    ],
)
def test_other_pods_keep_their_affinity(pod: dict[str, Any]) -> None:
    assert terms_of(send(pod).pod) is None


def test_a_pod_that_has_a_node_keeps_its_affinity() -> None:
    pod = wanting(types="L4")
    pod["spec"]["nodeName"] = "node-1"

    assert send(pod).operations == []


@pytest.mark.parametrize(
    "annotations",
    [
        pytest.param({"types": "L4,,"}, id="types"),
        pytest.param({"types": "L4", "memory": "much"}, id="memory beside a good type"),
    ],
)
def test_a_demand_that_cannot_be_read_is_told_and_not_written(
    annotations: dict[str, str],
) -> None:
    answered = send(wanting(None, **annotations))

    assert answered.operations == []
    (warning,) = answered.warnings
    assert warning.startswith("the pod will not be scheduled: annotation")


def test_a_pod_with_too_many_terms_is_told_so() -> None:
    pod = wanting(types="L4")
    terms = [{"matchExpressions": [ZONE]}] * 65
    pod["spec"]["affinity"] = {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": terms}}}

    answered = send(pod)

    assert answered.operations == []
    assert answered.warnings == [TOO_MANY_TERMS]


def test_types_are_written_before_the_cluster_has_been_read() -> None:
    answered = send(wanting(types="L4"), SnapshotCell())

    assert terms_of(answered.pod) == [{"matchExpressions": [L4]}]


def test_labels_are_followed_as_nodes_come_and_go() -> None:
    cell = make_cell("Tesla-T4")
    step = AffinityStep(
        KnownGpus(cell, RULES), GpuRequirementsReader(GPU_ANNOTATIONS), SCOPE
    )

    def written() -> Any:
        pod = wanting(memory="40Gi")
        step.apply(AdmittedPod(pod, IDENTITY))
        found = terms_of(pod)
        return found and found[0]["matchExpressions"][0]["values"]

    assert written() == ["Tesla-T4"]
    publish(cell, "Tesla-T4", "NVIDIA-L4")
    assert written() == ["NVIDIA-L4", "Tesla-T4"]
    publish(cell, "Tesla-T4", "NVIDIA-L4", "NVIDIA-L4")
    assert written() == ["NVIDIA-L4", "Tesla-T4"]
    publish(cell, "NVIDIA-H200")
    assert written() is None


def test_names_that_the_settings_add_count_from_then_on() -> None:
    known = KnownGpus(make_cell("team-card"), RULES)
    step = AffinityStep(known, GpuRequirementsReader(GPU_ANNOTATIONS), SCOPE)
    pod = wanting(types="L4")
    table = extended_table([], {"L4": ("Team-Card",)})

    known.use(GpuLabelRules(table, (PRODUCT,), ()))
    step.apply(AdmittedPod(pod, IDENTITY))

    terms = terms_of(pod)
    assert terms is not None
    found = set(terms[0]["matchExpressions"][0]["values"])
    assert {"Team-Card", "team-card"} <= found


def test_only_so_many_demands_are_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("injector.affinity.step._MAX_KNOWN", 1)
    step = AffinityStep(
        KnownGpus(make_cell(), RULES), GpuRequirementsReader(GPU_ANNOTATIONS), SCOPE
    )

    for types in ("L4", "T4", "L4"):
        pod = wanting(types=types)
        step.apply(AdmittedPod(pod, IDENTITY))
        assert (terms_of(pod) == [{"matchExpressions": [L4]}]) == (types == "L4")


def fall(*products: str, pod: dict[str, Any] | None = None) -> dict[str, Any]:
    """Have a pod weighed that asks for a slice, where there are only whole GPUs."""
    cluster = Admissions(
        nodes=[
            make_node(name=f"node-{number}", gpus=1, labels={PRODUCT: product})
            for number, product in enumerate(products)
        ]
    )
    options = replace(
        FALLBACK_OPTIONS,
        chains=Chains(((MIG_2G, MIG_1G, GPU),)),
        require_gpus=KnownGpus(cluster.cell, RULES).require,
    )
    cluster.fallback.use(options)
    changed, result, _ = cluster.review(pod)
    assert result.warnings
    again, _, _ = cluster.review(changed)
    assert again == changed
    return changed


def test_a_pod_that_fell_is_kept_off_gpus_that_are_too_small() -> None:
    pod = fall("NVIDIA-L4", "Tesla-T4", "pool-7")

    assert terms_of(pod) == [{"matchExpressions": [NOT_T4]}]


def test_where_all_gpus_are_large_enough_a_pod_that_fell_goes_anywhere() -> None:
    assert terms_of(fall("NVIDIA-L4", "pool-7")) is None


def test_a_pod_that_has_a_node_falls_without_affinity() -> None:
    pod = make_slice_pod(spec={"nodeName": "node-0"})

    assert terms_of(fall("NVIDIA-L4", "Tesla-T4", pod=pod)) is None


def test_a_slice_that_falls_to_a_slice_goes_anywhere() -> None:
    cluster = Admissions(
        nodes=[
            make_node(
                name="cut", resources={MIG_1G: "1"}, labels={PRODUCT: "NVIDIA-A30"}
            ),
            make_node(name="small", gpus=1, labels={PRODUCT: "Tesla-T4"}),
        ]
    )
    known = KnownGpus(cluster.cell, RULES)
    chains = Chains(((MIG_2G, MIG_1G, GPU),))
    cluster.fallback.use(
        replace(FALLBACK_OPTIONS, chains=chains, require_gpus=known.require)
    )

    pod, _, _ = cluster.review(make_slice_pod())

    assert terms_of(pod) is None


def test_what_a_pod_asks_at_any_length_is_not_remembered() -> None:
    resource = "nvidia.com/" + "x" * 1_000_000
    known = KnownGpus(make_cell("Tesla-T4"), RULES)
    pod = wanting(both({resource: "1"}), types="L4")
    step = AffinityStep(known, GpuRequirementsReader(GPU_ANNOTATIONS), SCOPE)
    before = sys.getrefcount(resource)

    step.apply(AdmittedPod(pod, IDENTITY))
    step.apply(AdmittedPod(pod, IDENTITY))

    assert sys.getrefcount(resource) == before
