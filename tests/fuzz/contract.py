"""What an answer must be like, by the body alone; written from the contract.

Bodies are read with the decoder of the standard library, which the product does not
use. What it skips need not be text in any encoding, as with Go.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from scoring.feasibility import REASONS
from tests.fuzz.corpus import EXPLAIN, FILTER, PREEMPT, PRIORITIZE

RESOLVABLE: Final = {reason.text for reason in REASONS.values() if reason.is_resolvable}
UNRESOLVABLE: Final = {reason.text for reason in REASONS.values()} - RESOLVABLE
MAX_ERROR_BYTES: Final = 32_768


class ContractError(AssertionError):
    """An answer that kube-scheduler must never get."""


@dataclass(frozen=True, slots=True)
class Terms:
    """What the settings say of answers."""

    max_score: int = 10
    shortlist: int = 0


@dataclass(frozen=True, slots=True)
class Answer:
    """What came back."""

    status: int
    content_type: str
    body: bytes


def must(holds: object, said: str) -> None:
    """Raise `ContractError` unless it holds."""
    if not holds:
        raise ContractError(said)


def read(body: bytes) -> Any:
    """Return a body's value."""
    return json.loads(body.decode(errors="replace"), strict=False)


def check(route: str, body: bytes, answer: Answer, terms: Terms) -> None:
    """Raise `ContractError` if the answer to a body breaks the contract."""
    must(answer.status in (200, 400), f"status {answer.status}")
    must(answer.content_type == "application/json", answer.content_type)
    must(not answer.body.endswith(b"\n"), "a trailing byte")
    if answer.status == 400:
        check_error(answer.body)
        return
    match route:
        case _ if route == FILTER:
            check_filter(read(body), body, answer.body, terms)
        case _ if route == PRIORITIZE:
            check_prioritize(read(body), answer.body, terms)
        case _ if route == PREEMPT:
            check_preempt(read(body), answer.body)
        case _ if route == EXPLAIN:
            check_explanation(answer.body, terms)


def check_error(answer: bytes) -> None:
    """A refusal is a short JSON object that names what is wrong."""
    error = json.loads(answer)
    must(error["title"] == "400 Bad Request", f"title {error['title']!r}")
    must(": " in error["description"], "no field is named")
    must(len(answer) <= MAX_ERROR_BYTES, f"an error of {len(answer)} bytes")


def lowered(tree: dict[str, Any]) -> dict[str, Any]:
    """Return an object by lower-case key; a key that stands twice may not pass."""
    found = {key.lower(): value for key, value in tree.items()}
    must(len(found) == len(tree), "a key stands twice in a body that was answered")
    return found


def names_asked(tree: dict[str, Any]) -> list[str]:
    """Return the candidates of a body, each once, in their order."""
    parts = lowered(tree)
    must(isinstance(parts.get("pod"), dict), "no pod in a body that was answered")
    names = parts.get("nodenames")
    if names is None:
        items = lowered(parts["nodes"]).get("items") or ()
        names = [item["metadata"]["name"] for item in items]
    return list(dict.fromkeys(names))


def check_filter(
    tree: dict[str, Any], body: bytes, answer: bytes, terms: Terms
) -> None:
    """Each candidate is kept in the form that was sent, or has a known reason."""
    asked, result = names_asked(tree), read(answer)
    kept = result["NodeNames"]
    if lowered(tree).get("nodenames") is None:
        must(kept is None, "names for objects")
        kept = [item["metadata"]["name"] for item in result["Nodes"]["items"]]
        check_echo(body, answer)
    else:
        must(result["Nodes"] is None, "objects for names")
    failed, unresolvable = result["FailedNodes"], result["FailedAndUnresolvableNodes"]
    must(set(result) == FILTER_KEYS, f"keys {sorted(result)}")
    must(result["Error"] == "", "an error in an answer")
    must(set(failed.values()) <= RESOLVABLE, f"reasons {set(failed.values())}")
    must(
        set(unresolvable.values()) <= UNRESOLVABLE | RESOLVABLE,
        f"reasons {set(unresolvable.values())}",
    )
    texts = {*failed.values(), *unresolvable.values()}
    must(kept or len(texts) <= 1, "several reasons in an empty answer")
    if terms.shortlist and len(kept) < len(asked) and kept and not texts:
        must(len(kept) <= terms.shortlist, "more than the shortlist")
        must(set(kept) <= set(asked) and len(set(kept)) == len(kept), "a stranger")
    else:
        must(sorted([*kept, *failed, *unresolvable]) == sorted(asked), "not all, once")
        order = set(kept)
        must(kept == [name for name in asked if name in order], "another order")


FILTER_KEYS: Final = {
    "Nodes", "NodeNames", "FailedNodes", "FailedAndUnresolvableNodes", "Error",
}  # fmt: skip


def check_echo(body: bytes, answer: bytes) -> None:
    """Each object that comes back is one of those sent, byte for byte."""
    for item in msgspec.json.decode(answer, type=_NodesAnswer).nodes.items:
        must(bytes(item) in body, "an object that was not sent")


class _Items(msgspec.Struct):
    items: list[msgspec.Raw]


class _NodesAnswer(msgspec.Struct, rename="pascal"):
    nodes: _Items


def check_prioritize(tree: dict[str, Any], answer: bytes, terms: Terms) -> None:
    """Each candidate has one score, a JSON integer within the range."""
    result = json.loads(answer)
    must([entry["Host"] for entry in result] == names_asked(tree), "other hosts")
    for entry in result:
        score = entry["Score"]
        must(set(entry) == {"Host", "Score"}, f"keys {sorted(entry)}")
        must(type(score) is int, f"score {score!r}")
        must(0 <= score <= terms.max_score, f"score {score}")


def check_preempt(tree: dict[str, Any], answer: bytes) -> None:
    """Each node that stays was asked, with its victims as they were; null nowhere."""
    must(not has_null(result := json.loads(answer)), "null")
    must(set(result) == {"NodeNameToMetaVictims"}, f"keys {sorted(result)}")
    parts = lowered(tree)
    must(isinstance(parts.get("pod"), dict), "no pod in a body that was answered")
    meta = parts.get("nodenametometavictims")
    asked = parts["nodenametovictims"] if meta is None else meta
    for name, victims in result["NodeNameToMetaVictims"].items():
        must(name in asked, "a node that was not asked")
        must(set(victims) == {"Pods", "NumPDBViolations"}, f"keys {sorted(victims)}")
        sent = lowered(asked[name])
        uids = [
            pod["metadata"]["uid"] if meta is None else lowered(pod)["uid"]
            for pod in sent.get("pods") or ()
        ]
        must(victims["Pods"] == [{"UID": uid} for uid in uids], "other victims")
        violations, wanted = victims["NumPDBViolations"], sent.get("numpdbviolations")
        must(type(violations) is int, f"violations {violations!r}")
        must(violations == (wanted or 0), "another number of violations")
    order = [name for name in asked if name in result["NodeNameToMetaVictims"]]
    must(list(result["NodeNameToMetaVictims"]) == order, "another order")


def has_null(value: Any) -> bool:
    """Say whether there is a null anywhere in a value."""
    if isinstance(value, dict):
        return any(map(has_null, value.values()))
    if isinstance(value, list):
        return any(map(has_null, value))
    return value is None


def check_explanation(answer: bytes, terms: Terms) -> None:
    """Each node stands in it once, with a known reason or none, and a whole score."""
    pages = json.loads(answer)
    for page in pages if isinstance(pages, list) else [pages]:
        check_page(page, terms)


def check_page(result: Mapping[str, Any], terms: Terms) -> None:
    """As `check_explanation`, of one pod; its summary counts each node once."""
    names = [node["name"] for node in result["nodes"]]
    must(len(set(names)) == len(names), "a node twice")
    must(len(names) == result["snapshot"]["nodeCount"], "not all nodes")
    summary = result["summary"]
    must(summary["sentence"], "no sentence")
    counted = sum(group["nodeCount"] for group in summary["groups"])
    must(counted in {0, len(names)}, "a node that is not counted, or twice")
    for node in result["nodes"]:
        verdict, priority = node["verdict"], node["priority"]
        must(verdict["feasible"] == (verdict["reason"] is None), "feasible, a reason")
        must(
            verdict["reason"] is None or verdict["reason"] in RESOLVABLE | UNRESOLVABLE,
            f"reason {verdict['reason']!r}",
        )
        must(
            priority is None or (type(priority) is int and priority <= terms.max_score),
            f"priority {priority!r}",
        )
        must(not any(value < 0 for value in node["terms"].values()), "a negative term")
