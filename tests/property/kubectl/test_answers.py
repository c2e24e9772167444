"""Whatever kubectl and a service say, `kubectl gpu` ends with a sentence or a table."""

import json
from collections.abc import Mapping
from typing import Any, Final

from hypothesis import given
from hypothesis import strategies as st

from tests.kubectl_gpu import load_script, make_replica

gpu: Final = load_script()

# Words that the command looks for, in any place.
KEYS: Final = st.sampled_from(
    [
        *("items", "metadata", "name", "namespace", "spec", "status", "phase"),
        *("containers", "template", "labels", "conditions", "nodes", "resources"),
        *("allocatable", "requested", "free", "unit", "type", "failing", "continue"),
        *("findings", "unchecked", "check", "what", "summary", "fits", "nodeCount"),
        *("pendingPods", "ageSeconds", "description", "facts", "version", "kind"),
    ]
)
LEAVES: Final = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=8)
    | st.sampled_from(["Running", "gpu", "Ready", "True"])
)
TREES: Final = st.recursive(
    LEAVES,
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(KEYS | st.text(max_size=4), inner, max_size=6)
    ),
    max_leaves=30,
)
HEADERS: Final = st.sampled_from([{}, {"gpu-extender-fits": "true"}])


class Answers(gpu.Service):  # type: ignore[misc, name-defined]
    """A service with the same answer to everything, twice at most."""

    def ask(self, *_: Any, **__: Any) -> Any:
        return self.where


def is_clean(text: str) -> bool:
    """Whether a terminal obeys nothing in a text."""
    return all(char.isprintable() or char == "\n" for char in text)


@given(TREES, HEADERS, st.sampled_from([200, 302, 400, 404, 500, 503]))
def test_any_answer_is_read_or_told(
    tree: Any, headers: Mapping[str, str], status: int
) -> None:
    answer = gpu.Answer(status, headers, json.dumps(tree))
    service = Answers("http://x", answer)
    told = []
    try:
        text, _ = gpu.read_explanation(service.checked(answer, "/explain"), gpu.TEXT)
        told.append(text)
    except gpu.Problem as problem:
        told.append(str(problem))
    try:
        cluster, trees = gpu.read_cluster(service)
        gpu.check_units(cluster, trees)
        told += gpu.overview(cluster)
        told += gpu.table(gpu.NODE_HEAD, gpu.node_cells(cluster.rows))
    except gpu.Problem as problem:
        told.append(str(problem))

    assert all(map(is_clean, told))


@given(st.lists(TREES, max_size=3), st.lists(TREES, max_size=3), TREES)
def test_any_finding_is_shown(findings: Any, unchecked: Any, page: Any) -> None:
    lines = gpu.doctor_lines(findings, unchecked, page, "x")

    assert all(map(is_clean, lines))
    assert max(map(len, lines)) <= gpu.WIDTH


@given(st.text(max_size=60) | st.binary(max_size=60).map(lambda b: b.decode("latin1")))
def test_any_complaint_is_one_line(text: str) -> None:
    said = gpu.told(text)

    assert said
    assert is_clean(said)
    assert "\n" not in said


@given(st.text(max_size=30), st.integers(0, 99_999))
def test_a_forwarded_port_is_one(text: str, port: int) -> None:
    assert gpu.forwarded_port(text) is None
    line = f"Forwarding from 127.0.0.1:{port} -> 8888\n"
    assert gpu.forwarded_port(line) == (port if 0 < port <= 65_535 else None)


@given(st.lists(st.dictionaries(st.text(max_size=3), LEAVES, max_size=3), max_size=4))
def test_objects_in_a_row_are_read_as_they_were_written(trees: Any) -> None:
    trees = json.loads(json.dumps(trees).replace("NaN", "0"))
    text = "\n".join(json.dumps(tree, indent=2) for tree in trees)

    assert gpu.read_objects(text) == trees


@given(st.text(max_size=40))
def test_any_text_is_objects_or_a_value_error(text: str) -> None:
    try:
        found = gpu.read_objects(text)
    except ValueError:
        return
    assert all(isinstance(tree, dict) for tree in found)


@given(TREES)
def test_pods_are_found_in_any_tree(tree: Any) -> None:
    for pod in gpu.pods_in(tree):
        assert isinstance(pod["spec"]["containers"], list)
        json.dumps(pod)


@given(st.lists(TREES, max_size=4), st.text(max_size=8))
def test_any_pods_have_a_choice_or_none(pods: list[Any], holder: str) -> None:
    pods = [pod for pod in pods if isinstance(pod, dict)]
    replicas = [*pods, make_replica("good", "host")]

    name, _ = gpu.choose_replica(replicas, "host_1", "a/b", "")
    gpu.choose_replica(pods, holder, "a/b", "")

    assert name == "good"
