"""`Event`: what is told of one object, and how the API server takes it."""

import hashlib
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

import msgspec

from cluster.api.lease import format_time
from extender.explain.summary import MAX_NOTE_BYTES

EVENTS: Final = "/apis/events.k8s.io/v1/namespaces/{namespace}/events"

# Of an object without a namespace, as the API server wants it.
DEFAULT_NAMESPACE: Final = "default"

CONTROLLER: Final = "gpu-extender.io/gpu-extender"

# Limits of the API server, in the validation of Events and of names.
MAX_NAME: Final = 253

MAX_INSTANCE: Final = 128

_CUT: Final = " ..."

_NO_NAME: Final = re.compile(r"[^a-z0-9.-]")

WARNING: Final = "Warning"

NORMAL: Final = "Normal"


@dataclass(frozen=True, slots=True)
class Regarding:
    """The object that an Event is on; `namespace` is empty where it has none."""

    api_version: str
    kind: str
    namespace: str
    name: str
    uid: str


@dataclass(frozen=True, slots=True)
class Event:
    """What is told of one object.

    Attributes
    ----------
    reason : str
        In one word, as ``kubectl get events`` shows it.
    note : str
        The whole of it, for people.
    key : str
        The same for what need not be told twice.
    """

    regarding: Regarding
    reason: str
    action: str
    note: str
    key: str
    kind: str = WARNING

    @property
    def name(self) -> str:
        """The Event's name: one that exists says that this was told already."""
        known = f"{self.regarding.uid}\n{self.reason}\n{self.key}"
        digest = hashlib.sha256(known.encode()).hexdigest()[:16]
        name = _NO_NAME.sub("-", self.regarding.name.lower())
        # Each part between dots begins and ends with a letter or digit.
        parts = (part.strip("-") for part in name[: MAX_NAME - 17].split("."))
        return ".".join((*filter(None, parts), digest))

    @property
    def path(self) -> str:
        """The collection that it belongs to."""
        return EVENTS.format(namespace=self._namespace)

    @property
    def _namespace(self) -> str:
        return self.regarding.namespace or DEFAULT_NAMESPACE

    def encode(self, seconds: float, instance: str) -> bytes:
        """Return it as an object.

        Parameters
        ----------
        seconds : float
            When it is told, since 1970.
        instance : str
            Which replica tells it.
        """
        regarding = {
            "apiVersion": self.regarding.api_version,
            "kind": self.regarding.kind,
            "namespace": self.regarding.namespace,
            "name": self.regarding.name,
            "uid": self.regarding.uid,
        }
        return msgspec.json.encode(
            {
                "apiVersion": "events.k8s.io/v1",
                "kind": "Event",
                "metadata": {"name": self.name, "namespace": self._namespace},
                "eventTime": format_time(seconds),
                "reportingController": CONTROLLER,
                "reportingInstance": instance[:MAX_INSTANCE],
                "action": self.action,
                "reason": self.reason,
                "regarding": {key: text for key, text in regarding.items() if text},
                "note": cut_note(self.note),
                "type": self.kind,
            }
        )


def cut_note(text: str) -> str:
    """Return a text in at most so many bytes as a note may have.

    >>> len(cut_note("é" * 600).encode())
    1024
    """
    data = text.encode(errors="replace")
    if len(data) <= MAX_NOTE_BYTES:
        return data.decode()
    kept = data[: MAX_NOTE_BYTES - len(_CUT)].decode(errors="ignore")
    return kept + _CUT


def key_of(classes: Iterable[str]) -> str:
    """Return the key of a set of classes of reasons.

    >>> key_of({"b", "a"}) == key_of(["a", "b"])
    True
    """
    return "\n".join(sorted(classes))
