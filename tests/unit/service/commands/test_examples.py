from pathlib import Path
from typing import Final

from service.commands.cli import example_calls

BASE: Final = "http://127.0.0.1:8888"


def test_pages_and_calls_are_printed_ready_to_paste() -> None:
    text = example_calls(BASE, Path("examples"))

    lines = [line.strip() for line in text.splitlines()]
    assert lines[0] == f"gpu-extender serves on {BASE}"
    assert f"{BASE}/readyz/extender" in lines
    assert f"{BASE}/livez/extender" in lines
    assert [line for line in lines if line.startswith("curl ")] == [
        f"curl -s -d @examples/filter.json {BASE}/scheduler/filter",
        f"curl -s -d @examples/prioritize.json {BASE}/scheduler/prioritize",
        f"curl -s -d @examples/preempt.json {BASE}/scheduler/preempt",
        f"curl -s -d @examples/mutate.json {BASE}/mutate",
        f"curl -s '{BASE}/explain?namespace=research&pod=huge-0'",
    ]
