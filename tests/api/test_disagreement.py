"""A lasting disagreement about counts, from the calls to the list that settles it."""

import json
import threading
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest
import yaml

from cluster.watch.kinds import PODS
from cluster.watch.reflector import RESTART_INTERVAL_SECONDS
from extender.tracking.count_mismatches import LIMIT_SECONDS
from service.runtime import Runtime
from service.settings.settings import read_settings
from tests.builders import make_node, make_pod
from tests.fakes.api_server import FakeApiServer
from tests.service_process import wait_until

QUESTION: Final = {"Pod": make_pod(gpus=4), "Nodes": None, "NodeNames": ["a"]}
RESTARTS: Final = (
    'gpu_extender_cache_watch_restarts_total{kind="pods",reason="counts_disagree"}'
)


@pytest.fixture
def runtime(api: FakeApiServer, tmp_path: Path) -> Iterator[Runtime]:
    """Run all that a process consists of, over a node that is full by our count.

    Not in a process of its own, since a list on demand takes one that is half a minute
    old: here it can be made older.
    """
    holder = make_pod(name="holder", gpus=4, node_name="a")
    api.put(make_node(name="a", gpus=4), holder)
    path = tmp_path / "config.yaml"
    cluster = {"source": "kubernetes", "kubeconfig": str(api.kubeconfig(tmp_path))}
    server = {"port": 0, "drainSeconds": 0}
    path.write_text(yaml.safe_dump({"cluster": cluster, "server": server}))
    running = Runtime(path, read_settings(path))
    running.start()
    try:
        wait_until(lambda: running.cell.is_synced, "the cluster is counted")
        yield running
    finally:
        running.drain(threading.Event())


def passed_nodes(runtime: Runtime) -> list[str]:
    """Return the nodes that pass, which is the one node, trusted."""
    port = runtime.server.port
    url = f"http://127.0.0.1:{port}/scheduler/filter"
    request = urllib.request.Request(url, json.dumps(QUESTION).encode())
    with urllib.request.urlopen(request) as response:  # noqa: S310 - as above
        names: list[str] = json.load(response)["NodeNames"]
    return names


def test_a_lasting_disagreement_has_the_pods_listed_anew(
    api: FakeApiServer, runtime: Runtime
) -> None:
    link = runtime._link
    assert link is not None
    link._watch._reflectors[PODS]._listed_at -= RESTART_INTERVAL_SECONDS

    assert passed_nodes(runtime) == ["a"]
    assert len(api.seen("list", "pods")) == 1
    time.sleep(LIMIT_SECONDS + 0.1)
    assert passed_nodes(runtime) == ["a"]

    api.wait_seen("list", "pods", 2)
    wait_until(
        lambda: f"{RESTARTS} 1.0" in runtime.metrics.render().decode(),
        "the restart is counted",
    )
