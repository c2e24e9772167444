"""YAML text to plain trees: objects of a dump or manifest, and configuration."""

import json
import re
from collections import Counter
from collections.abc import Iterator
from typing import Any, Final

import yaml
from yaml.constructor import ConstructorError

from scoring.quantity import one_line, shorten

# Raised by reading a file and by `parse_all`: RecursionError by nesting without end.
UNREADABLE: Final = (OSError, ValueError, RecursionError, yaml.YAMLError)

# Python prints no number of more than 4,300 digits; as hexadecimal YAML can have them.
MAX_INTEGER_BITS: Final = 4096

# A plain time is text in JSON, and so is a plain ``=``, for which PyYAML has no
# constructor although it gives it a tag of its own (yaml/pyyaml#89).
_TEXT_TAGS: Final = ("tag:yaml.org,2002:timestamp", "tag:yaml.org,2002:value")

_JSON_TAGS: Final = ("null", "bool", "int", "float", "str", "seq", "map")


class _JsonLoader(yaml.CSafeLoader):
    """Gives what JSON can give, and nothing else."""

    def construct_object(self, node: yaml.Node, deep: bool = False) -> Any:
        """Construct one value; PyYAML lets faults of scalars through as they come."""
        try:
            value = super().construct_object(node, deep)
            if isinstance(value, int) and value.bit_length() > MAX_INTEGER_BITS:
                raise ValueError("integer out of range")  # noqa: TRY301 - one answer for all scalars
        except (LookupError, ValueError) as error:
            said = f"wanted {node.tag.rpartition(':')[2]}, got {shorten(node.value)}"
            raise ConstructorError(None, None, said, node.start_mark) from error
        return value


_JsonLoader.yaml_implicit_resolvers = {
    first: [pair for pair in pairs if pair[0] not in _TEXT_TAGS]
    for first, pairs in yaml.CSafeLoader.yaml_implicit_resolvers.items()
}

_JsonLoader.yaml_constructors = {
    tag: yaml.CSafeLoader.yaml_constructors[tag]
    for tag in (None, *(f"tag:yaml.org,2002:{name}" for name in _JSON_TAGS))
}


class _UniqueKeyLoader(yaml.CSafeLoader):
    """Takes each key of a mapping once."""

    def construct_mapping(
        self, node: yaml.MappingNode, deep: bool = False
    ) -> dict[Any, Any]:
        """Return a mapping; raise an error at a key that comes again."""
        seen = set()
        for key, _ in node.value:
            if isinstance(key, yaml.ScalarNode) and key.value in seen:
                raise ConstructorError(
                    None,
                    None,
                    f"wanted each key once, got {key.value!r} again",
                    key.start_mark,
                )
            seen.add(key.value if isinstance(key, yaml.ScalarNode) else id(key))
        return super().construct_mapping(node, deep)


class _UniqueJsonLoader(_UniqueKeyLoader, _JsonLoader):
    """Gives what JSON can give, and takes each key of a mapping once."""


def parse_all(data: bytes, *, is_unique: bool = False) -> Iterator[Any]:
    """Yield the documents of a text as JSON would give them; raise of `UNREADABLE`.

    With `is_unique` a key that stands twice in a mapping is a fault; else the last
    counts.
    """
    return yaml.load_all(data, Loader=_UniqueJsonLoader if is_unique else _JsonLoader)


def check_unique_json(data: bytes) -> None:
    """Raise `ValueError` if a key stands twice in an object of a JSON text."""
    json.loads(data, object_pairs_hook=_unique_pairs)


def _unique_pairs(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        counts = Counter(key for key, _ in pairs)
        again = next(key for key, count in counts.items() if count > 1)
        raise ValueError(f"wanted each key once, got {shorten(again)} again")
    return found


def describe_unreadable(error: BaseException) -> str:
    """Return in one line why a file cannot be read, and where in it.

    >>> describe_unreadable(FileNotFoundError(2, "No such file or directory", "x"))
    'no such file or directory'
    """
    if isinstance(error, OSError) and error.strerror:
        return error.strerror[:1].lower() + error.strerror[1:]
    if isinstance(error, yaml.MarkedYAMLError) and error.problem_mark is not None:
        context = f" ({error.context}" if error.context else ""
        if context:
            begun = error.context_mark
            context += f" of {_place(begun)})" if begun is not None else ")"
        return one_line(f"{_place(error.problem_mark)}: {error.problem}{context}")
    return re.sub(r'in "<[a-z]+ string>", ', "at ", one_line(error))


def _place(mark: yaml.Mark) -> str:
    return f"line {mark.line + 1}, column {mark.column + 1}"


def parse_unique(data: bytes) -> Any:
    """Return the one document of a text in which no key of a mapping stands twice.

    Times are those of Python, unlike in `parse_all`.
    """
    return yaml.load(data, Loader=_UniqueKeyLoader)  # noqa: S506  a safe loader
