"""Mutated bodies of real kube-schedulers: refused, or answered within the contract."""

import io
import json
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from cluster.dump import load_dump
from cluster.ledger import Ledger
from scoring.feasibility import REASONS
from tests.builders import BUILDER, LABEL_KEYS
from tests.extender_app import FILTER, PRIORITIZE, ExtenderApp

CAPTURES: Final = Path(__file__).parents[1] / "contract" / "captures"
BODIES: Final = [
    path.read_bytes()
    for path in sorted(CAPTURES.glob("*/scheduler-*-filter.*.json"))
    if not path.name.endswith(".response.json")
]
ROUNDS: Final = 5000  # two bodies each, both verbs
SEED: Final = 20_261_127
TEXTS: Final = {reason.text for reason in REASONS.values()}
ODD_VALUES: Final[list[Any]] = [
    None, True, False, 0, -1, 1.5, 2**63, 10**40, "", "1", "1.2.3Gi", "-1", "1e9999",
    "ghost", "h100-01", "\x00", "\ud7ff", "\u2028", "🚀" * 50,
    [], {}, [[]], [None],
    {"items": []}, {"metadata": {}}, {"nvidia.com/gpu": "1"}, ["h100-01", "h100-01"],
]  # fmt: skip
ODD_KEYS: Final = [
    "Pod", "pod", "NodeNames", "nodenames", "Nodes", "items", "metadata", "name",
    "spec", "status", "uid", "resources", "limits", "requests", "nvidia.com/gpu",
    "containers", "initContainers", "overhead", "nodeSelector", "accelerator",
    "nominatedNodeName", "",
]  # fmt: skip


@pytest.fixture(scope="module")
def app() -> ExtenderApp:
    """The application over the captured cluster."""
    ledger = Ledger(LABEL_KEYS)
    for change in load_dump([CAPTURES / "1.36" / "cluster-dump.yaml"], BUILDER):
        ledger.apply(change)
    running = ExtenderApp(is_synced=False)
    running.cell.publish(ledger.build())
    return running


def call(app: ExtenderApp, path: str, body: bytes) -> tuple[int, bytes]:
    """Call the application as a WSGI server does, at a tenth of a client's cost."""
    statuses: list[str] = []
    environ = {
        "REQUEST_METHOD": "POST",
        "PATH_INFO": path,
        "QUERY_STRING": "",
        "SERVER_NAME": "localhost",
        "SERVER_PORT": "80",
        "SERVER_PROTOCOL": "HTTP/1.1",
        "CONTENT_TYPE": "application/json",
        "CONTENT_LENGTH": str(len(body)),
        "wsgi.url_scheme": "http",
        "wsgi.input": io.BytesIO(body),
        "wsgi.errors": io.StringIO(),
    }

    def start_response(status: str, *_rest: object) -> Callable[[bytes], object]:
        statuses.append(status)
        return str  # nobody writes this way

    chunks = app.client.app(environ, start_response)
    return int(statuses[0][:3]), b"".join(chunks)


def mutate_bytes(body: bytes, chance: random.Random) -> bytes:
    """Return the body with a few bytes changed, taken out, doubled or put in."""
    changed = bytearray(body)
    for _ in range(chance.randint(1, 4)):
        start = chance.randrange(len(changed) or 1)
        end = start + chance.choice([0, 1, 1, 2, 8, 64, 4096])
        piece = changed[start:end]
        changed[start:end] = chance.choice(
            [
                b"",
                piece * 2,
                bytes(chance.randrange(256) for _ in piece[:8]),
                chance.choice(
                    [b'"', b"{", b"}", b"[", b"]", b",", b":", b"null", b"9"]
                ),
            ]
        )
    return bytes(changed[: chance.choice([len(changed)] * 9 + [len(changed) // 2])])


def places(tree: Any) -> Iterator[tuple[Any, Any]]:
    """Yield each container with each of its keys, all the way down."""
    keys = tree if isinstance(tree, dict) else range(len(tree))
    for key in keys:
        yield tree, key
        if isinstance(tree[key], dict | list):
            yield from places(tree[key])


def mutate_tree(body: bytes, chance: random.Random) -> bytes:
    """Return the body with a few values replaced, taken out, renamed or doubled."""
    tree = json.loads(body)
    for _ in range(chance.randint(1, 3)):
        found = list(places(tree))
        if not found:
            break
        parent, key = chance.choice(found)
        mutation = chance.choice([replace_value, remove_value, add_value, copy_value])
        mutation(parent, key, found, chance)
    return json.dumps(tree, ensure_ascii=chance.random() < 0.5).encode()


def replace_value(parent: Any, key: Any, _found: Any, chance: random.Random) -> None:
    parent[key] = chance.choice(ODD_VALUES)


def remove_value(parent: Any, key: Any, _found: Any, _chance: random.Random) -> None:
    del parent[key]


def add_value(parent: Any, key: Any, _found: Any, chance: random.Random) -> None:
    if isinstance(parent, dict):
        parent[chance.choice([*ODD_KEYS, str(key).upper()])] = parent[key]
    else:
        parent.insert(key, chance.choice(ODD_VALUES))


def copy_value(parent: Any, key: Any, found: Any, chance: random.Random) -> None:
    other, position = chance.choice(found)
    parent[key] = json.loads(json.dumps(other[position]))


def read(body: bytes) -> Any:
    """Return a body's value; what is skipped need not be text, as with Go."""
    return json.loads(body.decode(errors="replace"), strict=False)


def names_asked(body: bytes) -> list[str]:
    """Return the candidates of a body that was answered, each once, in order."""
    parts = {key.lower(): value for key, value in read(body).items()}
    names = parts.get("nodenames")
    if names is None:
        nodes = {key.lower(): value for key, value in parts["nodes"].items()}
        names = [item["metadata"]["name"] for item in nodes.get("items") or ()]
    return list(dict.fromkeys(names))


def check_filter(body: bytes, answer: bytes) -> None:
    """Assert that every candidate is in one place, for one of the known reasons."""
    asked, result = names_asked(body), read(answer)
    kept = result["NodeNames"]
    if kept is None:
        kept = [item["metadata"]["name"] for item in result["Nodes"]["items"]]
    failed, unresolvable = result["FailedNodes"], result["FailedAndUnresolvableNodes"]
    places_taken = [*kept, *failed, *unresolvable]
    assert sorted(places_taken) == sorted(asked)
    assert kept == [name for name in asked if name in set(kept)]
    texts = {*failed.values(), *unresolvable.values()}
    assert texts <= TEXTS
    assert kept or len(texts) <= 1
    assert result["Error"] == ""
    assert not answer.endswith(b"\n")


def check_prioritize(body: bytes, answer: bytes) -> None:
    """Assert that every candidate has one whole score within the range."""
    result = json.loads(answer)
    assert [entry["Host"] for entry in result] == names_asked(body)
    for entry in result:
        assert set(entry) == {"Host", "Score"}
        assert type(entry["Score"]) is int
        assert 0 <= entry["Score"] <= 10


CHECKS: Final[list[tuple[str, Callable[[bytes, bytes], None]]]] = [
    (FILTER, check_filter),
    (PRIORITIZE, check_prioritize),
]


def test_mutated_bodies_are_refused_or_answered_within_the_contract(
    app: ExtenderApp,
) -> None:
    chance = random.Random(SEED)  # noqa: S311  the same bodies in every run
    statuses: dict[int, int] = {}
    for _ in range(ROUNDS):
        original = chance.choice(BODIES)
        for body in (mutate_bytes(original, chance), mutate_tree(original, chance)):
            for path, check in CHECKS:
                status, answer = call(app, path, body)
                statuses[status] = statuses.get(status, 0) + 1
                assert status in (200, 400), body
                if status == 200:
                    check(body, answer)

    assert app.cell.current().generation == 1
    # Both ways are taken often: the mutations are neither all harmless nor all fatal.
    assert min(statuses[200], statuses[400]) > ROUNDS


def test_unmutated_bodies_pass_the_same_checks(app: ExtenderApp) -> None:
    for body in BODIES:
        for path, check in CHECKS:
            status, answer = call(app, path, body)

            assert status == 200
            check(body, answer)
