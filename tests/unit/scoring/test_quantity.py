"""Quantities as Go prints them."""

from fractions import Fraction

import pytest

from scoring.quantity import (
    QuantityError,
    exact_amount,
    exact_quantity,
    format_quantity,
    split_by_gpus,
)


@pytest.mark.parametrize(
    ("text", "printed"),
    [
        ("1.2Gi", "1288490188800m"),
        ("1.5Gi", "1536Mi"),
        ("0.5Gi", "512Mi"),
        ("1.5Ti", "1536Gi"),
        ("1025Mi", "1025Mi"),
        ("0Gi", "0"),
        ("1023", "1023"),
        ("1Ki", "1Ki"),
        ("4Ei", "4Ei"),
    ],
)
def test_binary_values_print_as_in_go(text: str, printed: str) -> None:
    assert format_quantity(exact_quantity(text), is_binary=True) == printed


@pytest.mark.parametrize(
    ("text", "printed"),
    [
        ("0.1", "100m"),
        ("0.0001", "100u"),
        ("1n", "1n"),
        ("0.1n", "1n"),
        ("2000m", "2"),
        ("1000000", "1M"),
        ("5.50", "5500m"),
        ("1048576", "1048576"),
        ("0", "0"),
        ("2000E", "2000E"),
    ],
)
def test_decimal_values_print_as_in_go(text: str, printed: str) -> None:
    assert format_quantity(exact_quantity(text)) == printed


@pytest.mark.parametrize(
    ("left", "right", "is_binary", "printed"),
    [
        pytest.param("8Gi", "1G", True, "7589934592", id="Gi less G"),
        pytest.param("8G", "1Gi", False, "6926258176", id="G less Gi"),
    ],
)
def test_a_difference_has_the_form_of_its_left_side(
    left: str, right: str, *, is_binary: bool, printed: str
) -> None:
    rest = exact_quantity(left) - exact_quantity(right)

    assert format_quantity(rest, is_binary=is_binary) == printed


@pytest.mark.parametrize("text", ["1K", "1GB", "8Gi ", "", "1_000", "1Mi2"])
def test_what_go_refuses_is_refused(text: str) -> None:
    with pytest.raises(QuantityError):
        exact_amount(text)


def test_json_numbers_are_exact() -> None:
    assert [exact_amount(2), exact_amount(0.1)] == [Fraction(2), Fraction(1, 10)]


@pytest.mark.parametrize("value", [None, True, [], {}, 2**2000, -1])
def test_what_is_no_quantity_is_refused(value: object) -> None:
    with pytest.raises(QuantityError):
        exact_amount(value)


def test_shares_of_nothing_are_nothing() -> None:
    assert split_by_gpus(0, [1, 2]) == [0, 0]
