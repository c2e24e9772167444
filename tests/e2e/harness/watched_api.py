"""The real control plane with the face of the fake API server of `tests/fakes`."""

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from tests.e2e.harness.builders import JsonObject
from tests.e2e.harness.control_plane import ControlPlane
from tests.e2e.harness.kubelet import FINAL_PHASES, set_phase
from tests.e2e.harness.pods import node_of

LEAVING_SECONDS: Final = 30


class FieldDroppedError(RuntimeError):
    """The API server took an object, and left out a field that it does not know."""


class WatchedApi:
    """Objects are put as the fake takes them, through the calls that real ones need.

    Watches go through a proxy, which is what is cut and away; objects go around it.
    """

    def __init__(self, plane: ControlPlane) -> None:
        self._plane = plane
        self._client = plane.client
        self._proxy = plane.start_proxy()

    def kubeconfig(self, _folder: Path) -> Path:
        """Write a kubeconfig that leads through the proxy."""
        token = self._plane.users.harness.token
        return self._plane.kubeconfig(token, "watched", server=self._proxy.url)

    def cut(self) -> None:
        """Break all connections."""
        self._proxy.cut()

    @contextlib.contextmanager
    def away(self) -> Iterator[None]:
        """Be unreachable for a while."""
        self._proxy.refuse()
        self._proxy.cut()
        yield
        self._proxy.refuse(on=False)

    def forget_history(self) -> None:
        """Let versions from before now be expired for a new watch."""
        self._plane.compact_etcd()
        # A running API server has the history in memory.
        self._plane.api_server.kill()
        self._plane.api_server.start()

    def put(self, *trees: JsonObject) -> None:
        """Create or replace objects."""
        put_one = {"Node": self._put_node, "Pod": self._put_pod}
        for tree in trees:
            put_one.get(tree["kind"], self._put_other)(tree)

    def remove(self, tree: JsonObject) -> None:
        """Delete an object at once."""
        name = tree["metadata"]["name"]
        api_version = tree.get("apiVersion", "v1")
        self._client.delete(
            tree["kind"], name, api_version=api_version, grace_seconds=0
        )

    def _put_node(self, tree: JsonObject) -> None:
        name = tree["metadata"]["name"]
        if not self._client.exists("Node", name):
            self._client.create(_unborn(tree))
            return
        present = self._client.get("Node", name)
        self._client.request(
            "PUT", f"/api/v1/nodes/{name}/status", {**present, "status": tree["status"]}
        )

    def _put_pod(self, tree: JsonObject) -> None:
        name, node = tree["metadata"]["name"], node_of(tree)
        if not self._client.exists("Pod", name):
            self._client.create({**_unborn(tree), "status": {}})
        elif node and not node_of(self._client.get("Pod", name)):
            self._bind(name, node)
        phase = tree["status"]["phase"]
        if phase in FINAL_PHASES:
            set_phase(self._client, name, phase)
        if "deletionTimestamp" in tree["metadata"]:
            self._client.delete("Pod", name, grace_seconds=LEAVING_SECONDS)

    def _bind(self, pod: str, node: str) -> None:
        binding: dict[str, Any] = {
            "apiVersion": "v1",
            "kind": "Binding",
            "metadata": {"name": pod},
            "target": {"kind": "Node", "name": node},
        }
        path = f"/api/v1/namespaces/default/pods/{pod}/binding"
        self._client.request("POST", path, binding)

    def _put_other(self, tree: JsonObject) -> None:
        created = self._client.apply(tree)
        dropped = sorted(tree["spec"].keys() - created["spec"].keys())
        if dropped:
            raise FieldDroppedError(f"{tree['kind']}: {', '.join(dropped)}")


def _unborn(tree: JsonObject) -> JsonObject:
    """Return an object without the metadata that only the API server gives."""
    given = {"uid", "creationTimestamp", "deletionTimestamp"}
    metadata = {k: v for k, v in tree["metadata"].items() if k not in given}
    return {**tree, "metadata": metadata}
