"""Quantities as ``k8s.io/apimachinery/pkg/api/resource`` reads and prints them.

The pairs were printed by that package itself: text in, canonical text out.
"""

import pytest

from scoring.quantity import QuantityError, exact_quantity, parse_quantity


@pytest.mark.parametrize(
    ("text", "canonical"),
    [
        ("1.2Gi", "1288490188800m"),
        ("1.5Gi", "1536Mi"),
        ("0.5Gi", "512Mi"),
        ("1.5Ti", "1536Gi"),
        ("1025Mi", "1025Mi"),
        ("0.1", "100m"),
        ("0.0001", "100u"),
        ("2000m", "2"),
        ("1000000", "1M"),
        ("4e3", "4e3"),
        ("12E6", "12E6"),
        ("5.50", "5500m"),
        ("0Gi", "0"),
        ("1048576", "1048576"),
    ],
)
def test_a_quantity_is_worth_what_its_canonical_form_is_worth(
    text: str, canonical: str
) -> None:
    assert exact_quantity(text) == exact_quantity(canonical)


@pytest.mark.parametrize(
    ("left", "right", "difference"),
    [("8Gi", "1G", "7589934592"), ("8G", "1Gi", "6926258176")],
)
def test_binary_and_decimal_units_subtract(
    left: str, right: str, difference: str
) -> None:
    assert parse_quantity(left) - parse_quantity(right) == int(difference)


@pytest.mark.parametrize("text", ["1K", "1GB", "8Gi ", "", "1_000", "1Mi2"])
def test_what_the_package_refuses_is_refused(text: str) -> None:
    with pytest.raises(QuantityError):
        exact_quantity(text)
