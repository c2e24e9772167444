"""How LimitRanges are listed and watched."""

from typing import Final

import msgspec

from cluster.kinds import Kind
from cluster.limit_ranges import (
    LimitRange,
    LimitRangeRecord,
    LimitRangeTable,
    limit_range_key,
    limit_range_record,
)
from cluster.wire import Event, Page

LIMIT_RANGES: Final = "limitranges"


def limit_ranges_kind() -> Kind[LimitRange, LimitRangeRecord]:
    """Return how LimitRanges are read; without the right to, nothing is warned of."""
    table = LimitRangeTable()
    return Kind(
        name=LIMIT_RANGES,
        path="/api/v1/limitranges",
        is_optional=True,
        object_type=LimitRange,
        page_decoder=msgspec.json.Decoder(Page[LimitRange]),
        event_decoder=msgspec.json.Decoder(Event[LimitRange]),
        key_of=limit_range_key,
        record_of=limit_range_record,
        listed=table.listed,
        seen=table.seen,
        gone=table.gone,
    )
