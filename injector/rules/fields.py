"""Trees of rule files, which keep every number and key, and their fields."""

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Final, TypeAlias

import yaml

from cluster.yaml_text import describe_unreadable
from scoring.faults import Fault
from scoring.names import is_extended_resource, is_namespace
from scoring.quantity import (
    MAX_QUANTITY,
    QuantityError,
    exact_quantity,
    scale_of,
    shorten,
)
from scoring.resources import STANDARD_RESOURCES

# Deeper than any rule, shallow enough for an alias that contains itself.
_MAX_DEPTH: Final = 32

_MERGE: Final = "tag:yaml.org,2002:merge"

_NUMBERS: Final = frozenset({"tag:yaml.org,2002:int", "tag:yaml.org,2002:float"})

_BOOLEAN: Final = "tag:yaml.org,2002:bool"

_NULL: Final = "tag:yaml.org,2002:null"


class RuleTextError(ValueError):
    """A text that is neither JSON nor YAML, or more than plain data."""


@dataclass(frozen=True, slots=True)
class NumberText:
    """A number as written."""

    text: str

    def __str__(self) -> str:
        return self.text


@dataclass(frozen=True, slots=True)
class Entries:
    """A mapping as written, keys that come twice included."""

    items: tuple[tuple[str, Any], ...]


# Entries, list, str, NumberText, bool or None
Tree: TypeAlias = Any


def parse_json(text: str) -> Tree:
    """Parse JSON; raise `RuleTextError`."""
    try:
        return json.loads(
            text,
            parse_float=NumberText,
            parse_int=NumberText,
            parse_constant=NumberText,
            object_pairs_hook=lambda pairs: Entries(tuple(pairs)),
        )
    except (ValueError, RecursionError) as error:
        raise RuleTextError(f"not JSON: {error}") from error


def parse_yaml(text: str) -> Tree:
    """Parse one YAML document; raise `RuleTextError`."""
    try:
        node = yaml.compose(text, Loader=yaml.CSafeLoader)
    except (yaml.YAMLError, RecursionError) as error:
        raise RuleTextError(f"not YAML: {describe_unreadable(error)}") from error
    return None if node is None else _tree_of(node, 0)


def _tree_of(node: yaml.Node, depth: int) -> Tree:
    """Return the tree under `node`."""
    if depth > _MAX_DEPTH:
        raise RuleTextError(f"{_line_of(node)}: nested too deeply")
    if isinstance(node, yaml.MappingNode):
        return Entries(
            tuple(
                (_key_of(key), _tree_of(value, depth + 1)) for key, value in node.value
            )
        )
    if isinstance(node, yaml.SequenceNode):
        return [_tree_of(item, depth + 1) for item in node.value]
    if node.tag in _NUMBERS:
        return NumberText(node.value)
    if node.tag == _BOOLEAN:
        return node.value.lower() in {"yes", "true", "on"}
    return None if node.tag == _NULL else node.value


def _key_of(node: yaml.Node) -> str:
    """Return a key as text; a GPU type may look like a number."""
    if not isinstance(node, yaml.ScalarNode):
        raise RuleTextError(f"{_line_of(node)}: a key must be text")
    if node.tag == _MERGE:
        raise RuleTextError(f"{_line_of(node)}: merge keys are not supported")
    key: str = node.value
    return key


def _line_of(node: yaml.Node) -> str:
    """Return where in the text `node` starts."""
    return f"line {node.start_mark.line + 1}"


_UNIT: Final = re.compile(r"[KMGTPE]i|[numkMGTPE]|[eE][+-]?\d{1,2}|", re.ASCII)

_FRACTIONS: Final = ("n", "u", "m")

_DECIMAL: Final = re.compile(r"(-?)(\d+(?:\.\d*)?|\.\d+)([eE][+-]?\d+)?", re.ASCII)

_HUGE_PAGES: Final = "hugepages-"

# `TotalAnnotationSizeLimitB` in apimachinery/pkg/api/validation/objectmeta.go
_MAX_ANNOTATIONS_SIZE: Final = 256 * 1024

# `ValidatePodSpecificAnnotations` in pkg/apis/core/validation/validation.go
_DELETION_COST: Final = "controller.kubernetes.io/pod-deletion-cost"

_CHECKED_PREFIXES: Final = (
    "container.apparmor.security.beta.kubernetes.io/",
    "container.seccomp.security.alpha.kubernetes.io/",
    "seccomp.security.alpha.kubernetes.io/pod",
    "scheduler.alpha.kubernetes.io/tolerations",
)

_DELETION_COSTS: Final = range(-(2**31), 2**31)


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
            self.fault(path or "file", f"wanted a mapping, got {describe(tree)}")
        elif tree is not None:
            seen: set[str] = set()
            for key, value in tree.items:
                shown = key.encode(errors="backslashreplace").decode()
                where = f"{path}.{shown}" if path else shown
                if shown != key:
                    self.fault(where, f"wanted a key in UTF-8, got {shorten(key)}")
                if key in seen:
                    self.fault(where, "comes twice")
                seen.add(key)
                yield key, value, where

    def items(self, tree: Tree, path: str) -> Iterator[tuple[Tree, str]]:
        """Yield value and path of each item of a list; null is empty."""
        if isinstance(tree, list):
            yield from ((item, f"{path}[{index}]") for index, item in enumerate(tree))
        elif tree is not None:
            self.fault(path, f"wanted a list, got {describe(tree)}")

    def fault(self, path: str, message: str) -> None:
        """Note one thing that is wrong."""
        self.faults.append(Fault(path, message))

    def resource_name(self, value: Tree, path: str) -> str | None:
        """Read the name of a resource that can be injected."""
        if isinstance(value, str) and (
            value in STANDARD_RESOURCES
            or page_size(value)
            or is_extended_resource(value)
        ):
            return value
        self.fault(
            path,
            f"wanted {', '.join(STANDARD_RESOURCES)} or an extended resource,"
            f" got {describe(value)}",
        )
        return None

    def unit(self, value: Tree, name: str | None, path: str) -> str | None:
        """Read the unit; absent means none."""
        unit = "" if value is None else value
        if not isinstance(unit, str) or not _UNIT.fullmatch(unit):
            self.fault(
                path,
                f"wanted a suffix such as m, Mi, Gi or none, got {describe(value)}",
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
            self.fault(path, f"wanted a decimal number, got {describe(value)}")
            return None
        sign, digits, exponent = match.groups(default="")
        exact = exact_quantity(f"{digits}{exponent}")
        if sign or not exact:
            self.fault(path, f"wanted a number above 0, got {describe(value)}")
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

    def check_annotations(self, annotations: Mapping[str, str], path: str) -> None:
        """Name a fault for what makes the API server refuse every pod that has it."""
        size = 0
        for key, value in annotations.items():
            try:
                size += len(key.encode(errors="replace")) + len(value.encode())
            except UnicodeEncodeError:
                self.fault(f"{path}.{key}", f"wanted UTF-8, got {shorten(value)}")
            if key == _DELETION_COST and not _is_deletion_cost(value):
                self.fault(
                    f"{path}.{key}",
                    f"wanted a whole number of 32 bits, got {shorten(value)}",
                )
            if key.startswith(_CHECKED_PREFIXES):
                self.fault(
                    f"{path}.{key}",
                    "the API server reads it and refuses pods by it; use fields of the"
                    " pod",
                )
        if size > _MAX_ANNOTATIONS_SIZE:
            self.fault(
                path,
                f"wanted at most {_MAX_ANNOTATIONS_SIZE} bytes of keys and values, got"
                f" {size}",
            )

    def namespace(self, value: Tree, path: str) -> str:
        """Read the name of a namespace."""
        if isinstance(value, str) and is_namespace(value):
            return value
        self.fault(path, f"wanted the name of a namespace, got {describe(value)}")
        return ""


def _is_deletion_cost(text: str) -> bool:
    """Whether the API server takes `text` as the cost of deleting a pod.

    >>> _is_deletion_cost("-7"), _is_deletion_cost("+7"), _is_deletion_cost("007")
    (True, False, False)
    """
    if not re.fullmatch(r"-?\d{1,10}", text, re.ASCII):
        return False
    return (text == "0" or text[0] != "0") and int(text) in _DELETION_COSTS


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


def describe(value: Tree) -> str:
    """Return a value for a message."""
    if isinstance(value, Entries):
        return "a mapping"
    if isinstance(value, list):
        return "a list"
    return shorten(value) if isinstance(value, str) else str(value).lower()
