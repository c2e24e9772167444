"""Every example of the page on injection, and every setting is in one."""

import json
import re
from pathlib import Path
from typing import Any, Final

import jsonpatch
import msgspec
import pytest
import yaml

from cluster.ledger.writer import SnapshotCell
from injector.admission import Admission
from injector.review import Answer, decode_review
from service.metrics import Metrics
from service.settings.webhook import InjectionSettings
from service.webhook import Webhook
from tests.builders import make_node, make_snapshot
from tests.extender_app import make_settings
from tests.fakes.webhook import make_review

PAGE: Final = Path(__file__).parents[4] / "docs" / "injection.md"
BLOCK: Final = re.compile(r"^```(yaml|json)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
BLOCKS: Final = BLOCK.findall(PAGE.read_text(encoding="utf-8"))
EXAMPLES: Final[list[dict[str, Any]]] = [
    yaml.safe_load(text) for language, text in BLOCKS if language == "yaml"
]
# The rule file of all examples that have none of their own.
(RULES,) = (text for language, text in BLOCKS if language == "json")


def build_admission(example: dict[str, Any], folder: Path) -> Admission:
    """Return what answers the pods of an example, over its cluster."""
    own = example.get("rules")
    (folder / "rules.json").write_text(RULES if own is None else json.dumps(own))
    nodes = [
        make_node(
            name=f"node-{number}",
            resources=node["offers"],
            labels=node.get("labels"),
            cpu=node.get("cpu", "64"),
            memory=node.get("memory", "256Gi"),
        )
        for number, node in enumerate(example.get("nodes", ()))
    ]
    cell = SnapshotCell()
    cell.publish(make_snapshot(nodes=nodes))
    settings = example.get("settings", {})
    injection = {"rulesFile": "rules.json", **settings.get("injection", {})}
    webhook = Webhook(
        cell, make_settings({**settings, "injection": injection}), Metrics(), folder
    )
    webhook.load_rules()
    return webhook.admission


def submitted(wanted: dict[str, Any]) -> dict[str, Any]:
    """Return a pod of an example as the API server would send it."""
    limits = wanted.get("limits", {})
    containers = [
        {
            "name": name,
            "image": "image",
            "resources": {
                "requests": as_text(asks),
                "limits": as_text(limits.get(name, asks)),
            },
        }
        for name, asks in wanted["asks"].items()
    ]
    metadata: dict[str, Any] = {"generateName": "train-"}
    if "says" in wanted:
        metadata["annotations"] = wanted["says"]
    if "labels" in wanted:
        metadata["labels"] = wanted["labels"]
    spec = {"schedulerName": "default-scheduler", **wanted.get("spec", {})}
    return {"metadata": metadata, "spec": {"containers": containers, **spec}}


def answer_to(
    admission: Admission, pod: dict[str, Any], wanted: dict[str, Any]
) -> Answer:
    """Return the answer to the review of a pod, or to one during which we fail."""
    namespace = wanted.get("namespace", "default")
    review = decode_review(msgspec.json.encode(make_review(pod, namespace=namespace)))
    if wanted.get("weFail"):
        return admission.answer_fault(review, RuntimeError("of the example"))
    return admission.decide(review)


def as_text(amounts: dict[str, Any]) -> dict[str, str]:
    """Return amounts as the API server writes them."""
    return {name: str(amount) for name, amount in amounts.items()}


@pytest.mark.parametrize(
    "example",
    [
        pytest.param(example, id=f"example {number}")
        for number, example in enumerate(EXAMPLES, start=1)
    ],
)
def test_an_example_of_the_page_is_true(
    example: dict[str, Any], tmp_path: Path
) -> None:
    admission = build_admission(example, tmp_path)

    for wanted in example["pods"]:
        pod = submitted(wanted)
        answer = answer_to(admission, pod, wanted)
        assert list(answer.warnings) == wanted.get("warns", [])
        assert answer.message == wanted.get("refused", "")
        assert answer.is_allowed == ("refused" not in wanted)
        patch = msgspec.json.decode(answer.patch) if answer.patch else []
        assert_becomes(wanted, jsonpatch.apply_patch(pod, patch))


def assert_becomes(wanted: dict[str, Any], pod: dict[str, Any]) -> None:
    """Check a pod as the webhook left it."""
    found = {item["name"]: item["resources"] for item in pod["spec"]["containers"]}
    limits = {**wanted.get("limits", {}), **wanted.get("limitsBecome", {})}
    for name, amounts in {**wanted["asks"], **wanted.get("becomes", {})}.items():
        assert found[name] == {
            "requests": as_text(amounts),
            "limits": as_text(limits.get(name, amounts)),
        }
    annotations = {**wanted.get("says", {}), **wanted.get("annotations", {})}
    assert pod["metadata"].get("annotations", {}) == annotations
    spec = {**pod["spec"], "containers": None}
    expected = {
        "schedulerName": "default-scheduler",
        **wanted.get("spec", {}),
        **wanted.get("specBecomes", {}),
    }
    assert spec == {**expected, "containers": None}


def test_every_setting_of_the_injection_is_in_an_example() -> None:
    shown = {
        key
        for example in EXAMPLES
        for key in example.get("settings", {}).get("injection", ())
    }

    assert shown == {
        field.alias or name for name, field in InjectionSettings.model_fields.items()
    }
