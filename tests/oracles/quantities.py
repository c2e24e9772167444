"""Kubernetes quantities as exact fractions, by the grammar of its API."""

import re
from fractions import Fraction
from typing import Any, Final

_FORM: Final = re.compile(
    r"([+-]?(?:\d+(?:\.\d*)?|\.\d+))(?:([KMGTPE]i|[numkMGTPE])|[eE]([+-]?\d+))?"
)
_POWERS: Final = {
    **{suffix: Fraction(1000) ** n for n, suffix in enumerate("num", -3)},
    **{suffix: Fraction(1000) ** n for n, suffix in enumerate("kMGTPE", 1)},
    **{f"{letter}i": Fraction(1024) ** n for n, letter in enumerate("KMGTPE", 1)},
}


def exact(quantity: Any) -> Fraction:
    """Return a quantity as it is written.

    >>> [str(exact(text)) for text in ("1500m", "2Ki", "1e3", ".5", 3)]
    ['3/2', '2048', '1000', '1/2', '3']
    """
    if isinstance(quantity, Fraction):  # read already
        return quantity
    found = _FORM.fullmatch(str(quantity))
    assert found is not None, quantity
    number, suffix, exponent = found.groups()
    value = Fraction(number)
    if exponent is not None:
        return value * Fraction(10) ** int(exponent)
    return value * _POWERS[suffix] if suffix else value
