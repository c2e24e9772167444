"""Resource names, and quantity text to whole base units.

The base unit is the millicore for ``cpu``, the byte for memory and storage, and one
piece for everything else.
"""

import re
import reprlib
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import Final

MAX_QUANTITY: Final = 2**63 - 1
MAX_REMEMBERED: Final = 4096
# Characters. What a request names is looked at before Kubernetes has checked it: what
# is longer than a quantity or the name of a resource can be is not kept.
_MAX_REMEMBERED_TEXT: Final = 32
_MAX_REMEMBERED_NAME: Final = 317
CPU: Final = "cpu"
PODS: Final = "pods"
STANDARD_RESOURCES: Final = (CPU, "memory", "ephemeral-storage")
BYTE_RESOURCES: Final = ("memory", "ephemeral-storage")

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


@dataclass(frozen=True, slots=True)
class ResourceScope:
    """Which resources the product looks at.

    Attributes
    ----------
    gpu_resources : tuple of str
        Exact names, or name prefixes ending in ``*``, that make a pod a GPU pod.
    managed_prefixes : tuple of str
        Prefixes of the resources that are counted.
    """

    gpu_resources: tuple[str, ...]
    managed_prefixes: tuple[str, ...]

    def is_gpu(self, resource: str) -> bool:
        """Say whether `resource` makes a pod a GPU pod."""
        return any(
            resource.startswith(pattern[:-1])
            if pattern.endswith("*")
            else resource == pattern
            for pattern in self.gpu_resources
        )

    def is_managed(self, resource: str) -> bool:
        """Say whether pods are judged on `resource`."""
        return resource.startswith(self.managed_prefixes) or self.is_gpu(resource)

    def is_tracked(self, resource: str) -> bool:
        """Say whether `resource` has a row in a snapshot."""
        return (
            resource in STANDARD_RESOURCES
            or resource == PODS
            or self.is_managed(resource)
        )


class Remembered(dict[str, bool]):
    """What a predicate says of each resource name, computed once.

    PERF: a look-up instead of a call for each quantity of each pod; bench/http.py
    """

    def __init__(self, predicate: Callable[[str], bool]) -> None:
        super().__init__()
        self._predicate = predicate

    def __missing__(self, resource: str) -> bool:
        if len(resource) > _MAX_REMEMBERED_NAME:
            return self._predicate(resource)
        if len(self) >= MAX_REMEMBERED:  # names come from requests: no end to them
            self.clear()
        self[resource] = self._predicate(resource)
        return self[resource]


def is_whole_card(resource: str) -> bool:
    """Say whether `resource` names whole cards, as opposed to slices or shares.

    >>> is_whole_card("nvidia.com/gpu"), is_whole_card("nvidia.com/mig-1g.10gb")
    (True, False)
    """
    return resource.endswith("/gpu")
