"""Pods of one job are drawn to the clique, rack or zone of their siblings."""

from collections.abc import Iterable, Mapping
from typing import Any, Final

import pytest

from cluster.decode.faults import convert_with_faults
from cluster.decode.objects import Pod
from extender.explain.explain import explain
from extender.explain.page import NodeRow, PageQuery, build_page
from extender.explain.pod import read_subject
from extender.verbs.lookup import pod_request_of_record, read_pod_request
from extender.verbs.verbs import NOTHING_ASSUMED, Assumed
from scoring.snapshot import Snapshot
from service.runtime import build_records, build_verb_options
from tests.builders import (
    Tree,
    make_node,
    make_pod,
    make_pod_record,
    make_pod_request,
    make_snapshot,
)
from tests.extender_app import make_settings

CLIQUE: Final = "nvidia.com/gpu.clique"
RACK: Final = "topology.kubernetes.io/rack"
ZONE: Final = "topology.kubernetes.io/zone"
BY_JOB: Final = {"scoring": {"weights": {"domain": 60}}}
BY_LABEL: Final = {**BY_JOB, "labels": {"job": "team/job"}}

# The cluster of docs/scoring.md.
NODES: Final = [
    make_node(name="a", gpus=8, labels={CLIQUE: "u.1", RACK: "r1", ZONE: "z1"}),
    make_node(name="b", gpus=8, labels={CLIQUE: "u.2", RACK: "r1", ZONE: "z1"}),
    make_node(name="rack", gpus=8, labels={RACK: "r1", ZONE: "z1"}),
    make_node(name="zone", gpus=8, labels={RACK: "r2", ZONE: "z1"}),
    make_node(name="far", gpus=8, labels={RACK: "r3", ZONE: "z2"}),
    make_node(name="bare", gpus=8),
]


def member(name: str, node_name: str = "", job: str = "job", **more: Any) -> Tree:
    return make_pod(name=name, gpus=1, node_name=node_name, owner_uid=job, **more)


SIBLINGS: Final = [member(f"s{n}", "a") for n in range(3)] + [member("s3", "b")]


def rows(
    pod: Tree,
    pods: Iterable[Tree] = SIBLINGS,
    settings: Mapping[str, Any] = BY_JOB,
    assumed: Assumed = NOTHING_ASSUMED,
) -> dict[str, NodeRow]:
    """Return what an explanation says of each node."""
    options = build_verb_options(make_settings(settings))
    snapshot = snapshot_of(pods, settings)
    subject = read_subject(pod, options)
    page = build_page(explain(subject, snapshot, options, assumed), PageQuery())
    return {row.name: row for row in page.nodes}


def snapshot_of(pods: Iterable[Tree], settings: Mapping[str, Any]) -> Snapshot:
    read = make_settings(settings)
    return make_snapshot(
        nodes=NODES,
        pods=pods,
        label_keys=read.labels.keys().columns(),
        builder=build_records(read),
    )


def terms(pod: Tree, *args: Any, **more: Any) -> dict[str, float]:
    return {name: row.terms["domain"] for name, row in rows(pod, *args, **more).items()}


def test_the_more_siblings_share_the_more_domains_the_better() -> None:
    found = terms(member("new"))

    wanted = {"a": 91.67, "b": 75, "rack": 66.67, "zone": 33.33, "far": 0, "bare": 0}
    assert found == pytest.approx(wanted, abs=0.01)


def test_the_verbs_score_what_an_explanation_shows() -> None:
    found = rows(member("new"), settings={"scoring": {"weights": {"domain": 1000}}})

    # Before placement "a" has 3 of 8 GPUs in use: 62.5, and 50 and 100 of the others.
    totals = {name: row.total for name, row in found.items()}
    assert totals["a"] == 50 + int(62 * 0.4) + 15 + 30 + 910
    assert totals["bare"] == 50 + 15 + 30
    assert found["a"].priority == 10


def test_an_explanation_shows_how_many_share_what() -> None:
    found = rows(member("new"))

    near = f"3 of 4 in {CLIQUE}=u.1, 4 of 4 in {RACK}=r1, 4 of 4 in {ZONE}=z1"
    assert found["a"].verdict.detail.endswith(f"; other pods of its job: {near}")
    assert found["zone"].verdict.detail.endswith(f"of its job: 4 of 4 in {ZONE}=z1")
    assert found["bare"].verdict.detail.endswith(
        "; other pods of its job: none of 4 near"
    )


def test_siblings_under_way_count_and_others_do_not() -> None:
    assumed = {
        "far": [make_pod_request(1, job="job"), make_pod_request(1, job="another")],
        "gone": [make_pod_request(1, job="job")],
    }

    found = terms(member("new"), [member("s", "another", "else")], assumed=assumed)

    assert found["far"] == 100.0
    assert sum(found.values()) == 100.0


def test_a_pod_is_no_sibling_of_its_own() -> None:
    found = terms(member("s3", "b"))

    assert found["a"] == 100.0
    assert found["b"] == pytest.approx(66.67, abs=0.01)
    assert terms(member("alone", "a"), [member("alone", "a")])["a"] == 0.0


@pytest.mark.parametrize(
    "pods",
    [
        pytest.param([], id="none yet"),
        pytest.param([member("s", "a", "another")], id="of another job"),
        pytest.param([member("s")], id="pending"),
        pytest.param([member("s", "a", phase="Succeeded")], id="ended"),
        pytest.param([make_pod(name="s", gpus=1, node_name="a")], id="of no job"),
        pytest.param([member("s", "not known")], id="on a node that is gone"),
        pytest.param([member("s", "bare")], id="where no label tells a domain"),
    ],
)
def test_without_siblings_near_no_node_is_preferred(pods: list[Tree]) -> None:
    assert set(terms(member("new"), pods).values()) == {0.0}


def test_a_label_makes_a_job_within_a_namespace_instead_of_the_controller() -> None:
    def labelled(name: str, node_name: str, namespace: str = "default") -> Tree:
        labels = {"team/job": "train"}
        return member(name, node_name, name, labels=labels, namespace=namespace)

    pods = [labelled("s", "far"), labelled("t", "a", "other"), member("u", "a")]

    found = terms(labelled("new", ""), pods, BY_LABEL)

    assert (found["far"], found["a"]) == (100.0, 0.0)
    assert not any(terms(member("new", job="u"), pods, BY_LABEL).values())


def test_by_default_siblings_make_no_difference() -> None:
    found = rows(member("new"), settings={})

    assert "domain" not in found["a"].terms
    assert "job" not in found["a"].verdict.detail


@pytest.mark.parametrize("settings", [BY_JOB, BY_LABEL])
def test_a_pod_of_the_cache_asks_as_its_object_does(
    settings: Mapping[str, Any],
) -> None:
    read = make_settings(settings)
    options = build_verb_options(read)
    tree = member("new", labels={"team/job": "train"})
    pod, faults = convert_with_faults(tree, Pod)
    assert pod is not None, faults

    record = make_pod_record(tree, builder=build_records(read))

    asked = read_pod_request(pod, options)
    assert asked == pod_request_of_record(record, options)
    assert asked.job == ("job" if settings is BY_JOB else "default/train")
