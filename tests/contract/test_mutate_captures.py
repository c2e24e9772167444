"""Reviews as a real API server sends them, answered under the rules of a V100.

The rules give 4 cores and 8Gi for each GPU, and one annotation.
"""

import base64
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import jsonpatch
import pytest

from injector.rules.file import load_rules
from tests.defaults import RULE_CONTEXT
from tests.fakes.webhook import NETWORKS, make_webhook

ROOT = Path(__file__).parent.parent.parent
CAPTURES = Path(__file__).parent / "captures"
MINORS = ("1.34", "1.36", "1.37")
PLAIN = ("dry-0", "fill-1", "infer-0", "mig-0", "urgent-0", "x")


def operations(main: dict[str, str]) -> list[dict[str, str]]:
    resources = "/spec/containers/0/resources"
    network = "/metadata/annotations/" + NETWORKS.replace("/", "~1")
    return [
        {"op": "add", "path": network, "value": "tke-route-eni"},
        *(
            {"op": "replace", "path": f"{resources}/{side}/{name}", "value": value}
            for side in ("limits", "requests")
            for name, value in main.items()
        ),
    ]


def answer_to(body: bytes) -> tuple[bytes, dict[str, Any]]:
    result = make_webhook().client.simulate_post("/mutate", body=body)
    assert result.status_code == 200
    assert result.headers["content-type"] == "application/json"
    return result.content, result.json


@pytest.mark.parametrize("minor", MINORS)
@pytest.mark.parametrize("name", PLAIN)
def test_a_pod_without_a_gpu_type_is_allowed_as_it_is(minor: str, name: str) -> None:
    body = (CAPTURES / minor / f"mutate.{name}.json").read_bytes()

    _, answer = answer_to(body)

    assert answer == {
        "apiVersion": "admission.k8s.io/v1",
        "kind": "AdmissionReview",
        "response": {"uid": json.loads(body)["request"]["uid"], "allowed": True},
    }


@pytest.mark.parametrize(
    ("minor", "name", "amounts"),
    [
        # 4 GPUs; it asked cpu 8, and memory 32Gi already
        *(pytest.param(minor, "train-0", {"cpu": "16"}, id=minor) for minor in MINORS),
        # 2 GPUs; the sidecar asks cpu 1, memory 2Gi
        *(
            pytest.param(minor, "mixed-0", {"cpu": "7", "memory": "14Gi"}, id=minor)
            for minor in MINORS
        ),
        # 1 GPU, cpu 2 and memory 8Gi, all of it from a LimitRange
        pytest.param("1.36", "limitrange-0", {"cpu": "4"}, id="LimitRange, one GPU"),
        # 2 GPUs, cpu 2 and memory 8Gi from a LimitRange
        pytest.param(
            "1.36",
            "limitrange-1",
            {"cpu": "8", "memory": "16Gi"},
            id="LimitRange, two GPUs",
        ),
    ],
)
def test_a_pod_with_a_gpu_type_gets_its_share(
    minor: str, name: str, amounts: dict[str, str]
) -> None:
    body = (CAPTURES / minor / f"mutate.{name}.json").read_bytes()
    review = json.loads(body)

    _, answer = answer_to(body)

    response = answer["response"]
    assert response["uid"] == review["request"]["uid"]
    assert response["allowed"]
    patch = json.loads(base64.b64decode(response["patch"]))
    assert patch == operations(amounts)
    review["request"]["object"] = jsonpatch.apply_patch(
        review["request"]["object"], patch
    )
    _, second = answer_to(json.dumps(review).encode())
    assert "patch" not in second["response"]


@pytest.mark.parametrize("name", ["mixed-0", "limitrange-1", "x"])
def test_answers_are_these_bytes(name: str) -> None:
    golden = Path(__file__).parent / f"mutate_{name}.response.json"

    content, _ = answer_to((CAPTURES / "1.36" / f"mutate.{name}.json").read_bytes())

    assert content + b"\n" == golden.read_bytes()


def test_answers_do_not_depend_on_the_seed_of_hashes() -> None:
    program = (
        "import sys; from tests.contract.test_mutate_captures import answer_to;"
        "sys.stdout.buffer.write(answer_to(sys.stdin.buffer.read())[0])"
    )
    body = (CAPTURES / "1.36" / "mutate.mixed-0.json").read_bytes()

    answers = {
        subprocess.run(  # noqa: S603 -- our own interpreter and program
            [sys.executable, "-c", program],
            input=body,
            capture_output=True,
            check=True,
            cwd=ROOT,
            env={**os.environ, "PYTHONHASHSEED": seed},
        ).stdout
        for seed in ("0", "1", "4242")
    }

    assert answers == {answer_to(body)[0]}


def test_the_sample_rules_load() -> None:
    rules = load_rules(ROOT / "configs" / "injection-rules.json", RULE_CONTEXT)

    assert set(rules.default) == {"V100", "A100", "H100"}
    assert set(rules.of_type("any", "A100")) == {
        "nvidia.com/gpu",
        "nvidia.com/mig-3g.40gb",
        "nvidia.com/mig-2g.20gb",
        "nvidia.com/mig-1g.10gb",
    }
    assert rules.of_type("gpu-training", "V100") != rules.of_type("any", "V100")
