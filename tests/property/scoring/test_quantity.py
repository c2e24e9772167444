"""Quantities against a plain reading of their grammar."""

import math
from fractions import Fraction

from hypothesis import given, settings
from hypothesis import strategies as st

from scoring.quantity import (
    MAX_QUANTITY,
    QuantityError,
    exact_quantity,
    parse_amount,
    parse_quantity,
)

FACTORS = {
    "": Fraction(1),
    **{suffix: Fraction(10) ** (3 * i) for i, suffix in enumerate("kMGTPE", 1)},
    **{suffix: Fraction(1, 10 ** (3 * i)) for i, suffix in enumerate("mun", 1)},
    **{f"{suffix}i": Fraction(1024) ** i for i, suffix in enumerate("KMGTPE", 1)},
}
DIGITS = st.text("0123456789", max_size=12)


def plain_value(text: str) -> Fraction | None:
    """Return the value of a legal quantity, None for an illegal text."""
    is_negative = text.startswith("-")
    rest = text[1:] if text[:1] in ("+", "-") else text
    number = rest[: len(rest) - len(rest.lstrip("0123456789."))]
    suffix = rest[len(number) :]
    whole, _, fraction = number.partition(".")
    if "." in fraction or not whole + fraction:
        return None
    factor = FACTORS.get(suffix)
    if factor is None:
        sign, exponent = suffix[1:2], suffix[1:].lstrip("+-")
        is_exponent = (
            suffix[:1] in ("e", "E")
            and exponent.isdigit()
            and len(suffix) - len(exponent) == 1 + (sign in ("+", "-"))
        )
        if not is_exponent:
            return None
        factor = Fraction(10) ** (-int(exponent) if sign == "-" else int(exponent))
    value = Fraction(int(whole + fraction), 10 ** len(fraction)) * factor
    return -value if is_negative else value


@settings(max_examples=300)
@given(
    whole=DIGITS,
    point=st.sampled_from(["", "."]),
    fraction=DIGITS,
    suffix=st.sampled_from([*FACTORS, "e3", "E3", "e-3", "e+03", "E-12", "e20"]),
)
def test_a_legal_quantity_is_its_exact_value_rounded_up(
    whole: str, point: str, fraction: str, suffix: str
) -> None:
    text = f"{whole or '0'}{point}{fraction}{suffix}"
    value = plain_value(text)
    assert value is not None

    assert exact_quantity(text) == value
    assert parse_quantity(text) == min(math.ceil(value), MAX_QUANTITY)
    assert parse_amount("cpu", text) == min(math.ceil(value * 1000), MAX_QUANTITY)


@settings(max_examples=600)
@given(text=st.text("01.+-eEinumkKMGTP _", max_size=6))
def test_texts_of_the_same_letters_are_read_or_refused_as_the_grammar_says(
    text: str,
) -> None:
    value = plain_value(text)

    try:
        read: int | None = parse_quantity(text)
    except QuantityError:
        read = None

    if value is None or value < 0:
        assert read is None
    else:
        assert read == min(math.ceil(value), MAX_QUANTITY)


@settings(max_examples=300)
@given(
    value=st.one_of(
        st.text(),
        st.integers(),
        st.floats(),
        st.booleans(),
        st.none(),
        st.lists(st.integers()),
        st.integers(1, 10_000).map(lambda digits: 10**digits),
        st.integers(1, 10_000).map(lambda digits: "9" * digits),
        st.integers().map(lambda exponent: f"3e{exponent}"),
    )
)
def test_any_value_is_an_amount_within_the_cap_or_refused(value: object) -> None:
    try:
        amount = parse_amount("nvidia.com/gpu", value)
    except QuantityError:
        return

    assert 0 <= amount <= MAX_QUANTITY


@given(number=st.integers(0, MAX_QUANTITY))
def test_a_plain_number_is_itself(number: int) -> None:
    assert parse_quantity(str(number)) == number
    assert parse_amount("memory", number) == number
