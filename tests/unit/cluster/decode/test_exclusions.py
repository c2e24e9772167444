from typing import Any, Final

import pytest

from scoring.exclusions import Exclusions, HostPort, LabelCondition, RepelledPods
from tests.builders import Tree, make_pod, make_pod_record

REQUIRED: Final = "requiredDuringSchedulingIgnoredDuringExecution"
APP: Final = LabelCondition("app", "In", ("a",))
HOST: Final = "kubernetes.io/hostname"


def container(*ports: Any, **more: Any) -> Tree:
    return {"name": "c", "ports": list(ports), **more}


def exclusions_of(spec: Tree, namespace: str = "ml") -> Exclusions | None:
    return make_pod_record(make_pod(namespace=namespace, spec=spec)).exclusions


def apart(*terms: Any) -> Tree:
    return {"affinity": {"podAntiAffinity": {REQUIRED: list(terms)}}}


@pytest.mark.parametrize(
    ("spec", "ports"),
    [
        pytest.param({"containers": [container({"containerPort": 1})]}, [], id="none"),
        pytest.param(
            {"containers": [container({"containerPort": 1, "hostPort": 80})]},
            [HostPort(80)],
            id="of a container",
        ),
        pytest.param(
            {
                "containers": [
                    container({"hostPort": 53, "protocol": "UDP", "hostIP": "10.0.0.1"})
                ]
            },
            [HostPort(53, "UDP", "10.0.0.1")],
            id="protocol and address",
        ),
        pytest.param(
            {
                "containers": [container()],
                "initContainers": [
                    container({"hostPort": 1}),
                    container({"hostPort": 2}, restartPolicy="Always"),
                ],
            },
            [HostPort(2)],
            id="of sidecars alone",
        ),
        pytest.param(
            {"hostNetwork": True, "containers": [container({"containerPort": 9100})]},
            [HostPort(9100)],
            id="on the host's network",
        ),
        pytest.param(
            {
                "containers": [
                    container(1, {"hostPort": "x"}, {"hostPort": 70000}),
                    {"name": "d", "ports": 1},
                ]
            },
            [],
            id="odd",
        ),
    ],
)
def test_host_ports_are_read_of_all_that_runs(spec: Tree, ports: list[Any]) -> None:
    found = exclusions_of(spec)

    assert list(found.ports if found else ()) == ports


@pytest.mark.parametrize(
    ("term", "repelled"),
    [
        pytest.param(
            {"labelSelector": {"matchLabels": {"app": "a"}}, "topologyKey": HOST},
            RepelledPods(HOST, ("ml",), None, (APP,)),
            id="of its own namespace",
        ),
        pytest.param(
            {
                "labelSelector": {
                    "matchExpressions": [{"key": "app", "operator": "Exists"}]
                },
                "namespaces": ["web"],
                "topologyKey": HOST,
            },
            RepelledPods(HOST, ("web",), None, (LabelCondition("app", "Exists"),)),
            id="of a named one",
        ),
        pytest.param(
            {"namespaceSelector": {}, "topologyKey": HOST},
            RepelledPods(HOST, (), (), None),
            id="of every one",
        ),
    ],
)
def test_required_anti_affinity_is_read(term: Tree, repelled: RepelledPods) -> None:
    assert exclusions_of(apart(term)) == Exclusions((), (repelled,))


@pytest.mark.parametrize(
    "term",
    [
        pytest.param(1, id="no term"),
        pytest.param({"labelSelector": {}}, id="no key"),
        pytest.param({"labelSelector": 1, "topologyKey": HOST}, id="no selector"),
        pytest.param(
            {"labelSelector": {"matchLabels": 1}, "topologyKey": HOST}, id="no labels"
        ),
        pytest.param(
            {"labelSelector": {"matchExpressions": [1]}, "topologyKey": HOST},
            id="no expression",
        ),
        pytest.param({"namespaces": [1], "topologyKey": HOST}, id="no name"),
        pytest.param({"namespaces": ["n"] * 65, "topologyKey": HOST}, id="many names"),
        pytest.param(
            {
                "labelSelector": {"matchLabels": {str(n): "" for n in range(33)}},
                "topologyKey": HOST,
            },
            id="many labels",
        ),
    ],
)
def test_a_term_that_is_not_kept_is_known_to_be_there(term: Any) -> None:
    assert exclusions_of(apart(term)) == Exclusions(is_whole=False)


def test_of_many_terms_the_first_are_kept() -> None:
    found = exclusions_of(apart(*[{"topologyKey": HOST}] * 17))

    assert found is not None
    assert (len(found.repels), found.is_whole) == (16, False)


def test_pods_of_one_template_share_what_they_keep_away() -> None:
    term = {"topologyKey": HOST}

    assert exclusions_of(apart(term)) is exclusions_of(apart(term))
    assert exclusions_of(apart()) is None
    assert exclusions_of({"affinity": {"podAntiAffinity": {"x": 1}}}) is None


def test_labels_are_kept_of_gpu_pods_that_wait() -> None:
    labels = {"app": "a"}

    waiting = make_pod_record(make_pod(gpus=1, labels=labels))
    bound = make_pod_record(make_pod(gpus=1, labels=labels, node_name="n"))
    other = make_pod_record(make_pod(labels=labels))

    assert (waiting.labels, bound.labels, other.labels) == (labels, {}, {})
