"""Amounts in words, as people write them in Kubernetes."""

from typing import Final

from scoring.resources import BYTE_RESOURCES, CPU

_BINARY_UNITS: Final = ("", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei")
_STEP: Final = 1024
_MILLI: Final = 1000


def show_amount(resource: str, amount: int) -> str:
    """Return an amount in base units as a quantity, large ones to one decimal.

    >>> show_amount("cpu", 1500), show_amount("cpu", 64000)
    ('1500m', '64')
    >>> show_amount("memory", 3 * 2**29), show_amount("nvidia.com/gpu", 8)
    ('1.5Gi', '8')
    """
    if resource == CPU:
        cores, rest = divmod(amount, _MILLI)
        return f"{amount}m" if rest else str(cores)
    if resource in BYTE_RESOURCES or resource.startswith("hugepages-"):
        return show_bytes(amount)
    return str(amount)


def show_bytes(amount: int) -> str:
    """Return bytes as a quantity to one decimal.

    >>> show_bytes(80 * 2**30), show_bytes(100), show_bytes(2**40 - 1)
    ('80Gi', '100', '1Ti')
    """
    value, unit = float(amount), 0
    while round(value, 1) >= _STEP and unit < len(_BINARY_UNITS) - 1:
        value /= _STEP
        unit += 1
    return f"{value:.1f}".removesuffix(".0") + _BINARY_UNITS[unit]


def show_free(
    resource: str, asked: int, allocatable: int, requested: int, capacity: int = 0
) -> str:
    """Return what is asked and what there is of one resource.

    >>> show_free("nvidia.com/gpu", 2, 6, 5, 8)
    'asks 2 nvidia.com/gpu: 1 free of 6 (5 requested, capacity 8)'
    """
    free = max(allocatable - requested, 0)
    taken = f"{show_amount(resource, requested)} requested"
    if capacity > allocatable:
        taken += f", capacity {show_amount(resource, capacity)}"
    return (
        f"asks {show_amount(resource, asked)} {resource}: {show_amount(resource, free)}"
        f" free of {show_amount(resource, allocatable)} ({taken})"
    )
