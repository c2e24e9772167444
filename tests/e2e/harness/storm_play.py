"""Play a storm: create its pods all at once, and have each meet its fate."""

import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from http import HTTPStatus
from typing import Final

from tests.e2e.harness.builders import JsonObject, make_pod
from tests.e2e.harness.client import ApiClient
from tests.e2e.harness.connection import ApiError
from tests.e2e.harness.kubelet import set_phase
from tests.e2e.harness.pods import wait_until_bound
from tests.e2e.harness.slices import resource_of
from tests.e2e.harness.storms import Fate, Storm, StormPod

GIVEN_BACK_SECONDS: Final = 10.0
REFUSALS: Final = {
    HTTPStatus.FORBIDDEN,
    HTTPStatus.CONFLICT,
    HTTPStatus.UNPROCESSABLE_ENTITY,
}


class Room:
    """What is left on the nodes of a storm whose pods the test binds; thread-safe."""

    def __init__(self, nodes: Sequence[JsonObject]) -> None:
        self._changed = threading.Condition()
        # node -> resource -> amount
        self._left: dict[str, dict[str, int]] = {
            node["metadata"]["name"]: {
                name: int(amount)
                for name, amount in node["status"]["allocatable"].items()
                if "/" in name
            }
            for node in nodes
        }

    def take(self, resource: str, quantity: int) -> str:
        """Return a node that has `quantity` left, and take it there.

        What a pod gives back is promised to the next one as soon as its end is seen,
        which may be before it is given back here.
        """
        with self._changed:
            node = self._changed.wait_for(
                lambda: self._node_with(resource, quantity), timeout=GIVEN_BACK_SECONDS
            )
            if node is None:
                raise AssertionError(
                    f"{resource}: promised, and no node has {quantity} left"
                )
            self._left[node][resource] -= quantity
            return node

    def _node_with(self, resource: str, quantity: int) -> str | None:
        return next(
            (name for name, left in self._left.items() if left[resource] >= quantity),
            None,
        )

    def give(self, node: str, resource: str, quantity: int) -> None:
        """Give back what was taken."""
        with self._changed:
            self._left[node][resource] += quantity
            self._changed.notify_all()


class Play:
    """One storm in one cluster."""

    def __init__(self, client: ApiClient, storm: Storm) -> None:
        self._client = client
        self._storm = storm
        self._room = Room(storm.nodes)

    def run(self) -> None:
        """Play the storm to its end; raise what went wrong."""
        for pod in self._storm.pods:
            if pod.fate is Fate.TAKEN_NAME:
                name = pod.body["metadata"]["name"]
                self._client.create(make_pod(name, scheduler_name="nobody"))
        with ThreadPoolExecutor(len(self._storm.pods)) as threads:
            list(threads.map(self._meet, self._storm.pods))

    def _meet(self, pod: StormPod) -> None:
        """Create a pod and let it meet its fate."""
        ends: Mapping[Fate, Callable[[StormPod], object]] = {
            Fate.STAYS: self._create,
            Fate.DENIED: self._create_in_vain,
            Fate.OVER_QUOTA: self._create_in_vain,
            Fate.TAKEN_NAME: self._create_in_vain,
            Fate.DRY_RUN: self._try,
            Fate.DELETED: lambda pod: self._delete(self._create(pod)),
            Fate.REPLACED: self._replace,
            Fate.BOUND: lambda pod: self._bind(self._create(pod)),
            Fate.LEAVES: self._leave,
            Fate.FINISHES: self._finish,
        }
        ends[pod.fate](pod)

    def _create(self, pod: StormPod) -> JsonObject:
        return self._client.create(pod.body)

    def _create_in_vain(self, pod: StormPod) -> None:
        try:
            self._create(pod)
        except ApiError as error:
            if error.status in REFUSALS and "webhook" not in error.message:
                return
            raise
        raise AssertionError(f"{pod.fate}: was created")

    def _try(self, pod: StormPod) -> None:
        self._client.create(pod.body, query={"dryRun": "All"})

    def _replace(self, pod: StormPod) -> None:
        self._delete(self._create(pod))
        self._create(pod)

    def _leave(self, pod: StormPod) -> None:
        made = self._create(pod)
        node = self._bind(made)
        self._delete(made)
        self._give_back(made, node)

    def _finish(self, pod: StormPod) -> None:
        made = self._create(pod)
        node = self._bind(made)
        set_phase(self._client, made["metadata"]["name"], "Succeeded")
        self._give_back(made, node)

    def _delete(self, made: JsonObject) -> None:
        self._client.delete("Pod", made["metadata"]["name"], grace_seconds=0)

    def _bind(self, made: JsonObject) -> str:
        """Bind a pod, or wait until kube-scheduler has; return its node."""
        name = made["metadata"]["name"]
        if self._storm.is_scheduled:
            return wait_until_bound(self._client, name)
        node = self._room.take(resource_of(made), self._storm.quantity)
        target = {"apiVersion": "v1", "kind": "Node", "name": node}
        binding = {
            "apiVersion": "v1",
            "kind": "Binding",
            "metadata": {"name": name, "namespace": "default"},
            "target": target,
        }
        path = f"/api/v1/namespaces/default/pods/{name}/binding"
        self._client.request("POST", path, binding)
        return node

    def _give_back(self, made: JsonObject, node: str) -> None:
        if not self._storm.is_scheduled:
            self._room.give(node, resource_of(made), self._storm.quantity)


def play(client: ApiClient, storm: Storm) -> None:
    """Play a storm to its end; raise what went wrong."""
    Play(client, storm).run()
