"""The fields of a rule file: what each may be, and what is said of it if it is not."""

import re
from collections.abc import Iterator
from fractions import Fraction
from typing import Final

from cluster.decode import Fault
from injector.rule_tree import Entries, NumberText, Tree
from scoring.resources import (
    MAX_QUANTITY,
    STANDARD_RESOURCES,
    QuantityError,
    exact_quantity,
    scale_of,
    shorten,
)

_UNIT: Final = re.compile(r"[KMGTPE]i|[numkMGTPE]|[eE][+-]?\d{1,2}|", re.ASCII)
_FRACTIONS: Final = ("n", "u", "m")
_DECIMAL: Final = re.compile(r"(-?)(\d+(?:\.\d*)?|\.\d+)([eE][+-]?\d+)?", re.ASCII)
NAMESPACE: Final = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?", re.ASCII)
_NAME_PART: Final = r"[A-Za-z0-9](?:[A-Za-z0-9._-]{0,61}[A-Za-z0-9])?"
_PREFIX: Final = r"[a-z0-9](?:[a-z0-9.-]{0,251}[a-z0-9])?"
# As Kubernetes has it, and with a tilde, which gpuinjector knows how to escape.
ANNOTATION_KEY: Final = re.compile(
    rf"(?:{_PREFIX}/)?[a-z0-9](?:[a-z0-9._~-]{{0,61}}[a-z0-9])?",
    re.ASCII | re.IGNORECASE,
)
_HUGE_PAGES: Final = "hugepages-"
_EXTENDED: Final = re.compile(f"{_PREFIX}/{_NAME_PART}", re.ASCII)


class FieldReader:
    """Reads fields of one tree; what is wrong is left out and named in `faults`."""

    def __init__(self) -> None:
        self.faults: list[Fault] = []

    def fields(self, tree: Tree, path: str, known: set[str]) -> dict[str, Tree]:
        """Read the fields of an object; unknown ones are faults."""
        fields: dict[str, Tree] = {}
        for name, value, where in self.entries(tree, path):
            if name in known:
                fields[name] = value
            else:
                self.fault(where, "unknown field")
        return fields

    def entries(self, tree: Tree, path: str) -> Iterator[tuple[str, Tree, str]]:
        """Yield key, value and path of each entry of a mapping; null is empty."""
        if tree is not None and not isinstance(tree, Entries):
            self.fault(path or "file", f"wanted a mapping, got {said(tree)}")
        elif tree is not None:
            seen: set[str] = set()
            for key, value in tree.items:
                where = f"{path}.{key}" if path else key
                if key in seen:
                    self.fault(where, "comes twice")
                seen.add(key)
                yield key, value, where

    def items(self, tree: Tree, path: str) -> Iterator[tuple[Tree, str]]:
        """Yield value and path of each item of a list; null is empty."""
        if isinstance(tree, list):
            yield from ((item, f"{path}[{index}]") for index, item in enumerate(tree))
        elif tree is not None:
            self.fault(path, f"wanted a list, got {said(tree)}")

    def fault(self, path: str, message: str) -> None:
        """Note one thing that is wrong."""
        self.faults.append(Fault(path, message))

    def resource_name(self, value: Tree, path: str) -> str | None:
        """Read the name of a resource that can be injected."""
        if isinstance(value, str) and (
            value in STANDARD_RESOURCES or page_size(value) or is_extended(value)
        ):
            return value
        self.fault(
            path,
            f"wanted {', '.join(STANDARD_RESOURCES)} or an extended resource,"
            f" got {said(value)}",
        )
        return None

    def unit(self, value: Tree, name: str | None, path: str) -> str | None:
        """Read the unit; absent means none."""
        unit = "" if value is None else value
        if not isinstance(unit, str) or not _UNIT.fullmatch(unit):
            self.fault(
                path, f"wanted a suffix such as m, Mi, Gi or none, got {said(value)}"
            )
            return None
        if unit in _FRACTIONS and name is not None and name not in STANDARD_RESOURCES:
            self.fault(path, f"{name!r} comes in whole pieces, got unit {unit!r}")
            return None
        return unit

    def coefficient(self, value: Tree, path: str) -> Fraction | None:
        """Read the exact decimal of a coefficient."""
        if value is None:
            self.fault(path, "is missing")
            return None
        match = (
            _DECIMAL.fullmatch(str(value)) if isinstance(value, NumberText) else None
        )
        if match is None:
            self.fault(path, f"wanted a decimal number, got {said(value)}")
            return None
        sign, digits, exponent = match.groups(default="")
        exact = exact_quantity(f"{digits}{exponent}")
        if sign or not exact:
            self.fault(path, f"wanted a number above 0, got {said(value)}")
            return None
        return exact

    def check_size(self, name: str, per_gpu: Fraction, path: str) -> None:
        """Name a fault if no container could ever be given that much."""
        page = page_size(name)
        if per_gpu * scale_of(name) > MAX_QUANTITY:
            self.fault(path, f"is more {name} than Kubernetes can count")
        elif page and per_gpu % page:
            self.fault(path, f"gives one GPU no whole number of {name}")
        elif name in STANDARD_RESOURCES and per_gpu * scale_of(name) < 1:
            smallest = "1m" if scale_of(name) > 1 else "1 byte"
            self.fault(path, f"gives one GPU less than {smallest} of {name}")

    def namespace(self, value: Tree, path: str) -> str:
        """Read the name of a namespace."""
        if isinstance(value, str) and NAMESPACE.fullmatch(value):
            return value
        self.fault(path, f"wanted the name of a namespace, got {said(value)}")
        return ""


def page_size(name: str) -> int:
    """Return the bytes of a page of huge pages; 0 if `name` is not of huge pages.

    The API server refuses what is no multiple of it, whatever the size:
    ``IsHugePageResourceValueDivisible`` in ``pkg/apis/core/helper/helpers.go``.

    >>> page_size("hugepages-2Mi"), page_size("hugepages-large"), page_size("memory")
    (2097152, 0, 0)
    """
    if not name.startswith(_HUGE_PAGES):
        return 0
    try:
        size = exact_quantity(name.removeprefix(_HUGE_PAGES))
    except QuantityError:
        return 0
    return size.numerator if size.denominator == 1 else 0


def is_extended(name: str) -> bool:
    """Say whether Kubernetes takes `name` for an extended resource."""
    return (
        _EXTENDED.fullmatch(name) is not None
        and not name.startswith("requests.")
        and not name.partition("/")[0].endswith("kubernetes.io")
    )


def said(value: Tree) -> str:
    """Return a value for a message."""
    if isinstance(value, Entries):
        return "a mapping"
    if isinstance(value, list):
        return "a list"
    return shorten(value) if isinstance(value, str) else str(value).lower()
