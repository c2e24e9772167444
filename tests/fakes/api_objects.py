"""Single objects of the fake API server: read, created, replaced and merged.

Rules of kube-apiserver 1.36: a version that a change names must be the present one, and
so must a UID; a strategic merge takes the webhooks of a registration by their names.
"""

import copy
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from tests.fakes.api_state import RESOURCES, ApiState, StatusError, Tree

STRATEGIC: Final = "application/strategic-merge-patch+json"
MERGE: Final = "application/merge-patch+json"
# resource -> its collection's path, and that of one object
_PATHS: Final[Mapping[str, re.Pattern[str]]] = {
    "secrets": re.compile(
        r"/api/v1/namespaces/(?P<namespace>[^/]+)/secrets(?:/(?P<name>[^/]+))?"
    ),
    "services": re.compile(
        r"/api/v1/namespaces/(?P<namespace>[^/]+)/services/(?P<name>[^/]+)"
    ),
    "leases": re.compile(
        r"/apis/coordination\.k8s\.io/v1/namespaces/(?P<namespace>[^/]+)/leases"
        r"/(?P<name>[^/]+)"
    ),
    "pods": re.compile(
        r"/api/v1/namespaces/(?P<namespace>[^/]+)/pods(?:/(?P<name>[^/]+))?"
    ),
    "events": re.compile(
        r"/apis/events\.k8s\.io/v1/namespaces/(?P<namespace>[^/]+)/events"
        r"(?:/(?P<name>[^/]+))?"
    ),
    "endpointslices": re.compile(
        r"/apis/discovery\.k8s\.io/v1/namespaces/(?P<namespace>[^/]+)/endpointslices"
        r"(?:/(?P<name>[^/]+))?"
    ),
    "mutatingwebhookconfigurations": re.compile(
        re.escape(RESOURCES["mutatingwebhookconfigurations"][2]) + "/(?P<name>[^/]+)"
    ),
}


@dataclass(frozen=True, slots=True)
class Place:
    """What a path names: an object, or a collection in a namespace."""

    resource: str
    namespace: str
    name: str

    @property
    def key(self) -> str:
        """The key by which etcd has the object."""
        return f"{self.namespace}/{self.name}" if self.namespace else self.name


def find_place(path: str) -> Place | None:
    """Return what a path names, None if nothing that is read or changed singly."""
    for resource, pattern in _PATHS.items():
        if match := pattern.fullmatch(path):
            parts = {name: text or "" for name, text in match.groupdict().items()}
            return Place(resource, parts.get("namespace", ""), parts["name"])
    return None


def answer_object(
    state: ApiState, place: Place, verb: str, content_type: str, change: Tree | None
) -> Tree:
    """Return an object as it is, or as the verb has made it; or `StatusError`."""
    is_pod = place.resource == "pods"
    patching = MERGE if is_pod else STRATEGIC
    if change is None:
        return read_object(state, place)
    if content_type != (patching if verb == "patch" else "application/json"):
        raise StatusError(415, "UnsupportedMediaType", content_type)
    act = {
        "create": create_object,
        "update": replace_object,
        "patch": label_pod if is_pod else merge_object,
    }
    return act[verb](state, place, change)


def read_object(state: ApiState, place: Place) -> Tree:
    """Return an object; raise `StatusError` if there is none."""
    found = state.find(place.resource, place.key)
    if found is None:
        raise StatusError(404, "NotFound", f'{place.resource} "{place.name}" not found')
    return found


def list_objects(state: ApiState, place: Place, selector: str) -> Tree:
    """Return the objects of a namespace with a label, or with a value of it."""
    key, has_value, value = selector.partition("=")
    items = []
    for tree in state.found_in(place.resource, place.namespace):
        found = tree["metadata"].get("labels", {}).get(key)
        if found is not None and (not has_value or found == value):
            items.append(tree)
    return {"metadata": {"resourceVersion": str(state.revision)}, "items": items}


def create_object(state: ApiState, place: Place, tree: Tree) -> Tree:
    """Create an object; raise `StatusError` if there is one of that name."""
    with state.changed:
        meta = {"namespace": place.namespace, **tree["metadata"]}
        key = f"{meta['namespace']}/{meta['name']}"
        if state.find(place.resource, key) is not None:
            raise StatusError(409, "AlreadyExists", f'"{meta["name"]}" already exists')
        return state.put({**tree, "metadata": meta})


def replace_object(state: ApiState, place: Place, tree: Tree) -> Tree:
    """Replace an object of the version that the new one names."""
    with state.changed:
        _check_version(read_object(state, place), tree)
        return state.put(tree)


def label_pod(state: ApiState, place: Place, change: Tree) -> Tree:
    """Merge labels into a pod of the UID that the change names."""
    with state.changed:
        stored = read_object(state, place)
        meta, wanted = stored["metadata"], change["metadata"]
        if wanted.get("uid", meta["uid"]) != meta["uid"]:
            raise StatusError(409, "Conflict", "Precondition failed: UID")
        labels = {**meta.get("labels", {}), **wanted["labels"]}
        meta["labels"] = {key: text for key, text in labels.items() if text is not None}
        return state.put(stored)


def merge_object(state: ApiState, place: Place, change: Tree) -> Tree:
    """Merge a change into an object, webhooks by their names."""
    with state.changed:
        stored = copy.deepcopy(read_object(state, place))
        _check_version(stored, change)
        webhooks = {webhook["name"]: webhook for webhook in stored.get("webhooks", ())}
        for webhook in change.get("webhooks", ()):
            _merge(webhooks.setdefault(webhook["name"], {}), webhook)
        if webhooks:
            stored["webhooks"] = list(webhooks.values())
        return state.put(stored)


def _check_version(stored: Tree, change: Tree) -> None:
    wanted = change.get("metadata", {}).get("resourceVersion")
    if wanted not in {None, stored["metadata"]["resourceVersion"]}:
        raise StatusError(
            409,
            "Conflict",
            "the object has been modified; please apply your changes to the latest"
            " version and try again",
        )


def _merge(into: dict[str, Any], change: Mapping[str, Any]) -> None:
    for name, value in change.items():
        if value is None:
            into.pop(name, None)
        elif isinstance(value, dict):
            _merge(into.setdefault(name, {}), value)
        else:
            into[name] = value
