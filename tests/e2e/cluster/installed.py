"""gpu-extender as the chart has installed it, with the face of `harness.product`."""

import contextlib
import http.client
import json
from collections.abc import Iterator, Sequence
from functools import reduce
from http import HTTPStatus
from typing import Final

from tests.e2e.cluster.release import NAME, SECONDS, replicas
from tests.e2e.cluster.running import RunningCluster
from tests.e2e.cluster.spaces import make_socket
from tests.e2e.harness.amounts import Amounts, amounts_listed, amounts_shown
from tests.e2e.harness.builders import JsonObject
from tests.e2e.harness.ports import LOOPBACK
from tests.e2e.harness.product import error_lines
from tests.e2e.harness.proxy import TcpProxy
from tests.e2e.harness.service import TIMEOUT_SECONDS, sum_of_samples
from tests.e2e.harness.waiting import wait_for

PORT: Final = 8888  # of the verbs, on loopback
PAGE_NODES: Final = 500
EXTENDER: Final = "gpu-extender"


class Installed:
    """The replicas of a release, which tests ask as they ask a `Product`.

    Each is asked on its own loopback. Its watches go through `proxy`, which can lag.

    Parameters
    ----------
    plane : RunningCluster
    proxy : TcpProxy
        In front of the API server, for gpu-extender alone.
    """

    def __init__(self, plane: RunningCluster, proxy: TcpProxy) -> None:
        self.plane = plane
        self.client = plane.client
        self._proxy = proxy
        self._calls_before: dict[str, int] = {}
        self._calls_checked = len(plane.calls())

    def start_all(self) -> None:
        """Wait until all that is there is known; calls are counted from here on."""
        self.wait_counted()
        self._calls_before.clear()
        for verb in ("filter", "prioritize", "preempt", "mutate"):
            self._calls_before[verb] = self.calls_of(verb)

    def amounts(self) -> Amounts:
        """Return node -> resource -> (allocatable, requested), where replicas agree."""
        found = [self._amounts_of(pod) for pod in replicas(self.plane)]

        def agreed(some: Amounts, others: Amounts) -> Amounts:
            return {
                node: amounts
                for node, amounts in some.items()
                if others.get(node) == amounts
            }

        return reduce(agreed, found)

    def wait_counted(self) -> None:
        """Wait until each replica has counted what a fresh list has."""
        wait_for(
            lambda: self.amounts() == amounts_listed(self.client),
            timeout_seconds=SECONDS,
            what="replicas up to date",
        )

    def metric(self, name: str, **labels: str) -> float:
        """Return the sum of all replicas' samples that have these labels."""
        texts = (self._read(pod, "/metrics").decode() for pod in replicas(self.plane))
        return sum(sum_of_samples(text, name, labels) for text in texts)

    def calls_of(self, verb: str) -> int:
        """Return how many calls of a verb were answered since `start_all`."""
        count = int(self.metric("gpu_extender_requests_total", verb=verb))
        return count - self._calls_before.get(verb, 0)

    def logs(self) -> Sequence[str]:
        """Return what each replica has said."""
        return [self.plane.log(pod, EXTENDER) for pod in replicas(self.plane)]

    @contextlib.contextmanager
    def late(self, seconds: float) -> Iterator[None]:
        """Have its watches, and nobody else's, lag."""
        self._proxy.delay(seconds)
        try:
            yield
        finally:
            self._proxy.delay(0.0)

    def check(self) -> None:
        """Fail if something was said or refused that must not be."""
        calls = self.plane.calls()[self._calls_checked :]
        assert [call for call in calls if call.is_refused and call.is_of(NAME)] == []
        assert [line for log in self.logs() for line in error_lines(log)] == []

    def _amounts_of(self, pod: JsonObject) -> Amounts:
        nodes: list[JsonObject] = []
        after = ""
        while True:
            path = f"/cluster?limit={PAGE_NODES}&continue={after}"
            page = json.loads(self._read(pod, path))
            nodes += page["nodes"]
            after = page["continue"]
            if not after:
                return amounts_shown(nodes)

    def _read(self, pod: JsonObject, path: str) -> bytes:
        """Return a page that a replica serves to those beside it."""
        connection = http.client.HTTPConnection(LOOPBACK, PORT)
        connection.sock = make_socket(self.plane.network_of(pod, EXTENDER))
        try:
            connection.sock.settimeout(TIMEOUT_SECONDS)
            connection.sock.connect((LOOPBACK, PORT))
            connection.request("GET", path)
            answer = connection.getresponse()
            body = answer.read()
        finally:
            connection.close()
        assert answer.status == HTTPStatus.OK, f"{path}: got {answer.status} {body!r}"
        return body
