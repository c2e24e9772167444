"""More than one gpu-extender in a cluster."""

import itertools
import threading
from collections.abc import Mapping
from types import TracebackType
from typing import Any, Final, Self

from tests.e2e.harness.builders import JsonObject, make_pod
from tests.e2e.harness.client import ApiClient
from tests.e2e.harness.ports import free_port
from tests.e2e.harness.product import DEPLOY, NAME, Product
from tests.e2e.harness.proxy import TcpProxy
from tests.e2e.harness.service import Service
from tests.e2e.harness.waiting import wait_for
from tests.e2e.harness.watching import WatchStream

ACTIVE: Final = "gpu-extender.io/active"
HOST: Final = "host-of-replicas"
LEASE_API: Final = "coordination.k8s.io/v1"
TAKEN_SECONDS: Final = 30.0


def start_second(product: Product, webhook_port: int) -> Service:
    """Start another replica beside the first, its webhook on a port of its own."""
    settings = settings_of(product, free_port(), webhook_port)
    return product.plane.start_service(
        settings, port=settings["server"]["port"], name=f"{NAME}-2"
    )


def settings_of(
    product: Product, port: int, webhook_port: int
) -> dict[str, dict[str, Any]]:
    """Return the product's settings with other ports."""
    return {
        **product.settings,
        "server": {**product.settings["server"], "port": port},
        "webhook": {**product.settings["webhook"], "port": webhook_port},
    }


class LabelFront:
    """A port on loopback that leads to the pods with the label, as a Service would.

    As with a Service, connections that are open stay where they are, pods that are
    being deleted are reached only where there are no others, and where there is none a
    connection is refused. A thread of its own watches the pods.

    Parameters
    ----------
    client : ApiClient
    lag_seconds : float
        From a change of the pods to when new connections follow it.
    """

    def __init__(self, client: ApiClient, *, lag_seconds: float = 0.0) -> None:
        self._client = client
        self._lag_seconds = lag_seconds
        self._changes = itertools.count()
        self._followed = -1
        self._lock = threading.Lock()
        self._proxy = TcpProxy()
        self._ports: dict[str, int] = {}  # pod name -> port of its webhook
        self._pods: dict[str, JsonObject] = {}
        self.leads_to: tuple[str, ...] = ()
        self.history: list[tuple[str, ...]] = []
        self._stream: WatchStream | None = None
        self._thread = threading.Thread(target=self._follow, name="front")

    def __enter__(self) -> Self:
        self._proxy.start()
        version = self._client.list_page("Pod", namespace=NAME)["metadata"]
        self._stream = self._client.watch(
            "Pod", namespace=NAME, resource_version=version["resourceVersion"]
        )
        self._thread.start()
        return self

    def __exit__(
        self,
        _kind: type[BaseException] | None,
        _error: BaseException | None,
        _traceback: TracebackType | None,
    ) -> None:
        assert self._stream is not None
        self._stream.close()
        self._thread.join()
        self._proxy.stop()

    @property
    def port(self) -> int:
        """Where it listens."""
        return self._proxy.port

    @property
    def connections(self) -> int:
        """How many connections are open, wherever they lead."""
        return self._proxy.connections

    def add(self, name: str, webhook_port: int) -> None:
        """Say where the webhook of a pod listens, before the pod is created."""
        self._ports[name] = webhook_port

    def _follow(self) -> None:
        assert self._stream is not None
        for event in self._stream:
            pod = event["object"]
            name = pod["metadata"]["name"]
            if event["type"] == "DELETED":
                self._pods.pop(name, None)
            else:
                self._pods[name] = pod
            self._lead()

    def _lead(self) -> None:
        """Lead new connections where the pods now say."""
        labelled = {
            name: "deletionTimestamp" in pod["metadata"]
            for name, pod in self._pods.items()
            if pod["metadata"].get("labels", {}).get(ACTIVE) == "true"
        }
        staying = [name for name, is_leaving in labelled.items() if not is_leaving]
        chosen = tuple(sorted(staying or labelled))
        change = next(self._changes), chosen
        timer = threading.Timer(self._lag_seconds, self._lead_to, change)
        timer.daemon = True
        timer.start()

    def _lead_to(self, number: int, chosen: tuple[str, ...]) -> None:
        """Follow a change, unless a later one was followed already."""
        with self._lock:
            if number < self._followed or chosen == self.leads_to:
                return
            self._followed = number
            self._proxy.lead_to(*(self._ports[name] for name in chosen))
            self.leads_to = chosen
            self.history.append(chosen)


class Replicas:
    """Several replicas behind a front, each in a pod of its own, as installed.

    The pods are objects in the API server, the processes run on this machine, with the
    rights of `deploy/rbac.yaml` and `deploy/lease.yaml`. Owned by the test's thread.

    Parameters
    ----------
    are_separable : bool
        Whether each replica reaches the API server through a proxy of its own.
    lag_seconds : float
        Of the front.
    """

    def __init__(
        self,
        product: Product,
        *,
        are_separable: bool = False,
        lag_seconds: float = 0.0,
    ) -> None:
        self._product = product
        self._client = product.client
        self._are_separable = are_separable
        self.services: dict[str, Service] = {}  # those that were started, by pod name
        self.ways: dict[str, TcpProxy] = {}  # pod name -> its way to the API server
        product.plane.kubectl("apply", "-f", str(DEPLOY / "lease.yaml"))
        self.front = LabelFront(self._client, lag_seconds=lag_seconds)

    def __enter__(self) -> Self:
        self.front.__enter__()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.front.__exit__(kind, error, traceback)

    def start_first(self, name: str) -> None:
        """Start one, and have the API server call the webhook through the front."""
        webhook_port = self._product.webhook_port
        self.front.add(name, webhook_port)
        variables = self._create_pod(name)
        if self._are_separable:
            kubeconfig = self._kubeconfig(name)
            self._product.settings["cluster"]["kubeconfig"] = kubeconfig
        self.services[name] = self._product.start(env=variables)
        self.wait_active(name)
        self._product.webhook_port = self.front.port
        self._product.register_webhook()

    def start(self, *names: str) -> None:
        """Start more, and wait until each is ready."""
        for name in names:
            port, webhook_port = free_port(), free_port()
            self.front.add(name, webhook_port)
            settings = settings_of(self._product, port, webhook_port)
            if self._are_separable:
                kubeconfig = self._kubeconfig(name)
                settings["cluster"] = {**settings["cluster"], "kubeconfig": kubeconfig}
            self.services[name] = self._product.plane.start_service(
                settings,
                port=port,
                name=f"{NAME}-{name}",
                env=self._create_pod(name),
                wait=False,
            )
        for name in names:
            self.services[name].process.wait_ready()

    def end(self, name: str) -> None:
        """Delete a pod: its process is told, and the object goes when it has ended."""
        self._client.delete("Pod", name, namespace=NAME, grace_seconds=30)
        self.services[name].process.stop()
        self._client.delete("Pod", name, namespace=NAME, grace_seconds=0)

    def active(self) -> str:
        """Return the only one that the front leads to."""
        (name,) = self.front.leads_to
        return name

    def wait_active(self, *among: str) -> str:
        """Wait until the front leads to one of these alone; return its name."""
        wait_for(
            lambda: len(self.front.leads_to) == 1 and self.front.leads_to[0] in among,
            timeout_seconds=TAKEN_SECONDS,
            what=f"one of {among} is called",
            poll_seconds=0.005,
        )
        return self.active()

    def holder(self) -> str:
        """Return the pod that the Lease names, or nothing."""
        lease = self._client.get("Lease", NAME, namespace=NAME, api_version=LEASE_API)
        uid = lease.get("spec", {}).get("holderIdentity", "")
        pods = self._client.list("Pod", namespace=NAME)
        names = (p["metadata"]["name"] for p in pods if p["metadata"]["uid"] == uid)
        return next(names, "")

    def _create_pod(self, name: str) -> Mapping[str, str]:
        """Create the pod of a replica; return the environment that names it."""
        made = self._client.create(
            make_pod(
                name,
                namespace=NAME,
                labels={"app": NAME},
                node_name=HOST,
                grace_seconds=30,
            )
        )
        uid = made["metadata"]["uid"]
        return {"POD_NAME": name, "POD_NAMESPACE": NAME, "POD_UID": uid}

    def _kubeconfig(self, name: str) -> str:
        """Return a kubeconfig whose way to the API server can be cut off."""
        plane = self._product.plane
        self.ways[name] = way = plane.start_proxy()
        token = self._client.service_account_token(NAME, NAME)
        return str(plane.kubeconfig(token, f"{NAME}-{name}", server=way.url))
