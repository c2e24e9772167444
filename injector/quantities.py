"""Quantities as Go prints them, and the whole-unit arithmetic of the injector."""

import math
from collections.abc import Sequence
from fractions import Fraction
from functools import lru_cache
from typing import Final

from scoring.resources import QuantityError, exact_quantity, scale_of, shorten

_BINARY_SUFFIXES: Final = ("", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei")
_DECIMAL_SUFFIXES: Final = ("n", "u", "m", "", "k", "M", "G", "T", "P", "E")
_SMALLEST: Final = 10**9  # nano, the first decimal suffix
# A total this close to a whole unit is meant to be one: 14 x 2.357142857142857 is 33.
_PRECISION: Final = 10**6
# Far above every limit, and below what Python refuses to print as decimal digits.
_MAX_BITS: Final = 1024
_MAX_REMEMBERED: Final = 32  # characters


def format_quantity(value: Fraction, *, is_binary: bool = False) -> str:
    """Return the canonical text of a value in cores, bytes or pieces.

    Parameters
    ----------
    value : Fraction
        Zero or more. What is finer than a billionth is rounded up.
    is_binary : bool
        Whether ``Ki``, ``Mi`` and so on are used where they are exact.

    Notes
    -----
    The rule is that of ``CanonicalizeBytes`` in
    ``k8s.io/apimachinery/pkg/api/resource``: binary values below 1024 and broken ones
    print as decimal.

    Examples
    --------
    >>> format_quantity(Fraction(1536 * 2**20), is_binary=True)
    '1536Mi'
    >>> format_quantity(Fraction(15, 2)), format_quantity(Fraction(1000000))
    ('7500m', '1M')
    """
    if is_binary and value >= 1024 and value.denominator == 1:  # noqa: PLR2004 -- 1Ki
        return _scaled(value.numerator, 1024, _BINARY_SUFFIXES)
    if not value:
        return "0"
    return _scaled(math.ceil(value * _SMALLEST), 1000, _DECIMAL_SUFFIXES)


def _scaled(number: int, base: int, suffixes: Sequence[str]) -> str:
    """Return `number` with the largest suffix that leaves it whole."""
    power = 0
    while number % base == 0 and power < len(suffixes) - 1:
        number //= base
        power += 1
    return f"{number}{suffixes[power]}"


# PERF: pods of one template say the same; `bench/test_reviews.py`.
_remembered: Final = lru_cache(maxsize=4096)(exact_quantity)


def exact_amount(value: object) -> Fraction:
    """Return a decoded quantity, text or JSON number, in cores, bytes or pieces.

    Raises `QuantityError`.

    >>> exact_amount("1500m"), exact_amount(2)
    (Fraction(3, 2), Fraction(2, 1))
    """
    if isinstance(value, str):
        return (
            _remembered(value)
            if len(value) <= _MAX_REMEMBERED
            else exact_quantity(value)
        )
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise QuantityError(shorten(value), "neither text nor a number")
    if isinstance(value, int) and value.bit_length() > _MAX_BITS:
        raise QuantityError("a number of many digits", "too large")
    return exact_quantity(repr(value))


def whole_total(resource: str, per_gpu: Fraction, gpus: int) -> int:
    """Return what `gpus` GPUs are worth, in whole base units of `resource`.

    The exact product is rounded to a millionth of a base unit, then floored to one.

    >>> whole_total("x.example/core", Fraction("2.357142857142857"), 14)
    33
    """
    exact = per_gpu * (gpus * scale_of(resource))
    if exact.denominator == 1:
        return exact.numerator
    return round(exact * _PRECISION) // _PRECISION


def split_by_gpus(pool: int, gpus: Sequence[int]) -> list[int]:
    """Share `pool` base units by GPU count, to the last unit.

    Parameters
    ----------
    pool : int
        Zero or more.
    gpus : sequence of int
        GPUs of each container, at least one each.

    Returns
    -------
    list of int
        One share for each container; their sum is `pool`. What does not divide goes
        one unit at a time to the largest fraction, on a tie to the lower index.

    Examples
    --------
    >>> split_by_gpus(11500, [1, 2])
    [3833, 7667]
    """
    total = sum(gpus)
    shares = [pool * count // total for count in gpus]
    by_fraction = sorted(
        range(len(gpus)), key=lambda index: -(pool * gpus[index] % total)
    )
    for index in by_fraction[: pool - sum(shares)]:
        shares[index] += 1
    return shares
