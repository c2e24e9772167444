"""Each query of the dashboard, answered by a real Prometheus about a real run.

``PICTURE_SECONDS=600`` lets pods come and go for so long, and draws
``docs/dashboard.svg`` then.
"""

import json
import os
import re
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from deploy import dashboard
from tests.e2e import build
from tests.e2e.harness.builders import GPU, JsonObject, make_node, make_pod
from tests.e2e.harness.churn import Churn
from tests.e2e.harness.ports import LOOPBACK, free_port
from tests.e2e.harness.process import ManagedProcess
from tests.e2e.harness.product import Product
from tests.e2e.harness.reaper import Reaper
from tests.e2e.harness.waiting import wait_for

PICTURE_SECONDS: Final = float(os.environ.get("PICTURE_SECONDS", "0"))
PODS_PER_SECOND: Final = 2.0
SCRAPE_SECONDS: Final = 1
ANSWER_SECONDS: Final = 60.0
MIG_2G: Final = "nvidia.com/mig-2g.20gb"
POOL: Final = "cloud.google.com/gke-nodepool"
PRODUCT: Final = "nvidia.com/gpu.product"


class Prometheus:
    """A Prometheus that scrapes one service."""

    def __init__(self, folder: Path, target: int, reaper: Reaper) -> None:
        self.url = f"http://{LOOPBACK}:{free_port()}"
        scrape = {
            "job_name": "gpu-extender",
            "static_configs": [{"targets": [f"{LOOPBACK}:{target}"]}],
        }
        config = folder / "prometheus.yaml"
        interval = {"scrape_interval": f"{SCRAPE_SECONDS}s"}
        config.write_text(
            yaml.safe_dump({"global": interval, "scrape_configs": [scrape]})
        )
        try:
            found = build.locate(build.chosen_minor(), ["prometheus"])
        except build.BuildError:
            pytest.skip("no Prometheus on the PATH, and make chart has unpacked none")
        self.process = ManagedProcess(
            "prometheus",
            [
                found["prometheus"],
                f"--config.file={config}",
                f"--storage.tsdb.path={folder / 'prometheus'}",
                f"--web.listen-address={self.url.removeprefix('http://')}",
            ],
            log_path=folder / "prometheus.log",
            is_ready=self._is_ready,
            reaper=reaper,
        )

    def _is_ready(self) -> bool:
        try:
            with urllib.request.urlopen(f"{self.url}/-/ready", timeout=5):  # noqa: S310
                return True
        except (urllib.error.URLError, OSError):
            return False

    def ask(self, query: str) -> list[Any]:
        """Return the series that a query has now."""
        text = urllib.parse.urlencode({"query": query})
        with urllib.request.urlopen(f"{self.url}/api/v1/query?{text}") as answer:  # noqa: S310
            found = json.load(answer)
        assert found["status"] == "success"
        result: list[Any] = found["data"]["result"]
        return result


@pytest.fixture
def prometheus(
    product: Product, tmp_path: Path, reaper: Reaper
) -> Iterator[Prometheus]:
    started = Prometheus(tmp_path, product.port, reaper)
    started.process.start()
    yield started
    started.process.stop()


def make_fleet(product: Product) -> None:
    """Create nodes of two types in three pools, one with little CPU and one faulty."""
    pools = (
        ("train", "NVIDIA-A100-SXM4-80GB", 8, "192"),
        ("infer", "NVIDIA-L4", 4, "64"),
    )
    nodes = [
        make_node(f"{pool}-{i}", gpus=gpus, cpu=cpu, labels={POOL: pool, PRODUCT: name})
        for pool, name, gpus, cpu in pools
        for i in range(4)
    ]
    small = {POOL: "small", PRODUCT: "NVIDIA-L4"}
    nodes.append(make_node("small-0", gpus=4, cpu="2", labels=small))
    faulty = {POOL: "infer", "nvidia.com/mig.config.state": "pending"}
    nodes.append(make_node("faulty-0", gpus=4, labels=faulty))
    product.client.create_many(nodes)


def make_churning(number: int) -> JsonObject:
    """Return one of several kinds of pods; some are injected, some fall, some wait."""
    name, kind = f"job-{number}", number % 5
    if kind == 0:
        a_type = {"task.bkbcs.tencent.com/gpu-type": "A100"}
        return make_pod(name, resources={GPU: 2}, annotations=a_type)
    if kind == 1:
        return make_pod(name, resources={MIG_2G: 1}, cpu="6")
    gpus, cpu = {2: (1, "6"), 3: (4, "24"), 4: (8, "96")}[kind]
    return make_pod(name, resources={GPU: gpus}, cpu=cpu)


def test_each_query_is_answered_about_a_real_run(
    product: Product, prometheus: Prometheus
) -> None:
    make_fleet(product)
    product.start_all()
    product.register_webhook()
    queries = [
        query.replace("$__rate_interval", "1m")
        for panel in dashboard.panels()
        for query in panel.queries.values()
    ]
    total = 10**6
    with Churn(
        product.client, make_churning, total=total, per_second=PODS_PER_SECOND, keep=30
    ):
        until = time.monotonic() + PICTURE_SECONDS
        for query in queries:
            series = "|".join(re.findall(r"\b(?:gpu_extender|process)_\w+", query))
            exported = product.service.get("/metrics")[1].decode()
            if re.search(rf"^(?:{series})[ {{]", exported, re.MULTILINE):
                wait_for(
                    partial(prometheus.ask, query),
                    timeout_seconds=ANSWER_SECONDS,
                    what=f"series of {query}",
                )
            else:  # such as the certificate's, without HTTPS
                assert prometheus.ask(query) == []
        if PICTURE_SECONDS:
            wait_for(
                lambda: time.monotonic() > until,
                timeout_seconds=PICTURE_SECONDS + 1,
                what="the time of the picture",
            )
            dashboard.PICTURE.write_text(dashboard.draw(prometheus.url))
