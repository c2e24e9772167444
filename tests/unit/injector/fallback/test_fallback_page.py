"""Every example of the page on MIG fallback, and every setting is in one."""

import re
import time
from pathlib import Path
from typing import Any, Final

import jsonpatch
import msgspec
import pytest
import yaml

from cluster.ledger.writer import SnapshotCell
from injector.review import decode_review
from service.metrics import Metrics
from service.settings.webhook import FallbackAnnotationSettings, FallbackSettings
from service.webhook import Webhook
from tests.builders import make_node, make_pod, make_snapshot
from tests.extender_app import make_settings
from tests.fakes.webhook import make_review

PAGE: Final = Path(__file__).parents[4] / "docs" / "fallback.md"
BLOCK: Final = re.compile(r"^```yaml\n(.*?)^```$", re.MULTILINE | re.DOTALL)
EXAMPLES: Final[list[dict[str, Any]]] = [
    yaml.safe_load(block) for block in BLOCK.findall(PAGE.read_text(encoding="utf-8"))
]
RFC_3339: Final = "%Y-%m-%dT%H:%M:%SZ"


def build_webhook(example: dict[str, Any]) -> Webhook:
    """Return the webhook of an example, over its cluster."""
    nodes = [
        make_node(
            name=f"node-{number}", resources=node["offers"], labels=node.get("labels")
        )
        for number, node in enumerate(example["nodes"])
    ]
    pending = [
        make_pod(
            name=f"pending-{number}",
            requests=pod["asks"],
            status={"conditions": [unschedulable_for(pod["unschedulableForSeconds"])]},
        )
        for number, pod in enumerate(example.get("pending", ()))
    ]
    cell = SnapshotCell()
    cell.publish(make_snapshot(nodes=nodes, pods=pending))
    return Webhook(cell, make_settings(example["settings"]), Metrics(), Path())


def unschedulable_for(seconds: int) -> dict[str, str]:
    since = time.strftime(RFC_3339, time.gmtime(time.time() - seconds))
    return {
        "type": "PodScheduled",
        "status": "False",
        "reason": "Unschedulable",
        "lastTransitionTime": since,
    }


def admitted(webhook: Webhook, number: int, wanted: dict[str, Any]) -> dict[str, Any]:
    """Return a pod of an example as the webhook leaves it."""
    pod = make_pod(
        name=f"pod-{number}",
        requests=as_text(wanted["asks"]),
        annotations=wanted.get("says"),
        spec=wanted.get("spec"),
    )
    del pod["status"]
    review = make_review(pod, namespace=wanted.get("namespace", "default"))
    answer = webhook.admission.decide(decode_review(msgspec.json.encode(review)))
    assert answer.is_allowed
    patch = msgspec.json.decode(answer.patch) if answer.patch else []
    changed: dict[str, Any] = jsonpatch.apply_patch(pod, patch)
    return changed


def as_text(amounts: dict[str, int]) -> dict[str, str]:
    """Return amounts as the API server writes them."""
    return {name: str(amount) for name, amount in amounts.items()}


def kept_off(pod: dict[str, Any]) -> list[str]:
    """Return the values that the affinity of a pod keeps out."""
    required = pod["spec"].get("affinity", {}).get("nodeAffinity", {})
    return [
        value
        for selector in required.values()
        for term in selector["nodeSelectorTerms"]
        for item in term["matchExpressions"]
        if item["operator"] == "NotIn"
        for value in item["values"]
    ]


@pytest.mark.parametrize(
    "example",
    [
        pytest.param(example, id=f"example {number}")
        for number, example in enumerate(EXAMPLES, start=1)
    ],
)
def test_an_example_of_the_page_is_true(example: dict[str, Any]) -> None:
    webhook = build_webhook(example)

    for number, wanted in enumerate(example["pods"]):
        pod = admitted(webhook, number, wanted)
        (container,) = pod["spec"]["containers"]
        becomes = as_text(wanted["becomes"])
        assert container["resources"] == {"requests": becomes, "limits": becomes}
        annotations = pod["metadata"]["annotations"]
        assert wanted.get("annotations", {}).items() <= annotations.items()
        assert kept_off(pod) == wanted.get("keptOff", [])


def test_every_setting_of_the_fallback_is_in_an_example() -> None:
    sections = [example["settings"]["fallback"] for example in EXAMPLES]
    shown = {key for section in sections for key in section}
    names = {key for section in sections for key in section.get("annotations", ())}

    assert shown == aliases(FallbackSettings)
    assert names == aliases(FallbackAnnotationSettings)


def aliases(model: type[FallbackSettings | FallbackAnnotationSettings]) -> set[str]:
    """Return the keys of a section as the configuration has them."""
    return {field.alias or name for name, field in model.model_fields.items()}
