"""The calls that the pages show of the demo are answered as shown."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest
import yaml

from tests.service_process import ServiceProcess

ROOT: Final = Path(__file__).parents[2]
CONFIGS: Final = ROOT / "configs"
README: Final = (ROOT / "README.md").read_text()
# example, path and the answer below it
SHOWN: Final = re.findall(
    r"curl -s -d @(\S+) http://127\.0\.0\.1:8888(\S+)\n\n```json\n(.*)\n```", README
)


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServiceProcess]:
    """The real process with the demo's configuration, on a free port."""
    config = yaml.safe_load((CONFIGS / "demo.yaml").read_text())
    del config["server"]
    config["cluster"]["files"] = [str(CONFIGS / "demo-cluster.yaml")]
    config["injection"]["rulesFile"] = str(CONFIGS / "injection-rules.json")
    with ServiceProcess(tmp_path_factory.mktemp("demo"), config) as service:
        service.wait_ready()
        yield service


def test_the_readme_shows_three_calls_with_their_answers() -> None:
    assert [path for _, path, _ in SHOWN] == [
        "/scheduler/filter",
        "/scheduler/prioritize",
        "/mutate",
    ]


@pytest.mark.parametrize(
    ("example", "path", "answer"), [pytest.param(*call, id=call[0]) for call in SHOWN]
)
def test_the_answer_in_the_readme_is_what_is_answered(
    demo: ServiceProcess, example: str, path: str, answer: str
) -> None:
    sent = demo.request("POST", path, (ROOT / example).read_bytes())

    assert sent.status == 200
    assert sent.body.decode() == answer


def test_the_preempt_example_keeps_the_node_of_the_wanted_type(
    demo: ServiceProcess,
) -> None:
    body = (CONFIGS / "examples" / "preempt.json").read_bytes()
    asked = json.loads(body)["NodeNameToMetaVictims"]

    answer = demo.request("POST", "/scheduler/preempt", body).json()

    assert set(asked) == {"a100-02", "h100-01"}
    assert answer == {"NodeNameToMetaVictims": {"h100-01": asked["h100-01"]}}


def test_the_calls_come_after_what_people_read() -> None:
    assert 0 < README.index("gpu-extender explain -f") < README.index("curl -s -d")


def test_what_the_first_command_needs_is_set_up_before_it() -> None:
    assert 0 < README.index("    make setup ") < README.index("    .venv/bin/")
    makefile = (ROOT / "Makefile").read_text()
    assert "\nsetup: $(READY) " in makefile


@pytest.mark.parametrize("page", ["README.md", "docs/extender.md"])
def test_the_pod_whose_explanation_is_shown_is_there(
    demo: ServiceProcess, page: str
) -> None:
    (target,) = re.findall(
        r"curl -s 'http://127\.0\.0\.1:8888(/explain\S+)'", (ROOT / page).read_text()
    )

    answer = demo.get(target)

    assert answer.status == 200
    assert answer.json()["pod"]["origin"] == "pending"
