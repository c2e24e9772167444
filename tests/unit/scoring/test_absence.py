"""What a node is said to lack, and that absence does not hide state."""

import numpy as np
import pytest

from scoring.candidates import PodRequest, primary_resource
from scoring.feasibility import Verdict, judge, shown_verdict
from tests.builders import GPU, SCOPE, Tree, make_node, make_snapshot, take_candidates

MIG = "nvidia.com/mig-1g.10gb"
AMD = "amd.com/gpu"
PRODUCT = "nvidia.com/gpu.product"
H100 = {PRODUCT: "NVIDIA-H100-80GB-HBM3"}
MI300X = {"amd.com/gpu.product-name": "AMD_Instinct_MI300X_OAM"}
PENDING = {"nvidia.com/mig.config.state": "pending"}


def verdict_on(resource: str, *nodes: Tree) -> list[int]:
    request = ((resource, 1),)
    pod_request = PodRequest("", request, primary_resource(request, SCOPE), None, "")
    names = [node["metadata"]["name"] for node in nodes]
    candidates = take_candidates(make_snapshot(nodes=nodes), names, pod_request)
    verdicts: list[int] = judge(
        candidates, pod_request, is_enforcing=True
    ).verdicts.tolist()
    return verdicts


@pytest.mark.parametrize(
    ("labels", "resource"),
    [
        pytest.param(H100 | PENDING, GPU, id="MIG manager at work"),
        pytest.param(H100 | PENDING, MIG, id="MIG manager at work, slices asked"),
        pytest.param(
            H100 | {"nvidia.com/mig.config.state": "failed"}, GPU, id="failed"
        ),
        pytest.param(
            H100 | {"nvidia.com/gpu-driver-upgrade-state": "drain-required"},
            GPU,
            id="new driver",
        ),
        pytest.param(
            {PRODUCT: "NVIDIA-H100-80GB-HBM3-MIG-INVALID"}, GPU, id="invalid layout"
        ),
        pytest.param(
            {PRODUCT: "NVIDIA-Newest-Card"} | PENDING, GPU, id="unknown model"
        ),
        pytest.param(
            {"cloud.google.com/gke-accelerator": "nvidia-l4"} | PENDING,
            GPU,
            id="label of a cloud",
        ),
        pytest.param(
            {"karpenter.k8s.aws/instance-gpu-name": "h100"} | PENDING,
            GPU,
            id="vendor by the table alone",
        ),
        pytest.param(
            {"kubernetes.azure.com/accelerator": "nvidia"} | PENDING,
            GPU,
            id="vendor alone",
        ),
        pytest.param(
            {"nvidia.com/gpu.present": "true"} | PENDING, GPU, id="presence alone"
        ),
        pytest.param(MI300X | PENDING, AMD, id="another vendor"),
        pytest.param(
            {"feature.node.kubernetes.io/pci-10de.present": "true"} | PENDING,
            GPU,
            id="a PCI device",
        ),
        pytest.param(
            {"feature.node.kubernetes.io/amd-gpu": "true"} | PENDING,
            AMD,
            id="another vendor's presence alone",
        ),
    ],
)
@pytest.mark.parametrize("gpus", [None, 0])
def test_a_fault_signal_is_told_where_the_devices_are_gone(
    labels: dict[str, str], resource: str, gpus: int | None
) -> None:
    node = make_node(labels=labels, gpus=gpus)

    assert verdict_on(resource, node) == [Verdict.NOT_READY]


def test_a_fault_signal_is_told_where_other_devices_are_there() -> None:
    node = make_node(labels=H100 | PENDING, resources={MIG: "7"})

    assert verdict_on(GPU, node) == [Verdict.NOT_READY]


def test_a_fault_of_other_gpus_is_no_reason() -> None:
    node = make_node(labels=MI300X | PENDING, resources={AMD: "8"})

    assert verdict_on(GPU, node) == [Verdict.NO_SUCH_RESOURCE]


@pytest.mark.parametrize(
    ("resource", "node", "verdict"),
    [
        pytest.param(GPU, make_node(), Verdict.NO_GPU, id="nothing"),
        pytest.param(GPU, make_node(labels=H100), Verdict.NO_GPU, id="cards are gone"),
        pytest.param(GPU, make_node(labels=PENDING), Verdict.NO_GPU, id="no GPU label"),
        pytest.param(GPU, make_node(resources={MIG: "7"}), Verdict.IN_PARTS, id="cut"),
        pytest.param(
            GPU,
            make_node(resources={"nvidia.com/gpu.shared": "16"}),
            Verdict.IN_PARTS,
            id="shared",
        ),
        pytest.param(
            GPU,
            make_node(resources={f"{MIG}.shared": "14"}),
            Verdict.IN_PARTS,
            id="cut and shared",
        ),
        pytest.param(
            AMD,
            make_node(resources={"amd.com/cpx_nps4": "64"}),
            Verdict.IN_PARTS,
            id="AMD partitions",
        ),
        pytest.param(
            AMD,
            make_node(resources={"amd.com/spx_nps1": "8"}),
            Verdict.NO_SUCH_RESOURCE,
            id="AMD cards by another name",
        ),
        pytest.param(
            GPU,
            make_node(resources={"amd.com/cpx_nps4": "64"}),
            Verdict.NO_SUCH_RESOURCE,
            id="another vendor's partitions",
        ),
        pytest.param(
            GPU,
            make_node(resources={AMD: "8"}),
            Verdict.NO_SUCH_RESOURCE,
            id="another vendor",
        ),
        pytest.param(
            GPU,
            make_node(resources={"nvidia.com/AD102_GEFORCE_RTX_4090": "2"}),
            Verdict.NO_SUCH_RESOURCE,
            id="cards for virtual machines",
        ),
        pytest.param(
            MIG, make_node(gpus=8), Verdict.NO_SUCH_RESOURCE, id="whole cards alone"
        ),
        pytest.param(MIG, make_node(), Verdict.NO_SUCH_RESOURCE, id="no slices"),
    ],
)
def test_what_a_node_has_instead_decides_what_it_is_said_to_lack(
    resource: str, node: Tree, verdict: Verdict
) -> None:
    assert verdict_on(resource, node) == [verdict]


def test_one_node_without_gpus_does_not_hide_a_fault() -> None:
    verdicts = verdict_on(
        GPU,
        make_node(name="cpu"),
        make_node(name="mig", resources={MIG: "7"}),
        make_node(name="amd", resources={AMD: "8"}),
        make_node(name="flux", labels=H100 | PENDING),
    )

    assert shown_verdict(np.array(verdicts)) is Verdict.NOT_READY
    assert shown_verdict(np.array(verdicts[:3])) is Verdict.IN_PARTS


def test_a_resource_without_a_domain_has_no_vendor_whose_labels_tell_of_it() -> None:
    assert verdict_on("accelerators", make_node(name="a", labels=H100 | PENDING)) == [
        Verdict.NO_SUCH_RESOURCE
    ]
