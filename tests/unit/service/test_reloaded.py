"""What of a changed configuration a running process takes."""

from typing import Any

import pytest

from service.runtime import merge_settings
from tests.extender_app import make_settings

CHAIN = ["x.com/mig-1g.10gb", "nvidia.com/gpu"]


@pytest.mark.parametrize(
    ("fresh", "kept"),
    [
        pytest.param({}, [], id="nothing"),
        pytest.param({"scoring": {"maxScore": 100}}, [], id="what is taken"),
        pytest.param({"server": {"port": 0}}, ["server"], id="what is not"),
        pytest.param(
            {"managedPrefixes": ["nvidia.com/", "x.com/"]},
            ["managedPrefixes"],
            id="prefixes",
        ),
        pytest.param(
            {
                "managedPrefixes": ["nvidia.com/", "x.com/"],
                "fallback": {"chains": [CHAIN]},
            },
            ["fallback", "managedPrefixes"],
            id="prefixes and chains that take them",
        ),
        pytest.param(
            {"fallback": {"annotations": {"mark": "x.com/weighed"}}},
            ["fallback.annotations"],
            id="names of annotations",
        ),
    ],
)
def test_keys_that_wait_for_a_restart_are_named(
    fresh: dict[str, Any], kept: list[str]
) -> None:
    assert merge_settings(make_settings({}), make_settings(fresh))[1] == kept


def test_chains_of_resources_that_are_not_counted_are_not_taken() -> None:
    old = make_settings({"fallback": {"holdSeconds": 5}})
    fresh = make_settings(
        {
            "managedPrefixes": ["nvidia.com/", "x.com/"],
            "fallback": {"chains": [CHAIN], "holdSeconds": 7},
            "scoring": {"maxScore": 100},
        }
    )

    in_use, _ = merge_settings(old, fresh)

    assert in_use.fallback == old.fallback
    assert in_use.managed_prefixes == old.managed_prefixes
    assert in_use.scoring.max_score == 100


def test_the_names_of_annotations_stay_and_the_chains_are_taken() -> None:
    fresh = make_settings(
        {
            "fallback": {
                "chains": [["nvidia.com/mig-1g.10gb", "nvidia.com/gpu"]],
                "annotations": {"sharing": "x.com/sharing"},
            }
        }
    )

    in_use, _ = merge_settings(make_settings({}), fresh)

    assert in_use.fallback.chains == fresh.fallback.chains
    assert in_use.fallback.annotations.sharing == "gpu-extender.io/sharing"
