"""A draft of a pod, which leaves the pod alone, and the patch back from it."""

import json
from typing import Any, Final

import pytest

from injector.patch import draft_of, json_patch

GPU: Final = "nvidia.com/gpu"


def make_full_pod() -> dict[str, Any]:
    amounts = {"requests": {GPU: "1"}, "limits": {GPU: "1"}}
    container = {"name": "a", "env": [{"name": "x"}], "resources": amounts}
    tree = {
        "apiVersion": "v1",
        "metadata": {"annotations": {"a": "b"}, "labels": {"app": "x"}},
        "spec": {
            "containers": [container, {**container, "name": "b", "resources": {}}],
            "initContainers": [container],
            "affinity": {"nodeAffinity": {"preferred": [{"weight": 1}]}},
            "tolerations": [{"key": "k"}],
            "volumes": [{"name": "data"}],
        },
    }
    copied: dict[str, Any] = json.loads(json.dumps(tree))
    return copied


@pytest.mark.parametrize(
    "pod",
    [
        pytest.param(make_full_pod(), id="with everything"),
        pytest.param({"spec": {"containers": [{}]}}, id="with nothing in it"),
        pytest.param({}, id="empty"),
        pytest.param(
            {
                "metadata": {"annotations": None},
                "spec": {
                    "containers": [{"resources": None}, {"resources": {"limits": {}}}],
                    "initContainers": None,
                    "affinity": None,
                    "tolerations": None,
                },
            },
            id="with null members",
        ),
    ],
)
def test_a_draft_equals_its_pod(pod: dict[str, Any]) -> None:
    assert draft_of(pod) == pod


def test_what_steps_change_in_a_draft_is_its_own() -> None:
    pod = make_full_pod()
    pod["spec"]["containers"][1]["resources"] = {"requests": {}}

    draft = draft_of(pod)
    draft["metadata"]["annotations"]["mark"] = "x"
    draft["metadata"]["name"] = "y"
    spec = draft["spec"]
    spec["schedulerName"] = "gpu"
    spec["tolerations"].append({"key": "other"})
    spec["affinity"]["nodeAffinity"]["preferred"][0]["weight"] = 2
    for container in (*spec["containers"], *spec["initContainers"]):
        container["resources"].setdefault("requests", {})["cpu"] = "1"
        container["resources"].setdefault("limits", {})["cpu"] = "1"

    expected = make_full_pod()
    expected["spec"]["containers"][1]["resources"] = {"requests": {}}
    assert pod == expected
    # what no step changes is not copied
    assert spec["volumes"] is pod["spec"]["volumes"]
    assert spec["containers"][0]["env"] is pod["spec"]["containers"][0]["env"]


def test_slash_and_tilde_of_a_key_are_escaped() -> None:
    assert json_patch({"a": {}}, {"a": {"b/c~d": 1}}) == [
        {"op": "add", "path": "/a/b~1c~0d", "value": 1}
    ]
