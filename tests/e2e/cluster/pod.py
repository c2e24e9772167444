"""The life of one pod: volumes, containers in order, probes, restarts, the end."""

import shutil
import threading
import time
from collections.abc import Callable, Sequence
from typing import Final

from tests.e2e.cluster.container import Container, Surroundings, now_text
from tests.e2e.cluster.images import Image
from tests.e2e.cluster.probes import Prober
from tests.e2e.cluster.spaces import Space
from tests.e2e.cluster.volumes import VolumeError
from tests.e2e.harness.builders import JsonObject
from tests.e2e.harness.client import ApiClient
from tests.e2e.harness.connection import ApiError, UnreachableError
from tests.e2e.harness.kubelet import write_status

STEP_SECONDS: Final = 0.1
RETRY_SECONDS: Final = 1.0
# A kubelet takes up to two minutes.
REFRESH_SECONDS: Final = 5.0
DEFAULT_GRACE_SECONDS: Final = 30
FINAL_PHASES: Final = frozenset({"Succeeded", "Failed"})


class RunningPod:
    """A pod whose containers have processes, in a thread of its own.

    Parameters
    ----------
    around : Surroundings
    image_of : callable
        Container -> image.
    on_end : callable
        Called in the pod's thread once nothing of it is left.
    """

    def __init__(
        self,
        around: Surroundings,
        image_of: Callable[[JsonObject], Image],
        on_end: Callable[[], None],
    ) -> None:
        spec = around.pod["spec"]
        self._around = around
        self._on_end = on_end
        self._init = [
            Container(one, image_of(one), around)
            for one in spec.get("initContainers", ())
        ]
        self._main = [
            Container(one, image_of(one), around) for one in spec["containers"]
        ]
        self._policy: str = spec.get("restartPolicy", "Always")
        self._probers: dict[str, Prober] = {}
        self._kill_at: dict[str, float] = {}  # container -> when SIGTERM was enough
        self._wake = threading.Event()
        self._deadline: float | None = None  # when the grace period ends
        self._is_gone = False
        self._written: JsonObject = {}
        self._refreshed = -REFRESH_SECONDS
        self._volume_fault = ""
        self._thread = threading.Thread(
            target=self._run, name=around.pod["metadata"]["name"], daemon=True
        )

    @property
    def space(self) -> Space:
        """The namespace of its network."""
        return self._around.space

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def change(self, pod: JsonObject) -> None:
        """Take note of the pod as it is now; from any thread."""
        if "deletionTimestamp" in pod["metadata"] and self._deadline is None:
            seconds = pod["metadata"].get("deletionGracePeriodSeconds")
            grace = DEFAULT_GRACE_SECONDS if seconds is None else seconds
            self._deadline = time.monotonic() + grace
        self._wake.set()

    def drop(self) -> None:
        """End it at once: its object is gone; from any thread."""
        self._is_gone = True
        self._wake.set()

    def join(self) -> None:
        """Wait until nothing of it is left."""
        self._thread.join()

    def _run(self) -> None:
        while not self._is_gone:
            self._wake.clear()
            self._step()
            try:
                self._report()
            except (ApiError, UnreachableError):
                self._wake.wait(RETRY_SECONDS)
            self._wake.wait(STEP_SECONDS)
        for container in self._all():
            self._stop_probing(container)
            container.kill()
        while any(container.is_running for container in self._all()):
            for container in self._all():
                container.look()
            time.sleep(STEP_SECONDS / 10)
        shutil.rmtree(self._around.folder / "volumes", ignore_errors=True)
        self._on_end()

    def _step(self) -> None:
        for container in self._all():
            if container.look():
                self._stop_probing(container)
            self._take_findings(container)
        if self._deadline is not None or self._is_over():
            self._end_in_order()
        elif self._write_volumes():
            self._start_in_order()

    def _report(self) -> None:
        self._write_status()
        if self._deadline is not None and not any(c.is_running for c in self._all()):
            self._delete()

    def _all(self) -> Sequence[Container]:
        return [*self._init, *self._main]

    def _is_over(self) -> bool:
        """Whether all containers have ended, and none is started again."""
        if any(self._has_failed(one) for one in self._init if not one.is_sidecar):
            return True
        return all(one.has_ended and not self._starts_again(one) for one in self._main)

    def _has_failed(self, container: Container) -> bool:
        is_bad = container.has_ended and container.exit_code != 0
        return is_bad and self._policy == "Never"

    def _starts_again(self, container: Container) -> bool:
        if container.is_sidecar or self._policy == "Always":
            return True
        return self._policy == "OnFailure" and container.exit_code != 0

    def _write_volumes(self) -> bool:
        """Write what is new; say whether all is there."""
        if time.monotonic() >= self._refreshed + REFRESH_SECONDS:
            try:
                self._around.volumes.write()
                self._volume_fault = ""
                self._refreshed = time.monotonic()
            except (VolumeError, ApiError, UnreachableError) as error:
                self._volume_fault = str(error)
        return self._refreshed >= 0

    def _start_in_order(self) -> None:
        for container in self._init:
            done = container.has_ended and container.exit_code == 0
            if container.is_sidecar or not done:
                self._start_if_due(container)
            if not (container.is_started if container.is_sidecar else done):
                return
        for container in self._main:
            self._start_if_due(container)

    def _start_if_due(self, container: Container) -> None:
        if container.is_running or not container.is_due:
            return
        starts = not container.has_ended or self._starts_again(container)
        if starts and container.start():
            self._probers[container.name] = Prober(
                container.spec, self._around.space, container.execute, self._wake
            )

    def _take_findings(self, container: Container) -> None:
        """Take over what the probes have found; end a container that must be."""
        prober = self._probers.get(container.name)
        if prober is None:
            return
        container.is_started = prober.is_started
        container.is_ready = prober.is_started and prober.is_ready
        kill_at = self._kill_at.get(container.name)
        if prober.failure and kill_at is None:
            grace = self._around.pod["spec"].get("terminationGracePeriodSeconds")
            seconds = DEFAULT_GRACE_SECONDS if grace is None else grace
            self._kill_at[container.name] = time.monotonic() + seconds
            container.terminate()
        elif kill_at is not None and time.monotonic() >= kill_at:
            container.kill()

    def _stop_probing(self, container: Container) -> None:
        self._kill_at.pop(container.name, None)
        prober = self._probers.pop(container.name, None)
        if prober is not None:
            prober.stop()

    def _end_in_order(self) -> None:
        """End the containers, then the sidecars, the last one first."""
        if self._deadline is not None and time.monotonic() >= self._deadline:
            for container in self._all():
                container.kill()
            return
        running = [container for container in self._main if container.is_running]
        if not running:
            others = [one for one in self._init if one.is_running]
            running = others[-1:]
        for container in running:
            if container.name not in self._kill_at:
                self._kill_at[container.name] = self._deadline or (
                    time.monotonic() + DEFAULT_GRACE_SECONDS
                )
                container.terminate()

    def _phase(self) -> str:
        if self._is_over() and not any(one.is_running for one in self._all()):
            ends = [*self._main, *(one for one in self._init if not one.is_sidecar)]
            bad = any(one.exit_code not in {0, None} for one in ends)
            return "Failed" if bad else "Succeeded"
        has_begun = any(one.is_running or one.has_ended for one in self._main)
        return "Running" if has_begun else "Pending"

    def _write_status(self) -> None:
        status = self._status()
        if status != self._written:
            write_status(self._around.client, self._around.pod, status)
            self._written = status

    def _status(self) -> JsonObject:
        phase = self._phase()
        is_over = phase in FINAL_PHASES
        initialized = all(
            one.is_started if one.is_sidecar else one.exit_code == 0
            for one in self._init
        )
        counted = [*self._main, *(one for one in self._init if one.is_sidecar)]
        ready = not is_over and all(one.is_ready and one.is_running for one in counted)
        old = {c["type"]: c for c in self._written.get("conditions", ())}
        address = self._around.pod["status"]["podIP"]
        return {
            "phase": phase,
            "message": self._volume_fault or None,
            "conditions": [
                _condition(old, "PodReadyToStartContainers", is_true=not is_over),
                _condition(old, "Initialized", is_true=initialized or is_over),
                _condition(old, "ContainersReady", is_true=ready),
                _condition(old, "Ready", is_true=ready),
            ],
            "hostIP": self._around.pod["status"]["hostIP"],
            "podIP": address,
            "podIPs": [{"ip": address}],
            "startTime": self._around.pod["status"]["startTime"],
            "initContainerStatuses": [one.status() for one in self._init],
            "containerStatuses": [one.status() for one in self._main],
        }

    def _delete(self) -> None:
        delete_now(self._around.client, self._around.pod)


def _condition(old: dict[str, JsonObject], kind: str, *, is_true: bool) -> JsonObject:
    status = "True" if is_true else "False"
    before = old.get(kind, {})
    same = before.get("status") == status
    since = before["lastTransitionTime"] if same else now_text()
    return {"type": kind, "status": status, "lastTransitionTime": since}


def delete_now(client: ApiClient, pod: JsonObject) -> None:
    """Tell the API server that nothing of a pod is left."""
    metadata = pod["metadata"]
    path = f"/api/v1/namespaces/{metadata['namespace']}/pods/{metadata['name']}"
    options = {
        "apiVersion": "v1",
        "kind": "DeleteOptions",
        "gracePeriodSeconds": 0,
        "preconditions": {"uid": metadata["uid"]},
    }
    try:
        client.request("DELETE", path, options)
    except ApiError as error:
        # It may be gone, or another one of its name be there, by now.
        if error.reason not in {"NotFound", "Conflict"}:
            raise
