"""Changes to bodies: of their bytes, and of the trees that they stand for."""

import json
import random
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

Path: TypeAlias = tuple[Any, ...]

TOKENS: Final = (
    b'"', b"{", b"}", b"[", b"]", b",", b":", b"null", b"9", b"\\u", b"\xff", b" ",
    b'"Pod":{},', b'"NodeNames":[],', b'"a":' * 2000,
)  # fmt: skip
ODD_VALUES: Final[tuple[Any, ...]] = (
    None, True, False, 0, 7.0, -1, 1.5, 2**63, 10**40, "", "0", "1", "64", "1.2.3Gi",
    "-1", "1e9999", "1n", "ghost", "h100-01", "h100-02", "\x00", "\ud7ff", "\u2028",
    "a]b", "🚀" * 50, "x" * 5000, [], {}, [[]], [None], {"items": []}, {"metadata": {}},
    {"metadata": {"name": "h100-01"}}, {"nvidia.com/gpu": "1"}, ["h100-01", "h100-01"],
    ["l4-01", "ghost", "a100-pcie-01"], {"Pods": None}, {"Pods": [{"UID": "x"}]},
    "H100, A100-80GB, !L4", "!", "40Gi", "required", "Always",
    [{"key": "a", "operator": "In", "values": None}],
)  # fmt: skip
ODD_KEYS: Final = (
    "Pod", "pod", "NodeNames", "nodenames", "Nodes", "items", "metadata", "name",
    "namespace", "spec", "status", "uid", "UID", "Pods", "NumPDBViolations",
    "NodeNameToVictims", "NodeNameToMetaVictims", "h100-01", "ghost", "labels",
    "annotations", "resources", "limits", "requests", "nvidia.com/gpu",
    "nvidia.com/mig-1g.10gb", "containers", "initContainers", "restartPolicy",
    "overhead", "nodeSelector", "nodeName", "accelerator", "affinity", "tolerations",
    "nominatedNodeName", "allocatable", "capacity", "conditions", "kind", "template",
    "gpu-extender.io/gpu-type", "gpu-extender.io/min-gpu-memory",
    "gpu-extender.io/linked", "gpu-extender.io/exclusive", "gpu-extender.io/sharing",
    "",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Seed:
    """A body that is mutated, with the paths to all values in its tree."""

    body: bytes
    paths: tuple[Path, ...]


def make_seed(body: bytes) -> Seed:
    """Return a body as what mutations begin with."""
    return Seed(body, tuple(_paths(json.loads(body), ())))


def _paths(tree: Any, above: Path) -> Iterator[Path]:
    """Yield the path of each value, all the way down."""
    keys = tree if isinstance(tree, dict) else range(len(tree))
    for key in keys:
        yield (*above, key)
        if isinstance(tree[key], dict | list):
            yield from _paths(tree[key], (*above, key))


def mutate(seed: Seed, chance: random.Random) -> bytes:
    """Return the seed's body, changed in one of the two ways; at times not at all."""
    way = chance.random()
    if way < 0.35:
        return mutate_bytes(seed.body, chance)
    if way < 0.98:
        return mutate_tree(seed, chance)
    return seed.body


def mutate_bytes(body: bytes, chance: random.Random) -> bytes:
    """Return the body with a few bytes changed, taken out, doubled or put in."""
    changed = bytearray(body)
    for _ in range(chance.randint(1, 4)):
        start = chance.randrange(len(changed) or 1)
        end = start + chance.choice((0, 1, 1, 2, 8, 64, 4096))
        piece = changed[start:end]
        match chance.randrange(4):
            case 0:
                changed[start:end] = b""
            case 1:
                changed[start:end] = piece * 2
            case 2:
                changed[start:end] = chance.randbytes(min(len(piece), 8))
            case _:
                changed[start:end] = chance.choice(TOKENS)
    return bytes(changed if chance.random() < 0.9 else changed[: len(changed) // 2])


def mutate_tree(seed: Seed, chance: random.Random) -> bytes:
    """Return the body with a few values replaced, taken out, renamed or doubled."""
    tree = json.loads(seed.body)
    for _ in range(chance.randint(1, 3)):
        place = _find(tree, chance.choice(seed.paths))
        if place is not None:
            _mutate_at(*place, tree, seed, chance)
    separators = (",", ":") if chance.random() < 0.7 else None
    is_ascii = chance.random() < 0.5
    return json.dumps(tree, ensure_ascii=is_ascii, separators=separators).encode()


def _find(tree: Any, path: Path) -> tuple[Any, Any] | None:
    """Return the container of a path and the key in it; None if it is gone."""
    for step in path[:-1]:
        tree = _step(tree, step)
    return None if _step(tree, path[-1]) is None else (tree, path[-1])


def _step(tree: Any, key: Any) -> Any:
    """Return what is one step down; None where there is nothing."""
    if isinstance(tree, dict):
        return tree.get(key)
    if isinstance(tree, list) and isinstance(key, int) and key < len(tree):
        return tree[key]
    return None


def _mutate_at(
    parent: Any, key: Any, tree: Any, seed: Seed, chance: random.Random
) -> None:
    """Change one value of the tree, or its surroundings."""
    match chance.randrange(5):
        case 0:
            parent[key] = chance.choice(ODD_VALUES)
        case 1:
            del parent[key]
        case 2 if isinstance(parent, dict):
            parent[chance.choice((*ODD_KEYS, str(key).upper()))] = parent[key]
        case 2:
            parent.insert(key, chance.choice(ODD_VALUES))
        case 3 if isinstance(parent, dict):
            parent[chance.choice(ODD_KEYS)] = chance.choice(ODD_VALUES)
        case 3:
            parent.extend(parent[: chance.randint(1, 50)] * chance.choice((1, 1, 20)))
        case _:
            other = _find(tree, chance.choice(seed.paths))
            if other is not None:  # a copy, lest the tree contain itself
                parent[key] = json.loads(json.dumps(other[0][other[1]]))
