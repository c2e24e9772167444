"""Quantities: read, refused, and printed as in Go."""

import sys
from fractions import Fraction

import pytest

from scoring.quantity import (
    MAX_QUANTITY,
    QuantityError,
    exact_amount,
    exact_quantity,
    format_quantity,
    parse_amount,
    parse_quantity,
    scale_of,
    shorten,
    show_at_most,
    split_by_gpus,
)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        pytest.param("0", Fraction(0), id="zero"),
        pytest.param("2", Fraction(2), id="plain number"),
        pytest.param("+2", Fraction(2), id="plus sign"),
        pytest.param("-0", Fraction(0), id="minus zero"),
        pytest.param("-0.000", Fraction(0), id="minus zero with a fraction"),
        pytest.param("007", Fraction(7), id="leading zeros"),
        pytest.param(".5", Fraction(1, 2), id="fraction alone"),
        pytest.param("5.", Fraction(5), id="final point"),
        pytest.param("5.50", Fraction(11, 2), id="final zero"),
        pytest.param("1.5Gi", Fraction(3 * 2**29), id="binary suffix and fraction"),
        # 1.2 x 2^30 = 1288490188.8
        pytest.param(
            "1.2Gi", Fraction(12884901888, 10), id="binary suffix, no whole byte"
        ),
        pytest.param("0Gi", Fraction(0), id="zero with suffix"),
        pytest.param("1Ki", Fraction(2**10), id="Ki"),
        pytest.param("1Mi", Fraction(2**20), id="Mi"),
        pytest.param("1Gi", Fraction(2**30), id="Gi"),
        pytest.param("1Ti", Fraction(2**40), id="Ti"),
        pytest.param("1Pi", Fraction(2**50), id="Pi"),
        pytest.param("1Ei", Fraction(2**60), id="Ei"),
        pytest.param("1n", Fraction(1, 10**9), id="nano"),
        pytest.param("1u", Fraction(1, 10**6), id="micro"),
        pytest.param("250m", Fraction(1, 4), id="milli"),
        pytest.param("1k", Fraction(10**3), id="kilo"),
        pytest.param("1M", Fraction(10**6), id="mega"),
        pytest.param("1G", Fraction(10**9), id="giga"),
        pytest.param("1T", Fraction(10**12), id="tera"),
        pytest.param("1P", Fraction(10**15), id="peta"),
        pytest.param("1E", Fraction(10**18), id="exa, not an exponent"),
        pytest.param("1e3", Fraction(1000), id="exponent"),
        pytest.param("12E6", Fraction(12_000_000), id="capital exponent"),
        pytest.param("4e+3", Fraction(4000), id="exponent with plus"),
        pytest.param("25e-1", Fraction(5, 2), id="negative exponent"),
        pytest.param("3e00000000000001", Fraction(30), id="exponent, leading zeros"),
        pytest.param("3e-00000000000001", Fraction(3, 10), id="same, negative"),
        pytest.param("3e-0", Fraction(3), id="exponent zero"),
        pytest.param("0.0001", Fraction(1, 10_000), id="small fraction"),
    ],
)
def test_legal_quantities_have_their_exact_value(text: str, value: Fraction) -> None:
    assert exact_quantity(text) == value


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("1K", id="capital kilo"),
        pytest.param("1GB", id="bytes"),
        pytest.param("8Gi ", id="space behind"),
        pytest.param(" 8Gi", id="space before"),
        pytest.param("8 Gi", id="space inside"),
        pytest.param("8Gi\n", id="line break behind"),
        pytest.param("", id="empty"),
        pytest.param("1_000", id="underscore"),
        pytest.param("1Mi2", id="digits behind the suffix"),
        pytest.param("1.2.3Gi", id="two points"),
        pytest.param("1,5", id="comma"),
        pytest.param("1ki", id="small binary kilo"),
        pytest.param("1mi", id="milli and binary"),
        pytest.param("1e", id="exponent without digits"),
        pytest.param("1e+", id="exponent with a sign alone"),
        pytest.param("1e1.5", id="exponent with a fraction"),
        pytest.param("1e3Ki", id="exponent and suffix"),
        pytest.param("++1", id="two signs"),
        pytest.param("0x10", id="hexadecimal"),
        pytest.param("inf", id="infinite"),
        pytest.param("nan", id="not a number"),
        pytest.param("٣", id="digits of another script"),
        pytest.param("²", id="superscript digit"),
        pytest.param("two", id="word"),
        pytest.param("Gi", id="suffix alone"),
        pytest.param(".", id="point alone"),
        pytest.param("+", id="sign alone"),
    ],
)
def test_illegal_quantities_are_refused_with_their_text(text: str) -> None:
    with pytest.raises(QuantityError) as caught:
        exact_quantity(text)

    assert caught.value.text == text
    assert repr(text) in str(caught.value)


@pytest.mark.parametrize("text", ["-1", "-0.001", "-5Gi", "-1e3", "-1e-999999"])
def test_negative_quantities_are_refused(text: str) -> None:
    with pytest.raises(QuantityError, match="negative"):
        exact_quantity(text)


@pytest.mark.parametrize(
    ("text", "whole"),
    [
        pytest.param("1e1000000", MAX_QUANTITY, id="exponent of seven digits"),
        pytest.param("1e999999", MAX_QUANTITY, id="exponent of six digits"),
        pytest.param("1e" + "9" * 5000, MAX_QUANTITY, id="exponent of 5,000 digits"),
        pytest.param("1e-999999", 1, id="small exponent"),
        pytest.param("1e-" + "9" * 5000, 1, id="small exponent of 5,000 digits"),
        pytest.param("9" * 5000, MAX_QUANTITY, id="5,000 digits"),
        pytest.param("9" * 5000 + "Ei", MAX_QUANTITY, id="5,000 digits, suffix"),
        pytest.param("0" * 5000 + "7", 7, id="5,000 leading zeros"),
        pytest.param("7." + "0" * 5000, 7, id="5,000 zeros behind the point"),
        pytest.param("7." + "0" * 5000 + "1", 8, id="5,000 zeros, then a one"),
        pytest.param("0." + "0" * 5000 + "1", 1, id="far below one"),
        pytest.param("1" + "0" * 5000 + "e-5000", 1, id="long digits, small exponent"),
    ],
)
def test_extreme_quantities_answer_at_once(text: str, whole: int) -> None:
    assert parse_quantity(text) == whole


@pytest.mark.parametrize(
    ("text", "whole"),
    [
        pytest.param("9223372036854775807", MAX_QUANTITY, id="the cap"),
        pytest.param("9223372036854775808", MAX_QUANTITY, id="one above the cap"),
        pytest.param("9223372036854775806", MAX_QUANTITY - 1, id="one below the cap"),
        pytest.param("8Ei", MAX_QUANTITY, id="2^63"),
        pytest.param("7Ei", 7 * 2**60, id="below 2^63"),
        pytest.param("9223372036854775807n", 9223372037, id="nano of the cap"),
    ],
)
def test_amounts_are_capped_as_kubernetes_caps_them(text: str, whole: int) -> None:
    assert parse_quantity(text) == whole


@pytest.mark.parametrize(
    ("resource", "value", "amount"),
    [
        pytest.param("nvidia.com/gpu", "1k", 1000, id="thousand GPUs by suffix"),
        pytest.param("nvidia.com/gpu", "1e3", 1000, id="thousand GPUs by exponent"),
        pytest.param("nvidia.com/gpu", "2", 2, id="two GPUs"),
        pytest.param("nvidia.com/gpu", 2, 2, id="two GPUs, JSON number"),
        pytest.param("nvidia.com/gpu", 2.0, 2, id="two GPUs, JSON fraction"),
        pytest.param("nvidia.com/gpu", "1000m", 1, id="thousand millis are one"),
        pytest.param("nvidia.com/gpu", "1500m", 2, id="half a GPU rounds up"),
        pytest.param("nvidia.com/gpu", "0", 0, id="no GPU"),
        pytest.param("cpu", "1500m", 1500, id="millicores"),
        pytest.param("cpu", "1", 1000, id="cores"),
        pytest.param("cpu", 0.5, 500, id="half a core, JSON number"),
        pytest.param("cpu", "100u", 1, id="below a millicore rounds up"),
        pytest.param("memory", "129e6", 129_000_000, id="bytes by exponent"),
        pytest.param("memory", "128974848000m", 128_974_848, id="bytes in millis"),
        pytest.param("memory", "123Mi", 128_974_848, id="mebibytes"),
        pytest.param("memory", 1e22, MAX_QUANTITY, id="large JSON number"),
        pytest.param("memory", 10**5000, MAX_QUANTITY, id="huge JSON number"),
        pytest.param("cpu", "9223372036854775807", MAX_QUANTITY, id="cap in cores"),
    ],
)
def test_amounts_are_read_in_base_units(
    resource: str, value: object, amount: int
) -> None:
    assert parse_amount(resource, value) == amount


@pytest.mark.parametrize(
    ("value", "said"),
    [
        pytest.param(True, "neither text nor a number", id="true"),
        pytest.param(None, "neither text nor a number", id="null"),
        pytest.param(["1"], "neither text nor a number", id="list"),
        pytest.param({}, "neither text nor a number", id="mapping"),
        pytest.param(-1, "negative", id="negative number"),
        pytest.param(-(10**5000), "negative", id="huge negative number"),
        pytest.param(float("inf"), "not a number", id="infinity"),
        pytest.param(float("nan"), "not a number", id="NaN"),
    ],
)
def test_other_values_are_no_amounts(value: object, said: str) -> None:
    with pytest.raises(QuantityError, match=said):
        parse_amount("nvidia.com/gpu", value)


def test_a_refusal_quotes_no_more_than_the_beginning() -> None:
    with pytest.raises(QuantityError) as caught:
        parse_quantity("1" * 5000 + "x")

    assert len(str(caught.value)) < 200


def test_only_cpu_is_counted_in_thousandths() -> None:
    assert [scale_of(name) for name in ("cpu", "memory", "nvidia.com/gpu")] == [
        1000,
        1,
        1,
    ]


@pytest.mark.parametrize(
    ("value", "text"),
    [
        pytest.param("a", "'a'", id="text"),
        pytest.param([1, "b"], "[1, 'b']", id="list"),
        pytest.param({"a": None}, "{'a': None}", id="mapping"),
        pytest.param(2**256, "a number of 257 bits", id="huge number"),
        pytest.param([10**5000], "[a number of 16610 bits]", id="one inside a list"),
    ],
)
def test_values_are_printed_for_messages(value: object, text: str) -> None:
    assert shorten(value) == text


def test_printed_values_are_cut() -> None:
    values: list[object] = ["x" * 5000, list(range(5000)), {"k": "v" * 5000}]

    assert all(len(shorten(value)) <= 80 for value in values)
    assert shorten("x" * 5000).endswith("...")


def test_printing_a_value_that_grows_with_each_level_stays_quick() -> None:
    value: list[object] = ["x"]
    for _ in range(60):
        value = [value, value, value, value]  # 4^60 leaves

    assert len(shorten(value)) <= 80


def test_no_quantity_is_remembered_that_nobody_writes() -> None:
    text = "0" * 1_000_000 + "7"
    before = sys.getrefcount(text)

    assert parse_quantity(text) == 7
    assert sys.getrefcount(text) == before


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


@pytest.mark.parametrize(
    ("resource", "amount", "text"),
    [
        ("memory", 1700 * 2**30, "1700Gi"),
        ("memory", 2**31 - 1, "1Gi"),
        ("memory", 100, "100"),
        ("hugepages-2Mi", 3 * 2**20, "3Mi"),
        ("cpu", 95900, "95900m"),
        ("nvidia.com/gpu", 8, "8"),
    ],
)
def test_what_fits_at_most_is_never_rounded_up(
    resource: str, amount: int, text: str
) -> None:
    assert show_at_most(resource, amount) == text
    assert parse_amount(resource, text) <= amount
