"""Every case of the fallback, through the API server and read back.

That the nodes cannot be listed has no case here: then no pod can be created.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import pytest

from tests.e2e.harness.builders import GPU, JsonObject, make_node
from tests.e2e.harness.control_plane import ControlPlane
from tests.e2e.harness.injecting import Creator, containers_of
from tests.e2e.harness.product import Product
from tests.e2e.harness.waiting import wait_for
from tests.fakes.webhook import C1, NETWORKS, TRIGGER, both, container, make_pod

MIG_1G: Final = "nvidia.com/mig-1g.10gb"
MIG_2G: Final = "nvidia.com/mig-2g.20gb"
MIG_3G: Final = "nvidia.com/mig-3g.30gb"
CHAIN: Final = [MIG_3G, MIG_2G, MIG_1G, GPU]
MARK: Final = "gpu-extender.io/fallback-weighed"
RECORD: Final = "gpu-webhook.k8s.io/fallback"
SEEN_SECONDS: Final = 10.0


@pytest.fixture(scope="module")
def product(
    shared_control_plane: ControlPlane, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Product]:
    """The service and its webhook, for all tests of this file."""
    rules = tmp_path_factory.mktemp("rules") / "rules.json"
    rules.write_text(json.dumps(C1))
    settings: Mapping[str, Mapping[str, object]] = {
        "injection": {"rulesFile": str(rules)},
        "fallback": {"chains": [CHAIN]},
    }
    with Product(shared_control_plane, settings=settings) as installed:
        installed.start()
        installed.register_webhook()
        yield installed
    shared_control_plane.reset()


@dataclass(frozen=True)
class Falling:
    """Nodes, a pod that asks slices, and what it gets.

    Attributes
    ----------
    nodes : sequence
        What each offers.
    asks : sequence
        What the containers `c0`, `c1` and so on ask.
    gets : sequence
        What each asks at last, as requests and limits.
    annotations : mapping
    warning : str
        Part of it.
    gpu_type : str or None
    """

    nodes: Sequence[JsonObject]
    asks: Sequence[Mapping[str, str]]
    gets: Sequence[Mapping[str, str]]
    annotations: Mapping[str, str]
    warning: str = ""
    gpu_type: str | None = None


ONE_2G: Final = ({MIG_2G: "1"},)
SLICES: Final = make_node("a", resources={MIG_1G: 28})
CORDONED: Final = make_node("a", resources={MIG_1G: 28}, unschedulable=True)
GPUS: Final = make_node("b", gpus=4)

FALLING: Final = [
    pytest.param(
        Falling(
            [SLICES],
            ONE_2G,
            [{MIG_1G: "1"}],
            {RECORD: "2g.20gb->1g.10gb", MARK: MIG_1G},
            f"{MIG_2G} was changed to {MIG_1G}",
        ),
        id="smaller slices",
    ),
    pytest.param(
        Falling(
            [GPUS],
            ONE_2G,
            [{GPU: "1"}],
            {RECORD: "2g.20gb->gpu", MARK: GPU},
            f"{MIG_2G} was changed to {GPU}",
        ),
        id="only whole cards",
    ),
    pytest.param(
        Falling([], ONE_2G, [{MIG_2G: "1"}], {MARK: MIG_2G}, "unchanged"),
        id="no node offers any",
    ),
    pytest.param(
        Falling(
            [make_node("a", resources={MIG_2G: 1})],
            ONE_2G,
            [{MIG_2G: "1"}],
            {MARK: MIG_2G},
        ),
        id="free as it is",
    ),
    pytest.param(
        Falling(
            [make_node("a", resources={MIG_2G: 1, MIG_1G: 2})],
            [{MIG_2G: "2"}],
            [{MIG_1G: "2"}],
            {RECORD: "2g.20gb->1g.10gb", MARK: MIG_1G},
        ),
        id="two asked, one there",
    ),
    pytest.param(
        Falling(
            [CORDONED, GPUS],
            ONE_2G,
            [{GPU: "1"}],
            {RECORD: "2g.20gb->gpu", MARK: GPU},
        ),
        id="smaller slices on a cordoned node",
    ),
    pytest.param(
        Falling(
            [SLICES],
            [{MIG_3G: "1", MIG_2G: "1"}],
            [{MIG_1G: "2"}],
            {RECORD: "3g.30gb->1g.10gb,2g.20gb->1g.10gb", MARK: MIG_1G},
        ),
        id="two sources in one container add up",
    ),
    pytest.param(
        Falling(
            [SLICES],
            [{MIG_2G: "1", MIG_1G: "2"}],
            [{MIG_1G: "3"}],
            {RECORD: "2g.20gb->1g.10gb", MARK: MIG_1G},
        ),
        id="what is asked of the target is added to",
    ),
    pytest.param(
        Falling(
            [SLICES],
            [{MIG_2G: "1"}, {MIG_3G: "1"}],
            [{MIG_1G: "1"}, {MIG_1G: "1"}],
            {RECORD: "c0=2g.20gb->1g.10gb,c1=3g.30gb->1g.10gb", MARK: MIG_1G},
        ),
        id="containers that differ are named",
    ),
    pytest.param(
        Falling(
            [GPUS],
            ONE_2G,
            [{GPU: "1", "cpu": "4", "memory": "8Gi"}],
            {
                RECORD: "2g.20gb->gpu",
                MARK: GPU,
                TRIGGER: "V100",
                NETWORKS: "tke-route-eni",
            },
            gpu_type="V100",
        ),
        id="the rule of the resource that is fallen to is applied",
    ),
]


@pytest.fixture
def created(product: Product) -> Iterator[Creator]:
    """Creates pods; at the end they are deleted, and so are all nodes."""
    creator = Creator(product)
    yield creator
    creator.delete_all()
    client = product.client
    client.delete_many("Node", [one["metadata"]["name"] for one in client.list("Node")])
    wait_for(lambda: not known_to(product), timeout_seconds=SEEN_SECONDS, what="empty")


def known_to(product: Product) -> float:
    """Return how many objects and holds the service has."""
    objects = product.metric("gpu_extender_cache_objects")
    return objects + product.metric("gpu_extender_webhook_holds")


@pytest.mark.parametrize("case", FALLING)
def test_a_pod_is_stored_with_the_slices_that_are_there(
    case: Falling, product: Product, created: Creator
) -> None:
    nodes = product.client.create_many(case.nodes)
    names = {node["metadata"]["name"] for node in nodes}
    wait_for(
        lambda: names <= product.amounts().keys(),
        timeout_seconds=SEEN_SECONDS,
        what="nodes known",
    )

    pod = created.create(
        make_pod(
            *(container(f"c{i}", both(asked)) for i, asked in enumerate(case.asks)),
            gpu_type=case.gpu_type,
        )
    )

    assert [item["resources"] for item in containers_of(pod)] == [
        both(got) for got in case.gets
    ]
    assert pod["metadata"]["annotations"] == case.annotations
    assert case.warning in created.warnings
