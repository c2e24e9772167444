"""YAML text to plain trees: objects of a dump or manifest, and configuration."""

from collections.abc import Iterator
from typing import Any, Final

import yaml
from yaml.constructor import ConstructorError

from scoring.quantity import shorten

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


def parse_all(data: bytes) -> Iterator[Any]:
    """Yield the documents of a text as JSON would give them; raise of `UNREADABLE`."""
    return yaml.load_all(data, Loader=_JsonLoader)


def parse_unique(data: bytes) -> Any:
    """Return the one document of a text in which no key of a mapping stands twice.

    Times are those of Python, unlike in `parse_all`.
    """
    return yaml.load(data, Loader=_UniqueKeyLoader)  # noqa: S506  a safe loader
