"""Stand-in for the kubelets of all nodes: runs the pods that are bound."""

import ipaddress
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from tests.e2e.cluster.container import Surroundings, now_text
from tests.e2e.cluster.images import Image, Images
from tests.e2e.cluster.pod import FINAL_PHASES, RunningPod, delete_now
from tests.e2e.cluster.spaces import HUB, Space, Spaces
from tests.e2e.cluster.volumes import Volumes
from tests.e2e.harness.builders import JsonObject, ready_condition
from tests.e2e.harness.client import ApiClient
from tests.e2e.harness.connection import ApiError
from tests.e2e.harness.following import Follower, Key, key_of
from tests.e2e.harness.kubelet import write_status
from tests.e2e.harness.reaper import Reaper

# Of pods without processes: nobody listens there.
IDLE_NETWORK: Final = ipaddress.ip_network("198.18.0.0/15")


class Kubelets:
    """Runs pods whose images are known; those of others are up and do nothing.

    Parameters
    ----------
    folder : Path
        Has a folder for each pod: logs, process ids, files.
    service_address : str
        Of the API server, for pods.
    node_spaces : mapping
        Node -> namespace of its pods on the host's network.
    """

    def __init__(  # noqa: PLR0913 - every argument is named
        self,
        client: ApiClient,
        *,
        images: Images,
        spaces: Spaces,
        node_spaces: Mapping[str, Space],
        folder: Path,
        hosts: Path,
        service_address: str,
        reaper: Reaper,
    ) -> None:
        self._client = client
        self._images = images
        self._spaces = spaces
        self._node_spaces = node_spaces
        self._folder = folder
        self._hosts = hosts
        self._service_address = service_address
        self._reaper = reaper
        self._running: dict[Key, RunningPod] = {}
        self._addresses = (str(address) for address in IDLE_NETWORK.hosts())
        self._follower = Follower(
            client,
            "Pod",
            on_change=self._change,
            on_end=self._end,
            query={"fieldSelector": "spec.nodeName!="},
        )

    def start(self) -> None:
        """Begin."""
        self._follower.start()

    def stop(self) -> None:
        """End all processes at once."""
        self._follower.stop()
        running = list(self._running.values())
        for pod in running:
            pod.drop()
        for pod in running:
            pod.join()

    def folder_of(self, namespace: str, name: str, uid: str) -> Path:
        """Return the folder of a pod."""
        return self._folder / f"{namespace}_{name}_{uid}"

    def log_of(self, namespace: str, name: str, container: str) -> Path | None:
        """Return the log of a container of the pod that has the name now."""
        found = sorted(
            self._folder.glob(f"{namespace}_{name}_*/{container}.log"),
            key=lambda path: path.stat().st_mtime,
        )
        return found[-1] if found else None

    def space_of(self, namespace: str, name: str) -> Space | None:
        """Return the network of the pod that has the name now, if it has processes."""
        for (namespace_now, name_now, _), pod in list(self._running.items()):
            if (namespace_now, name_now) == (namespace, name):
                return pod.space
        return None

    def _change(self, pod: JsonObject) -> None:
        running = self._running.get(key_of(pod))
        is_ending = "deletionTimestamp" in pod["metadata"]
        if running is not None:
            running.change(pod)
        elif is_ending:
            delete_now(self._client, pod)
        elif pod["status"].get("phase") not in FINAL_PHASES:
            images = self._images_of(pod)
            if images is not None:
                self._run(pod, images)
            elif pod["status"].get("phase") != "Running":
                self._idle(pod)

    def _end(self, key: Key) -> None:
        running = self._running.get(key)
        if running is not None:
            running.drop()

    def _images_of(self, pod: JsonObject) -> Mapping[str, Image] | None:
        """Return container -> image, None where one is not known."""
        spec = pod["spec"]
        found: dict[str, Image] = {}
        for container in (*spec.get("initContainers", ()), *spec["containers"]):
            image = self._images.find(container["image"])
            if image is None:
                return None
            found[container["name"]] = image
        return found

    def _run(self, pod: JsonObject, images: Mapping[str, Image]) -> None:
        key = key_of(pod)
        node = pod["spec"]["nodeName"]
        of_node = pod["spec"].get("hostNetwork", False)
        space = self._node_spaces[node] if of_node else self._spaces.make()
        folder = self.folder_of(*key)
        folder.mkdir(parents=True, exist_ok=True)
        status = {"podIP": space.address, "hostIP": HUB, "startTime": now_text()}
        known = {**pod, "status": {**pod["status"], **status}}
        group = (pod["spec"].get("securityContext") or {}).get("fsGroup")
        around = Surroundings(
            pod=known,
            folder=folder,
            space=space,
            volumes=Volumes(self._client, known, folder / "volumes", group),
            client=self._client,
            reaper=self._reaper,
            hosts=self._hosts,
            service_address=self._service_address,
        )

        def forget() -> None:
            self._running.pop(key, None)
            if not of_node:
                self._spaces.give_back(space)

        self._running[key] = RunningPod(around, lambda one: images[one["name"]], forget)
        self._running[key].start()

    def _idle(self, pod: JsonObject) -> None:
        """Have a pod without processes be up."""
        address = next(self._addresses)
        status = {
            "phase": "Running",
            "conditions": [ready_condition()],
            "hostIP": HUB,
            "podIP": address,
            "podIPs": [{"ip": address}],
            "startTime": now_text(),
            "containerStatuses": [
                {
                    "name": container["name"],
                    "image": container["image"],
                    "imageID": "",
                    "ready": True,
                    "started": True,
                    "restartCount": 0,
                    "state": {"running": {"startedAt": now_text()}},
                }
                for container in pod["spec"]["containers"]
            ],
        }
        try:
            write_status(self._client, pod, status)
        except ApiError as error:
            if error.reason not in {"NotFound", "Conflict"}:
                raise
