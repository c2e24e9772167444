"""A pod of a file may have no UID; it does not count against itself either."""

import msgspec
import pytest

from cluster.decode.objects import Pod
from extender.verbs.lookup import read_pod_request
from service.runtime import build_verb_options
from tests.builders import Tree, make_node, make_pod, make_snapshot, take_candidates
from tests.extender_app import make_settings


def requested(asking: Tree, holding: Tree) -> int:
    """Return how many GPUs count as taken for the asking pod."""
    options = build_verb_options(make_settings())
    pod_request = read_pod_request(msgspec.convert(asking, Pod), options)
    snapshot = make_snapshot(nodes=[make_node(name="a", gpus=8)], pods=[holding])
    candidates = take_candidates(snapshot, ["a"], pod_request, options.label_keys)
    return int(candidates.requested[0, 0])


@pytest.mark.parametrize(
    ("asking", "holding", "taken"),
    [
        pytest.param("default", "default", 0, id="itself"),
        pytest.param("", "default", 0, id="itself, one without a namespace"),
        pytest.param("ml", "default", 6, id="a namesake in another namespace"),
    ],
)
def test_a_pod_without_a_uid_is_told_by_its_name(
    asking: str, holding: str, taken: int
) -> None:
    count = requested(
        make_pod(name="p", namespace=asking, uid="", gpus=6),
        make_pod(name="p", namespace=holding, uid="", gpus=6, node_name="a"),
    )

    assert count == taken


def test_a_pod_with_a_uid_is_not_told_by_its_name() -> None:
    asking = make_pod(name="p", uid="", gpus=6)
    holding = make_pod(name="p", uid="u", gpus=6, node_name="a")

    assert requested(asking, holding) == 6


def test_what_no_node_has_is_not_taken_back() -> None:
    pod = make_pod(name="p", requests={"nvidia.com/made-up": "2"}, node_name="a")

    assert requested(pod, pod) == 0
