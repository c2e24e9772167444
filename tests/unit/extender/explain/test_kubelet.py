from typing import Any, Final

import pytest

from extender.explain.explain import explain
from extender.explain.page import ExplanationPage, build_page
from extender.explain.pod import read_subject
from extender.explain.summary_text import render_summary
from service.runtime import build_verb_options
from tests.builders import GPU, Tree, make_node, make_pod, make_snapshot
from tests.extender_app import make_settings

OPTIONS: Final = build_verb_options(make_settings())
PAST: Final = "; spec.nodeName is set, past kube-scheduler and gpu-extender"
ANNOTATION: Final = "gpu-extender.io/gpu-type"
NEW: Final = {"uid": "", "creationTimestamp": None}


def page_of(pod: Tree, *nodes: Tree, pods: Any = ()) -> ExplanationPage:
    snapshot = make_snapshot(nodes=nodes, pods=pods)
    return build_page(explain(read_subject(pod, OPTIONS), snapshot, OPTIONS))


def named(**more: Any) -> Tree:
    """Return a pod that is yet to be created and names the node n."""
    return make_pod(
        node_name="n", phase="Pending", metadata={**NEW, "name": "p"}, **more
    )


@pytest.mark.parametrize(
    ("node", "spec", "told"),
    [
        pytest.param(
            make_node(name="n", gpus=1),
            {},
            "refuses the pod, OutOfnvidia.com/gpu: asks 2 nvidia.com/gpu: 1 free of 1"
            " (0 requested)",
            id="GPUs",
        ),
        pytest.param(
            make_node(name="n", gpus=8, pods="0"),
            {},
            "refuses the pod, OutOfpods: asks 1 pods: 0 free of 0 (0 requested)",
            id="pods",
        ),
        pytest.param(
            make_node(name="n", gpus=8),
            {"nodeSelector": {"a": "b"}},
            "refuses the pod, NodeAffinity: a=b wanted, has no such label",
            id="selector",
        ),
        pytest.param(
            make_node(name="n", gpus=8, taints=[{"key": "k", "effect": "NoExecute"}]),
            {},
            "refuses the pod, TaintToleration: a NoExecute taint is not tolerated",
            id="taint",
        ),
        pytest.param(
            make_node(name="n"),
            {},
            "starts the pod without nvidia.com/gpu, which the node does not offer",
            id="a resource that it does not know",
        ),
        pytest.param(
            make_node(name="n", gpus=8, is_ready=False),
            {},
            "starts nothing: the node is not ready",
            id="not ready",
        ),
    ],
)
def test_a_pod_that_names_its_node_is_judged_as_the_kubelet_does(
    node: Tree, spec: Tree, told: str
) -> None:
    page = page_of(named(gpus=2, spec=spec), node)

    assert page.summary is not None
    assert page.summary.sentence == f"The kubelet of n {told}{PAST}"
    assert not page.summary.fits
    assert not page.wire.asked


def test_what_kube_scheduler_alone_looks_at_keeps_no_pod_from_its_node() -> None:
    taint = {"key": "k", "effect": "NoSchedule"}
    node = make_node(name="n", gpus=8, is_cordoned=True, taints=[taint])
    pod = named(
        gpus=2,
        annotations={ANNOTATION: "H100;A100"},
        spec={"nodeName": "n", "schedulerName": "other"},
    )

    page = page_of(pod, node)

    assert page.summary is not None
    assert page.summary.fits
    assert page.summary.sentence == (
        "The kubelet of n takes the pod, by amounts, node affinity, host ports and"
        f" NoExecute taints{PAST}"
    )
    assert page.notes == ()


def test_a_host_port_that_is_in_use_is_refused_by_the_kubelet() -> None:
    ported = {"name": "c", "ports": [{"containerPort": 1, "hostPort": 80}]}
    running = make_pod(name="r", node_name="n", containers=[ported])

    page = page_of(named(containers=[ported]), make_node(name="n"), pods=[running])

    assert page.summary is not None
    told = "The kubelet of n refuses the pod, NodePorts: default/r has the host port"
    assert page.summary.sentence == told + PAST


def test_a_node_that_is_not_there_is_named_and_others_would_do() -> None:
    page = page_of(named(gpus=1), make_node(name="m", gpus=8))

    assert page.summary is not None
    assert page.summary.sentence.startswith(
        "No kubelet takes the pod: spec.nodeName is n, which the cluster does not have"
    )
    assert page.summary.help == "leave spec.nodeName out (1 node fits then)"
    assert page.summary.reason_classes == ("nodeNameUnknown",)


def test_what_the_api_server_refuses_is_said_of_a_pod_that_names_its_node() -> None:
    bare = {"name": "c", "resources": {"requests": {GPU: 1}}}

    page = page_of(named(containers=[bare]), make_node(name="n", gpus=8))

    assert render_summary(page).startswith("The API server refuses the pod: ")


def test_a_pod_that_is_bound_is_explained_as_if_it_were_not() -> None:
    bound = make_pod(gpus=1, node_name="n")

    page = page_of(bound, make_node(name="m", gpus=8))

    assert page.summary is not None
    assert page.summary.sentence == "The only node fits: m (score 10)"
    assert page.notes[0].startswith("The pod has a node already, n; ")
