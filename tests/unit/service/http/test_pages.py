from dataclasses import replace
from typing import Any

import falcon
import falcon.testing
import pytest

from cluster.ledger.writer import SnapshotCell
from scoring.gpu.node_gpus import NodeGpus
from scoring.protocols import FailingNode
from service.http.pages import ClusterResource, unit_of
from tests.builders import make_node, make_pod, make_snapshot


@pytest.fixture
def client() -> falcon.testing.TestClient:
    """A client of the page over nodes n1 to n5, of which n4 and n5 have GPUs."""
    cell = SnapshotCell()
    cell.publish(
        make_snapshot(
            nodes=[
                make_node(name="n5", gpus=8, is_cordoned=True),
                make_node(
                    name="n4", gpus=4, labels={"nvidia.com/mig.config.state": "failed"}
                ),
                *(make_node(name=f"n{i}") for i in (3, 1, 2)),
            ],
            pods=[
                make_pod(name="holder", gpus=6, node_name="n4"),
                make_pod(name="waits", gpus=1),
            ],
        )
    )
    app = falcon.App()
    app.add_route("/cluster", ClusterResource(cell))
    return falcon.testing.TestClient(app)


def page_of(client: falcon.testing.TestClient, query: str = "") -> dict[str, Any]:
    """Return a page."""
    answer = client.simulate_get("/cluster", query_string=query)
    assert answer.status_code == 200
    page: dict[str, Any] = answer.json
    return page


def names_of(page: dict[str, Any]) -> list[str]:
    """Return the names of the nodes on a page."""
    return [node["name"] for node in page["nodes"]]


def test_the_page_has_all_nodes_by_name_and_the_counts(
    client: falcon.testing.TestClient,
) -> None:
    page = page_of(client)

    assert names_of(page) == ["n1", "n2", "n3", "n4", "n5"]
    assert (page["nodeCount"], page["pendingPods"], page["generation"]) == (5, 1, 1)
    assert page["continue"] is None


def test_the_page_names_all_failing_nodes() -> None:
    failing = {name: FailingNode(0.0, ()) for name in ("b", "a")}
    nodes = [make_node(name=name) for name in "abc"]
    cell = SnapshotCell()
    cell.publish(replace(make_snapshot(nodes=nodes), failing_nodes=failing))
    app = falcon.App()
    app.add_route("/cluster", ClusterResource(cell))
    page = page_of(falcon.testing.TestClient(app), "limit=1")

    assert page["failingNodes"] == ["a", "b"]


def test_a_node_has_its_amounts_and_what_is_wrong_with_it(
    client: falcon.testing.TestClient,
) -> None:
    (node,) = page_of(client, "name=n4")["nodes"]

    assert node["resources"]["nvidia.com/gpu"] == {
        "allocatable": 4,
        "requested": 6,
        "free": 0,
        "unit": "gpu",
    }
    assert node["resources"]["cpu"]["allocatable"] == 64_000
    assert (node["schedulable"], node["gpusReady"]) == (True, False)
    assert (node["type"], node["failing"], node["gpuPods"]) == ("", False, 1)
    assert "unit" not in node["resources"]["cpu"]


@pytest.mark.parametrize(
    ("resource", "gpus", "unit"),
    [
        pytest.param("nvidia.com/gpu", NodeGpus(), "gpu", id="a card"),
        pytest.param("amd.com/gpu", NodeGpus(), "gpu", id="AMD's"),
        pytest.param("amd.com/spx_nps1", NodeGpus(), "gpu", id="AMD's undivided"),
        pytest.param("amd.com/cpx_nps4", NodeGpus(), "part", id="AMD's partition"),
        pytest.param("nvidia.com/gpu", NodeGpus(is_part=True), "part", id="virtual"),
        pytest.param(
            "nvidia.com/gpu", NodeGpus(is_shared=True, replicas=4), "share", id="shared"
        ),
        pytest.param("nvidia.com/gpu.shared", NodeGpus(), "share", id="by its name"),
        pytest.param("nvidia.com/mig-1g.10gb", NodeGpus(), "slice", id="a slice"),
        pytest.param(
            "nvidia.com/mig-1g.10gb.shared", NodeGpus(), "share", id="of a slice"
        ),
        pytest.param(
            "nvidia.com/gpu", NodeGpus(profile="1g.10gb"), "slice", id="MIG single"
        ),
        pytest.param("nvidia.com/gpu-memory", NodeGpus(), "", id="memory"),
        pytest.param("memory", NodeGpus(), "", id="of the host"),
    ],
)
def test_a_resource_is_shown_with_its_unit(
    resource: str, gpus: NodeGpus, unit: str
) -> None:
    assert unit_of(resource, gpus) == unit


def test_a_node_is_shown_with_its_type_and_the_page_with_its_age() -> None:
    cell = SnapshotCell()
    labels = {"nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3"}
    cell.publish(make_snapshot(nodes=[make_node(name="n1", gpus=8, labels=labels)]))
    app = falcon.App()
    app.add_route("/cluster", ClusterResource(cell, lambda: 1.5))

    page = page_of(falcon.testing.TestClient(app))

    assert (page["ageSeconds"], page["nodes"][0]["type"]) == (1.5, "H100-SXM5-80GB")


def test_a_cordoned_node_is_shown_as_such(client: falcon.testing.TestClient) -> None:
    (node,) = page_of(client, "name=n5")["nodes"]

    assert (node["schedulable"], node["gpusReady"]) == (False, True)


def test_pages_follow_each_other_without_gap_or_overlap(
    client: falcon.testing.TestClient,
) -> None:
    first = page_of(client, "limit=2")
    second = page_of(client, f"limit=2&continue={first['continue']}")
    third = page_of(client, f"limit=2&continue={second['continue']}")

    assert [names_of(page) for page in (first, second, third)] == [
        ["n1", "n2"],
        ["n3", "n4"],
        ["n5"],
    ]
    assert third["continue"] is None


@pytest.mark.parametrize(
    ("query", "names"),
    [
        pytest.param("resource=nvidia.com/gpu", ["n4", "n5"], id="of a resource"),
        pytest.param("resource=nobody.has/it", [], id="of an unknown resource"),
        pytest.param("name=n1&resource=nvidia.com/gpu", [], id="of both"),
    ],
)
def test_nodes_can_be_chosen(
    client: falcon.testing.TestClient, query: str, names: list[str]
) -> None:
    assert names_of(page_of(client, query)) == names


@pytest.mark.parametrize("name", ["ghost", ""])
def test_a_node_that_the_cache_does_not_have_is_404_with_its_name(
    client: falcon.testing.TestClient, name: str
) -> None:
    answer = client.simulate_get("/cluster", query_string=f"name={name}")

    assert answer.status_code == 404
    assert f"no node {name!r}" in answer.json["description"]


def test_unknown_parameters_are_refused_by_name(
    client: falcon.testing.TestClient,
) -> None:
    answer = client.simulate_get("/cluster", query_string="node=n1&name=n1&Limit=3")

    assert answer.status_code == 400
    assert answer.json["description"] == (
        "unknown parameters: Limit, node;"
        " wanted some of limit, continue, name, resource"
    )


@pytest.mark.parametrize("limit", ["0", "-1", "5001", "many"])
def test_a_wrong_limit_is_refused(
    client: falcon.testing.TestClient, limit: str
) -> None:
    answer = client.simulate_get("/cluster", query_string=f"limit={limit}")

    assert answer.status_code == 400
    assert "limit" in answer.json["description"]
