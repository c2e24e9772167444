"""JSON or YAML text to a tree in which numbers are still text and no key is lost."""

import json
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import yaml

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
        where = " ".join(str(error).split())
        raise RuleTextError(f"not YAML: {where}") from error
    return None if node is None else _tree_of(node, 0)


def _tree_of(node: yaml.Node, depth: int) -> Tree:
    """Return the tree under `node`."""
    if depth > _MAX_DEPTH:
        raise RuleTextError(f"{_place(node)}: nested too deeply")
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
        raise RuleTextError(f"{_place(node)}: a key must be text")
    if node.tag == _MERGE:
        raise RuleTextError(f"{_place(node)}: merge keys are not supported")
    key: str = node.value
    return key


def _place(node: yaml.Node) -> str:
    """Return where in the text `node` starts."""
    return f"line {node.start_mark.line + 1}"
