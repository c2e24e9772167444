"""Fallback of the running process, over nodes and pods in two files."""

import base64
import json
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import pytest

from tests.builders import make_node, make_pod
from tests.fakes.api_server import FakeApiServer
from tests.service_process import ROOT, ServiceProcess

RECORD: Final = "gpu-webhook.k8s.io/fallback"
SLICE: Final = "nvidia.com/mig-2g.20gb"
CHAIN: Final = [SLICE, "nvidia.com/mig-1g.10gb", "nvidia.com/gpu"]
TWO_NODES: Final = [make_node(name=name, gpus=4) for name in ("gpu-01", "gpu-02")]
ONE_SLICE: Final = make_node(name="mig-01", resources={"nvidia.com/mig-1g.10gb": 1})


def serve(folder: Path, nodes: Sequence[dict[str, Any]]) -> ServiceProcess:
    """Return a process over `nodes` and one pod that runs without GPU."""
    pods = [make_pod(name="plain", node_name="gpu-01", cpu="1")]
    for name, items in (("nodes", nodes), ("pods", pods)):
        tree = {"apiVersion": "v1", "kind": "List", "items": list(items)}
        (folder / f"{name}.json").write_text(json.dumps(tree))
    config = {
        "cluster": {"source": "file", "files": ["nodes.json", "pods.json"]},
        "fallback": {"chains": [CHAIN], "holdSeconds": 600},
    }
    return ServiceProcess(folder, config)


def review(service: ServiceProcess, number: int) -> str:
    """Have one pod admitted; return its record, empty if it kept its slice."""
    amounts = {SLICE: "1"}
    container = {"name": "main", "resources": {"limits": amounts, "requests": amounts}}
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"generateName": "worker-", "namespace": "ml"},
        "spec": {"containers": [container]},
    }
    review = {
        "apiVersion": "admission.k8s.io/v1",
        "kind": "AdmissionReview",
        "request": {
            "uid": f"request-{number}",
            "kind": {"group": "", "version": "v1", "kind": "Pod"},
            "namespace": "ml",
            "operation": "CREATE",
            "object": pod,
        },
    }
    response = service.post("/mutate", review).json()["response"]
    assert response["uid"] == f"request-{number}"
    assert response["allowed"]
    patch = json.loads(base64.b64decode(response.get("patch", b"W10=")))
    written: dict[str, str] = {}
    for operation in patch:
        if operation["path"] == "/metadata/annotations":
            written = operation["value"]
    return written.get(RECORD, "")


def admit(service: ServiceProcess, count: int, *, at_once: bool) -> Counter[str]:
    """Have `count` equal pods admitted and count their records."""
    service.wait_ready()
    with ThreadPoolExecutor(count if at_once else 1) as pool:
        return Counter(pool.map(lambda number: review(service, number), range(count)))


@pytest.fixture(params=[False, True], ids=["one after the other", "all at once"])
def at_once(request: pytest.FixtureRequest) -> bool:
    return bool(request.param)


def test_ten_pods_without_a_slice_all_fall_to_whole_gpus(
    tmp_path: Path, at_once: bool
) -> None:
    with serve(tmp_path, TWO_NODES) as service:
        records = admit(service, 10, at_once=at_once)

    assert records == {"2g.20gb->gpu": 10}


def test_of_nine_pods_one_takes_the_free_smaller_slice(
    tmp_path: Path, at_once: bool
) -> None:
    with serve(tmp_path, [*TWO_NODES, ONE_SLICE]) as service:
        records = admit(service, 9, at_once=at_once)

    assert records == {"2g.20gb->1g.10gb": 1, "2g.20gb->gpu": 8}


@pytest.fixture
def demo(tmp_path: Path) -> Iterator[ServiceProcess]:
    """The shipped demo cluster, with holds that outlast the test."""
    config = {
        "cluster": {
            "source": "file",
            "files": [str(ROOT / "configs" / "demo-cluster.yaml")],
        },
        "fallback": {"chains": [CHAIN], "holdSeconds": 600},
    }
    with ServiceProcess(tmp_path, config) as service:
        yield service


def test_on_the_demo_cluster_free_slices_go_first(demo: ServiceProcess) -> None:
    # a100-mig-01 offers 4 slices of 2g.20gb, 1 in use, and 8 of 1g.10gb, 1 in use;
    # a100-mig-02 is being partitioned anew.
    records = admit(demo, 10, at_once=True)

    assert records == {"": 3, "2g.20gb->1g.10gb": 7}


@pytest.mark.parametrize("ahead", [-3600, -120, 120, 3600])
def test_a_pod_that_became_unschedulable_just_now_counts_whatever_our_clock_says(
    api: FakeApiServer, tmp_path: Path, ahead: float
) -> None:
    api.clock_offset_seconds = -ahead  # ours is ahead of the API server's
    there = datetime.fromtimestamp(time.time() - ahead, UTC)
    condition = {
        "type": "PodScheduled",
        "status": "False",
        "reason": "Unschedulable",
        "lastTransitionTime": there.strftime("%Y-%m-%dT%H:%M:%SZ"),
    }
    api.put(
        make_node(name="mig-01", resources={SLICE: 1, "nvidia.com/mig-1g.10gb": 9}),
        make_pod(
            name="first", requests={SLICE: "1"}, status={"conditions": [condition]}
        ),
    )
    config = {
        "cluster": {
            "source": "kubernetes",
            "kubeconfig": str(api.kubeconfig(tmp_path)),
        },
        "fallback": {"chains": [CHAIN]},
    }
    with ServiceProcess(tmp_path, config) as service:
        assert admit(service, 1, at_once=False) == {"2g.20gb->1g.10gb": 1}
