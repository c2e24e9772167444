from collections.abc import Sequence

import pytest

from extender.explain.explain import explain
from extender.explain.page import build_page
from extender.explain.pod import read_subject
from extender.explain.summary import MAX_NOTE_BYTES, Summary, note_of, summarize
from extender.explain.summary_text import render_summary
from service.runtime import build_verb_options
from tests.builders import GPU, Tree, make_container, make_node, make_pod, make_snapshot
from tests.extender_app import make_settings

OPTIONS = build_verb_options(make_settings())


def summary_of(pod: Tree, *nodes: Tree, pods: Sequence[Tree] = ()) -> Summary:
    snapshot = make_snapshot(nodes=nodes, pods=pods)
    return summarize(explain(read_subject(pod, OPTIONS), snapshot, OPTIONS))


def test_the_classes_of_reasons_do_not_change_with_numbers() -> None:
    pod = make_pod(gpus=8, cpu="70")

    text, classes = note_of(summary_of(pod, make_node(gpus=4), make_node(name="b")))
    other, same = note_of(
        summary_of(pod, *(make_node(name=n, gpus=2) for n in "ab"), make_node(name="c"))
    )

    assert text == (
        "No node fits: 1 has too few GPUs (needs 8, largest node 4), 1 has no GPU."
    )
    assert other == (
        "No node fits: 2 have too few GPUs (needs 8, largest node 2), 1 has no GPU."
    )
    assert classes == same == {"tooSmall:nvidia.com/gpu", "gpuResource:nvidia.com/gpu"}


def test_a_note_is_no_longer_than_an_event_may_be() -> None:
    taints = [
        {"key": "ä" * 100 + str(n), "value": "v", "effect": "NoSchedule"}
        for n in range(12)
    ]

    text, classes = note_of(
        summary_of(make_pod(gpus=1), make_node(gpus=8, taints=taints))
    )

    assert len(text.encode()) <= MAX_NOTE_BYTES
    assert text.endswith("...")
    assert classes == {"taint"}


@pytest.mark.parametrize(
    ("taint", "told"),
    [
        pytest.param({"key": "k"}, "k:NoSchedule", id="no value"),
        pytest.param({"key": "k", "value": ""}, "k:NoSchedule", id="an empty value"),
        pytest.param({"key": "k", "value": "v"}, "k=v:NoSchedule", id="a value"),
    ],
)
def test_a_taint_is_written_as_kubernetes_does(
    taint: dict[str, str], told: str
) -> None:
    node = make_node(gpus=8, taints=[{**taint, "effect": "NoSchedule"}])

    summary = summary_of(make_pod(gpus=1), node)

    assert summary.sentence == (
        f"No node fits: 1 has a taint that it does not tolerate ({told})"
    )
    assert summary.nearest[0].details == (f"not tolerated: {told}",)
    assert summary.help == f"tolerate {told} (1 node fits then)"
    assert summary.remedies[0].value == told


@pytest.mark.parametrize(
    ("nodes", "sentence", "reason_class"),
    [
        pytest.param(
            [], "No node fits: the cluster has no nodes", "noNodes", id="none"
        ),
        pytest.param(
            [make_node(gpus=8)],
            "The only node fits: node-1 (score 10)",
            "fits",
            id="one",
        ),
        pytest.param(
            [make_node(gpus=8, is_ready=False)],
            "No node fits: 1 is not ready",
            "nodeNotReady",
            id="not ready",
        ),
        pytest.param(
            [make_node(gpus=8, pods="0")],
            "No node fits: 1 lacks pods (needs 1, largest node 0)",
            "tooSmall:pods",
            id="no room for pods",
        ),
        pytest.param(
            [make_node(gpus=0)],
            "No node fits: 1 has no GPU",
            "gpuResource:nvidia.com/gpu",
            id="no GPU",
        ),
        pytest.param(
            [make_node(gpus=8, labels={"nvidia.com/mig.config.state": "pending"})],
            "No node fits: 1 has GPUs that are not ready (label"
            " nvidia.com/mig.config.state=pending)",
            "gpusNotReady",
            id="GPUs that are not ready",
        ),
    ],
)
def test_the_sentence_says_what_decides(
    nodes: list[Tree], sentence: str, reason_class: str
) -> None:
    summary = summary_of(make_pod(gpus=1), *nodes)

    assert summary.sentence == sentence
    assert summary.reason_classes == {reason_class}


MIG = "nvidia.com/mig-1g.10gb"


def pod_of(*asks: tuple[str, str], **spec: object) -> Tree:
    """Return a pod with a container for each name and CPUs, the first with a GPU."""
    containers = [
        make_container(name=name, requests={"cpu": cpu}, limits={GPU: "1"})
        if not number
        else make_container(name=name, requests={"cpu": cpu})
        for number, (name, cpu) in enumerate(asks)
    ]
    return make_pod(containers=containers, spec=spec)


def init_of(name: str, cpu: str, *, is_sidecar: bool = False) -> Tree:
    return make_container(name=name, requests={"cpu": cpu}, is_sidecar=is_sidecar)


@pytest.mark.parametrize(
    ("pod", "advice"),
    [
        pytest.param(pod_of(("main", "98")), "95 CPU", id="alone"),
        pytest.param(
            pod_of(("main", "90"), overhead={"cpu": "8"}),
            "87 CPU beside the overhead",
            id="with overhead",
        ),
        pytest.param(
            pod_of(("main", "90"), ("log", "8")),
            "87 CPU in container 'main'",
            id="beside another container",
        ),
        pytest.param(
            pod_of(("main", "30"), ("log", "70"), overhead={"cpu": "1"}),
            "64 CPU beside the overhead in container 'log'",
            id="of two, the one that asks more",
        ),
        pytest.param(
            pod_of(("main", "4"), initContainers=[init_of("fetch", "100")]),
            "95 CPU in container 'fetch'",
            id="an init container decides",
        ),
        pytest.param(
            pod_of(
                ("main", "90"),
                initContainers=[init_of("proxy", "6", is_sidecar=True)],
            ),
            "89 CPU in container 'main'",
            id="beside a sidecar",
        ),
        pytest.param(
            pod_of(("main", "98"), initContainers=[init_of("fetch", "97")]),
            "95 CPU in all containers together",
            id="two that each ask too much",
        ),
        pytest.param(
            pod_of(("main", "1"), resources={"requests": {"cpu": "97"}}),
            "95 CPU",
            id="the pod as a whole",
        ),
    ],
)
def test_less_is_asked_of_the_container_that_asks_it(pod: Tree, advice: str) -> None:
    summary = summary_of(pod, make_node(gpus=8, cpu="95900m"))

    assert summary.help == f"ask for at most {advice} (1 node fits then)"


def test_a_pod_whose_overhead_alone_is_too_much_is_told_no_number() -> None:
    pod = pod_of(("main", "1"), overhead={"cpu": "100"})

    assert summary_of(pod, make_node(gpus=8)).remedies == ()


def test_a_pod_of_two_gpu_resources_is_told_which_of_them_nodes_lack() -> None:
    pod = make_pod(gpus=1, requests={MIG: "1"})

    summary = summary_of(
        pod,
        *(make_node(name=f"whole-{n}", gpus=8) for n in range(3)),
        make_node(name="cut", resources={MIG: "7"}),
        make_node(name="none"),
    )

    assert summary.sentence == (
        f"No node fits: 3 do not offer {MIG} (but nvidia.com/gpu), 2 do not offer"
        " nvidia.com/gpu"
    )
    assert summary.reason_classes == {
        "gpuResource:nvidia.com/gpu",
        f"gpuResource:{MIG}",
    }
    assert [(r.action, r.value, r.node_count) for r in summary.remedies] == [
        ("leaveOut", MIG, 3),
        ("leaveOut", "nvidia.com/gpu", 1),
    ]  # what it asks already is not offered in place of what is absent
    assert summary.help.startswith(
        f"leave {MIG} out, or ask for it in another pod (3 nodes fit then)"
    )


def test_the_other_resource_has_as_much_as_the_absent_one() -> None:
    pod = make_pod(gpus=2, requests={"amd.com/gpu": "4"})
    amounts = {"nvidia.com/gpu": "8", MIG: "3", "nvidia.com/mig-2g.20gb": "4"}

    summary = summary_of(pod, make_node(resources=amounts))

    assert [(r.action, r.value) for r in summary.remedies] == [
        ("leaveOut", "amd.com/gpu"),
        ("resource", "nvidia.com/mig-2g.20gb"),
    ]


@pytest.mark.parametrize(
    ("resource", "asked", "there", "told"),
    [
        pytest.param("ephemeral-storage", "2Ti", "1700Gi", "1700Gi", id="not 1.7Ti"),
        pytest.param("memory", "2Ti", "1100000Mi", "1074Gi", id="whole Gi"),
        pytest.param("memory", "1Gi", "1000Ki", "1000Ki", id="less than a Mi"),
    ],
)
def test_what_a_pod_is_told_to_ask_is_never_more_than_there_is(
    resource: str, asked: str, there: str, told: str
) -> None:
    pod, node = make_pod(gpus=1), make_node(gpus=8)
    requests = pod["spec"]["containers"][0]["resources"].setdefault("requests", {})
    requests[resource] = asked
    node["status"]["allocatable"][resource] = there

    help_text = summary_of(pod, node).help

    assert help_text.startswith(f"ask for at most {told} "), help_text


def test_no_resource_is_proposed_whose_gpus_the_pod_does_not_want() -> None:
    says = {"gpu-extender.io/gpu-type": "MI300X"}
    pod = make_pod(requests={"amd.com/cpx_nps4": "1"}, annotations=says)
    label, other = "nvidia.com/gpu.product", "amd.com/gpu.product-name"
    labels = {label: "NVIDIA-H100-80GB-HBM3"}
    nodes = [make_node(name=f"h100-{n}", gpus=8, labels=labels) for n in range(3)]
    whole = make_node(
        name="mi300x",
        resources={"amd.com/gpu": "8"},
        labels={other: "AMD_Instinct_MI300X_OAM"},
    )

    remedies = summary_of(pod, *nodes, whole).remedies

    assert [(r.action, r.value, r.node_count) for r in remedies] == [
        ("resource", "amd.com/gpu", 1)
    ]
    assert summary_of(pod, *nodes).remedies == ()


@pytest.mark.parametrize(
    ("asked", "help_text"),
    [
        pytest.param(
            "rdma/hca_shared_device_a",
            "write rdma/hca_shared_devices_a for 'rdma/hca_shared_device_a'"
            " (1 node fits then)",
            id="misspelt",
        ),
        pytest.param(
            "example.com/fpga",
            "have a offer 'example.com/fpga', or leave it out (2 nodes fit then)",
            id="nobody has it",
        ),
        pytest.param(
            "hugepages-1Gi",
            "have a offer 'hugepages-1Gi', or leave it out (2 nodes fit then)",
            id="pages of another size are no slip",
        ),
    ],
)
def test_a_device_that_no_node_has_is_written_otherwise_or_left_out(
    asked: str, help_text: str
) -> None:
    amount = "1Gi" if asked.startswith("hugepages") else "1"
    limits = {GPU: "1", "cpu": "1", asked: amount}
    pod = make_pod(containers=[make_container(limits=limits, requests=limits)])
    has = {GPU: "8", "rdma/hca_shared_devices_a": "63", "hugepages-2Mi": "8Gi"}

    summary = summary_of(
        pod, make_node(name="a", resources=has), make_node(name="b", gpus=8)
    )

    assert summary.help == help_text


@pytest.mark.parametrize(
    ("linked", "actions"), [("preferred", ["sharing"]), ("required", [])]
)
def test_parts_of_gpus_are_not_proposed_to_a_pod_that_wants_linked_ones(
    linked: str, actions: list[str]
) -> None:
    says = {"gpu-extender.io/gpu-type": "T4", "gpu-extender.io/linked": linked}
    shared = {"nvidia.com/gpu.product": "Tesla-T4-SHARED"}

    summary = summary_of(
        make_pod(gpus=2, annotations=says), make_node(gpus=8, labels=shared)
    )

    assert [remedy.action for remedy in summary.remedies] == actions


REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
ZONE = "topology.kubernetes.io/zone"


def replicas_of(spec: Tree, *nodes: Tree) -> str:
    """Return what is said of six pods with this template."""
    template = make_pod(gpus=1, labels={"app": "a"})
    tree = {
        "kind": "Deployment",
        "metadata": {"name": "web"},
        "spec": {
            "replicas": 6,
            "template": {
                "metadata": {"labels": {"app": "a"}},
                "spec": {**template["spec"], **spec},
            },
        },
    }
    snapshot = make_snapshot(nodes=nodes)
    page = build_page(explain(read_subject(tree, OPTIONS), snapshot, OPTIONS))
    text = " ".join(render_summary(page).split())
    return text.partition("this is about one")[2].partition(".")[0]


def apart(app: str, key: str = ZONE) -> Tree:
    term = {"labelSelector": {"matchLabels": {"app": app}}, "topologyKey": key}
    return {"affinity": {"podAntiAffinity": {REQUIRED: [term]}}}


PORTED = {
    "containers": [
        {
            "name": "c",
            "resources": {"limits": {GPU: 1}},
            "ports": [{"containerPort": 1, "hostPort": 80}],
        }
    ]
}
NOT_CHECKED = ", and whether all fit beside each other is not checked: "


@pytest.mark.parametrize(
    ("spec", "told"),
    [
        pytest.param({}, ", and all fit now", id="alone"),
        pytest.param(PORTED, ", and 3 fit now", id="host port"),
        pytest.param(apart("a"), ", and at most 3 fit now", id="apart by zone"),
        pytest.param(apart("b"), f"{NOT_CHECKED}pod affinity", id="from others"),
        pytest.param(
            {"topologySpreadConstraints": [{"topologyKey": "zone"}]},
            f"{NOT_CHECKED}topology spread (zone)",
            id="spread",
        ),
        pytest.param({"nodeName": "a"}, "", id="on a node by its name"),
        pytest.param({"nodeSelector": {"x": "y"}}, ", and none fits now", id="none"),
    ],
)
def test_of_replicas_no_more_is_promised_than_is_checked(spec: Tree, told: str) -> None:
    nodes = [
        make_node(name="a", gpus=2, labels={ZONE: "1"}),
        make_node(name="b", gpus=2, labels={ZONE: "1"}),
        make_node(name="c", gpus=2),
    ]

    assert replicas_of(spec, *nodes) == told


def test_too_little_room_for_all_replicas_is_said_first() -> None:
    tree = {
        "kind": "Deployment",
        "spec": {"replicas": 6, "template": {"spec": make_pod(gpus=3)["spec"]}},
    }

    sentence = summary_of(tree, make_node(gpus=8)).sentence

    assert sentence == (
        "The only node fits: node-1 (score 10); of 6 such pods there is room for 2 at"
        " most"
    )


@pytest.mark.parametrize(
    ("gpus", "claim", "told"),
    [
        pytest.param(
            None,
            {"resourceClaimName": "my-gpu"},
            "The only node passes what is checked here (CPU and memory), but"
            " kube-scheduler may refuse it, since not modelled here: resource claims"
            " (my-gpu)",
            id="claims alone",
        ),
        pytest.param(
            1,
            {"name": "nic", "resourceClaimTemplateName": "nics"},
            "The only node passes what is checked here (GPUs, CPU and memory), but"
            " kube-scheduler may refuse it, since not modelled here: resource claims"
            " (nics)",
            id="beside GPUs",
        ),
    ],
)
def test_a_pod_with_claims_is_not_said_to_fit(
    gpus: int | None, claim: Tree, told: str
) -> None:
    pod = make_pod(gpus=gpus, spec={"resourceClaims": [claim]})

    assert summary_of(pod, make_node(gpus=8)).sentence == told


@pytest.mark.parametrize("labels", [{}, {"nvidia.com/gpu.product": "NVIDIA-A10-12Q"}])
def test_memory_of_a_card_of_unknown_unit_is_not_asked(labels: dict[str, str]) -> None:
    says = {"gpu-extender.io/min-gpu-memory": "12Gi"}
    card = "nvidia.com/A10-12Q"
    pod = make_pod(requests={card: "1"}, annotations=says)

    summary = summary_of(pod, make_node(resources={card: "8"}, labels=labels))

    assert summary.help == (
        "leave gpu-extender.io/min-gpu-memory out: how much a nvidia.com/A10-12Q has"
        " is not known (1 node fits then)"
    )


@pytest.mark.parametrize(
    ("spec", "held_by", "told"),
    [
        pytest.param(
            {"priority": 10},
            9,
            "Preemption: kube-scheduler may evict GPU pods of lower priority for it, on"
            " 1 node",
            id="of lower priority",
        ),
        pytest.param({"priority": 10}, 10, "", id="of the same priority"),
        pytest.param({}, 0, "", id="no priority"),
        pytest.param(
            {"priority": 10, "preemptionPolicy": "Never"},
            9,
            "preemptionPolicy is Never: kube-scheduler evicts no pod for it",
            id="never",
        ),
        pytest.param(
            {"priorityClassName": "high"},
            9,
            "Preemption is not considered: the value of priority class high is not"
            " known here",
            id="class",
        ),
        pytest.param(
            {"priority": 10, "nodeSelector": {"x": "y"}}, 9, "", id="of no use"
        ),
    ],
)
def test_what_may_be_evicted_for_a_pod_is_told(
    spec: Tree, held_by: int, told: str
) -> None:
    # On the second node others hold too much, and a third one is too small.
    nodes = [make_node(name="a", gpus=8), make_node(name="b", gpus=8)]
    nodes.append(make_node(name="c", gpus=1))
    pods = [
        make_pod(name="low", gpus=8, node_name="a", spec={"priority": held_by}),
        make_pod(name="less", gpus=2, node_name="b", spec={"priority": held_by}),
        make_pod(name="more", gpus=6, node_name="b", spec={"priority": 100}),
    ]
    pod = make_pod(gpus=4, spec=spec)

    summary = summary_of(pod, *nodes, pods=pods)

    assert not summary.fits
    assert summary.preemption == told


def test_nothing_is_evicted_for_a_pod_that_fits() -> None:
    pods = [make_pod(name="low", gpus=1, node_name="node-1", spec={"priority": 0})]
    pod = make_pod(gpus=4, spec={"priority": 10})

    assert not summary_of(pod, make_node(gpus=8), pods=pods).preemption


def test_what_running_pods_may_repel_by_labels_of_namespaces_is_said() -> None:
    term = {
        "labelSelector": {"matchLabels": {"app": "a"}},
        "namespaceSelector": {"matchLabels": {"team": "x"}},
        "topologyKey": ZONE,
    }
    affinity = {"podAntiAffinity": {REQUIRED: [term]}}
    running = make_pod(name="r", node_name="node-1", spec={"affinity": affinity})
    pod = make_pod(gpus=1, labels={"app": "a"})

    snapshot = make_snapshot(nodes=[make_node(gpus=8)], pods=[running])
    page = build_page(explain(read_subject(pod, OPTIONS), snapshot, OPTIONS))
    assert page.summary is not None
    told = page.summary.sentence
    other = summary_of(make_pod(gpus=1), make_node(gpus=8), pods=[running]).sentence

    assert told == (
        "The only node fits by GPUs, CPU and memory, but kube-scheduler may refuse"
        " it, since not modelled here: pod anti-affinity of running pods by labels of"
        " namespaces"
    )
    assert render_summary(page).splitlines()[-1] == (
        "Not looked at here: pod anti-affinity of running pods by labels of namespaces"
    )
    assert other == "The only node fits: node-1 (score 10)"


def test_no_replicas_are_said() -> None:
    spec = {"replicas": 0, "template": make_pod(gpus=1)}
    tree = {"kind": "Deployment", "spec": spec}

    page = build_page(explain(read_subject(tree, OPTIONS), make_snapshot(), OPTIONS))

    assert "No such pod is asked for now; this is about one." in render_summary(page)


def test_no_node_is_promised_to_what_a_serving_runtime_adds() -> None:
    tree = {
        "apiVersion": "serving.kserve.io/v1beta1",
        "kind": "InferenceService",
        "spec": {"predictor": {"model": {"name": "m"}}},
    }

    summary = summary_of(tree, make_node(gpus=8))

    assert summary.sentence == (
        "The only node fits by CPU and memory, but kube-scheduler may refuse it,"
        " since not modelled here: what its ServingRuntime adds"
    )


MIG = "nvidia.com/mig-1g.10gb"
EXCLUSIVE = {"gpu-extender.io/exclusive": "true"}
H100 = {"nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3"}


@pytest.mark.parametrize(
    ("resources", "annotations", "told"),
    [
        pytest.param(
            {MIG: "1"}, EXCLUSIVE,
            f"ask for {GPU} instead (1 node fits then)", id="another, alone",
        ),
        pytest.param(
            {MIG: "1"}, {}, f"ask for {GPU} instead (3 nodes fit then)", id="another",
        ),
        pytest.param(
            {MIG: "1", GPU: "1"}, EXCLUSIVE,
            f"leave {MIG} out, or ask for it in another pod (1 node fits then)",
            id="without, alone",
        ),
        pytest.param(
            {MIG: "1", GPU: "1"}, {"gpu-extender.io/gpu-type": "H100"},
            f"leave {MIG} out, or ask for it in another pod (1 node fits then)",
            id="without, of a type",
        ),
    ],
)  # fmt: skip
def test_what_else_keeps_a_pod_is_looked_at_where_a_resource_is_absent(
    resources: dict[str, str], annotations: dict[str, str], told: str
) -> None:
    container = make_container(requests=resources, limits=resources)
    pod = make_pod(annotations=annotations, spec={"containers": [container]})
    used = [make_pod(name=n, gpus=1, node_name=n) for n in "ab"]

    summary = summary_of(
        pod,
        make_node(name="a", gpus=8),
        make_node(name="b", gpus=8, labels=H100),
        make_node(name="c", gpus=8),
        pods=used,
    )

    assert told in summary.help


ZONE_AND_TEAM = {"zone": "a", "team": "x"}


@pytest.mark.parametrize(
    ("selector", "wanted", "labels", "told", "lacks"),
    [
        pytest.param(
            ZONE_AND_TEAM, None, {},
            "leave zone and team out of its node selector (1 node fits then)",
            "zone=a wanted, has no such label; team=x wanted, has no such label",
            id="two entries",
        ),
        pytest.param(
            {**ZONE_AND_TEAM, "rack": "1"}, None, {},
            "leave 3 entries out of its node selector (1 node fits then)",
            "zone=a wanted, has no such label; team=x wanted, has no such label;"
            " rack=1 wanted, has no such label",
            id="three entries",
        ),
        pytest.param(
            {"zone": "a"}, "c", {"zone": "b"},
            "leave zone out of its node selector and widen its required node affinity"
            " (1 node fits then)",
            "zone=a wanted, has b; no term of the required node affinity holds",
            id="an entry and the affinity",
        ),
        pytest.param(
            {}, "c", {"zone": "b"},
            "widen its required node affinity (1 node fits then)",
            "no term of the required node affinity holds",
            id="the affinity",
        ),
        pytest.param(
            {"team": "x"}, "b", {"zone": "b"},
            "label node-1 team=x, or leave the selector out (1 node fits then)",
            "team=x wanted, has no such label",
            id="an entry alone",
        ),
    ],
)  # fmt: skip
def test_a_selector_is_not_mended_where_more_than_that_keeps_the_pod(
    selector: Tree, wanted: str | None, labels: Tree, told: str, lacks: str
) -> None:
    pod = make_pod(gpus=1, spec={"nodeSelector": selector})
    if wanted is not None:
        needs = [{"key": "zone", "operator": "In", "values": [wanted]}]
        terms = {"nodeSelectorTerms": [{"matchExpressions": needs}]}
        required = {"requiredDuringSchedulingIgnoredDuringExecution": terms}
        pod["spec"]["affinity"] = {"nodeAffinity": required}

    summary = summary_of(pod, make_node(gpus=8, labels=labels))

    assert summary.help == told
    assert summary.nearest[0].details == (lacks,)


def test_a_value_of_the_selector_is_proposed_by_nodes_that_fit_then() -> None:
    pod = make_pod(gpus=1, spec={"nodeSelector": ZONE_AND_TEAM})

    summary = summary_of(
        pod,
        make_node(name="a", gpus=8, labels={"zone": "b"}),
        make_node(name="b", gpus=8, labels={"zone": "b", "team": "x"}),
    )

    assert summary.remedies[0].node == "b"
    assert "select zone=b instead of a (1 node fits then)" in summary.help


@pytest.mark.parametrize(
    ("values", "is_created", "told"),
    [
        pytest.param(["Tesla-T4", "NVIDIA-L4"], False,
                     "accept T4, too (1 node fits then)",
                     id="its own affinity takes the node"),
        pytest.param(["NVIDIA-H100-80GB-HBM3"], False, "",
                     id="its own affinity does not"),
        pytest.param(["NVIDIA-H100-80GB-HBM3"], True, "",
                     id="that of a pod which is there does not"),
        pytest.param(["A10", "NVIDIA-A10", "nvidia-a10"], True,
                     "accept T4, too (1 node fits then)", id="the webhook wrote it"),
    ],
)  # fmt: skip
def test_another_type_is_proposed_where_the_pods_own_affinity_takes_it(
    values: list[str], is_created: bool, told: str
) -> None:
    wanted = [{"key": "nvidia.com/gpu.product", "operator": "In", "values": values}]
    terms = {"nodeSelectorTerms": [{"matchExpressions": wanted}]}
    required = "requiredDuringSchedulingIgnoredDuringExecution"
    pod = make_pod(
        gpus=1,
        annotations={"gpu-extender.io/gpu-type": "A10"},
        spec={"affinity": {"nodeAffinity": {required: terms}}},
    )
    if not is_created:
        pod["metadata"].pop("uid", None)
    node = make_node(gpus=8, labels={"nvidia.com/gpu.product": "Tesla-T4"})

    summary = summary_of(pod, node)

    assert summary.sentence == "No node fits: 1 has other GPUs (T4)"
    assert "".join(remedy.text for remedy in summary.remedies) == told
