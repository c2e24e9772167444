"""Warnings for annotations that look like ours."""

from typing import Final

import pytest

from injector.warnings.names import NameCheck
from tests.builders import SCOPE
from tests.fakes.webhook import (
    TRIGGER,
    Webhook,
    container,
    gpus,
    make_pod,
    make_webhook,
)

TYPE: Final = "gpu-extender.io/gpu-type"
MEMORY: Final = "gpu-extender.io/min-gpu-memory"
LABEL: Final = "gpu-extender.io/scheduler"
KNOWN: Final = frozenset(
    {TYPE, MEMORY, TRIGGER, "gpu-extender.io/sharing", "gpu-extender.io/fallback"}
)


def checking() -> Webhook:
    return make_webhook(steps=(NameCheck(SCOPE, KNOWN, frozenset({LABEL})),))


@pytest.mark.parametrize(
    ("key", "said"),
    [
        pytest.param(
            "gpu-extender.io/gputype",
            f"is not known, has no effect; did you mean {TYPE}?",
            id="without its dash",
        ),
        pytest.param(
            "gpu-extender.io/GPU-Type",
            f"is not known, has no effect; did you mean {TYPE}?",
            id="with capitals",
        ),
        pytest.param(
            "gpu-extender.io/min-memory",
            f"is not known, has no effect; did you mean {MEMORY}?",
            id="a part of it",
        ),
        pytest.param(
            "gpu-extender.io/shared",
            "is not known, has no effect; did you mean gpu-extender.io/sharing?",
            id="another form",
        ),
        pytest.param(
            "gpu-extender.io/fallbacks",
            "is not known, has no effect; did you mean gpu-extender.io/fallback?",
            id="a plural",
        ),
        pytest.param(
            "task.bkbcs.tencent.com/gpu_type",
            f"has no effect; did you mean {TRIGGER}?",
            id="the trigger with another separator",
        ),
    ],
)
def test_a_misspelled_annotation_is_told(key: str, said: str) -> None:
    pod = make_pod(container("a", gpus(1)), gpu_type=None, annotations={key: "x"})

    assert checking().send(pod).warnings == [f"annotation {key!r} {said}"]


def test_an_annotation_that_is_like_none_is_told() -> None:
    key = "gpu-extender.io/zzz-qqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqq"
    pod = make_pod(container("a", gpus(1)), gpu_type=None, annotations={key: "x"})

    assert checking().send(pod).warnings == [
        f"annotation {key!r} is not known, has no effect"
    ]


def test_annotations_and_labels_that_are_mixed_up_are_told() -> None:
    pod = make_pod(
        container("a", gpus(1)),
        gpu_type=None,
        annotations={LABEL: "keep"},
        metadata={"labels": {TYPE: "H100", LABEL: "keep"}},
    )

    assert checking().send(pod).warnings == [
        f"annotation {LABEL} has no effect: it is read from the labels",
        f"label {TYPE} has no effect: it is read from the annotations",
    ]


@pytest.mark.parametrize(
    ("key", "hint"),
    [
        pytest.param("gpu-extender.io/schedular", LABEL, id="a letter"),
        pytest.param("gpu-extender.io/scheduler-name", LABEL, id="more than it"),
        pytest.param("gpu-extender.io/Scheduler", LABEL, id="with capitals"),
        pytest.param(
            "gpu-extender.io/zzz-qqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqq",
            "",
            id="like none",
        ),
    ],
)
def test_a_misspelled_label_is_told(key: str, hint: str) -> None:
    pod = make_pod(
        container("a", gpus(1)), gpu_type=None, metadata={"labels": {key: "keep"}}
    )

    meant = f"; did you mean {hint}?" if hint else ""
    assert checking().send(pod).warnings == [
        f"label {key!r} is not known, has no effect{meant}"
    ]


@pytest.mark.parametrize(
    ("key", "meant"),
    [
        pytest.param("gpu-extender.io/gputype", TYPE, id="without its dash"),
        pytest.param("gpu-extender.io/min-memory", MEMORY, id="a part of it"),
        pytest.param(
            "gpu-extender.io/fallbacks", "gpu-extender.io/fallback", id="a plural"
        ),
    ],
)
def test_a_misspelled_annotation_among_the_labels_is_told(key: str, meant: str) -> None:
    pod = make_pod(
        container("a", gpus(1)), gpu_type=None, metadata={"labels": {key: "x"}}
    )

    assert checking().send(pod).warnings == [
        (
            f"label {key!r} is not known, has no effect; did you mean the annotation"
            f" {meant}?"
        )
    ]


@pytest.mark.parametrize("key", ["example.org/scheduler", "app", LABEL])
def test_other_labels_are_passed_over(key: str) -> None:
    pod = make_pod(
        container("a", gpus(1)), gpu_type=None, metadata={"labels": {key: "keep"}}
    )

    assert checking().send(pod).warnings == []


@pytest.mark.parametrize("key", [TYPE, "example.org/gputype", "x"])
def test_other_annotations_are_passed_over(key: str) -> None:
    pod = make_pod(container("a", gpus(1)), gpu_type=None, annotations={key: "H100"})

    assert checking().send(pod).warnings == []


def test_a_pod_without_gpus_is_not_told() -> None:
    key = "gpu-extender.io/gputype"

    pod = make_pod(container("a"), gpu_type=None, annotations={key: "H100"})

    assert checking().send(pod).warnings == []


def test_of_many_only_some_are_told() -> None:
    keys = {f"gpu-extender.io/a{index}": "" for index in range(1000)}

    pod = make_pod(container("a", gpus(1)), gpu_type=None, annotations=keys)

    assert len(checking().send(pod).warnings) == 4
