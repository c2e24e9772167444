"""What a second webhook may do to a pod."""

from collections.abc import Mapping
from typing import Any, Final

from tests.e2e.harness.builders import JsonObject
from tests.e2e.harness.second_webhook import Change
from tests.fakes.webhook import SHM, both, container

# What a webhook that sets GPUs leaves as others have set it.
OF_OTHERS: Final = frozenset({"cpu", "memory", SHM})


def asks(requests: Mapping[str, str], name: str = "b") -> Change:
    """Return what adds a container, or replaces what it asks."""

    def change(pod: JsonObject) -> None:
        containers = pod["spec"]["containers"]
        for one in containers:
            if one["name"] == name:
                # As a webhook that minds its own: what others have set stays.
                theirs = one["resources"]
                for side in ("requests", "limits"):
                    kept = {
                        key: amount
                        for key, amount in theirs.get(side, {}).items()
                        if key in OF_OTHERS
                    }
                    theirs[side] = {**kept, **requests}
                return
        containers.append(container(name, both(requests)))

    return change


def adds(requests: Mapping[str, str]) -> Change:
    """Return what adds a container, and leaves it alone when it is there."""

    def change(pod: JsonObject) -> None:
        if len(pod["spec"]["containers"]) == 1:
            asks(requests)(pod)

    return change


def has_init(**fields: Any) -> Change:
    """Return what adds an init container with a core."""

    def change(pod: JsonObject) -> None:
        added = container("init", {"requests": {"cpu": "1"}}, **fields)
        pod["spec"]["initContainers"] = [added]

    return change
