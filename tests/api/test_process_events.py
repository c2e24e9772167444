"""Real processes before a fake API server: pods that wait are told why, by one."""

import itertools
import time
from collections.abc import Iterator
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

import pytest

from tests.api.test_process_failing_nodes import FAILING, refused_pod
from tests.api.test_process_fallback import SLICE
from tests.api.test_process_lease import HELD, NO_SPEC, QUICK, Replicas
from tests.builders import make_node, make_pod
from tests.fakes.api_server import FakeApiServer
from tests.service_process import ServiceProcess, wait_until

NO_CHAINS: Final = {"fallback": {"chains": []}, "election": QUICK}
WAITS: Final = "gpu_extender_pod_wait_seconds_count"
UNCALLED: Final = 'gpu_extender_uncalled_bindings_total{resource="nvidia.com/gpu"}'
WRITTEN: Final = 'gpu_extender_events_total{outcome="written"}'
SENTENCE: Final = "No node fits: 1 has too few GPUs (needs 4, largest node 2)."


@pytest.fixture
def replicas(api: FakeApiServer, tmp_path: Path) -> Iterator[Replicas]:
    with ExitStack() as stack:
        yield Replicas(stack, api, tmp_path)


def put_cluster(api: FakeApiServer) -> None:
    """Have a pod that has waited for a minute, and one that has just come."""
    api.put(NO_SPEC)
    api.put(make_node(gpus=2))
    for name, seconds in (("old", 60), ("young", 0)):
        created = datetime.now(UTC) - timedelta(seconds=seconds)
        pod = make_pod(
            name=name,
            gpus=4,
            owner_uid="job",
            metadata={"creationTimestamp": created.isoformat()},
        )
        api.put(pod)


def events_of(api: FakeApiServer) -> dict[tuple[str, str], Any]:
    """Return what was told: kind and name -> Event."""
    found = api.state.found_in("events", "default")
    return {(e["regarding"]["kind"], e["regarding"]["name"]): e for e in found}


def test_a_pod_that_waits_and_its_owner_are_told_by_one_of_two(
    replicas: Replicas, api: FakeApiServer
) -> None:
    put_cluster(api)
    replicas.start("a", "b", config=NO_CHAINS)
    wait_until(lambda: ("Pod", "old") in events_of(api), "the pod is told")

    told = events_of(api)
    assert set(told) == {("Pod", "old"), ("Job", "owner")}
    assert told["Pod", "old"]["note"] == SENTENCE
    assert told["Job", "owner"]["note"] == f"{SENTENCE} Pods that wait: 1."
    assert sum(process.metric(WRITTEN) for process in replicas.of.values()) == 2
    assert len(api.seen("create", "events")) == 2
    assert replicas.labelled() == []


def test_what_one_has_told_is_known_to_the_next(
    replicas: Replicas, api: FakeApiServer
) -> None:
    put_cluster(api)
    replicas.start("a", config=NO_CHAINS)
    wait_until(lambda: ("Pod", "old") in events_of(api), "the pod is told")
    replicas.of["a"].stop()
    replicas.start("b", config=NO_CHAINS)
    known = 'gpu_extender_events_total{outcome="known"}'
    wait_until(lambda: replicas.of["b"].metric(known) == 2, "it is known")

    assert replicas.of["b"].metric(WRITTEN) == 0
    assert len(events_of(api)) == 2


def test_nothing_is_told_where_events_are_off(
    replicas: Replicas, api: FakeApiServer
) -> None:
    put_cluster(api)
    config = {"extender": {"events": False}, "election": QUICK}
    replicas.start("a", config=config)
    replicas.wait_active("a")  # for the falls

    assert api.seen("create", "events") == []


def test_a_fall_and_a_slip_are_told_where_the_pod_is_seen_and_of_no_dry_run(
    replicas: Replicas, api: FakeApiServer
) -> None:
    api.put(NO_SPEC, make_node(name="gpu-01", gpus=4))
    replicas.start("a")
    replicas.wait_active("a")
    process = replicas.of["a"]
    pods = {"dry": "nvidia.com/gpu", "fell": SLICE, "misspelt": "nvidia.com/gpu"}
    for name, resource in pods.items():
        annotations = {} if name == "fell" else {"gpu-extender.io/gpu-type": "H100 A10"}
        admit(process, name, resource, annotations, is_dry_run=name == "dry")
        asked = {"nvidia.com/gpu": "1"}
        api.put(make_pod(name=name, requests=asked, node_name="gpu-01"))
    told = {("Pod", "fell"), ("Pod", "misspelt")}
    wait_until(lambda: events_of(api).keys() >= told, "both are told")

    assert events_of(api).keys() == told
    fell, slip = (events_of(api)["Pod", name] for name in ("fell", "misspelt"))
    assert (fell["reason"], fell["type"]) == ("GPUPodFallback", "Normal")
    assert fell["note"].startswith(f"{SLICE} was changed to nvidia.com/gpu: ")
    assert (slip["reason"], slip["type"]) == ("GPUPodWarning", "Warning")
    assert "'H100 A10' is no known GPU model" in slip["note"]
    (line,) = process.logs("pod fell back")
    assert (line["pod"], line["fall"]) == ("fell", fell["note"])
    (line,) = process.logs("pod admitted with a warning")
    assert (line["pod"], line["warning"]) == ("misspelt", slip["note"])


def test_a_failing_node_is_told_and_named_by_the_holder_alone(
    replicas: Replicas, api: FakeApiServer
) -> None:
    now = time.time()
    api.put(NO_SPEC, make_node(name="a", gpus=4))
    api.put(refused_pod("x", now), refused_pod("y", now))
    replicas.start("one", "two", config=NO_CHAINS)
    processes = replicas.of.values()
    wait_until(lambda: ("Node", "a") in events_of(api), "the node is told of")

    note = events_of(api)["Node", "a"]["note"]
    assert {"default/x", "default/y"} <= set(note.rstrip(".").replace(",", "").split())
    assert [p.get("/cluster").json()["failingNodes"] for p in processes] == [["a"]] * 2
    shown = [f"{HELD} 1.0", 'gpu_extender_node_failing{node="a"} 1.0', f"{FAILING} 1.0"]
    wait_until(
        lambda: (
            sorted(
                [line in metrics_of(process).splitlines() for line in shown]
                for process in processes
            )
            == [[False] * 3, [True] * 3]
        ),
        "the holder alone names it",
    )
    assert len(api.seen("create", "events")) == 1


def test_the_wait_of_a_bound_pod_is_counted_by_the_holder_alone(
    replicas: Replicas, api: FakeApiServer
) -> None:
    api.put(NO_SPEC, make_node(name="a", gpus=8))
    replicas.start("one", "two", config={"fallback": {"chains": []}})
    processes = replicas.of.values()
    wait_until(lambda: any(p.metric(HELD) for p in processes), "one holds the lease")
    names = itertools.count()

    def have_seen_one_more() -> bool:
        """Bind a pod, and return whether both have seen one that they count."""
        name = f"pod-{next(names)}"
        for node in ("", "a"):
            pod = make_pod(name=name, gpus=1, node_name=node)
            pod["metadata"]["creationTimestamp"] = "2026-11-28T12:00:00Z"
            api.put(pod)
        return all(process.metric(UNCALLED) > 0 for process in processes)

    wait_until(have_seen_one_more, "both have seen a pod that was bound")

    counted = [(p.metric(HELD), p.metric(WAITS) > 0) for p in processes]
    assert sorted(counted) == [(0, False), (1, True)]


def test_each_process_exports_all_where_nobody_is_elected(
    replicas: Replicas, api: FakeApiServer
) -> None:
    api.put(NO_SPEC, make_node(name="a", gpus=4))
    no_events = {**NO_CHAINS, "extender": {"events": False}}
    replicas.start("one", "two", config=no_events)

    for process in replicas.of.values():
        assert process.metric(HELD) == 0
        assert f"{FAILING} 0.0" in metrics_of(process).splitlines()


def metrics_of(process: ServiceProcess) -> str:
    return process.get("/metrics").body.decode()


def admit(
    process: ServiceProcess,
    name: str,
    resource: str,
    annotations: dict[str, str],
    *,
    is_dry_run: bool,
) -> None:
    """Have the pod reviewed that is about to be created."""
    pod = make_pod(name=name, requests={resource: "1"})
    pod["metadata"] = {"name": name, "annotations": annotations}
    review = {
        "apiVersion": "admission.k8s.io/v1",
        "kind": "AdmissionReview",
        "request": {
            "uid": name,
            "kind": {"group": "", "version": "v1", "kind": "Pod"},
            "namespace": "default",
            "operation": "CREATE",
            "dryRun": is_dry_run,
            "object": pod,
        },
    }
    assert process.post("/mutate", review).json()["response"]["allowed"]
