"""AdmissionReview messages, v1 and v1beta1, between bytes and frozen types."""

import base64
import copy
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Final

import msgspec

from cluster.decode.faults import convert_with_faults
from cluster.decode.objects import Pod
from scoring.faults import Fault, FaultsError
from scoring.quantity import shorten

API_VERSIONS: Final = ("admission.k8s.io/v1", "admission.k8s.io/v1beta1")

REVIEW_KIND: Final = "AdmissionReview"

# The API server may cut what is longer, and drops warnings that are too many.
MAX_WARNING_LENGTH: Final = 256

MAX_WARNINGS: Final = 10

_MAX_MESSAGE_LENGTH: Final = 4096

_MAX_AUDIT_LENGTH: Final = 4096


class ReviewError(FaultsError):
    """A body that is no admission review, or a review of a pod that is none."""


class GroupVersionKind(msgspec.Struct, frozen=True):
    """Kind of the object that a request is about."""

    group: str = ""
    version: str = ""
    kind: str = ""


# What must be there is asked for in `_value_faults`, all of it at once.
class _Request(msgspec.Struct, frozen=True, rename="camel"):
    uid: str = ""
    kind: GroupVersionKind = GroupVersionKind()
    operation: str = ""
    namespace: str = ""
    name: str = ""
    sub_resource: str = ""
    dry_run: bool | None = None
    object: Any = None


class _Envelope(msgspec.Struct, frozen=True, rename="camel"):
    api_version: str = ""
    kind: str = ""
    request: _Request = _Request()


@dataclass(frozen=True, slots=True)
class Review:
    """One admission request.

    Attributes
    ----------
    api_version : str
        Echoed in the answer.
    uid : str
        Echoed in the answer; never empty.
    object : Any
        The object as decoded from JSON, None where there is none. Nobody changes it.
    """

    api_version: str
    uid: str
    kind: GroupVersionKind
    sub_resource: str
    operation: str
    namespace: str
    name: str
    is_dry_run: bool
    object: Any


@dataclass(frozen=True, slots=True)
class Answer:
    """Answer to a review, before it is encoded.

    Attributes
    ----------
    patch : bytes
        RFC 6902 operations as JSON; empty when nothing changes.
    status_code : int
        For a refusal.
    message : str
        For a refusal: why, and what to do.
    audit : mapping
        audit annotation key -> value
    """

    is_allowed: bool = True
    patch: bytes = b""
    status_code: int = 0
    message: str = ""
    warnings: Sequence[str] = ()
    audit: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))


def decode_review(body: bytes) -> Review:
    """Read an AdmissionReview; raise `ReviewError` with all its faults."""
    try:
        # PERF: what is not declared is skipped, not made into objects. That it is UTF-8
        # is checked beforehand for that reason.
        envelope = msgspec.json.decode(body.decode(), type=_Envelope)
        faults = _value_faults(envelope)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        envelope, faults = _read_with_faults(body)
    if faults:
        raise ReviewError(faults)
    request = envelope.request
    return Review(
        api_version=envelope.api_version,
        uid=request.uid,
        kind=request.kind,
        sub_resource=request.sub_resource,
        operation=request.operation,
        namespace=request.namespace,
        name=request.name,
        is_dry_run=bool(request.dry_run),
        object=request.object,
    )


def _read_with_faults(body: bytes) -> tuple[_Envelope, list[Fault]]:
    """Return what can be read of a body that has faults, and all of them.

    Raises `ReviewError` if that is nothing.
    """
    try:
        tree = msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ReviewError([Fault("body", str(error))]) from error
    if not isinstance(tree, dict):
        raise ReviewError([Fault("body", f"wanted an object, got {shorten(tree)}")])
    envelope, faults = convert_with_faults(tree, _Envelope)
    named = {fault.path for fault in faults}
    if envelope is None:
        raise ReviewError(faults)
    found = _value_faults(envelope)
    return envelope, faults + [item for item in found if item.path not in named]


def _value_faults(envelope: _Envelope) -> list[Fault]:
    """Return what is missing, or of the right type and still wrong."""
    request = envelope.request
    faults = []
    if envelope.api_version not in API_VERSIONS:
        wanted = " or ".join(API_VERSIONS)
        got = shorten(envelope.api_version)
        faults.append(Fault("apiVersion", f"wanted {wanted}, got {got}"))
    if envelope.kind != REVIEW_KIND:
        got = shorten(envelope.kind)
        faults.append(Fault("kind", f"wanted {REVIEW_KIND}, got {got}"))
    if request == _Request():
        faults.append(Fault("request", "is missing"))
        return faults
    must_be_set = {
        "request.uid": request.uid,
        "request.kind.kind": request.kind.kind,
        "request.operation": request.operation,
    }
    faults += [
        Fault(path, "is missing") for path, value in must_be_set.items() if not value
    ]
    return faults


def decode_pod(tree: Any) -> Pod:
    """Return a pod as far as we read it; raise `ReviewError` with all its faults."""
    try:
        return msgspec.convert(tree, Pod)
    except msgspec.ValidationError as error:
        _, faults = convert_with_faults(copy_of(tree), Pod)
        found = faults or [Fault("", str(error))]
        raise ReviewError(
            Fault(f"request.object.{fault.path}".rstrip("."), fault.message)
            for fault in found
        ) from error


def copy_of(tree: Any) -> Any:
    """Return a deep copy of decoded JSON; raise `ReviewError` if it is too deep."""
    try:
        # PERF: a fifth of what copy.deepcopy takes; `bench/injector/test_reviews.py`.
        return msgspec.json.decode(msgspec.json.encode(tree))
    except (OverflowError, UnicodeEncodeError, msgspec.MsgspecError):
        return copy.deepcopy(tree)
    except RecursionError as error:
        raise ReviewError([Fault("request.object", "nested too deeply")]) from error


def encode_answer(review: Review, answer: Answer) -> bytes:
    """Return the AdmissionReview that answers `review`."""
    response: dict[str, Any] = {"uid": review.uid, "allowed": answer.is_allowed}
    if answer.is_allowed and answer.patch:
        response["patchType"] = "JSONPatch"
        response["patch"] = base64.b64encode(answer.patch).decode("ascii")
    if not answer.is_allowed:
        response["status"] = {
            "code": answer.status_code,
            "message": _line(answer.message, _MAX_MESSAGE_LENGTH),
        }
    warnings = _warning_lines(answer.warnings)
    if warnings:
        response["warnings"] = warnings
    if answer.audit:
        response["auditAnnotations"] = {
            key: _line(value, _MAX_AUDIT_LENGTH) for key, value in answer.audit.items()
        }
    return msgspec.json.encode(
        {
            "apiVersion": review.api_version,
            "kind": REVIEW_KIND,
            "response": response,
        }
    )


def _warning_lines(warnings: Sequence[str]) -> list[str]:
    """Return the warnings as the API server takes them: few, short, different."""
    lines = list(dict.fromkeys(_line(item, MAX_WARNING_LENGTH) for item in warnings))
    if len(lines) > MAX_WARNINGS:
        kept = lines[: MAX_WARNINGS - 1]
        lines = [*kept, f"{len(lines) - len(kept)} more warnings left out"]
    return lines


def _line(text: str, limit: int) -> str:
    """Return `text` as one printable line of at most `limit` characters."""
    line = text
    if not text.isprintable():
        line = "".join(char if char.isprintable() else " " for char in text)
    return line if len(line) <= limit else line[: limit - 3] + "..."
