"""Broken dumps: every one gives a cluster or a list of faults, never anything else."""

import json
import random
from copy import deepcopy
from pathlib import Path
from typing import Any, Final

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from cluster.dump import DumpError, load_dump
from cluster.ledger.ledger import Ledger
from tests.builders import BUILDER, LABEL_KEYS, Tree, make_node, make_pod

DUMP: Final = (
    Path(__file__).parents[2] / "contract" / "captures" / "1.36" / "cluster-dump.yaml"
)
VALUES: Final[tuple[Any, ...]] = (
    None,
    True,
    -1,
    0,
    2**70,
    2**4000,
    1.5,
    "",
    "x",
    "1.2.3Gi",
    "1e1000000",
    "2026-11-27T12:00:00Z",
    [],
    [None],
    ["x"],
    [[]],
    {},
    {"": None},
    {"a": {"b": []}},
    {1: 2},
)
KEYS: Final = ("x", "", "kind", "items", "metadata", "spec", "status", "resources")


def small_dump() -> Tree:
    """Return some objects of each sort of the real dump, and what it lacks."""
    tree: Tree = yaml.safe_load(DUMP.read_bytes())
    nodes = [item for item in tree["items"] if item["kind"] == "Node"]
    pods = [item for item in tree["items"] if item["kind"] == "Pod"]
    items = [*nodes[:2], *pods[:3], *pods[-1:]]
    for item in items:
        item["metadata"].pop("managedFields", None)
    items.append(
        make_node(name="tainted", gpus=8, taints=[{"key": "k", "effect": "NoSchedule"}])
    )
    term = {"matchExpressions": [{"key": "k", "operator": "In", "values": ["v"]}]}
    items.append(
        make_pod(
            name="choosy",
            gpus=1,
            owner_uid="job",
            spec={
                "tolerations": [{"key": "k", "operator": "Exists"}],
                "affinity": {
                    "nodeAffinity": {
                        "requiredDuringSchedulingIgnoredDuringExecution": {
                            "nodeSelectorTerms": [term]
                        }
                    }
                },
            },
        )
    )
    items.append(
        {
            "kind": "DeviceClass",
            "metadata": {"name": "gpu"},
            "spec": {"extendedResourceName": "nvidia.com/gpu"},
        }
    )
    return {"apiVersion": "v1", "kind": "List", "items": items}


TREE: Final = small_dump()
TEXT: Final = {
    ".yaml": yaml.safe_dump(TREE).encode(),
    ".json": json.dumps(TREE).encode(),
}


def mutate(tree: Tree, chance: random.Random) -> None:
    """Change one place of a tree."""
    value: Any = tree
    while True:
        keys = list(value) if isinstance(value, dict) else list(range(len(value)))
        if not keys:
            return
        key = chance.choice(keys)
        if isinstance(value[key], dict | list) and chance.random() < 0.8:
            value = value[key]
            continue
        break
    kind = chance.choice(("replace", "replace", "remove", "add"))
    if kind == "replace":
        value[key] = deepcopy(chance.choice(VALUES))
    elif kind == "remove":
        del value[key]
    elif isinstance(value, dict):
        value[chance.choice(KEYS)] = deepcopy(chance.choice(VALUES))
    else:
        value.append(deepcopy(chance.choice((value[key], *VALUES))))


def check(path: Path) -> None:
    """Load a file: either a cluster, or faults that say where they are."""
    try:
        changes = load_dump([path], BUILDER)
    except DumpError as error:
        for fault in error.faults:
            assert path.name in fault.path
            assert fault.message.strip()
            assert len(fault.message) < 1000
        return

    ledger = Ledger(LABEL_KEYS)
    for change in changes:
        ledger.apply(change)
    assert ledger.build().generation == 1


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("dumps")


@settings(max_examples=300)
@given(seed=st.integers(0, 2**32), count=st.integers(1, 4))
def test_a_changed_json_tree(folder: Path, seed: int, count: int) -> None:
    chance = random.Random(seed)  # noqa: S311 - picks places, guards nothing
    tree = deepcopy(TREE)
    for _ in range(count):
        mutate(tree, chance)
    path = folder / "tree.json"
    path.write_text(json.dumps(tree), encoding="utf-8")

    check(path)


@settings(max_examples=60)
@given(seed=st.integers(0, 2**32), count=st.integers(1, 4))
def test_a_changed_yaml_tree(folder: Path, seed: int, count: int) -> None:
    chance = random.Random(seed)  # noqa: S311 - picks places, guards nothing
    tree = deepcopy(TREE)
    for _ in range(count):
        mutate(tree, chance)
    path = folder / "tree.yaml"
    path.write_text(yaml.safe_dump(tree), encoding="utf-8")

    check(path)


# Bytes that mean something to a reader of YAML or JSON.
TOKENS: Final = (
    b" \x00 \xff \n \t { } [ ] \" ' : - ? = << 0x 1e999 &a *a --- !!int !!set"
).split(b" ")
INSERTS: Final = st.sampled_from(TOKENS) | st.binary(max_size=3)


@pytest.mark.parametrize("suffix", list(TEXT))
@settings(max_examples=80)
@given(
    changes=st.lists(
        st.tuples(st.floats(0, 1), st.integers(0, 40), INSERTS), min_size=1, max_size=3
    )
)
def test_changed_bytes(
    folder: Path, suffix: str, changes: list[tuple[float, int, bytes]]
) -> None:
    data = TEXT[suffix]
    for place, length, insert in changes:
        start = int(place * len(data))
        data = data[:start] + insert + data[start + length :]
    path = folder / f"bytes{suffix}"
    path.write_bytes(data)

    check(path)


@pytest.mark.parametrize("suffix", list(TEXT))
@settings(max_examples=40)
@given(length=st.floats(0, 1))
def test_a_file_that_is_cut_short(folder: Path, suffix: str, length: float) -> None:
    path = folder / f"cut{suffix}"
    path.write_bytes(TEXT[suffix][: int(length * len(TEXT[suffix]))])

    check(path)
