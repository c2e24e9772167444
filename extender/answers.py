"""Answers to kube-scheduler, joined from the nodes' names as JSON strings."""

from collections.abc import Sequence
from typing import Final

import msgspec
import numpy as np

from scoring.feasibility import FEASIBLE, REASONS, Verdict, shown_verdict
from scoring.snapshot import BytesArray, Int64Array

NAMES_HEAD: Final = b'{"Nodes":null,"NodeNames":'
_FILTER_TAIL: Final = b'},"Error":""}'
# verdict -> what follows the name of a refused node
_JOINTS: Final[BytesArray] = np.empty(len(Verdict), dtype=object)
# verdict -> whether the node goes into FailedNodes
_IS_RESOLVABLE: Final = np.zeros(len(Verdict), dtype=np.bool_)
for _verdict, _reason in REASONS.items():
    _JOINTS[_verdict] = b":" + msgspec.json.encode(_reason.text) + b","
    _IS_RESOLVABLE[_verdict] = _reason.is_resolvable


def encode_filter_result(
    quoted: BytesArray, verdicts: Int64Array, nodes: Sequence[msgspec.Raw] | None
) -> bytes:
    """Return the answer to a filter call.

    Parameters
    ----------
    quoted : object array of bytes, shape (C,)
        The candidates' names as JSON strings.
    verdicts : int64 array, shape (C,)
        Values of `Verdict`.
    nodes : sequence of msgspec.Raw, length C, or None
        The candidates' objects, where the request had objects.

    Returns
    -------
    bytes
        ``ExtenderFilterResult``: the form that was sent, an explicit list, both
        failure maps, no trailing byte.
    """
    is_feasible = verdicts == FEASIBLE
    if nodes is None:
        kept = b",".join(quoted[is_feasible].tolist())
        head = NAMES_HEAD + b"[" + kept + b'],"FailedNodes":{'
    else:
        kept = b",".join(
            [bytes(nodes[i]) for i in np.flatnonzero(is_feasible).tolist()]
        )
        head = (
            b'{"Nodes":{"metadata":{},"items":['
            + kept
            + b']},"NodeNames":null,"FailedNodes":{'
        )
    refused = np.flatnonzero(verdicts)
    reached = verdicts[refused]
    shown = shown_verdict(verdicts)
    texts = _JOINTS[reached if shown is None else np.full(len(reached), int(shown))]
    may_resolve = _IS_RESOLVABLE[reached]
    return b"".join(
        [
            head,
            _join_pairs(quoted[refused[may_resolve]], texts[may_resolve])[:-1],
            b'},"FailedAndUnresolvableNodes":{',
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
