"""Bodies of real kube-schedulers against the real process, answers worked out by hand.

The README beside the bodies shows how each answer follows from the dump.
"""

import json
from pathlib import Path
from typing import Final

import pytest

from tests.service_process import ServiceProcess

CAPTURES: Final = Path(__file__).parent / "captures"
BODIES: Final = [
    path
    for path in sorted(CAPTURES.glob("*/scheduler-*.json"))
    if not path.name.endswith(".response.json")
]


def headers_of(path: Path) -> dict[str, str]:
    """Return the captured headers for a body; its length is its own."""
    kinds = json.loads((path.parent / "headers.json").read_text())
    headers: dict[str, str] = kinds[path.name.partition(".")[0]]
    headers["Content-Length"] = str(path.stat().st_size)
    return headers


def test_there_are_bodies_of_three_versions() -> None:
    versions = {path.parent.name for path in BODIES}

    assert versions == {"1.34", "1.36", "1.37"}
    assert len(BODIES) == 52


@pytest.mark.parametrize(
    "path", BODIES, ids=lambda path: f"{path.parent.name} {path.stem}"
)
def test_a_captured_call_is_answered(
    captured_cluster: ServiceProcess, path: Path
) -> None:
    verb = path.name.partition(".")[0].rpartition("-")[2]
    expected = path.with_suffix(".response.json").read_bytes()

    answer = captured_cluster.request(
        "POST", f"/scheduler/{verb}", path.read_bytes(), headers_of(path)
    )

    assert answer.status == 200
    assert answer.body == expected
    assert answer.headers["content-length"] == str(len(expected))
    assert answer.headers["content-type"] == "application/json"
