"""Answers to kube-scheduler, joined from names as they stand between quotes in JSON."""

from collections.abc import Iterable, Sequence
from typing import Final

import msgspec

from scoring.feasibility import REASONS, Verdict, shown_verdict
from scoring.snapshot import Int64Array

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


def join_names(literals: Sequence[str]) -> bytes:
    """Return names as a list in JSON."""
    return ('["' + '","'.join(literals) + '"]').encode() if literals else b"[]"


def join_objects(objects: Iterable[msgspec.Raw]) -> bytes:
    """Return objects, each in JSON, as a list in JSON."""
    return b"[" + b",".join(objects) + b"]"


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
    for place, verdict in zip(
        refused.tolist(), verdicts.take(refused).tolist(), strict=True
    ):
        pairs[_IS_RESOLVABLE[verdict]].append(f'"{literals[place]}{tails[verdict]}')
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
