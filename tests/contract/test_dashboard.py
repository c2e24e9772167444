"""The dashboard: as the script makes it, of metrics that exist, without overlaps."""

import json
import re
from pathlib import Path
from typing import Any, Final

from deploy import dashboard

ROOT: Final = Path(__file__).parents[2]


def test_the_dashboard_is_what_the_script_writes() -> None:
    text = json.dumps(dashboard.build(), indent=2, ensure_ascii=False) + "\n"

    assert dashboard.DASHBOARD.read_text(encoding="utf-8") == text


def test_each_metric_of_a_query_exists() -> None:
    page = (ROOT / "docs" / "metrics.md").read_text()
    names = set(re.findall(r"^\| `(\w+)` \|", page, re.MULTILINE))

    for panel in dashboard.panels():
        for query in panel.queries.values():
            words = re.findall(r"\b(?:gpu_extender|process)_\w+", query)
            used = {re.sub(r"_(bucket|count|sum)$", "", word) for word in words}
            assert used <= names, panel.title
            assert used or "apiserver_" in query


def test_each_legend_names_labels_that_its_query_keeps() -> None:
    for panel in dashboard.panels():
        for legend, query in panel.queries.items():
            for label in re.findall(r"{{(\w+)}}", legend):
                assert label in query or "by (" not in query


def test_panels_lie_beside_each_other() -> None:
    taken: set[tuple[int, int]] = set()
    for panel in dashboard.build()["panels"]:
        place: Any = panel["gridPos"]
        cells = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert not cells & taken
        assert max(x for x, _ in cells) < 24
        taken |= cells
