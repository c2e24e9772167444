"""What an API server knows: objects, their versions, and the history of changes.

Shapes and rules are those of kube-apiserver 1.36 over etcd: one revision for all
kinds, pages of one revision, a history that can be compacted.
"""

import base64
import copy
import json
import threading
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

Tree: TypeAlias = dict[str, Any]

GONE: Final = 410
# resource -> kind, API version, URL path
RESOURCES: Final[Mapping[str, tuple[str, str, str]]] = {
    "nodes": ("Node", "v1", "/api/v1/nodes"),
    "pods": ("Pod", "v1", "/api/v1/pods"),
    "limitranges": ("LimitRange", "v1", "/api/v1/limitranges"),
    "deviceclasses": (
        "DeviceClass",
        "resource.k8s.io/v1",
        "/apis/resource.k8s.io/v1/deviceclasses",
    ),
    "secrets": ("Secret", "v1", "/api/v1/secrets"),
    "services": ("Service", "v1", "/api/v1/services"),
    "leases": (
        "Lease",
        "coordination.k8s.io/v1",
        "/apis/coordination.k8s.io/v1/leases",
    ),
    "endpointslices": (
        "EndpointSlice",
        "discovery.k8s.io/v1",
        "/apis/discovery.k8s.io/v1/endpointslices",
    ),
    "events": ("Event", "events.k8s.io/v1", "/apis/events.k8s.io/v1/events"),
    "mutatingwebhookconfigurations": (
        "MutatingWebhookConfiguration",
        "admissionregistration.k8s.io/v1",
        "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations",
    ),
}
EMPTY_OBJECTS: Final[Mapping[str, Tree]] = {
    "nodes": {
        "spec": {},
        "status": {
            "daemonEndpoints": {"kubeletEndpoint": {"Port": 0}},
            "nodeInfo": {"machineID": "", "systemUUID": ""},
        },
    },
    "pods": {"spec": {"containers": None}, "status": {}},
    "deviceclasses": {"spec": {}},
    "limitranges": {"spec": {"limits": None}},
}


@dataclass(frozen=True, slots=True)
class Logged:
    """One change, as a watch tells it."""

    revision: int
    resource: str
    type: str
    tree: Tree


class StatusError(Exception):
    """An answer of kind ``Status``."""

    def __init__(self, code: int, reason: str, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.body = status_tree(code, reason, message)


def status_tree(code: int, reason: str, message: str) -> Tree:
    """Return a ``Status`` as the API server sends it."""
    return {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Failure",
        "message": message,
        "reason": reason,
        "code": code,
    }


def resource_of(tree: Tree) -> str:
    """Return the resource that an object is one of."""
    return next(
        name for name, (kind, _, _) in RESOURCES.items() if kind == tree["kind"]
    )


def key_of(tree: Tree) -> str:
    """Return the key by which etcd sorts an object."""
    meta = tree["metadata"]
    return (
        f"{meta['namespace']}/{meta['name']}" if "namespace" in meta else meta["name"]
    )


class ApiState:
    """Objects and history; any thread may call it.

    `changed` is notified of every change, and guards all fields.
    """

    def __init__(self) -> None:
        self.changed = threading.Condition()
        self.revision = 1
        self.compacted = 0
        self.log: list[Logged] = []
        self._objects: dict[str, dict[str, Tree]] = {name: {} for name in RESOURCES}
        # revision -> what a list begun then pages through
        self._lists: dict[tuple[str, int], list[Tree]] = {}

    def put(self, tree: Tree) -> Tree:
        """Create or replace an object; return it as stored."""
        resource = resource_of(tree)
        with self.changed:
            stored = copy.deepcopy(tree)
            key = key_of(stored)
            before = self._objects[resource].get(key)
            meta = stored["metadata"]
            if before is not None:
                meta.setdefault("uid", before["metadata"]["uid"])
            meta.setdefault("uid", str(uuid.uuid4()))
            meta.setdefault("creationTimestamp", "2026-11-27T23:54:45Z")
            self._advance(stored)
            self._objects[resource][key] = stored
            event_type = "ADDED" if before is None else "MODIFIED"
            self._note(resource, event_type, stored)
        return copy.deepcopy(stored)

    def find(self, resource: str, key: str) -> Tree | None:
        """Return an object as stored, None if there is none."""
        with self.changed:
            return copy.deepcopy(self._objects[resource].get(key))

    def labelled(self, namespace: str, label: str) -> list[Tree]:
        """Return the pods of a namespace that have a label, in the order of names."""
        return [
            pod
            for pod in self.found_in("pods", namespace)
            if label in pod["metadata"].get("labels", {})
        ]

    def found_in(self, resource: str, namespace: str) -> list[Tree]:
        """Return the objects of a namespace, in the order of their names."""
        with self.changed:
            return [
                copy.deepcopy(tree)
                for _, tree in sorted(self._objects[resource].items())
                if tree["metadata"].get("namespace") == namespace
            ]

    def remove(self, tree: Tree) -> None:
        """Delete an object; its watch event has the revision of the deletion."""
        resource = resource_of(tree)
        with self.changed:
            stored = copy.deepcopy(self._objects[resource].pop(key_of(tree)))
            self._advance(stored)
            self._note(resource, "DELETED", stored)

    def patch_status(self, key: str, patch: Tree) -> Tree:
        """Merge into what the ``status`` subresource of a pod may change.

        Raises `StatusError` for a pod that is gone or has another UID.
        """
        with self.changed:
            stored = copy.deepcopy(self._objects["pods"].get(key))
            if stored is None:
                raise StatusError(404, "NotFound", f'pods "{key}" not found')
            meta, change = stored["metadata"], patch.get("metadata", {})
            if change.get("uid", meta["uid"]) != meta["uid"]:
                raise StatusError(409, "Conflict", "Precondition failed: UID")
            annotations = {**meta.get("annotations", {}), **change["annotations"]}
            stored["metadata"] = {**meta, "annotations": annotations}
            return self.put(stored)

    def compact(self) -> None:
        """Forget the history before now: older versions are expired."""
        with self.changed:
            self.revision += 1
            self.compacted = self.revision
            self._lists.clear()

    def _advance(self, stored: Tree) -> None:
        self.revision += 1
        stored["metadata"]["resourceVersion"] = str(self.revision)

    def _note(self, resource: str, event_type: str, stored: Tree) -> None:
        self.log.append(Logged(self.revision, resource, event_type, stored))
        self.changed.notify_all()

    def page(self, resource: str, limit: int, token: str) -> Tree:
        """Return one page of a list; raise `StatusError` if the token is expired."""
        with self.changed:
            if token:
                place = json.loads(base64.urlsafe_b64decode(token))
                revision, start = place["rv"], place["start"]
                if (resource, revision) not in self._lists:
                    raise StatusError(
                        GONE,
                        "Expired",
                        "The provided continue parameter is too old to display a"
                        " consistent list result.",
                    )
            else:
                revision, start = self.revision, 0
                known = self._objects[resource]
                self._lists[resource, revision] = [
                    {
                        name: value
                        for name, value in copy.deepcopy(known[key]).items()
                        if name not in ("kind", "apiVersion")
                    }
                    for key in sorted(known)
                ]
            everything = self._lists[resource, revision]
        kind, version, _ = RESOURCES[resource]
        metadata: Tree = {"resourceVersion": str(revision)}
        end = start + limit if limit else len(everything)
        if end < len(everything):
            place = {"v": "meta.k8s.io/v1", "rv": revision, "start": end}
            metadata["continue"] = base64.urlsafe_b64encode(
                json.dumps(place).encode()
            ).decode()
            metadata["remainingItemCount"] = len(everything) - end
        return {
            "kind": f"{kind}List",
            "apiVersion": version,
            "metadata": metadata,
            "items": everything[start:end],
        }

    def events_after(self, resource: str, revision: int) -> tuple[list[Logged], int]:
        """Return the changes after a revision, and the revision up to now."""
        with self.changed:
            found = [
                item
                for item in self.log
                if item.revision > revision and item.resource == resource
            ]
            return found, self.revision


def event_line(event_type: str, tree: Tree) -> bytes:
    """Return one line of a watch."""
    event = {"type": event_type, "object": tree}
    return json.dumps(event, separators=(",", ":")).encode() + b"\n"


def bookmark_line(resource: str, revision: int) -> bytes:
    """Return a bookmark: an empty object of the kind with a version."""
    kind, version, _ = RESOURCES[resource]
    meta = {"resourceVersion": str(revision), "creationTimestamp": None}
    tree = {"kind": kind, "apiVersion": version, "metadata": meta}
    return event_line("BOOKMARK", tree | EMPTY_OBJECTS[resource])


def expired_line(revision: int, oldest: int) -> bytes:
    """Return the ERROR event of a version whose history is compacted."""
    message = f"too old resource version: {revision} ({oldest})"
    return event_line("ERROR", status_tree(GONE, "Expired", message))
