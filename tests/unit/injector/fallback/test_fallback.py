from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import msgspec
import pytest

from cluster.decode.objects import PodSpec
from cluster.ledger.writer import SnapshotCell
from injector.admitted_pod import AdmittedPod, PodIdentity
from injector.fallback.alternatives import read_alternatives
from injector.fallback.annotations import FallbackAnnotations
from injector.fallback.chains import Chains
from injector.fallback.fallback import Fallback
from injector.fallback.holds import Holds
from tests.builders import Tree, make_container, make_node, make_pod
from tests.defaults import FALLBACK_OPTIONS, HOLD_SECONDS
from tests.fakes.admissions import (
    GPU,
    LONG_CHAIN,
    MARK,
    MIG_1G,
    MIG_2G,
    MIG_3G,
    RECORD,
    Admissions,
    asked_of,
    asking,
    make_review,
)


def slices(name: str, *, gpus: int | None = None, **rest: Any) -> Tree:
    """Return a node; ``g1=7`` gives it seven slices of 1g, and so on."""
    short = {"g1": MIG_1G, "g2": MIG_2G, "g3": MIG_3G}
    resources = {short[key]: str(rest.pop(key)) for key in list(rest) if key in short}
    return make_node(name=name, gpus=gpus, resources=resources, **rest)


FALLS = "2g.20gb->1g.10gb"

CORDONED_1G = slices("a", g1=28, is_cordoned=True)


@pytest.mark.parametrize(
    ("nodes", "quantity", "final", "record"),
    [
        pytest.param([slices("a", g1=28)], 1, MIG_1G, "2g.20gb->1g.10gb", id="smaller"),
        pytest.param([slices("a", gpus=4)], 1, GPU, "2g.20gb->gpu", id="whole card"),
        pytest.param([make_node()], 1, MIG_2G, "nowhere", id="nothing anywhere"),
        pytest.param([slices("a", g2=1)], 1, MIG_2G, "kept", id="free as it is"),
        pytest.param(
            [slices("a", g1=2, g2=1)], 2, MIG_1G, "2g.20gb->1g.10gb", id="quantity of 2"
        ),
        pytest.param(
            [slices("a", g2=1), slices("b", g2=1), slices("c", gpus=2)],
            2,
            GPU,
            "2g.20gb->gpu",
            id="one node must have the whole quantity",
        ),
        pytest.param(
            [CORDONED_1G, slices("b", gpus=4)], 1, GPU, "2g.20gb->gpu", id="cordoned"
        ),
        pytest.param(
            [slices("a", g1=28, is_ready=False), slices("b", gpus=4)],
            1,
            GPU,
            "2g.20gb->gpu",
            id="not ready",
        ),
        pytest.param(
            [
                slices("a", g1=28, labels={"nvidia.com/mig.config.state": "pending"}),
                slices("b", gpus=4),
            ],
            1,
            GPU,
            "2g.20gb->gpu",
            id="slices being changed",
        ),
    ],
)
def test_a_pod_takes_the_first_resource_that_is_free(
    nodes: list[Tree], quantity: int, final: str, record: str
) -> None:
    admissions = Admissions(nodes=nodes)

    pod, result, _ = admissions.review(make_review({MIG_2G: quantity}))

    annotations = pod["metadata"]["annotations"]
    assert asked_of(pod) == [{final: str(quantity)}]
    assert annotations.get(RECORD, result.outcome) == record
    assert annotations[MARK] == final


@pytest.mark.parametrize(
    ("free", "final"),
    [
        pytest.param((0, 3, 0), MIG_1G, id="smaller slices"),
        pytest.param((0, 0, 2), GPU, id="whole cards"),
        pytest.param((1, 0, 0), MIG_2G, id="as it is"),
        pytest.param((0, 0, 0), MIG_2G, id="nothing free"),
    ],
)
def test_what_bound_pods_hold_is_not_free(
    free: tuple[int, int, int], final: str
) -> None:
    resources = (MIG_2G, MIG_1G, GPU)
    held = {name: 3 - left for name, left in zip(resources, free, strict=True)}
    holders = make_pod(name="old", requests=held, node_name="a")
    admissions = Admissions(nodes=[slices("a", g2=3, g1=3, gpus=3)], pods=[holders])

    pod, _, _ = admissions.review()

    assert asked_of(pod) == [{final: "1"}]


def test_a_pod_whose_resource_exists_waits_for_it_when_nothing_is_free() -> None:
    full = make_pod(name="old", requests={MIG_2G: 1, GPU: 4}, node_name="a")
    admissions = Admissions(nodes=[slices("a", g2=1, gpus=4)], pods=[full])

    pod, result, _ = admissions.review()

    assert result.outcome == "kept_full"
    assert not result.warnings
    assert pod["metadata"]["annotations"] == {MARK: MIG_2G}


def test_a_pod_whose_resource_exists_nowhere_takes_the_first_that_does() -> None:
    full = make_pod(name="old", requests={MIG_1G: 1, GPU: 4}, node_name="a")
    admissions = Admissions(nodes=[slices("a", g1=1, gpus=4)], pods=[full])

    pod, result, _ = admissions.review()

    assert result.outcome == "changed_full"
    assert asked_of(pod) == [{MIG_1G: "1"}]


def test_a_pod_for_which_nothing_exists_is_left_alone_with_a_warning() -> None:
    _, result, _ = Admissions(nodes=[make_node()]).review()

    (warning,) = result.warnings
    assert "nvidia.com/mig-2g.20gb" in warning
    assert "unchanged" in warning
    assert not result.audit


def test_without_a_snapshot_a_pod_is_left_alone_with_a_warning() -> None:
    options = replace(FALLBACK_OPTIONS, chains=Chains((LONG_CHAIN,)))
    fallback = Fallback(Holds(SnapshotCell(), hold_seconds=HOLD_SECONDS), options)
    pod = make_review()

    result = fallback.apply(
        AdmittedPod(pod, PodIdentity("r", "ml", "", "train-", "", is_dry_run=False))
    )

    assert result.outcome == "not_synced"
    assert result.warnings
    assert pod == make_review()


def test_a_change_is_told_to_the_user_and_the_audit_log() -> None:
    _, result, _ = Admissions(nodes=[slices("a", gpus=4)]).review()

    assert result.outcome == "changed"
    (warning,) = result.warnings
    assert warning.startswith("nvidia.com/mig-2g.20gb was changed to nvidia.com/gpu")
    assert result.audit == {
        "fallback": "2g.20gb->gpu",
        "fallback-original": "main:nvidia.com/mig-2g.20gb=1",
    }


@pytest.mark.parametrize(
    ("containers", "asked", "record"),
    [
        pytest.param(
            [asking({MIG_3G: 1, MIG_2G: 1})],
            [{MIG_1G: "2"}],
            "3g.30gb->1g.10gb,2g.20gb->1g.10gb",
            id="two sources in one container add up",
        ),
        pytest.param(
            [asking({MIG_2G: 1, MIG_1G: 2})],
            [{MIG_1G: "3"}],
            "2g.20gb->1g.10gb",
            id="the target is asked already",
        ),
        pytest.param(
            [asking({MIG_2G: 1}, name="c0"), asking({MIG_3G: 1}, name="c1")],
            [{MIG_1G: "1"}, {MIG_1G: "1"}],
            "c0=2g.20gb->1g.10gb,c1=3g.30gb->1g.10gb",
            id="containers that differ are named",
        ),
        pytest.param(
            [asking({MIG_2G: 1}, name="c0"), asking({MIG_2G: 2}, name="c1")],
            [{MIG_1G: "1"}, {MIG_1G: "2"}],
            "2g.20gb->1g.10gb",
            id="containers that do not differ are not",
        ),
        pytest.param(
            [asking({MIG_2G: 1}, name="c0"), make_container(name="c1")],
            [{MIG_1G: "1"}, {}],
            "2g.20gb->1g.10gb",
            id="a container without GPU is left alone",
        ),
    ],
)
def test_several_resources_and_containers(
    containers: list[Tree], asked: list[Mapping[str, str]], record: str
) -> None:
    admissions = Admissions(nodes=[slices("a", g1=28)])

    pod, _, _ = admissions.review(make_review(containers=containers))

    assert asked_of(pod) == asked
    assert pod["metadata"]["annotations"] == {RECORD: record, MARK: MIG_1G}


@pytest.mark.parametrize(
    "nodes",
    [
        pytest.param([slices("a", g1=28)], id="changed"),
        pytest.param([slices("a", g3=1, g2=1)], id="kept"),
        pytest.param([make_node()], id="nothing anywhere"),
    ],
)
def test_a_pod_that_was_weighed_is_not_weighed_again(nodes: list[Tree]) -> None:
    admissions = Admissions(nodes=nodes)
    first, _, _ = admissions.review(make_review({MIG_3G: 1, MIG_2G: 1}))
    held = admissions.holds.count()

    again, result, _ = admissions.review(first)

    assert again == first
    assert result.outcome == "already_weighed"
    assert admissions.holds.count() == held


def test_a_pod_changed_by_another_webhook_does_not_fall_further() -> None:
    admissions = Admissions(nodes=[slices("a", gpus=4)])
    fallen = make_review(annotations={RECORD: "3g.30gb->2g.20gb"})

    pod, result, _ = admissions.review(fallen)

    assert pod == fallen
    assert result.outcome == "already_weighed"


def test_several_resources_of_a_pod_must_find_room_on_one_node() -> None:
    # 1g 2 fits neither node, 2g 1 beside 1g 1 fits the second
    nodes = [slices("a", g1=1), slices("b", g2=1, g1=1)]
    admissions = Admissions(nodes=nodes)

    pod, _, _ = admissions.review(make_review({MIG_3G: 1, MIG_2G: 1}))

    assert asked_of(pod) == [{MIG_2G: "1", MIG_1G: "1"}]
    assert pod["metadata"]["annotations"] == {
        RECORD: "3g.30gb->1g.10gb",
        MARK: f"{MIG_1G},{MIG_2G}",
    }


def test_an_init_container_takes_its_share_before_the_others_do() -> None:
    # one slice after the other: max(1, 1), not 1 + 1
    review = make_review(
        containers=[asking({MIG_2G: 1})],
        init_containers=[asking({MIG_3G: 1}, name="warm-up")],
    )

    pod, _, _ = Admissions(nodes=[slices("a", g1=1)]).review(review)

    assert asked_of(pod) == [{MIG_1G: "1"}, {MIG_1G: "1"}]
    assert pod["metadata"]["annotations"][RECORD] == (
        "main=2g.20gb->1g.10gb,warm-up=3g.30gb->1g.10gb"
    )


def test_a_middle_member_falls_along_the_rest_of_its_chain() -> None:
    nodes = [slices("a", g3=4, g2=4), slices("b", gpus=1)]

    assert Admissions(nodes=nodes).outcome(make_review({MIG_1G: 1})) == "1g.10gb->gpu"


@pytest.mark.parametrize(
    ("pod", "outcome"),
    [
        pytest.param(make_review({GPU: 1}), "not_asked", id="last of the chain"),
        pytest.param(make_review({"cpu": 1}), "not_asked", id="no GPU"),
        pytest.param(make_review({MIG_2G: 0}), "not_asked", id="none of it"),
        pytest.param(
            make_review(annotations={"gpu-extender.io/fallback": "never"}),
            "opted_out",
            id="opted out",
        ),
    ],
)
def test_a_pod_that_does_not_take_part_is_unchanged(pod: Tree, outcome: str) -> None:
    admissions = Admissions(nodes=[slices("a", gpus=4)])

    got, result, _ = admissions.review(pod)

    assert got == pod
    assert result.outcome == outcome
    assert admissions.holds.count() == 0


@pytest.mark.parametrize(
    "text",
    ["never", "Never", " NEVER ", "false", "False", "", "no", "off", "none", "0"],
)
def test_whatever_means_never_turns_fallback_off(text: str) -> None:
    pod = make_review(annotations={"gpu-extender.io/fallback": text})

    got, result, _ = Admissions(nodes=[slices("a", gpus=4)]).review(pod)

    assert got == pod
    assert (result.outcome, result.warnings) == ("opted_out", ())


@pytest.mark.parametrize("text", ["true", "yes", "allowed", "nevr", "mig-1g.10gb", "1"])
def test_an_opt_out_that_is_none_is_told(text: str) -> None:
    pod = make_review(annotations={"gpu-extender.io/fallback": text})

    _, result, _ = Admissions(nodes=[slices("a", gpus=4)]).review(pod)

    assert result.outcome == "changed"
    assert result.warnings[0] == (
        f"annotation gpu-extender.io/fallback: {text!r} is not known, fallback stays"
        " on; use 'never' to turn it off"
    )


def test_fallback_is_off_outside_the_namespaces_of_the_settings() -> None:
    options = replace(
        FALLBACK_OPTIONS, chains=Chains((LONG_CHAIN,)), namespaces=frozenset({"ml"})
    )
    admissions = Admissions(nodes=[slices("a", gpus=9)], options=options)

    assert admissions.outcome(namespace="ml") == "2g.20gb->gpu"
    assert admissions.outcome(namespace="web") == "namespace_excluded"


def test_without_chains_nothing_is_looked_at() -> None:
    assert Admissions(chains=()).outcome() == "not_asked"


def test_new_options_count_from_the_next_pod_on() -> None:
    admissions = Admissions(nodes=[slices("a", gpus=4)])
    admissions.fallback.use(
        replace(FALLBACK_OPTIONS, chains=Chains(((MIG_3G, MIG_2G),)))
    )

    assert admissions.outcome() == "not_asked"


def test_annotation_names_are_options() -> None:
    names = FallbackAnnotations(
        opt_out="x.io/fall", sharing="x.io/share", record="x.io/fell", mark="x.io/seen"
    )
    options = replace(FALLBACK_OPTIONS, chains=Chains((LONG_CHAIN,)), annotations=names)
    admissions = Admissions(nodes=[slices("a", gpus=4)], options=options)

    changed, _, _ = admissions.review()
    kept_out = admissions.outcome(make_review(annotations={"x.io/fall": "never"}))

    assert changed["metadata"]["annotations"] == {
        "x.io/fell": "2g.20gb->gpu",
        "x.io/seen": GPU,
    }
    assert kept_out == "opted_out"


def test_other_annotations_stay() -> None:
    review = make_review(annotations={"team": "ml"})

    pod, _, _ = Admissions(nodes=[slices("a", gpus=4)]).review(review)

    assert pod["metadata"]["annotations"]["team"] == "ml"


@pytest.mark.parametrize(
    "labels",
    [
        pytest.param({"nvidia.com/gpu.replicas": "4"}, id="replicas"),
        pytest.param({"nvidia.com/gpu.product": "NVIDIA-L4-SHARED"}, id="product name"),
        pytest.param(
            {"nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3-MIG-3g.40gb"},
            id="slices under the name of cards",
        ),
    ],
)
def test_shares_of_gpus_stand_in_only_for_who_allows_it(
    labels: dict[str, str],
) -> None:
    admissions = Admissions(nodes=[slices("a", gpus=40, labels=labels)])
    allowing = make_review(annotations={"gpu-extender.io/sharing": "allowed"})

    assert admissions.outcome() == "nowhere"
    assert admissions.outcome(allowing) == "2g.20gb->gpu"


@pytest.mark.parametrize(
    ("labels", "outcome"),
    [
        pytest.param({"nvidia.com/gpu.memory": "81559"}, "2g.20gb->gpu", id="enough"),
        pytest.param({}, "2g.20gb->gpu", id="unknown"),
        pytest.param({"nvidia.com/gpu.memory": "lots"}, "2g.20gb->gpu", id="no number"),
        # 93 % of 20 GiB are 19,046.4 MiB
        pytest.param({"nvidia.com/gpu.memory": "19047"}, "2g.20gb->gpu", id="93 %"),
        pytest.param({"nvidia.com/gpu.memory": "19046"}, "nowhere", id="below 93 %"),
        pytest.param({"nvidia.com/gpu.memory": "15360"}, "nowhere", id="a small card"),
        pytest.param({"nvidia.com/gpu.replicas": "1"}, "2g.20gb->gpu", id="unshared"),
    ],
)
def test_a_gpu_is_not_known_to_have_less_memory_than_the_slice(
    labels: dict[str, str], outcome: str
) -> None:
    nodes = [slices("a", gpus=4, labels=labels)]

    assert Admissions(nodes=nodes).outcome() == outcome


def test_the_largest_slice_says_how_much_memory_a_gpu_must_have() -> None:
    small = slices("a", gpus=4, labels={"nvidia.com/gpu.memory": "23034"})
    both = make_review({MIG_3G: 1, MIG_2G: 1})

    assert Admissions(nodes=[small]).outcome() == "2g.20gb->gpu"
    assert Admissions(nodes=[small]).outcome(both) == "nowhere"


def in_zone(zone: str) -> dict[str, Any]:
    terms = [
        {"matchExpressions": [{"key": "zone", "operator": "In", "values": [zone]}]}
    ]
    key = "requiredDuringSchedulingIgnoredDuringExecution"
    return {"affinity": {"nodeAffinity": {key: {"nodeSelectorTerms": terms}}}}


@pytest.mark.parametrize(
    ("spec", "outcome"),
    [
        pytest.param({}, "kept", id="anywhere"),
        pytest.param({"nodeSelector": {"zone": "b"}}, "2g.20gb->gpu", id="selector"),
        pytest.param(in_zone("b"), "2g.20gb->gpu", id="affinity"),
        pytest.param({"nodeName": "b"}, "2g.20gb->gpu", id="node name"),
        pytest.param({"nodeName": "c"}, "nowhere", id="unknown node name"),
        pytest.param({"nodeSelector": {"zone": "c"}}, "nowhere", id="no such zone"),
    ],
)
def test_only_nodes_that_the_pod_may_go_to_are_looked_at(
    spec: dict[str, Any], outcome: str
) -> None:
    nodes = [
        slices("a", g2=1, labels={"zone": "a"}),
        slices("b", gpus=1, labels={"zone": "b"}),
    ]

    assert Admissions(nodes=nodes).outcome(make_review(spec=spec)) == outcome


def test_many_nodes_that_do_not_suit_do_not_hide_the_one_that_does() -> None:
    shared = {"nvidia.com/gpu.replicas": "4"}
    nodes = [slices(f"n{i}", gpus=1, labels=shared) for i in range(20)]
    nodes.append(slices("last", gpus=8))
    admissions = Admissions(nodes=nodes)

    outcomes = [str(admissions.review()[1].outcome) for _ in range(9)]

    assert outcomes == ["changed"] * 8 + ["changed_full"]


def test_many_nodes_elsewhere_do_not_hide_the_one_that_is_selected() -> None:
    nodes = [slices(f"n{i:02}", g2=1, labels={"zone": f"z{i}"}) for i in range(20)]
    admissions = Admissions(nodes=nodes)
    review = make_review(spec={"nodeSelector": {"zone": "z19"}})

    assert [admissions.outcome(review) for _ in range(2)] == ["kept", "kept_full"]


def test_a_tainted_node_is_for_those_who_tolerate_it() -> None:
    taint = {"key": "nvidia.com/gpu", "effect": "NoSchedule"}
    admissions = Admissions(nodes=[slices("a", g2=1, taints=[taint])])
    tolerating = {"tolerations": [{"key": "nvidia.com/gpu", "operator": "Exists"}]}

    assert admissions.outcome() == "nowhere"
    assert admissions.outcome(make_review(spec=tolerating)) == "kept"


@pytest.mark.parametrize(
    ("offered", "asked", "record"),
    [
        pytest.param({"g1": 1}, MIG_2G, "2g.20gb->1g.10gb", id="free comes first"),
        pytest.param({}, MIG_2G, "2g.20gb->gpu", id="counts as one that exists"),
        pytest.param({"g2": 1}, MIG_2G, "kept", id="own is free"),
    ],
)
def test_a_resource_behind_a_device_class_exists_but_is_not_known_to_be_free(
    offered: dict[str, int], asked: str, record: str
) -> None:
    admissions = Admissions(
        nodes=[slices("a", **offered)], device_class_resources=[GPU]
    )

    assert admissions.outcome(make_review({asked: 1})) == record


@pytest.mark.parametrize(
    "gpus",
    [
        pytest.param(None, id="no device plugin anywhere"),
        pytest.param(1, id="a device plugin on another node, which is full"),
    ],
)
def test_a_pod_whose_own_resource_is_behind_a_device_class_is_kept(
    gpus: int | None,
) -> None:
    other = "nvidia.com/gpu.shared"
    admissions = Admissions(
        nodes=[
            make_node(name="a", resources={other: "4"}),
            make_node(name="b", gpus=gpus),
        ],
        pods=[make_pod(name="old", gpus=gpus, node_name="b")],
        chains=((GPU, other),),
        device_class_resources=[GPU],
    )

    assert admissions.outcome(make_review({GPU: 1})) == "kept"


def test_requests_without_limits_and_limits_without_requests_are_moved() -> None:
    review = make_review(
        containers=[
            make_container(name="a", requests={MIG_2G: 1}),
            make_container(name="b", limits={MIG_2G: "1"}, requests={"cpu": "1"}),
            make_container(name="c", limits={MIG_2G: 0}),
        ]
    )

    pod, _, _ = Admissions(nodes=[slices("a", gpus=4)]).review(review)

    assert [item["resources"] for item in pod["spec"]["containers"]] == [
        {"requests": {GPU: "1"}},
        {"limits": {GPU: "1"}, "requests": {"cpu": "1"}},
        {"limits": {MIG_2G: 0}},
    ]


def one_container(
    requests: Mapping[str, str], limits: Mapping[str, str] | None = None
) -> Tree:
    limits = requests if limits is None else limits
    return make_review(containers=[make_container(requests=requests, limits=limits)])


@pytest.mark.parametrize(
    ("pod", "says"),
    [
        pytest.param(
            one_container({MIG_2G: "500m"}),
            f"{MIG_2G}: request '500m' is not a whole number",
            id="half a slice",
        ),
        pytest.param(
            one_container({MIG_2G: "1500m"}),
            f"{MIG_2G}: request '1500m' is not a whole number",
            id="a slice and a half",
        ),
        pytest.param(
            one_container({MIG_2G: "1.0001"}),
            f"{MIG_2G}: request '1.0001' is not a whole number",
            id="a little more than a slice",
        ),
        pytest.param(
            one_container({MIG_2G: "1"}, {MIG_2G: "2"}),
            f"{MIG_2G}: request 1 and limit 2 are not equal",
            id="a request below its limit",
        ),
        pytest.param(
            one_container({MIG_2G: "2"}, {MIG_2G: "1"}),
            f"{MIG_2G}: request 2 and limit 1 are not equal",
            id="a request above its limit",
        ),
        pytest.param(
            one_container({MIG_2G: "1"}, {MIG_2G: "0"}),
            f"{MIG_2G}: request 1 and limit 0 are not equal",
            id="a limit of nothing",
        ),
        pytest.param(
            one_container({MIG_2G: "-1"}),
            "resources.limits['nvidia.com/mig-2g.20gb']: quantity '-1': negative",
            id="less than nothing",
        ),
        pytest.param(
            one_container({MIG_2G: "1", MIG_1G: "2500m"}),
            f"{MIG_1G}: request '2500m' is not a whole number",
            id="parts of what it falls to",
        ),
        pytest.param(
            one_container({MIG_2G: "1", MIG_1G: "2"}, {MIG_2G: "1"}),
            f"{MIG_1G}: request without a limit",
            id="no limit of what it falls to",
        ),
        pytest.param(
            make_review(
                init_containers=[make_container(limits={MIG_1G: "1500m"})],
                containers=[make_container(limits={MIG_2G: "1"})],
            ),
            f"spec.initContainers[0].resources: {MIG_1G}: limit '1500m'",
            id="an init container",
        ),
    ],
)
def test_what_kubernetes_refuses_is_neither_weighed_nor_repaired(
    pod: Tree, says: str
) -> None:
    got, result, _ = Admissions(nodes=[slices("a", g1=7)]).review(pod)

    assert got == pod
    assert result.outcome == "malformed"
    assert says in result.warnings[0]


@pytest.mark.parametrize(
    "amount",
    [
        pytest.param("1000m", id="thousandths"),
        pytest.param("1e0", id="an exponent"),
        pytest.param("1.000", id="zeros"),
        pytest.param("999900u", id="what Kubernetes rounds up to a thousandth"),
    ],
)
def test_one_slice_in_any_form_falls(amount: str) -> None:
    pod, _, _ = Admissions(nodes=[slices("a", g1=7)]).review(
        one_container({MIG_2G: amount})
    )

    assert asked_of(pod) == [{MIG_1G: "1"}]


@pytest.mark.parametrize(
    ("pod", "says"),
    [
        pytest.param(
            make_review(containers=[make_container(requests={MIG_2G: "one"})]),
            "spec.containers[0].resources.requests['nvidia.com/mig-2g.20gb']",
            id="a quantity",
        ),
    ],
)
def test_a_malformed_pod_is_left_alone_with_a_warning(pod: Tree, says: str) -> None:
    got, result, _ = Admissions(nodes=[slices("a", gpus=4)]).review(pod)

    assert got == pod
    assert result.outcome == "malformed"
    assert says in result.warnings[0]


def test_a_pod_without_metadata_gets_its_mark() -> None:
    review = make_review()
    del review["metadata"]

    pod, _, _ = Admissions(nodes=[slices("a", g2=1)]).review(review)

    assert pod["metadata"] == {"annotations": {MARK: MIG_2G}}


def pending(requests: Mapping[str, int], *, name: str, **status: Any) -> Tree:
    return make_pod(
        name=name,
        requests={key: str(amount) for key, amount in requests.items()},
        status=status or None,
    )


def unschedulable(since: str) -> list[dict[str, str]]:
    return [
        {
            "type": "PodScheduled",
            "status": "False",
            "reason": "Unschedulable",
            "lastTransitionTime": since,
        }
    ]


@pytest.mark.parametrize(
    ("waiting", "outcome"),
    [
        pytest.param(pending({MIG_2G: 1}, name="p"), "2g.20gb->gpu", id="counts"),
        pytest.param(pending({MIG_3G: 1}, name="p"), "kept", id="asks something else"),
        pytest.param(
            make_pod(
                requests={MIG_2G: "1"}, spec={"schedulingGates": [{"name": "quota"}]}
            ),
            "kept",
            id="gated",
        ),
        pytest.param(
            make_pod(requests={MIG_2G: "1"}, spec={"nodeSelector": {"zone": "b"}}),
            "kept",
            id="for another node",
        ),
        # the test's time starts at 2027-01-15T08:00:00Z
        pytest.param(
            pending(
                {MIG_2G: 1}, name="p", conditions=unschedulable("2027-01-15T07:59:01Z")
            ),
            "2g.20gb->gpu",
            id="unschedulable for 59 seconds",
        ),
        pytest.param(
            pending(
                {MIG_2G: 1}, name="p", conditions=unschedulable("2027-01-15T07:59:00Z")
            ),
            "kept",
            id="unschedulable for 60 seconds",
        ),
    ],
)
def test_pending_pods_come_first(waiting: Tree, outcome: str) -> None:
    nodes = [slices("a", g2=1), slices("b", gpus=1)]

    assert Admissions(nodes=nodes, pods=[waiting]).outcome() == outcome


ELSEWHERE = slices("b", g1=20, cpu="64", memory="64Gi")


@pytest.mark.parametrize(
    ("node", "asked", "holder", "outcome"),
    [
        pytest.param({"cpu": "1"}, {"cpu": 4}, None, FALLS, id="one cpu"),
        pytest.param({"cpu": "4"}, {"cpu": 4}, None, "kept", id="as many cpu as asked"),
        pytest.param({"cpu": "8"}, {"cpu": 4}, {"cpu": "5"}, FALLS, id="cpu in use"),
        pytest.param({"memory": "1Gi"}, {"memory": "2Gi"}, None, FALLS, id="memory"),
        pytest.param({"pods": "0"}, {}, None, FALLS, id="no place for a pod"),
        pytest.param({"pods": "1"}, {}, {"cpu": "0"}, FALLS, id="its last place taken"),
        pytest.param({}, {"ephemeral-storage": "9Gi"}, None, "nowhere",
                     id="disk that no node tells of"),
        pytest.param({}, {"rdma/shared_mlx5": 1}, None, "nowhere",
                     id="what no node has at all"),
    ],
)  # fmt: skip
def test_a_slice_on_a_node_that_the_pod_cannot_use_is_not_free(
    node: dict[str, Any],
    asked: dict[str, Any],
    holder: dict[str, str] | None,
    outcome: str,
) -> None:
    nodes = [slices("a", g2=1, **node), ELSEWHERE]
    held = [make_pod(name="holder", node_name="a", requests=holder)] if holder else []
    admissions = Admissions(nodes=nodes, pods=held)

    assert admissions.outcome(make_review({MIG_2G: 1, **asked})) == outcome


@pytest.mark.parametrize(
    "resource", ["rdma/shared_mlx5", "vpc.amazonaws.com/efa", "hugepages-2Mi",
                 "example.com/fpga"]
)  # fmt: skip
def test_a_slice_beside_which_another_resource_is_missing_is_not_free(
    resource: str,
) -> None:
    has = make_node(name="b", resources={MIG_1G: "20", resource: "8"})
    admissions = Admissions(nodes=[slices("a", g2=1), has])

    assert admissions.outcome(make_review({MIG_2G: 1, resource: 1})) == FALLS


def test_a_promise_holds_all_that_its_pod_asks() -> None:
    nodes = [slices("a", g2=2, cpu="4"), ELSEWHERE]
    admissions = Admissions(nodes=nodes)
    review = make_review({MIG_2G: 1, "cpu": 3})

    assert admissions.outcome(review) == "kept"
    assert admissions.outcome(review) == FALLS
    assert admissions.outcome(make_review({MIG_2G: 1, "cpu": 1})) == "kept"


def test_the_node_with_the_fewest_slices_is_filled_first_whatever_else_it_has() -> None:
    # By cpu, b would be the fuller one.
    nodes = [slices("a", g2=1, cpu="64"), slices("b", g2=4, cpu="8")]
    admissions = Admissions(nodes=nodes)

    assert admissions.outcome(make_review({MIG_2G: 1, "cpu": 2})) == "kept"
    assert admissions.outcome(make_review({MIG_2G: 4, "cpu": 2})) == "kept"


LONG_UNSCHEDULABLE = unschedulable("2027-01-15T07:58:00Z")


@pytest.mark.parametrize(
    ("nominated", "own", "outcome"),
    [
        pytest.param({"node": "a"}, None, "2g.20gb->gpu", id="equal priority"),
        pytest.param({"node": "a", "priority": 7}, 5, "2g.20gb->gpu", id="higher"),
        pytest.param({"node": "a", "priority": 5}, 5, "2g.20gb->gpu", id="both 5"),
        pytest.param({"node": "a", "priority": 4}, 5, "kept", id="lower"),
        pytest.param({"node": "a", "priority": -1}, None, "kept", id="below none"),
        pytest.param({"node": ""}, None, "kept", id="not nominated"),
        pytest.param({"node": "b"}, None, "kept", id="to a node without slices"),
        pytest.param({"node": "ghost"}, None, "kept", id="to a node that is gone"),
        pytest.param({"node": "a", "asks": MIG_3G}, None, "kept", id="other slices"),
        pytest.param({"node": "a", "asks_too_much": True}, None, "kept",
                     id="whose room is not there yet"),
        pytest.param({"node": "a", "priority": "high"}, None, "2g.20gb->gpu",
                     id="with a priority that is no number"),
    ],
)  # fmt: skip
def test_room_is_kept_for_a_pod_that_kube_scheduler_nominated(
    nominated: dict[str, Any], own: int | None, outcome: str
) -> None:
    nodes = [slices("a", g2=1), slices("b", gpus=1)]
    asked = {nominated.get("asks", MIG_2G): 2 if "asks_too_much" in nominated else 1}
    waiting = pending(
        asked,
        name="p",
        conditions=LONG_UNSCHEDULABLE,
        nominatedNodeName=nominated["node"],
    )
    if "priority" in nominated:
        waiting["spec"]["priority"] = nominated["priority"]
    review = make_review()
    if own is not None:
        review["spec"]["priority"] = own

    assert Admissions(nodes=nodes, pods=[waiting]).outcome(review) == outcome


def test_a_nominated_pod_takes_room_on_its_node_alone() -> None:
    nodes = [slices("a", g2=2), slices("b", g2=1)]
    waiting = pending({MIG_2G: 1}, name="p", nominatedNodeName="a")
    admissions = Admissions(nodes=nodes, pods=[waiting])

    assert admissions.outcome(make_review({MIG_2G: 1})) == "kept"
    assert admissions.outcome(make_review({MIG_2G: 1})) == "kept"
    assert admissions.outcome(make_review({MIG_2G: 1})) == "kept_full"


def test_pending_pods_that_fit_nowhere_take_nothing() -> None:
    waiting = [pending({MIG_2G: 3}, name=f"p{index}") for index in range(3)]
    admissions = Admissions(nodes=[slices("a", g2=2)], pods=waiting)

    assert admissions.outcome() == "kept"


def test_holds_on_other_resources_do_not_matter() -> None:
    other = ("nvidia.com/mig-4g.40gb", "nvidia.com/mig-7g.80gb")
    nodes = [make_node(name="a", resources={MIG_2G: "1", other[0]: "1"})]
    admissions = Admissions(nodes=nodes, chains=(LONG_CHAIN, other))

    assert admissions.outcome(make_review({other[0]: 1})) == "kept"
    assert admissions.outcome() == "kept"


def test_pending_pods_are_laid_where_the_least_is_free() -> None:
    # The pending pod is laid on b, so that a still has 4 for the one that asks them.
    nodes = [slices("a", g2=4), slices("b", g2=2)]
    admissions = Admissions(nodes=nodes, pods=[pending({MIG_2G: 1}, name="p")])

    assert admissions.outcome(make_review({MIG_2G: 4})) == "kept"
    assert admissions.outcome(make_review({MIG_2G: 1})) == "kept"
    assert admissions.outcome(make_review({MIG_2G: 1})) == "kept_full"


def test_older_pending_pods_are_laid_before_younger_ones() -> None:
    # Oldest first, 2 go on b, and the 3 of the young one on a: nothing is left on a.
    # Youngest first would be the same on a, but by name `a-young` would come first.
    nodes = [slices("a", g2=3), slices("b", g2=2)]
    old = make_pod(
        name="z-old",
        requests={MIG_2G: "3"},
        metadata={"creationTimestamp": "2026-11-27T12:00:00Z"},
    )
    young = make_pod(
        name="a-young",
        requests={MIG_2G: "2"},
        metadata={"creationTimestamp": "2026-11-27T12:00:05Z"},
        spec={"nodeName": "", "nodeSelector": {"kubernetes.io/hostname": "a"}},
    )
    admissions = Admissions(nodes=nodes, pods=[young, old])

    assert admissions.outcome(make_review({MIG_2G: 2})) == "kept"


def test_a_pod_that_asks_several_resources_is_laid_on_one_node() -> None:
    # Only b has both, so the one 2g on a stays free.
    nodes = [slices("a", g2=1), slices("b", g2=2, g1=1)]
    waiting = pending({MIG_2G: 2, MIG_1G: 1}, name="p")
    admissions = Admissions(nodes=nodes, pods=[waiting])

    assert admissions.outcome() == "kept"
    assert admissions.outcome() == "kept_full"


def test_ten_pods_on_two_nodes_of_four_gpus_all_take_gpus() -> None:
    admissions = Admissions(nodes=[slices("a", gpus=4), slices("b", gpus=4)])

    results = [admissions.review() for _ in range(10)]

    assert [pod["metadata"]["annotations"][RECORD] for pod, _, _ in results] == [
        "2g.20gb->gpu"
    ] * 10
    assert [str(result.outcome) for _, result, _ in results] == (
        ["changed"] * 8 + ["changed_full"] * 2
    )


def test_of_nine_pods_one_takes_the_one_free_slice() -> None:
    nodes = [slices("a", gpus=4), slices("b", gpus=4), slices("c", g1=1)]
    admissions = Admissions(nodes=nodes)

    outcomes = [admissions.outcome() for _ in range(9)]

    assert outcomes == ["2g.20gb->1g.10gb"] + ["2g.20gb->gpu"] * 8


def test_a_hold_is_laid_on_gpus_that_suit_its_pod_alone() -> None:
    # Without regard to sharing, the holds would be laid on the fuller, shared node.
    shared = slices("a", gpus=2, labels={"nvidia.com/gpu.replicas": "2"})
    admissions = Admissions(nodes=[shared, slices("b", gpus=3)])

    outcomes = [str(admissions.review()[1].outcome) for _ in range(4)]

    assert outcomes == ["changed"] * 3 + ["changed_full"]


def test_a_pod_with_very_many_forms_is_weighed_on_the_first_of_them() -> None:
    tiers = [[f"nvidia.com/mig-{n}g.{m}gb" for m in range(1, 9)] for n in range(1, 5)]
    chains = tuple(tuple(tier) for tier in tiers)
    review = make_review({tier[0]: 1 for tier in tiers})
    admissions = Admissions(nodes=[slices("a", gpus=1)], chains=chains)

    pod, result, _ = admissions.review(review)

    assert result.outcome == "nowhere"
    assert pod["metadata"]["annotations"][MARK] == ",".join(tier[0] for tier in tiers)


LONG_AFFINITY = {
    "nodeAffinity": {
        "requiredDuringSchedulingIgnoredDuringExecution": {
            "nodeSelectorTerms": [
                {"matchExpressions": [{"key": f"k{place}", "operator": "DoesNotExist"}]}
                for place in range(1000)
            ]
        }
    }
}


def test_a_pod_with_thousands_of_terms_of_affinity_is_left_alone() -> None:
    review = make_review(spec={"affinity": LONG_AFFINITY})

    got, result, _ = Admissions(nodes=[slices("a", gpus=4)]).review(review)

    assert got == review
    assert result.outcome == "malformed"
    assert "too long" in result.warnings[0]


def test_a_pending_pod_with_thousands_of_terms_of_affinity_is_laid_nowhere() -> None:
    admissions = Admissions(nodes=[slices("a", g2=1, gpus=4)])
    admissions.appear(make_review(spec={"affinity": LONG_AFFINITY}), name="long")

    assert admissions.outcome() == "kept"


def test_of_thousands_of_containers_only_the_first_forms_are_weighed() -> None:
    containers = [asking({MIG_3G: 1}, name=f"c{place}") for place in range(5000)]
    spec = msgspec.convert(make_pod(containers=containers)["spec"], PodSpec)

    alternatives, faults = read_alternatives(
        spec, Chains((LONG_CHAIN,)), takes_shares=False
    )

    assert [item.substitutions for item in alternatives] == [(), ((MIG_3G, MIG_2G),)]
    assert not faults
