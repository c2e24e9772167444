"""Answers to kube-scheduler, joined from names as they stand between quotes in JSON."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

import msgspec
import numpy as np

from extender.wire.filter import ExtenderArgs
from scoring.feasibility import REASONS, Verdict, shown_verdict
from scoring.snapshot import IndexArray, Int64Array

NAMES_HEAD: Final = b'{"Nodes":null,"NodeNames":'

_RESOLVABLE_HEAD: Final = ',"FailedNodes":{'

_UNRESOLVABLE_HEAD: Final = '},"FailedAndUnresolvableNodes":{'

_FILTER_TAIL: Final = '},"Error":""}'

# verdict -> what follows the name of a refused node, and whether it is in FailedNodes
_TAILS: Final = [""] * len(Verdict)

_IS_RESOLVABLE: Final = [False] * len(Verdict)

for _verdict, _reason in REASONS.items():
    _TAILS[_verdict] = f'":{msgspec.json.encode(_reason.text).decode()}'
    _IS_RESOLVABLE[_verdict] = _reason.is_resolvable

NO_REFUSALS: Final = (_RESOLVABLE_HEAD + _UNRESOLVABLE_HEAD + _FILTER_TAIL).encode()


def literal(name: str) -> str:
    r"""Return a name as it stands between quotes in JSON.

    >>> print(literal('a "b"'))
    a \"b\"
    """
    return msgspec.json.encode(name)[1:-1].decode()


def literals_of(
    names: Sequence[str], indexes: IndexArray | None = None, *, is_literal: bool
) -> Sequence[str]:
    """Return names, all or those at `indexes`, as they stand in quotes in JSON.

    With `is_literal` they do so as they are.
    """
    if indexes is not None and len(indexes) < len(names):
        names = [names[index] for index in indexes.tolist()]
    return names if is_literal else list(map(literal, names))


def shown_text(verdicts: Int64Array) -> str:
    """Return the one text that all refused nodes carry, empty where some node passes.

    >>> shown_text(np.array([2, 6])), shown_text(np.array([2, 0]))
    ('Too few GPUs on the node', '')
    """
    verdict = shown_verdict(verdicts)
    return "" if verdict is None else REASONS[verdict].text


def join_names(literals: Sequence[str]) -> bytes:
    """Return names as a list in JSON."""
    return ('["' + '","'.join(literals) + '"]').encode() if literals else b"[]"


def join_objects(objects: Iterable[msgspec.Raw]) -> bytes:
    """Return objects, each in JSON, as a list in JSON."""
    return b"[" + b",".join(objects) + b"]"


@dataclass(frozen=True, slots=True, eq=False)
class FilterAnswer:
    """The answer to a filter call.

    Attributes
    ----------
    indexes : index array
        Of the candidates that are answered.
    expected_prioritize_body : bytes or None
        The prioritize call about them, as kube-scheduler writes it; None where the
        filter call was not one of kube-scheduler's, or had whole objects.
    """

    data: bytes
    indexes: IndexArray
    expected_prioritize_body: bytes | None


def encode_filter(
    body: bytes,
    args: ExtenderArgs,
    names: Sequence[str],
    verdicts: Int64Array,
    shortlist: IndexArray | None,
) -> FilterAnswer:
    """Return the answer to a filter call, in the form that was sent.

    Parameters
    ----------
    body : bytes
        The call, of which `args` was decoded.
    names : sequence of str, length C
        The candidates, each once; `args.names` itself where none stands twice.
    verdicts : int64 array, shape (C,)
        Values of `Verdict`.
    shortlist : index array, or None
        Of the candidates that are answered; None for all feasible ones.
    """
    is_whole = shortlist is None and not verdicts.any()
    if is_whole and args.names_at and names is args.names:
        # PERF: all names pass, so the request's own list is the answer's, and the
        # prioritize call that follows has the same bytes; bench/extender/http.py
        indexes = np.arange(len(verdicts), dtype=np.intp)
        data = encode_filter_result(
            body[args.names_at : -1], NO_REFUSALS, has_objects=False
        )
        return FilterAnswer(data, indexes, body)
    indexes = (verdicts == 0).nonzero()[0] if shortlist is None else shortlist
    refused = NO_REFUSALS
    # What a shortlist leaves out has no reason, so reasons would not be complete.
    if shortlist is None or not len(indexes):
        literals = literals_of(names, is_literal=args.is_literal)
        refused = encode_refusals(literals, verdicts)
    if args.nodes is not None:
        objects = list(args.nodes.values())
        kept = join_objects(objects[index] for index in indexes.tolist())
        data = encode_filter_result(kept, refused, has_objects=True)
        return FilterAnswer(data, indexes, None)
    kept = join_names(literals_of(names, indexes, is_literal=args.is_literal))
    data = encode_filter_result(kept, refused, has_objects=False)
    if not args.names_at:
        return FilterAnswer(data, indexes, None)
    return FilterAnswer(data, indexes, body[: args.names_at] + kept + b"}")


def encode_filter_result(kept: bytes, refused: bytes, *, has_objects: bool) -> bytes:
    """Return the answer to a filter call.

    Parameters
    ----------
    kept : bytes
        Names or objects that are answered, as a list in JSON.
    refused : bytes
        Both failure maps, from `encode_refusals`.
    has_objects : bool
        Whether the request had objects: the answer has the form that was sent.

    Returns
    -------
    bytes
        ``ExtenderFilterResult``: an explicit list, both failure maps, no trailing byte.
    """
    if has_objects:
        head = b'{"Nodes":{"metadata":{},"items":' + kept + b'},"NodeNames":null'
    else:
        head = NAMES_HEAD + kept
    return head + refused


def encode_refusals(literals: Sequence[str], verdicts: Int64Array) -> bytes:
    """Return what follows the answered nodes in the answer to a filter call.

    Parameters
    ----------
    literals : sequence of str, length C
        The candidates' names as they stand between quotes in JSON.
    verdicts : int64 array, shape (C,)
        Values of `Verdict`.
    """
    shown = shown_verdict(verdicts)
    tails = _TAILS if shown is None else [_TAILS[shown]] * len(_TAILS)
    pairs: tuple[list[str], list[str]] = ([], [])
    refused = verdicts.nonzero()[0]
    for index, verdict in zip(
        refused.tolist(), verdicts.take(refused).tolist(), strict=True
    ):
        pairs[_IS_RESOLVABLE[verdict]].append(f'"{literals[index]}{tails[verdict]}')
    unresolvable, resolvable = map(",".join, pairs)
    answer = _RESOLVABLE_HEAD + resolvable + _UNRESOLVABLE_HEAD + unresolvable
    return (answer + _FILTER_TAIL).encode()


def encode_priorities(literals: Sequence[str], priorities: Int64Array) -> bytes:
    """Return the answer to a prioritize call.

    Parameters
    ----------
    literals : sequence of str, length C
        The candidates' names as they stand between quotes in JSON.
    priorities : int64 array, shape (C,)
        Zero or more.

    Returns
    -------
    bytes
        ``HostPriorityList``: a bare array; scores are JSON integers, since one
        ``7.0`` makes kube-scheduler drop the whole answer.
    """
    if not literals:
        return b"[]"
    scores = priorities.tolist()
    joints = [f'","Score":{score}}},{{"Host":"' for score in range(max(scores) + 1)]
    # PERF: one join of a flat list; bench/extender/test_verbs.py
    parts = [""] * (2 * len(literals))
    parts[0::2] = literals
    parts[1::2] = map(joints.__getitem__, scores)
    parts[-1] = f'","Score":{scores[-1]}}}]'
    return ('[{"Host":"' + "".join(parts)).encode()
