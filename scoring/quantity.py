"""Quantities: text to whole base units or exact values, and back.

The base unit is the millicore for ``cpu``, the byte for memory and storage, and one
piece for everything else.
"""

import math
import re
import reprlib
from collections.abc import Sequence
from fractions import Fraction
from functools import lru_cache
from typing import Final

from scoring.resources import BYTE_RESOURCES, CPU

MAX_QUANTITY: Final = 2**63 - 1

# Characters. What a request names is looked at before Kubernetes has checked it: what
# is longer than a quantity or the name of a resource can be is not kept.
_MAX_REMEMBERED_TEXT: Final = 32

_BINARY: Final = {"Ki": 1, "Mi": 2, "Gi": 3, "Ti": 4, "Pi": 5, "Ei": 6}

_DECIMAL: Final = {
    "n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18,
}  # fmt: skip

_QUANTITY: Final = re.compile(
    r"([+-]?)(\d*)(?:\.(\d*))?([KMGTPE]i|[numkMGTPE]|[eE][+-]?\d+|)", re.ASCII
)

_MAX_SHOWN_BITS: Final = 256

# Any magnitude outside these powers of ten is the cap, or less than one base unit.
_MAGNITUDE_LIMIT: Final = 60


class QuantityError(ValueError):
    """A resource quantity that Kubernetes would not accept.

    Attributes
    ----------
    text : str
        The quantity as received.
    reason : str
        What is wrong with it, in lower case and without a full stop.
    """

    def __init__(self, text: str, reason: str) -> None:
        super().__init__(f"quantity {shorten(text)}: {reason}")
        self.text = text
        self.reason = reason


def shorten(value: object, limit: int = 80) -> str:
    """Return ``repr(value)``, cut to about `limit` characters for a message.

    Whatever the value, this is quick and raises nothing: lists and mappings are cut
    before they are printed, and of a very long whole number the length is told.
    """
    text = repr(value[: limit + 1]) if isinstance(value, str) else _BRIEF.repr(value)
    return text if len(text) <= limit else text[: limit - 3] + "..."


def one_line(text: object, limit: int | None = None) -> str:
    """Return what `str` makes of it without line breaks, `limit` characters at most.

    >>> one_line(" a   b "), one_line("abcdef", 5)
    ('a b', 'ab...')
    """
    line = " ".join(str(text).split())
    return line if limit is None or len(line) <= limit else f"{line[: limit - 3]}..."


class _Brief(reprlib.Repr):
    """Prints the beginning of a value, however large it is."""

    def __init__(self) -> None:
        super().__init__()
        self.maxlevel = 4
        self.maxlist = self.maxtuple = self.maxset = self.maxdict = 8
        self.maxstring = self.maxother = 80

    def repr_int(self, x: int, _level: int) -> str:
        """Print a whole number of up to 80 digits, else its length."""
        bits = x.bit_length()
        return repr(x) if bits <= _MAX_SHOWN_BITS else f"a number of {bits} bits"


_BRIEF: Final = _Brief()


def exact_quantity(text: str) -> Fraction:
    """Return the exact value of a quantity in cores, bytes or pieces.

    Parameters
    ----------
    text : str
        Any legal form: ``"2"``, ``"1.5Gi"``, ``"250m"``, ``"1e3"``, ``".5"``, ``"4E"``.

    Returns
    -------
    Fraction
        Zero or more. Beyond 10^60 in either direction the value is replaced by that
        power of ten, so that no exponent can ask for a number that fills the memory.

    Raises
    ------
    QuantityError
        If the text is no quantity, or is negative.

    Notes
    -----
    The grammar is that of ``k8s.io/apimachinery/pkg/api/resource``: ``1K`` and
    ``1_000``, which some clients take, are refused.

    Examples
    --------
    >>> exact_quantity("1.5Gi")
    Fraction(1610612736, 1)
    >>> exact_quantity("250m")
    Fraction(1, 4)
    """
    match = _QUANTITY.fullmatch(text)
    if match is None:
        raise QuantityError(text, "not a number with an optional suffix")
    sign, whole, fraction, suffix = match.groups(default="")
    if not whole and not fraction:
        raise QuantityError(text, "no digits")
    digits = (whole + fraction).lstrip("0")
    if not digits:
        return Fraction(0)
    if sign == "-":
        raise QuantityError(text, "negative")
    power = -len(fraction)
    if suffix in _BINARY:
        factor: int = 1024 ** _BINARY[suffix]
        return _bounded(digits, power) * factor
    if suffix in _DECIMAL:
        return _bounded(digits, power + _DECIMAL[suffix])
    exponent = suffix[1:].lstrip("+-").lstrip("0")
    is_small = suffix[1] == "-"
    if len(exponent) > len("999999"):  # far outside every limit already
        return _outside(is_large=not is_small)
    shift = int(exponent or "0")
    return _bounded(digits, power - shift if is_small else power + shift)


def _outside(*, is_large: bool) -> Fraction:
    """Return the stand-in for a magnitude outside the limits."""
    limit = 10**_MAGNITUDE_LIMIT
    return Fraction(limit) if is_large else Fraction(1, limit)


def _bounded(digits: str, power: int) -> Fraction:
    """Return ``digits`` times ten to the `power`, within the limits of magnitude."""
    magnitude = len(digits) + power
    if abs(magnitude) > _MAGNITUDE_LIMIT:
        return _outside(is_large=magnitude > 0)
    kept = digits[: 2 * _MAGNITUDE_LIMIT]
    dropped = digits[2 * _MAGNITUDE_LIMIT :]
    mantissa = int(kept) + (1 if dropped.strip("0") else 0)  # kept above the true value
    power += len(dropped)
    if power >= 0:
        return Fraction(mantissa * 10**power)
    return Fraction(mantissa, 10**-power)


def parse_quantity(text: str, scale: int = 1) -> int:
    """Return `text` times `scale`, rounded up to a whole base unit.

    Raises `QuantityError`. Values are capped at 2^63 - 1 as Kubernetes caps them.

    Examples
    --------
    >>> parse_quantity("250m", scale=1000)  # CPU in millicores
    250
    >>> parse_quantity("1.5Gi")  # memory in bytes
    1610612736
    """
    if len(text) > _MAX_REMEMBERED_TEXT:
        return _parse_whole(text, scale)
    return _remembered_whole(text, scale)


def _parse_whole(text: str, scale: int) -> int:
    """Return what `parse_quantity` does."""
    value = exact_quantity(text) * scale
    return min(-(-value.numerator // value.denominator), MAX_QUANTITY)


_remembered_whole: Final = lru_cache(maxsize=16384)(_parse_whole)


def scale_of(resource: str) -> int:
    """Return how many base units one unit of `resource` has.

    >>> scale_of("cpu"), scale_of("nvidia.com/gpu")
    (1000, 1)
    """
    return 1000 if resource == CPU else 1


def parse_amount(resource: str, value: object) -> int:
    """Return a decoded quantity of `resource`, text or JSON number, in base units.

    Raises `QuantityError`.

    >>> parse_amount("cpu", "1500m"), parse_amount("nvidia.com/gpu", 2)
    (1500, 2)
    """
    if isinstance(value, str):
        return parse_quantity(value, scale_of(resource))
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise QuantityError(shorten(value), "neither text nor a number")
    if isinstance(value, int):  # Python refuses to print a very long one
        value = max(-MAX_QUANTITY, min(value, MAX_QUANTITY))
    return parse_quantity(repr(value), scale_of(resource))


_BINARY_SUFFIXES: Final = ("", *_BINARY)

_DECIMAL_SUFFIXES: Final = tuple(_DECIMAL)

_KIBI: Final = 1024

_KILO: Final = 1000

_SMALLEST: Final = 10**9  # nano, the first decimal suffix

# A total this close to a whole unit is meant to be one: 14 x 2.357142857142857 is 33.
_PRECISION: Final = 10**6

# Far above every limit, and below what Python refuses to print as decimal digits.
_MAX_BITS: Final = 1024


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
    if is_binary and value >= _KIBI and value.denominator == 1:
        return _scaled(value.numerator, _KIBI, _BINARY_SUFFIXES)
    if not value:
        return "0"
    return _scaled(math.ceil(value * _SMALLEST), _KILO, _DECIMAL_SUFFIXES)


def _scaled(number: int, base: int, suffixes: Sequence[str]) -> str:
    """Return `number` with the largest suffix that leaves it whole."""
    power = 0
    while number % base == 0 and power < len(suffixes) - 1:
        number //= base
        power += 1
    return f"{number}{suffixes[power]}"


# PERF: pods of one template say the same; `bench/injector/test_reviews.py`.
_remembered_exact: Final = lru_cache(maxsize=4096)(exact_quantity)


def exact_amount(value: object) -> Fraction:
    """Return a decoded quantity, text or JSON number, in cores, bytes or pieces.

    Raises `QuantityError`.

    >>> exact_amount("1500m"), exact_amount(2)
    (Fraction(3, 2), Fraction(2, 1))
    """
    if isinstance(value, str):
        return (
            _remembered_exact(value)
            if len(value) <= _MAX_REMEMBERED_TEXT
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


def show_amount(resource: str, amount: int) -> str:
    """Return an amount in base units as a quantity, large ones to one decimal.

    >>> show_amount("cpu", 1500), show_amount("cpu", 64000)
    ('1500m', '64')
    >>> show_amount("memory", 3 * 2**29), show_amount("nvidia.com/gpu", 8)
    ('1.5Gi', '8')
    """
    if resource == CPU:
        cores, rest = divmod(amount, _KILO)
        return f"{amount}m" if rest else str(cores)
    if resource in BYTE_RESOURCES or resource.startswith("hugepages-"):
        return show_bytes(amount)
    return str(amount)


# Units that somebody would write bytes in, the largest first: Gi, Mi, Ki.
BYTE_UNITS: Final = (2**30, 2**20, 2**10)


def show_at_most(resource: str, amount: int) -> str:
    """Return the exact quantity of an amount in base units, or of a little less.

    For what a pod is told to ask: rounded to the nearest, it would not fit.

    >>> show_at_most("ephemeral-storage", 1700 * 2**30), show_at_most("cpu", 95900)
    ('1700Gi', '95900m')
    >>> show_at_most("memory", 46068 * 2**20), show_at_most("memory", 100)
    ('44Gi', '100')
    """
    if resource in BYTE_RESOURCES:
        unit = next((unit for unit in BYTE_UNITS if amount >= unit), 1)
        return format_quantity(Fraction(amount // unit * unit), is_binary=True)
    if resource.startswith("hugepages-"):  # whole pages as they are
        return format_quantity(Fraction(amount), is_binary=True)
    return show_amount(resource, amount)


def show_bytes(amount: int) -> str:
    """Return bytes as a quantity to one decimal.

    >>> show_bytes(80 * 2**30), show_bytes(100), show_bytes(2**40 - 1)
    ('80Gi', '100', '1Ti')
    """
    value, unit = float(amount), 0
    while round(value, 1) >= _KIBI and unit < len(_BINARY_SUFFIXES) - 1:
        value /= _KIBI
        unit += 1
    return f"{value:.1f}".removesuffix(".0") + _BINARY_SUFFIXES[unit]


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
