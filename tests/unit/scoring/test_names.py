"""Names that Kubernetes takes, and others."""

import pytest

from scoring.names import is_qualified_name


@pytest.mark.parametrize(
    ("name", "is_legal"),
    [
        pytest.param("example.com/type", True, id="with a prefix"),
        pytest.param("type", True, id="without"),
        pytest.param("a" * 63, True, id="63 characters"),
        pytest.param("a" * 64, False, id="64 characters"),
        pytest.param(f"{'a' * 253}/x", True, id="a prefix of 253"),
        pytest.param(f"{'a' * 254}/x", False, id="a prefix of 254"),
        pytest.param("A.b_c-d", True, id="all that a name may have"),
        pytest.param("-a", False, id="a dash at the beginning"),
        pytest.param("a.", False, id="a dot at the end"),
        pytest.param("", False, id="nothing"),
        pytest.param("/a", False, id="an empty prefix"),
        pytest.param("a/", False, id="an empty name"),
        pytest.param("a/b/c", False, id="two slashes"),
        pytest.param("Example.com/a", False, id="a capital in the prefix"),
        pytest.param("a..b/c", False, id="two dots in the prefix"),
        pytest.param("a b", False, id="a space"),
        pytest.param("é", False, id="a letter with an accent"),
    ],
)
def test_names_are_judged_as_kubernetes_does(name: str, is_legal: bool) -> None:
    assert is_qualified_name(name) is is_legal
