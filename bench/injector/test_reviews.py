"""One admission review, bytes in and bytes out, without HTTP around it."""

import gc
import json
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest

from bench.injector.reviews import answer, build_admission, make_body


@pytest.fixture
def frozen() -> Iterator[None]:
    """Take what is there out of the collector's rounds, as the service does."""
    build_admission()
    gc.collect()
    gc.freeze()
    yield
    gc.unfreeze()


@pytest.mark.usefixtures("frozen")
@pytest.mark.parametrize("containers", [3, 10, 30, 100])
def test_a_review_of_a_pod(containers: int, benchmark: Callable[..., Any]) -> None:
    body = make_body(containers)

    answered = benchmark(partial(answer, body))

    response = json.loads(answered)["response"]
    assert response["allowed"]
    assert response["auditAnnotations"]["injection"] == "rule_applied"
