"""Which known names of GPU models may be meant by one that nobody knows."""

import difflib
import re
from typing import Final

from scoring.demand_annotations import MAX_NAME
from scoring.gpu_models import GpuTable, normal_name

MAX_NEAR: Final = 3
_SEPARATORS: Final = re.compile(r"[\s/+]+")


def separated(table: GpuTable, name: str) -> tuple[str, ...]:
    """Return the known names that `name` consists of; none unless all are known.

    >>> from scoring.gpu_data import default_table
    >>> separated(default_table(), "H100 A100")
    ('H100', 'A100')
    """
    words = tuple(filter(None, _SEPARATORS.split(name)))
    return words if len(words) > 1 and all(map(table.find, words)) else ()


def near_names(table: GpuTable, name: str) -> tuple[str, ...]:
    """Return models and families whose names are spelled much alike, best first.

    >>> from scoring.gpu_data import default_table
    >>> near_names(default_table(), "A100-80")
    ('A100-80GB', 'H100-80GB', 'A800-80GB')
    """
    if len(name) > MAX_NAME:
        return ()
    models = table.models.values()
    names = sorted({own for item in models for own in (item.name, *item.families)})
    written = {normal_name(own): own for own in names}
    found = difflib.get_close_matches(normal_name(name), list(written), MAX_NEAR)
    return tuple(written[normal] for normal in found)
