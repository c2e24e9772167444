"""The alerting rules: names that exist, and a part of the page and a test for each."""

import re
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from extender.explain.pending import PendingClass

ROOT: Final = Path(__file__).parents[2]
RULES: Final = ROOT / "deploy" / "chart" / "files" / "alerts.yaml"
UNIT_TESTS: Final = ROOT / "tests" / "chart" / "alerts.promtool.yaml"
SUFFIX: Final = re.compile(r"_(bucket|sum|count)$")
# Of kube-apiserver.
OTHERS: Final = frozenset(
    {
        "apiserver_admission_webhook_fail_open_count",
        "apiserver_admission_webhook_rejection_count",
    }
)


def rules() -> list[dict[str, Any]]:
    groups = yaml.safe_load(RULES.read_text())["groups"]
    return [rule for group in groups for rule in group["rules"]]


def names_on_the_page() -> set[str]:
    """Return all metrics of ours, which another test holds against the code."""
    text = (ROOT / "docs" / "metrics.md").read_text()
    return set(re.findall(r"^\| `(gpu_extender_\w+)` \|", text, re.MULTILINE))


@pytest.mark.parametrize("rule", rules(), ids=lambda rule: str(rule["alert"]))
def test_each_metric_of_a_rule_exists(rule: dict[str, Any]) -> None:
    queries = rule["expr"] + rule["annotations"]["summary"]
    words = re.findall(r"\b(?:gpu_extender|apiserver)_\w+", queries)

    assert words
    assert {SUFFIX.sub("", word) for word in words if word not in OTHERS} <= (
        names_on_the_page()
    )


def test_each_alert_has_a_part_of_the_page() -> None:
    page = (ROOT / "docs" / "alerts.md").read_text()
    parts = re.findall(r"^## (\w+)$", page, re.MULTILINE)

    assert parts == [rule["alert"] for rule in rules()]
    for rule in rules():
        link = f"docs/alerts.md#{rule['alert'].lower()}"
        assert rule["annotations"]["runbook"] == link


def test_each_class_of_pods_that_wait_has_a_line_of_what_to_do() -> None:
    page = (ROOT / "docs" / "alerts.md").read_text()
    rows = re.findall(r"^\| `(\w+)` \|", page, re.MULTILINE)

    without = {PendingClass.GATED, PendingClass.UNJUDGED}  # no alert, and no cause
    assert rows == [name for name in PendingClass if name not in without]


def test_each_alert_has_a_unit_test() -> None:
    tests = yaml.safe_load(UNIT_TESTS.read_text())["tests"]
    raised = {
        row["alertname"]
        for test in tests
        for row in test["alert_rule_test"]
        if row["exp_alerts"]
    }

    assert raised == {rule["alert"] for rule in rules()}
