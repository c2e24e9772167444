"""The preempt verb's messages, decoded and encoded.

kube-scheduler names the victims on each candidate node: by UID with
``nodeCacheCapable: true``, else as whole pods. It reads UIDs in either case.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Final

import msgspec

from cluster.decode.objects import Pod
from extender.wire.fields import (
    DECODE_ERRORS,
    MAX_FAULTS,
    MAX_KEYS,
    check_count,
    check_objects,
    decode_message,
    decode_pod,
    fold_object,
    present,
    split_list,
    split_object,
)
from extender.wire.filter import WireError
from scoring.faults import Fault
from scoring.quantity import shorten

_META_KEY: Final = "NodeNameToMetaVictims"

_FULL_KEY: Final = "NodeNameToVictims"


@dataclass(frozen=True, slots=True)
class Victims:
    """The pods that are to leave one node.

    Attributes
    ----------
    uids : tuple of str
        In the order of the request; empty where nobody needs to leave.
    pdb_violations : int
        PodDisruptionBudgets violated thereby, as kube-scheduler counts them.
    """

    uids: tuple[str, ...]
    pdb_violations: int = 0


@dataclass(frozen=True, slots=True)
class PreemptArgs:
    """One preempt call.

    Attributes
    ----------
    pod : Pod
        The one that is to have the room.
    victims : mapping
        node name -> its victims, in the order of the request
    """

    pod: Pod
    victims: Mapping[str, Victims]


class _MetaPod(msgspec.Struct, frozen=True, rename={"uid": "UID"}):
    """A victim in an answer."""

    uid: str


class _MetaVictims(
    msgspec.Struct,
    frozen=True,
    rename={"pods": "Pods", "pdb_violations": "NumPDBViolations"},
):
    """A candidate's victims in an answer."""

    pods: tuple[_MetaPod, ...]
    pdb_violations: int


class _PreemptResult(msgspec.Struct, frozen=True, rename="pascal"):
    """``ExtenderPreemptionResult``."""

    node_name_to_meta_victims: dict[str, _MetaVictims]


class _FullPod(msgspec.Struct, frozen=True):
    """As much of a victim as its UID takes."""

    class Metadata(msgspec.Struct, frozen=True):
        """``metadata`` of a pod."""

        uid: str

    metadata: Metadata


_FULL_PODS_DECODER: Final = msgspec.json.Decoder(list[_FullPod])

_META_PODS_DECODER: Final = msgspec.json.Decoder(list[dict[str, str | None]])

_FULL_POD_DECODER: Final = msgspec.json.Decoder(_FullPod)

_UID_DECODER: Final = msgspec.json.Decoder(str)

# Go reads it into an int of 64 bits.
_COUNT_DECODER: Final = msgspec.json.Decoder(
    Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]
)


# Of victims, for each node that a cluster may have.
_VICTIMS_PER_NODE: Final = 16


def decode_preempt_args(body: bytes, max_nodes: int = MAX_KEYS) -> PreemptArgs:
    """Read the body of a preempt call.

    Parameters
    ----------
    body : bytes
        With either ``NodeNameToMetaVictims`` or ``NodeNameToVictims``, keys in any
        casing.
    max_nodes : int
        More of them than any cluster has.

    Raises
    ------
    WireError
        With every fault and its path.
    TooLargeError
        If it names more nodes than that, or more victims than they have.
    """
    faults: list[Fault] = []
    parts = fold_object(body, "body", faults)
    if parts is None:
        raise WireError(faults)
    pod = decode_pod(parts.get("pod"), faults)
    meta, full = present(parts, _META_KEY.lower()), present(parts, _FULL_KEY.lower())
    victims: Mapping[str, Victims] = {}
    most = _VICTIMS_PER_NODE * max_nodes
    wanted = f"{most} victims"
    if meta is not None and full is None:
        check_count(meta, b"}", most + max_nodes + 1, wanted)
        victims = _read_candidates(meta, _META_KEY, max_nodes, faults)
    elif full is not None and meta is None:
        check_objects(full, most, wanted)
        victims = _read_candidates(full, _FULL_KEY, max_nodes, faults)
    else:
        got = "neither" if meta is None else "both"
        faults.append(
            Fault(_META_KEY, f"wanted either {_META_KEY} or {_FULL_KEY}, got {got}")
        )
    if pod is None or faults:
        raise WireError(faults)
    return PreemptArgs(pod, victims)


def _read_candidates(
    raw: msgspec.Raw, key: str, max_nodes: int, faults: list[Fault]
) -> dict[str, Victims]:
    """Return the victims by node name; add what is wrong with them to `faults`."""
    candidates: dict[str, Victims] = {}
    for name, value in split_object(raw, key, faults, max_nodes) or ():
        if len(faults) >= MAX_FAULTS:
            break
        path = f"{key}[{shorten(name)}]"
        if name in candidates:
            faults.append(Fault(path, "wanted each node once, got it twice"))
        candidates[name] = _read_victims(value, path, faults, is_full=key == _FULL_KEY)
    return candidates


def _read_victims(
    raw: msgspec.Raw, path: str, faults: list[Fault], *, is_full: bool
) -> Victims:
    """Return one node's victims; what is absent or null is Go's empty value."""
    parts = fold_object(raw, path, faults) or {}
    pods, count = present(parts, "pods"), present(parts, "numpdbviolations")
    violations = 0
    if count is not None:
        try:
            violations = _COUNT_DECODER.decode(count)
        except DECODE_ERRORS as error:
            faults.append(Fault(f"{path}.NumPDBViolations", decode_message(error)))
    items: list[msgspec.Raw] = []
    if pods is not None:
        first = _FULL_PODS_DECODER if is_full else _META_PODS_DECODER
        items = split_list(pods, first, f"{path}.Pods", faults)
    read = _read_full_uid if is_full else _read_meta_uid
    uids: list[str] = []
    for index, item in enumerate(items):
        if len(faults) >= MAX_FAULTS:
            break
        uids.append(read(item, f"{path}.Pods[{index}]", faults))
    return Victims(tuple(uids), violations)


def _read_meta_uid(raw: msgspec.Raw, path: str, faults: list[Fault]) -> str:
    """Return the UID of a victim that is named by it; empty, and a fault, for none."""
    known = len(faults)
    value = (fold_object(raw, path, faults) or {}).get("uid")
    uid = ""
    if value is not None:
        try:
            uid = _UID_DECODER.decode(value)
        except DECODE_ERRORS as error:
            faults.append(Fault(f"{path}.UID", decode_message(error)))
    if not uid and len(faults) == known:
        faults.append(Fault(f"{path}.UID", "wanted a UID, got none"))
    return uid


def _read_full_uid(raw: msgspec.Raw, path: str, faults: list[Fault]) -> str:
    """Return the UID of a victim that is a whole pod; empty, and a fault, for none."""
    try:
        uid = _FULL_POD_DECODER.decode(raw).metadata.uid
    except DECODE_ERRORS as error:
        faults.append(Fault(path, decode_message(error)))
        return ""
    if not uid:
        faults.append(Fault(f"{path}.metadata.uid", "wanted a UID, got none"))
    return uid


def encode_preempt_result(kept: Mapping[str, Victims]) -> bytes:
    """Return the answer to a preempt call.

    It has no null anywhere: kube-scheduler would follow it and crash.

    >>> encode_preempt_result({"a": Victims(("u",), 1)})
    b'{"NodeNameToMetaVictims":{"a":{"Pods":[{"UID":"u"}],"NumPDBViolations":1}}}'
    """
    return msgspec.json.encode(
        _PreemptResult(
            {
                name: _MetaVictims(
                    tuple(_MetaPod(uid) for uid in victims.uids), victims.pdb_violations
                )
                for name, victims in kept.items()
            }
        )
    )
