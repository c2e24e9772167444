"""Conversion of a tree that leaves out what does not fit, and names every fault."""

import re
from collections.abc import Sequence
from typing import Any, Final, TypeAlias, TypeVar

import msgspec

from scoring.faults import Fault
from scoring.quantity import shorten

# Path in the tree as it was received, and what was wanted and received there.
Complaint: TypeAlias = tuple[str, str]

_MESSAGE: Final = re.compile(r"\A(.*?) - at (`key` in )?`\$?(.*)`\Z", re.DOTALL)

_STEP: Final = re.compile(r"\.([^.\[]+)|\[(\d+)\]")

_MISSING: Final = re.compile(r"\AObject missing required field `(.*)`\Z", re.DOTALL)


class Pruner:
    """Takes out of one tree what msgspec refuses, one fault after the other.

    Parameters
    ----------
    tree : Any
        As a JSON or YAML decoder leaves it; pruned in place.

    Notes
    -----
    Paths are those of the tree as it was received: an object in a list gives way to an
    empty one, so that its neighbours keep their indices, and where items do go, the
    indices they had are remembered.
    """

    def __init__(self, tree: Any) -> None:
        self._tree = tree
        # id of a list -> the index that each present item had at first
        self._indices: dict[int, list[int]] = {}
        # id of a mapping -> its fields that were taken out, each told of already
        self._taken: dict[int, set[str]] = {}
        self._fillers: list[dict[str, Any]] = []

    def prune(self, said: str) -> tuple[list[Complaint], bool]:
        """Take out what the library names.

        Parameters
        ----------
        said : str
            Text of a `msgspec.ValidationError` of this tree.

        Returns
        -------
        tuple
            What is to be told of it, and whether anything was taken out.
        """
        match = _MESSAGE.match(said)
        message, is_key, path = match.groups(default="") if match else (said, "", "")
        steps = [
            name or int(index)
            for name, index in _STEP.findall(path.removesuffix("[...]"))
        ]
        missing = _MISSING.match(message)
        if missing:
            return self._take_incomplete(steps, missing[1])
        if is_key or path.endswith("[...]"):
            return self._take_entries(steps)
        return self._take_value(steps, message)

    def _take_incomplete(
        self, steps: Sequence[str | int], field: str
    ) -> tuple[list[Complaint], bool]:
        """Take out an object that lacks a required field."""
        found, path = self._walk(steps)
        is_told = field in self._taken.get(id(found), ()) or any(
            found is filler for filler in self._fillers
        )
        told = [] if is_told else [(f"{path}.{field}", "wanted a value, got none")]
        if steps:
            self._take(steps)
        return told, bool(steps)

    def _take_entries(self, steps: Sequence[str | int]) -> tuple[list[Complaint], bool]:
        """Take out a mapping's keys that are no text; if all are, such values."""
        found, path = self._walk(steps)
        told = [
            (f"{path}[{shorten(key)}]", f"wanted text as key, got {shorten(key)}")
            for key in found
            if not isinstance(key, str)
        ] or [
            (f"{path}[{key!r}]", f"wanted text, got {shorten(value)}")
            for key, value in found.items()
            if not isinstance(value, str)
        ]
        keys = [key for key in found if not isinstance(key, str)] or [
            key for key, value in found.items() if not isinstance(value, str)
        ]
        for key in keys:
            del found[key]
        return told, bool(keys)

    def _take_value(
        self, steps: Sequence[str | int], message: str
    ) -> tuple[list[Complaint], bool]:
        """Take out a value of the wrong type."""
        value, path = self._walk(steps)
        said = (message[:1].lower() + message[1:]).replace("`", "")
        told = [(path, f"{said.replace('expected', 'wanted', 1)}: {shorten(value)}")]
        if not steps:
            return told, False
        parent, _ = self._walk(steps[:-1])
        if isinstance(parent, list) and message.startswith("Expected `object"):
            filler: dict[str, Any] = {}
            self._fillers.append(filler)
            parent[int(steps[-1])] = filler
        else:
            self._take(steps)
        return told, True

    def _walk(self, steps: Sequence[str | int]) -> tuple[Any, str]:
        """Return what is at the end of `steps`, and its path as received."""
        value, path = self._tree, ""
        for step in steps:
            if isinstance(step, int):
                indices = self._indices.get(id(value))
                path += f"[{indices[step] if indices else step}]"
            else:
                path += f".{step}"
            value = value[step]
        return value, path

    def _take(self, steps: Sequence[str | int]) -> None:
        """Take the end of `steps` out of its list or mapping."""
        parent, _ = self._walk(steps[:-1])
        last = steps[-1]
        if isinstance(last, int):
            indices = self._indices.setdefault(id(parent), list(range(len(parent))))
            del indices[last]
        else:
            self._taken.setdefault(id(parent), set()).add(last)
        del parent[last]


# A healthy object has none; a hopeless one shall not take a minute.
MAX_FAULTS: Final = 50

_Object = TypeVar("_Object")


def decode_object(data: bytes | msgspec.Raw, kind: type[_Object]) -> _Object:
    """Decode JSON; raise `msgspec.ValidationError` on the first fault."""
    return msgspec.json.decode(data, type=kind)


def convert_with_faults(
    tree: Any, kind: type[_Object]
) -> tuple[_Object | None, list[Fault]]:
    """Convert what fits `kind` and name what does not.

    Parameters
    ----------
    tree : Any
        As a JSON or YAML decoder leaves it. It is pruned in place.
    kind : type
        A `msgspec.Struct`.

    Returns
    -------
    tuple
        The object, None if too little is left of it, and the faults.
    """
    faults: list[Fault] = []
    pruner = Pruner(tree)
    while len(faults) < MAX_FAULTS:
        try:
            return msgspec.convert(tree, kind), faults
        except msgspec.ValidationError as error:
            told, is_pruned = pruner.prune(str(error))
            faults.extend(
                Fault(path.lstrip(".") or "object", said) for path, said in told
            )
            if not is_pruned:
                break
    return None, faults
