"""The version before, replaced by this one under load, one replica after the other,
and this one by the version before."""

import contextlib
import os
import signal
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import pytest
import yaml

from tests.e2e.harness.builders import JsonObject, make_node, make_pod
from tests.e2e.harness.client import ApiClient
from tests.e2e.harness.connection import ApiError
from tests.e2e.harness.control_plane import ControlPlane
from tests.e2e.harness.ports import LOOPBACK, free_port
from tests.e2e.harness.product import CHAIN, DEPLOY, NAME, RULES, Product, error_lines
from tests.e2e.harness.proxy import TcpProxy
from tests.e2e.harness.replicas import settings_of
from tests.e2e.harness.review_load import Review, ReviewLoad
from tests.e2e.harness.service import THIS_VERSION, Program, Service, of_source
from tests.e2e.harness.waiting import wait_for
from tests.older_version import make_environment, older_version, take_out

pytestmark = [pytest.mark.long, pytest.mark.usefixtures("whole_machine")]

REPLICAS: Final = 2
PER_SECOND: Final = 10.0
POD_COUNT: Final = 10  # of a pool
SETTLED_PODS: Final = 40  # between two replacements
SECONDS: Final = 180.0
POOL: Final = "pool"
TRIGGER: Final = "task.bkbcs.tencent.com/gpu-type"
LARGE: Final = CHAIN[0]
# Written into each pod that is reviewed, and so known to have been.
SCHEDULER: Final = "gpu-scheduler"
SELF_SIGNED: Final[Mapping[str, Any]] = {
    "certificateFile": None,
    "keyFile": None,
    "selfSigned": {
        "enabled": True,
        "dnsNames": [],
        "ipAddresses": [LOOPBACK],
        "checkSeconds": 0.5,
    },
}


@pytest.fixture(scope="module")
def older(tmp_path_factory: pytest.TempPathFactory) -> Program:
    """The version before, run by an environment of its own pinned packages."""
    name = older_version()
    if name is None:
        pytest.skip(
            "the version before is not in this clone: git fetch --unshallow --tags"
        )
    folder = tmp_path_factory.mktemp("older")
    source = take_out(name, folder / "source")
    return of_source(source, make_environment(source, folder / "environment"))


@pytest.fixture
def client(fresh_control_plane: ControlPlane) -> ApiClient:
    """A client whose calls do not wait for each other."""
    token = fresh_control_plane.users.harness.token
    return fresh_control_plane.client_with(token, connections=POD_COUNT)


@pytest.fixture(params=["files", "self-signed"])
def product(
    request: pytest.FixtureRequest, fresh_control_plane: ControlPlane
) -> Iterator[Product]:
    """The settings of an installation, with a certificate of either source."""
    own = dict(SELF_SIGNED) if request.param == "self-signed" else {}
    settings = {
        "server": {"drainSeconds": 3},
        "webhook": own,
        "injection": {"rulesFile": str(RULES), "schedulerName": SCHEDULER},
    }
    with Product(fresh_control_plane, settings=settings) as installed:
        if own:
            manifest = str(DEPLOY / "rbac-self-signed.yaml")
            fresh_control_plane.kubectl("apply", "-f", manifest)
        yield installed


class Fleet:
    """Replicas behind a front, as a Deployment and its Service have them."""

    def __init__(self, product: Product, front: TcpProxy) -> None:
        self._product = product
        self._front = front
        self._ports: dict[str, int] = {}  # replica that is ready -> its webhook's port
        self._services: dict[str, Service] = {}

    @property
    def names(self) -> Sequence[str]:
        """The replicas that run, the oldest first."""
        return tuple(self._services)

    def start(self, name: str, program: Program) -> None:
        """Start one, which is called once it is ready."""
        port, webhook_port = free_port(), free_port()
        self._services[name] = self._product.plane.start_service(
            settings_of(self._product, port, webhook_port),
            port=port,
            name=f"{NAME}-{name}",
            program=program,
        )
        self._ports[name] = webhook_port
        self._front.lead_to(*self._ports.values())

    def end(self, name: str) -> None:
        """End one as kubelet does; it is called until it is known to be leaving."""
        service = self._services.pop(name)
        os.kill(service.process.pid, signal.SIGTERM)
        wait_for(
            lambda: service.status("/readyz") != 200,
            timeout_seconds=SECONDS,
            what=f"{name} not ready",
        )
        del self._ports[name]
        self._front.lead_to(*self._ports.values())
        assert service.process.wait_end() == 0
        assert error_lines(service.process.log_text()) == []

    def replace_all(self, program: Program, kind: str, load: ReviewLoad) -> None:
        """Replace each by one of another version, with pods before and after."""
        for number, leaving in enumerate(self.names):
            wait_more(load)
            self.start(f"{kind}-{number}", program)
            wait_more(load)
            self.end(leaving)
        wait_more(load)


def wait_more(load: ReviewLoad) -> None:
    wanted = load.answered + SETTLED_PODS
    wait_for(
        lambda: load.answered >= wanted,
        timeout_seconds=SECONDS,
        what=f"{SETTLED_PODS} more pods",
    )


def register(product: Product, port: int) -> None:
    """Register the webhook, under the CA of the files or a CA to come."""
    item = yaml.safe_load((DEPLOY / "webhook.yaml").read_text(encoding="utf-8"))
    (webhook,) = item["webhooks"]
    path = webhook["clientConfig"].pop("service")["path"]
    webhook["clientConfig"] = {"url": f"https://{LOOPBACK}:{port}{path}"}
    if product.settings["webhook"]["certificateFile"]:
        webhook["clientConfig"]["caBundle"] = product.plane.authority.bundle
    product.client.apply(item)


def asking(pool: int) -> JsonObject:
    """Return a pod that asks for a typed GPU, or for a slice that may fall."""
    labels = {POOL: f"pool-{pool}"}
    if pool % 2:
        return make_pod(generate_name="slice-", resources={LARGE: 1}, labels=labels)
    typed = {TRIGGER: "V100"}
    return make_pod(generate_name="gpu-", gpus=1, labels=labels, annotations=typed)


def wait_reviewed(client: ApiClient) -> None:
    """Wait until a pod is reviewed: the API server knows whom to call, and its CA."""

    def is_reviewed() -> bool:
        pod = client.create(asking(0), query={"dryRun": "All"})
        return bool(pod["spec"]["schedulerName"] == SCHEDULER)

    wait_for(
        is_reviewed, timeout_seconds=SECONDS, what="a review", ignoring=(ApiError,)
    )


def failed(reviews: Sequence[Review]) -> Sequence[str]:
    """Return what went wrong: pods refused, or created without a review."""
    return [
        one.error or f"created for {one.scheduler}"
        for one in reviews
        if one.error or one.scheduler != SCHEDULER
    ]


def test_no_review_fails_on_the_way_to_this_version_and_back(
    client: ApiClient, product: Product, older: Program
) -> None:
    """Both read one file, in which only the ports differ: replicas share a host."""
    for number in range(REPLICAS):
        slices = {LARGE: 2}
        client.create(make_node(f"node-{number}", gpus=8, resources=slices))
    with TcpProxy() as front, contextlib.ExitStack() as ending:
        fleet = Fleet(product, front)
        register(product, front.port)
        for number in range(REPLICAS):
            fleet.start(f"before-{number}", older)
        wait_reviewed(client)
        load = ending.enter_context(
            ReviewLoad(
                client,
                asking,
                label=POOL,
                per_second=PER_SECOND,
                pods_of_a_pool=POD_COUNT,
            )
        )
        fleet.replace_all(THIS_VERSION, "this", load)
        upgraded = load.count
        fleet.replace_all(older, "after", load)
        ending.close()
        reviews = load.reviews()
    there, back = failed(reviews[:upgraded]), failed(reviews[upgraded:])
    slowest = max(one.answered_seconds - one.sent_seconds for one in reviews)
    print(  # noqa: T201  the figures belong in the run's record
        f"upgrade from {older_version()}: {upgraded} reviews, {len(there)} failed;"
        f" back: {len(reviews) - upgraded}, {len(back)} failed;"
        f" slowest {slowest:.2f} s"
    )
    assert there == []
    assert back == []
