from collections.abc import Mapping
from typing import Any, Final

import pytest

from cluster.decode.faults import convert_with_faults
from cluster.decode.objects import PodSpec
from extender.explain.refusals import list_refusals, tell_refusals
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
