"""Names that may be meant by one that nobody knows."""

from scoring.gpu.models import default_table
from scoring.gpu.requirements import MAX_NAME, near_names


def test_a_misspelled_name_is_known_again() -> None:
    assert "H100" in near_names(default_table(), "H-10O")


def test_nothing_is_looked_for_that_is_like_a_name_too_long_to_be_one() -> None:
    assert near_names(default_table(), "H100" + "-" * MAX_NAME) == ()
