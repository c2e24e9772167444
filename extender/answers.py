"""Answers to kube-scheduler, joined from the nodes' names as JSON strings."""

from collections.abc import Sequence
from typing import Final

import msgspec
import numpy as np

from scoring.feasibility import REASONS, Verdict, shown_verdict
from scoring.snapshot import BytesArray, Int64Array

NAMES_HEAD: Final = b'{"Nodes":null,"NodeNames":'
_RESOLVABLE_HEAD: Final = b',"FailedNodes":{'
_UNRESOLVABLE_HEAD: Final = b'},"FailedAndUnresolvableNodes":{'
_FILTER_TAIL: Final = b'},"Error":""}'
NO_REFUSALS: Final = _RESOLVABLE_HEAD + _UNRESOLVABLE_HEAD + _FILTER_TAIL
# verdict -> what follows the name of a refused node
_JOINTS: Final[BytesArray] = np.empty(len(Verdict), dtype=object)
# verdict -> whether the node goes into FailedNodes
_IS_RESOLVABLE: Final = np.zeros(len(Verdict), dtype=np.bool_)
for _verdict, _reason in REASONS.items():
    _JOINTS[_verdict] = b":" + msgspec.json.encode(_reason.text) + b","
    _IS_RESOLVABLE[_verdict] = _reason.is_resolvable


def join_kept(fragments: Sequence[bytes | msgspec.Raw]) -> bytes:
    """Return names or objects, each in JSON, as a list in JSON."""
    return b"[" + b",".join(fragments) + b"]"


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


def encode_refusals(quoted: BytesArray, verdicts: Int64Array) -> bytes:
    """Return what follows the answered nodes in the answer to a filter call.

    Parameters
    ----------
    quoted : object array of bytes, shape (C,)
        The candidates' names as JSON strings.
    verdicts : int64 array, shape (C,)
        Values of `Verdict`.
    """
    refused = np.flatnonzero(verdicts)
    reached = verdicts[refused]
    shown = shown_verdict(verdicts)
    texts = _JOINTS[reached if shown is None else np.full(len(reached), int(shown))]
    may_resolve = _IS_RESOLVABLE[reached]
    return b"".join(
        [
            _RESOLVABLE_HEAD,
            _join_pairs(quoted[refused[may_resolve]], texts[may_resolve])[:-1],
            _UNRESOLVABLE_HEAD,
            _join_pairs(quoted[refused[~may_resolve]], texts[~may_resolve])[:-1],
            _FILTER_TAIL,
        ]
    )


def _join_pairs(heads: BytesArray, tails: BytesArray) -> bytes:
    """Return head and tail of each candidate, one after the other."""
    # PERF: one join of a flat list; bench/test_verbs.py
    parts = [b""] * (2 * len(heads))
    parts[0::2] = heads.tolist()
    parts[1::2] = tails.tolist()
    return b"".join(parts)


def encode_priorities(quoted: BytesArray, priorities: Int64Array) -> bytes:
    """Return the answer to a prioritize call.

    Parameters
    ----------
    quoted : object array of bytes, shape (C,)
        The candidates' names as JSON strings.
    priorities : int64 array, shape (C,)
        Zero or more.

    Returns
    -------
    bytes
        ``HostPriorityList``: a bare array; scores are JSON integers, since one
        ``7.0`` makes kube-scheduler drop the whole answer.
    """
    if len(priorities) == 0:
        return b"[]"
    highest = int(priorities.max())
    joints = np.empty(highest + 1, dtype=object)
    joints[:] = [b',"Score":%d},{"Host":' % score for score in range(highest + 1)]
    body = _join_pairs(quoted, joints[priorities])
    return b'[{"Host":' + body.removesuffix(b',{"Host":') + b"]"


def quote_name(name: str) -> bytes:
    """Return a name as a JSON string."""
    return msgspec.json.encode(name)
