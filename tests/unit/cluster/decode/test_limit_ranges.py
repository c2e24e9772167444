"""LimitRanges: what is kept of them, and how several come together."""

from fractions import Fraction
from typing import Any

import pytest

from cluster.decode.faults import convert_with_faults
from cluster.decode.limit_ranges import LimitRange, LimitRangeRecord, limit_range_record
from cluster.ledger.changes import LimitRangesListed
from cluster.watch.kinds import Listing, limit_ranges_kind
from scoring.protocols import LimitDefaults, LimitMaxima
from tests.builders import make_ledger

GIB = 2**30


def make_limit_range(
    *limits: dict[str, Any], namespace: str = "ml", name: str = "limits"
) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "LimitRange",
        "metadata": {"namespace": namespace, "name": name, "resourceVersion": "7"},
        "spec": {"limits": list(limits)},
    }


def record_of(tree: dict[str, Any]) -> tuple[LimitRangeRecord, list[str]]:
    found, faults = convert_with_faults(tree, LimitRange)
    assert found is not None
    record, more = limit_range_record(found)
    return record, [str(fault) for fault in (*faults, *more)]


@pytest.mark.parametrize(
    ("limits", "maxima"),
    [
        pytest.param(
            [
                {"type": "Container", "max": {"cpu": "4", "memory": "8Gi"}},
                {"type": "Pod", "max": {"cpu": "16"}},
            ],
            LimitMaxima((("cpu", 4000), ("memory", 8 * GIB)), (("cpu", 16_000),)),
            id="of containers and of pods",
        ),
        pytest.param(
            [
                {"type": "Container", "max": {"cpu": "4"}},
                {"type": "Container", "max": {"cpu": "2", "nvidia.com/gpu": 1}},
            ],
            LimitMaxima((("cpu", 2000), ("nvidia.com/gpu", 1))),
            id="the lowest of several",
        ),
        pytest.param(
            [{"type": "Container", "default": {"cpu": "4"}, "max": None}],
            LimitMaxima(),
            id="defaults alone",
        ),
        pytest.param(
            [{"type": "PersistentVolumeClaim", "max": {"storage": "1Gi"}}],
            LimitMaxima(),
            id="of claims",
        ),
    ],
)
def test_maxima_are_kept(limits: list[dict[str, Any]], maxima: LimitMaxima) -> None:
    record, faults = record_of(make_limit_range(*limits))

    assert (record.key, record.namespace) == ("ml/limits", "ml")
    assert record.maxima == maxima
    assert faults == []


def test_an_amount_that_is_none_is_left_out_and_named() -> None:
    record, faults = record_of(
        make_limit_range({"type": "Pod", "max": {"cpu": "many", "memory": "1Gi"}})
    )

    assert record.maxima == LimitMaxima((), (("memory", GIB),))
    (fault,) = faults
    assert fault.startswith("spec.limits[0].max['cpu']: quantity 'many': ")


def test_defaults_minima_and_ratios_are_kept() -> None:
    record, faults = record_of(
        make_limit_range(
            {
                "type": "Container",
                "default": {"cpu": "2", "memory": "8Gi"},
                "defaultRequest": {"cpu": "1"},
                "min": {"cpu": "100m"},
                "maxLimitRequestRatio": {"cpu": "1500m", "memory": "much"},
            },
            {"type": "Container", "default": {"cpu": "3"}, "min": {"cpu": "50m"}},
            {"type": "Pod", "min": {"cpu": "7"}},
        )
    )

    assert record.defaults == LimitDefaults(
        limits=(("cpu", 2000), ("cpu", 3000), ("memory", 8 * GIB)),
        requests=(("cpu", 1000),),
        minima=(("cpu", 100),),
        ratios=(("cpu", Fraction(3, 2)),),
    )
    (fault,) = faults
    assert fault.startswith("spec.limits[0].maxLimitRequestRatio['memory']: ")


def test_the_strictest_of_several_limit_ranges_counts() -> None:
    kind = limit_ranges_kind()
    low = {"type": "Container", "min": {"cpu": "1"}, "default": {"cpu": "1"}}
    high = {
        "type": "Container",
        "min": {"cpu": "2"},
        "maxLimitRequestRatio": {"cpu": "2"},
    }

    change = listed(
        kind,
        make_limit_range(low),
        make_limit_range(high, name="more"),
        partial=frozenset(),
    )

    assert change.defaults == {
        "ml": LimitDefaults(
            limits=(("cpu", 1000),),
            minima=(("cpu", 2000),),
            ratios=(("cpu", Fraction(2)),),
        )
    }


def listed(kind: Any, *trees: dict[str, Any], partial: frozenset[str]) -> Any:
    records = tuple(record_of(tree)[0] for tree in trees)
    return kind.listed(records, partial)


CPU_4 = make_limit_range({"type": "Container", "max": {"cpu": "4"}})
CPU_2 = make_limit_range({"type": "Container", "max": {"cpu": "2"}}, name="more")
EMPTY = make_limit_range(namespace="other")


def test_of_several_limit_ranges_the_lowest_counts_until_it_goes() -> None:
    kind = limit_ranges_kind()

    all_of_them = listed(kind, CPU_4, CPU_2, EMPTY, partial=frozenset())
    without = kind.gone("ml/more")
    changed = kind.seen(record_of(EMPTY)[0], False)  # noqa: FBT003 - as the watch does
    none = kind.gone("ml/limits")

    assert all_of_them == LimitRangesListed({"ml": LimitMaxima((("cpu", 2000),))})
    assert (
        without == changed == LimitRangesListed({"ml": LimitMaxima((("cpu", 4000),))})
    )
    assert none == LimitRangesListed({})


def test_one_that_stops_decoding_keeps_its_maxima() -> None:
    kind = limit_ranges_kind()
    known = listed(kind, CPU_4, partial=frozenset())
    bad = make_limit_range({"type": "Container", "max": {"cpu": "many"}})

    relisted = listed(kind, bad, partial=frozenset({"ml/limits", "ml/never"}))
    seen = kind.seen(record_of(bad)[0], True)  # noqa: FBT003 - as the watch does

    assert relisted == seen == known


def test_a_page_is_read_and_one_without_a_name_is_named() -> None:
    kind, listing = limit_ranges_kind(), Listing[LimitRangeRecord]()

    kind.read_page(
        b'{"metadata":{"resourceVersion":"9"},"items":['
        b'{"metadata":{"namespace":"ml","name":"a"},"spec":{"limits":'
        b'[{"type":"Pod","max":{"cpu":"1"}}]}},{"metadata":{}}]}',
        listing,
    )

    (record,) = listing.records
    assert record.key == "ml/a"
    assert len(listing.faults) == 1


def test_the_ledger_publishes_what_has_changed() -> None:
    ledger = make_ledger()
    ledger.build()
    maxima = {"ml": LimitMaxima((("cpu", 2000),))}

    ledger.apply(LimitRangesListed(maxima))
    is_new = ledger.has_changes
    snapshot = ledger.build()
    ledger.apply(LimitRangesListed(dict(maxima)))

    assert is_new
    assert snapshot.limit_maxima == maxima
    assert not ledger.has_changes
