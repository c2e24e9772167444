from typing import Any, Final

import pytest

from cluster.decode.gpu_requirements import GpuRequirementsReader
from cluster.ledger.writer import SnapshotCell
from injector.admitted_pod import AdmittedPod, PodIdentity
from injector.fallback.choice import FallbackOutcome
from injector.warnings.gpu_types import GpuTypeCheck
from tests.builders import SCOPE, Tree, make_node, make_pod, make_snapshot
from tests.defaults import GPU_ANNOTATIONS
from tests.fakes.admissions import LONG_CHAIN, Admissions, make_review

TYPE: Final = "gpu-extender.io/gpu-type"
MEMORY: Final = "gpu-extender.io/min-gpu-memory"
RULE_KEY: Final = "task.bkbcs.tencent.com/gpu-type"
GPU: Final = "nvidia.com/gpu"
IDENTITY: Final = PodIdentity("request", "ml", "p", "", "", is_dry_run=False)


def warnings_about(pod: Tree, *nodes: Tree, is_synced: bool = True) -> tuple[str, ...]:
    cell = SnapshotCell()
    if is_synced:
        cell.publish(make_snapshot(nodes=nodes))
    return GpuTypeCheck(GpuRequirementsReader(GPU_ANNOTATIONS), SCOPE, cell).apply(
        AdmittedPod(pod, IDENTITY)
    )


@pytest.mark.parametrize(
    "annotations",
    [
        pytest.param({}, id="nothing"),
        pytest.param({TYPE: "H100"}, id="a type"),
        pytest.param({RULE_KEY: "V100"}, id="a rule key that names a model"),
        pytest.param({RULE_KEY: ""}, id="an empty rule key"),
    ],
)
def test_a_pod_that_will_be_understood_is_passed_without_a_word(
    annotations: dict[str, str],
) -> None:
    assert warnings_about(make_pod(gpus=1, annotations=annotations)) == ()


def test_a_rule_key_that_names_no_model_is_told() -> None:
    (warning,) = warnings_about(make_pod(gpus=1, annotations={RULE_KEY: "large"}))

    assert warning == (
        f"annotation {RULE_KEY}: 'large' is no known GPU model: only rules go by it,"
        f" nodes by {TYPE}"
    )


def test_annotations_that_will_stop_the_pod_are_told() -> None:
    pod = make_pod(gpus=1, annotations={TYPE: "H100;A100", MEMORY: "40"})

    first, second = warnings_about(pod)

    assert first.startswith(f"the pod will not be scheduled: annotation {TYPE}: wanted")
    assert second.endswith("got '40'")


@pytest.mark.parametrize(
    ("value", "said"),
    [
        pytest.param(
            "H100 A100",
            "'H100 A100' is no known GPU model, only nodes labelled so match;"
            " names are separated by commas: 'H100, A100'",
            id="a comma was forgotten",
        ),
        pytest.param(
            "L4, !H10O",
            "'H10O' is no known GPU model, only nodes labelled so match; did you"
            " mean 'H100'?",
            id="a slip of the pen",
        ),
        pytest.param(
            "Acme-1",
            "'Acme-1' is no known GPU model, only nodes labelled so match",
            id="nothing like it",
        ),
    ],
)
def test_a_type_that_nobody_knows_is_told(value: str, said: str) -> None:
    pod = make_pod(gpus=1, annotations={TYPE: value})

    assert warnings_about(pod) == (f"annotation {TYPE}: {said}",)
    assert warnings_about(pod, is_synced=False) == warnings_about(pod)


def test_a_type_that_the_table_lacks_but_a_node_has_is_not_told() -> None:
    pod = make_pod(gpus=1, annotations={TYPE: "acme 1"})

    assert warnings_about(pod, gpu("a", "Acme-1")) == ()


def test_a_name_is_not_read_as_another_one_without_its_plus() -> None:
    (warning,) = warnings_about(make_pod(gpus=1, annotations={TYPE: "A10+0"}))

    assert warning.startswith(f"the pod will not be scheduled: annotation {TYPE}: ")
    assert warning.endswith("got 'A10+0'")


def test_a_pod_without_gpu_is_none_of_our_business() -> None:
    assert warnings_about(make_pod(cpu="1", annotations={TYPE: ""})) == ()


# --- fallback ----------------------------------------------------------------


def gpu(name: str, product: str, **more: Any) -> Tree:
    labels = {"nvidia.com/gpu.product": product}
    return make_node(name=name, gpus=4, labels=labels, **more)


@pytest.mark.parametrize(
    ("annotations", "outcome"),
    [
        pytest.param({TYPE: "A100"}, "2g.20gb->gpu", id="its type"),
        pytest.param({TYPE: "H100"}, "nowhere", id="another type"),
        pytest.param({MEMORY: "80Gi"}, "2g.20gb->gpu", id="enough memory"),
        pytest.param({MEMORY: "81Gi"}, "nowhere", id="too little memory"),
        pytest.param({MEMORY: "81"}, "malformed", id="nobody knows how much"),
    ],
)
def test_a_pod_falls_onto_gpus_that_it_wants(
    annotations: dict[str, str], outcome: str
) -> None:
    admissions = Admissions(nodes=[gpu("a", "NVIDIA-A100-SXM4-80GB")])

    assert admissions.outcome(make_review(annotations=annotations)) == outcome


def test_a_pod_without_chain_is_not_told_about_its_annotations() -> None:
    pod = make_review({GPU: 1}, annotations={TYPE: ""})

    _, result, _ = Admissions(nodes=[], chains=(LONG_CHAIN[:2],)).review(pod)

    assert (result.outcome, result.warnings) == (FallbackOutcome.NOT_ASKED, ())


def test_pods_on_their_way_are_laid_where_their_types_are() -> None:
    waiting = make_pod(name="waiting", gpus=4, annotations={TYPE: "A100"})
    nodes = [gpu("a", "NVIDIA-A100-SXM4-80GB"), gpu("h", "NVIDIA-H100-80GB-HBM3")]
    admissions = Admissions(nodes=nodes, pods=[waiting])

    assert admissions.outcome(make_review(annotations={TYPE: "H100"})) == "2g.20gb->gpu"
    _, result, _ = admissions.review(make_review(annotations={TYPE: "A100"}))
    assert result.outcome == FallbackOutcome.CHANGED_FULL
