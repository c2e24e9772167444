"""An Event as the API server takes it: its name, its limits, its fields."""

import json
import re
from dataclasses import replace

import pytest

from extender.events.event import Event, Regarding, cut_note, key_of

POD = Regarding("v1", "Pod", "ml", "train-0", "u1")
EVENT = Event(POD, "GPUPodPending", "Scheduling", "No node fits.", key_of({"b", "a"}))
# `IsDNS1123Subdomain` of Kubernetes.
SUBDOMAIN = re.compile(
    r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*"
)


def test_an_event_has_what_the_api_server_wants() -> None:
    tree = json.loads(EVENT.encode(1_900_000_000.25, "gpu-extender-x"))

    assert EVENT.path == "/apis/events.k8s.io/v1/namespaces/ml/events"
    assert tree == {
        "apiVersion": "events.k8s.io/v1",
        "kind": "Event",
        "metadata": {"name": EVENT.name, "namespace": "ml"},
        "eventTime": "2030-03-17T17:46:40.250000Z",
        "reportingController": "gpu-extender.io/gpu-extender",
        "reportingInstance": "gpu-extender-x",
        "action": "Scheduling",
        "reason": "GPUPodPending",
        "regarding": {
            "apiVersion": "v1",
            "kind": "Pod",
            "namespace": "ml",
            "name": "train-0",
            "uid": "u1",
        },
        "note": "No node fits.",
        "type": "Warning",
    }


def test_the_name_says_what_was_told_and_to_whom() -> None:
    same = replace(EVENT, note="No node fits: 3 of 4.", key=key_of(["a", "b"]))
    others = [
        replace(EVENT, key=key_of({"a"})),
        replace(EVENT, reason="GPUPodChanged"),
        replace(EVENT, regarding=replace(POD, uid="u2")),
    ]

    assert same.name == EVENT.name
    assert len({EVENT.name, *(event.name for event in others)}) == 4
    assert EVENT.name.startswith("train-0.")


@pytest.mark.parametrize(
    "name",
    [
        pytest.param("a" * 253, id="as long as may be"),
        pytest.param(f"{'a' * 235}-.b", id="cut at a dash"),
        pytest.param(f"{'a.' * 126}b", id="of many parts"),
        pytest.param("System:Node", id="of a kind with other names"),
        pytest.param("", id="none"),
    ],
)
def test_the_name_is_one_that_kubernetes_takes(name: str) -> None:
    found = replace(EVENT, regarding=replace(POD, name=name)).name

    assert len(found) <= 253
    assert SUBDOMAIN.fullmatch(found)


def test_what_has_no_namespace_is_told_in_the_default_one() -> None:
    node = Regarding("v1", "Node", "", "n1", "u")
    tree = json.loads(replace(EVENT, regarding=node).encode(0, "x"))

    assert tree["metadata"]["namespace"] == "default"
    assert "namespace" not in tree["regarding"]


def test_a_long_note_is_cut_between_two_characters() -> None:
    note = cut_note("x" + "é" * 600)

    assert len(note.encode()) <= 1024
    assert note.endswith("é ...")
    assert cut_note("é" * 512) == "é" * 512
