from collections.abc import Mapping
from fractions import Fraction
from typing import Any, Final

import pytest

from cluster.decode.faults import convert_with_faults
from cluster.decode.objects import PodSpec
from extender.explain.refusals import (
    list_limit_refusals,
    list_refusals,
    tell_refusals,
)
from scoring.protocols import LimitDefaults, LimitMaxima
from tests.builders import GPU, Tree, make_container

PAGES: Final = "hugepages-2Mi"
AT: Final = "spec.containers[0].resources"
LIMIT_WANTED: Final = (
    "limits: Required value: Limit must be set for non overcommitable resources"
)


def refusals_of(*containers: Tree, **more: Any) -> list[str]:
    spec, faults = convert_with_faults(
        {"containers": list(containers), **more}, PodSpec
    )
    assert spec is not None
    assert not faults
    return [refusal.text for refusal in list_refusals(spec)]


@pytest.mark.parametrize(
    ("requests", "limits", "told"),
    [
        pytest.param(None, {GPU: 1}, [], id="a limit alone"),
        pytest.param({GPU: "1"}, {GPU: 1}, [], id="equal"),
        pytest.param({"cpu": "500m"}, {"cpu": 4}, [], id="less CPU"),
        pytest.param({"cpu": 4}, None, [], id="CPU without a limit"),
        pytest.param({GPU: 1}, None, [f".{LIMIT_WANTED}"], id="no limit"),
        pytest.param(
            None,
            {GPU: "500m"},
            [
                f'.{side}[{GPU}]: Invalid value: "500m": must be an integer'
                for side in ("limits", "requests")
            ],
            id="half a GPU",
        ),
        pytest.param(
            {GPU: 1},
            {GPU: 4},
            [f'.requests: Invalid value: "1": must be equal to {GPU} limit of 4'],
            id="unequal",
        ),
        pytest.param(
            {"cpu": 2, "memory": "2048Mi"},
            {"cpu": 0.5, "memory": "1Gi"},
            [
                f'.requests: Invalid value: "{asked}": must be less than or equal to'
                f" {name} limit of {limit}"
                for asked, name, limit in (
                    ("2", "cpu", "500m"),
                    ("2Gi", "memory", "1Gi"),
                )
            ],
            id="more than the limit",
        ),
        pytest.param(
            {PAGES: "4Mi"},
            {PAGES: "4Mi"},
            [": Forbidden: HugePages require cpu or memory"],
            id="huge pages alone",
        ),
        pytest.param(
            {PAGES: "2Mi", "cpu": 1},
            {PAGES: "4Mi"},
            [f'.requests: Invalid value: "2Mi": must be equal to {PAGES} limit of 4Mi'],
            id="unequal huge pages",
        ),
    ],
)
def test_amounts_are_refused_as_the_api_server_does(
    requests: Mapping[str, Any] | None,
    limits: Mapping[str, Any] | None,
    told: list[str],
) -> None:
    found = refusals_of(make_container(requests=requests, limits=limits))

    assert found == [AT + text for text in told]


def test_all_containers_and_the_pod_as_a_whole_are_looked_at() -> None:
    bare = make_container(requests={GPU: 1})

    told = refusals_of(
        make_container(),
        bare,
        initContainers=[bare],
        resources={"requests": {"cpu": 2}, "limits": {"cpu": 1}},
    )

    assert [text.partition(":")[0] for text in told] == [
        "spec.initContainers[0].resources.limits",
        "spec.containers[1].resources.limits",
        "spec.resources.requests",
    ]


def test_what_is_refused_is_told_with_what_mends_it() -> None:
    spec, _ = convert_with_faults(
        {"containers": [make_container(requests={GPU: 1})] * 3}, PodSpec
    )
    assert spec is not None

    told, remedy = tell_refusals(list_refusals(spec, "spec.template."))

    first, _, last = told.partition("; ")
    assert first == f"spec.template.{AT}.{LIMIT_WANTED}"
    assert last.endswith("; and 1 more")
    assert remedy == "state nvidia.com/gpu under limits, as under requests"


GIB: Final = 2**30
MAXIMA: Final = LimitMaxima(
    container=(("cpu", 4000), ("memory", 8 * GIB), (GPU, 4)), pod=(("cpu", 6000),)
)
DEFAULTS: Final = LimitDefaults(
    limits=(("cpu", 4000),),
    minima=(("cpu", 500), ("memory", GIB)),
    ratios=(("memory", Fraction(2)),),
)


@pytest.mark.parametrize(
    ("requests", "limits", "told"),
    [
        pytest.param(None, None, [], id="filled in by LimitRanger"),
        pytest.param({"cpu": "2"}, {"cpu": "4"}, [], id="within"),
        pytest.param({"cpu": "4"}, None, [], id="a request at the maximum"),
        pytest.param(
            None, {"cpu": "8"},
            ["maximum cpu usage per Container is 4, but limit is 8",
             "maximum cpu usage per Pod is 6, but limit is 8"],
            id="a limit above",
        ),
        pytest.param(
            {"cpu": "4001m"}, None,
            ["maximum cpu usage per Container is 4, but request is 4001m"],
            id="a request above, by a thousandth",
        ),
        pytest.param(
            None, {GPU: 8},
            [f"maximum {GPU} usage per Container is 4, but limit is 8"], id="GPUs",
        ),
        pytest.param(
            {"cpu": "250m"}, {"cpu": "1"},
            ["minimum cpu usage per Container is 500m, but request is 250m"],
            id="a request below",
        ),
        pytest.param(
            None, {"memory": "512Mi"},
            ["minimum memory usage per Container is 1Gi, but request is 512Mi"],
            id="a limit below is the request, too",
        ),
        pytest.param(
            {"memory": "2Gi"}, {"memory": "6Gi"},
            [("memory max limit to request ratio per Container is 2, but provided"
              " ratio is 3.000000")],
            id="a ratio above",
        ),
        pytest.param({"memory": "2Gi"}, {"memory": "4Gi"}, [], id="a ratio within"),
        pytest.param({"memory": "2Gi"}, None, [], id="a ratio without a limit"),
    ],
)  # fmt: skip
def test_what_a_limit_range_refuses_of_stated_amounts_is_told(
    requests: Mapping[str, Any] | None,
    limits: Mapping[str, Any] | None,
    told: list[str],
) -> None:
    container = make_container(requests=requests or {}, limits=limits or {})
    spec, _ = convert_with_faults({"containers": [container]}, PodSpec)
    assert spec is not None

    found = list_limit_refusals(spec, MAXIMA, DEFAULTS)

    assert [refusal.text for refusal in found] == told


def test_containers_are_summed_against_what_a_pod_may_have() -> None:
    containers = [make_container(name=n, requests={"cpu": "4"}) for n in "ab"]
    init = make_container(name="i", requests={"cpu": "9"})
    tree = {"containers": containers, "initContainers": [init]}
    spec, _ = convert_with_faults(tree, PodSpec)
    as_a_whole, _ = convert_with_faults({**tree, "resources": {}}, PodSpec)
    assert spec is not None
    assert as_a_whole is not None

    found = list_limit_refusals(spec, MAXIMA, DEFAULTS)

    assert [(refusal.text, refusal.remedy) for refusal in found] == [
        (
            "maximum cpu usage per Container is 4, but request is 9",
            "ask for at most 4 cpu in container 'i', or have that max changed",
        ),
        (
            "maximum cpu usage per Pod is 6, but request is 8",
            "ask for at most 6 cpu in all containers, or have that max changed",
        ),
    ]
    assert len(list_limit_refusals(as_a_whole, MAXIMA, DEFAULTS)) == 1
