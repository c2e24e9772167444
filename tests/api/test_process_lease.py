"""Real processes before a fake API server: one of all replicas decides for all."""

import signal
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final

import pytest

from tests.api.test_process_fallback import CHAIN, review
from tests.builders import make_node, make_pod
from tests.fakes.api_server import FakeApiServer
from tests.service_process import ServiceProcess, wait_until

LABEL: Final = "gpu-extender.io/active"
NAMESPACE: Final = "gpu-extender"
LEASE: Final = f"{NAMESPACE}/gpu-extender"
NO_SPEC: Final = {
    "apiVersion": "coordination.k8s.io/v1",
    "kind": "Lease",
    "metadata": {"name": "gpu-extender", "namespace": NAMESPACE},
}
QUICK: Final = {"leaseSeconds": 2, "renewDeadlineSeconds": 1.5, "retrySeconds": 0.2}
HELD: Final = "gpu_extender_lease_held"
NOT_TAKEN: Final = "lease not renewed or taken"
ALONE: Final = "gpu_extender_webhook_decided_alone_total"
NAMES: Final = ("a", "b", "c")


class Replicas:
    """Processes, each in a pod of its own."""

    def __init__(self, stack: ExitStack, api: FakeApiServer, folder: Path) -> None:
        self._stack = stack
        self._api = api
        self._folder = folder
        self.of: dict[str, ServiceProcess] = {}

    def start(
        self, *names: str, config: Mapping[str, Any] | None = None, is_pod: bool = True
    ) -> None:
        """Start replicas and wait until each has read the cluster."""
        for name in names:
            pod = make_pod(name=name, namespace=NAMESPACE, cpu="1")
            self._api.put({**pod, "metadata": {**pod["metadata"], "uid": name}})
            folder = self._folder / name
            folder.mkdir()
            self._api.kubeconfig(folder)
            settings = {
                "cluster": {"source": "kubernetes", "kubeconfig": "kubeconfig"},
                "fallback": {"chains": [CHAIN]},
                "election": QUICK,
                **(config or {}),
            }
            variables = {"POD_NAME": name, "POD_NAMESPACE": NAMESPACE, "POD_UID": name}
            process = ServiceProcess(
                folder, settings, environment=variables if is_pod else {}
            )
            self.of[name] = self._stack.enter_context(process)
        for name in names:
            self.of[name].wait_ready()

    def labelled(self) -> list[str]:
        """Return the pods that the Service would lead to."""
        pods = self._api.state.labelled(NAMESPACE, LABEL)
        return [pod["metadata"]["name"] for pod in pods]

    def wait_active(self, *among: str) -> str:
        """Wait until the Service leads to one of these alone, the holder; return it."""
        active: list[str] = []

        def is_one_called() -> bool:
            # The label trails: a holder may be cut off, or another one already hold it.
            active[:] = self.labelled()
            return (
                len(active) == 1
                and active[0] in among
                and self.of[active[0]].metric(HELD) == 1
            )

        wait_until(is_one_called, f"one of {among} is called and holds the lease")
        return active[0]


@pytest.fixture
def stack() -> Any:
    with ExitStack() as opened:
        yield opened


@pytest.fixture
def replicas(api: FakeApiServer, tmp_path: Path, stack: ExitStack) -> Replicas:
    api.put(make_node(name="gpu-01", gpus=4), NO_SPEC)
    return Replicas(stack, api, tmp_path)


def wait_logged(process: ServiceProcess, event: str) -> None:
    wait_until(lambda: process.logs(event) != [], event)


def holder_of(api: FakeApiServer) -> str:
    found = api.state.find("leases", LEASE)
    return str((found or {}).get("spec", {}).get("holderIdentity", ""))


def test_of_three_replicas_one_is_called_and_it_alone_decides(
    replicas: Replicas, api: FakeApiServer
) -> None:
    replicas.start(*NAMES)

    active = replicas.wait_active(*NAMES)
    for name in NAMES:
        review(replicas.of[name], 0)

    assert holder_of(api) == active
    for name in NAMES:
        others = name != active
        assert replicas.of[name].metric(ALONE) == others
        told = replicas.of[name].logs("decided without the lease")
        assert [line["reason"] for line in told] == [f"held by {active}"] * others


def test_when_the_holder_is_killed_the_next_one_is_called(
    replicas: Replicas, api: FakeApiServer
) -> None:
    replicas.start(*NAMES)
    killed = replicas.wait_active(*NAMES)

    replicas.of[killed].process.kill()

    others = [name for name in NAMES if name != killed]
    assert replicas.wait_active(*others) == holder_of(api)


def test_a_holder_that_drains_is_called_and_ready_until_the_next_one_is(
    replicas: Replicas, api: FakeApiServer
) -> None:
    replicas.start(*NAMES, config={"server": {"drainSeconds": 60}})
    leaving = replicas.wait_active(*NAMES)
    others = [name for name in NAMES if name != leaving]
    process = replicas.of[leaving]

    process.send(signal.SIGTERM)
    wait_until(lambda: holder_of(api) in others, "another one holds the lease")
    status = process.get("/readyz").status
    if replicas.labelled() == [leaving]:
        assert status == 200
    replicas.wait_active(*others)

    wait_until(lambda: process.get("/readyz").status == 503, "it drains")
    assert process.metric(HELD) == 0
    process.send(signal.SIGINT)
    assert process.wait_stopped() == 0


def test_the_last_replica_leaves_although_nobody_follows(
    replicas: Replicas, api: FakeApiServer
) -> None:
    replicas.start("a")
    replicas.wait_active("a")

    replicas.of["a"].send(signal.SIGTERM)

    assert replicas.of["a"].wait_stopped() == 0
    assert holder_of(api) == ""
    assert replicas.labelled() == ["a"]


@pytest.mark.parametrize(
    ("config", "is_pod"),
    [
        pytest.param(
            {"fallback": {"chains": []}, "extender": {"events": False}},
            True,
            id="without chains and Events",
        ),
        pytest.param({}, False, id="outside of a pod"),
    ],
)
def test_nothing_is_elected(
    replicas: Replicas, api: FakeApiServer, config: dict[str, Any], is_pod: bool
) -> None:
    replicas.start("a", config=config, is_pod=is_pod)

    review(replicas.of["a"], 0)
    api.wait_seen("watch", "pods", 1)

    assert api.seen("get", "leases") == []
    assert replicas.of["a"].metric(ALONE) == 0
    told = replicas.of["a"].logs("no replica elected: not told which pod this is")
    assert len(told) == (not is_pod)


@pytest.mark.parametrize(
    ("code", "reason"),
    [
        (403, "no right to the Lease"),
        (404, "there is no Lease of that name"),
        (500, "the API server did not say: http_500"),
    ],
)
def test_without_a_lease_each_replica_decides_alone_and_says_so(
    replicas: Replicas, api: FakeApiServer, code: int, reason: str
) -> None:
    api.withhold("leases", code)
    replicas.start("a", "b")
    for name in ("a", "b"):
        wait_logged(replicas.of[name], NOT_TAKEN)

    for name in ("a", "b"):
        for number in range(3):
            review(replicas.of[name], number)

    for name in ("a", "b"):
        process = replicas.of[name]
        assert process.metric(ALONE) == 3
        told = process.logs("decided without the lease")
        assert [line["reason"] for line in told] == [reason]
    assert replicas.labelled() == []

    api.withhold("leases", None)
    replicas.wait_active("a", "b")


def test_a_lease_and_labels_that_others_spoil_are_put_right(
    replicas: Replicas, api: FakeApiServer
) -> None:
    replicas.start(*NAMES)
    replicas.wait_active(*NAMES)

    stored = api.state.find("leases", LEASE)
    assert stored is not None
    spec = {"holderIdentity": "somebody", "leaseDurationSeconds": 1}
    api.put({**stored, "spec": spec})
    # The label trails: until then it is on a replica that holds nothing.
    wait_until(
        lambda: replicas.labelled() == [holder_of(api)],
        "the label is on the holder again",
    )
    replicas.wait_active(*NAMES)
    api.remove(stored)
    wait_until(
        lambda: not any(process.metric(HELD) for process in replicas.of.values()),
        "nobody holds it",
    )
    api.put(NO_SPEC)
    wait_until(lambda: holder_of(api) in NAMES, "somebody holds it")
    for pod in api.state.page("pods", 0, "")["items"]:
        labels = {**pod["metadata"].get("labels", {}), LABEL: "true"}
        tree = {"kind": "Pod", "apiVersion": "v1", **pod}
        api.put({**tree, "metadata": {**pod["metadata"], "labels": labels}})
    assert replicas.wait_active(*NAMES) == holder_of(api)
