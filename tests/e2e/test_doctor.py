"""Broken installations on a real control plane, each named by service and command."""

import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from service.certificates.x509 import issue_leaf, make_authority
from tests.e2e.harness.builders import make_node, make_pod
from tests.e2e.harness.connection import ApiError
from tests.e2e.harness.control_plane import ControlPlane
from tests.e2e.harness.pods import wait_until_bound
from tests.e2e.harness.ports import LOOPBACK
from tests.e2e.harness.product import DEPLOY, NAME, Product
from tests.e2e.harness.service import REPOSITORY
from tests.e2e.harness.waiting import wait_for

Found = list[tuple[str, str]]

DAY: Final = 86_400.0
MIG: Final = "nvidia.com/mig-3g.40gb"
SEEN_SECONDS: Final = 30.0
COMMAND_SECONDS: Final = 60.0


def run_command(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    """Run one of our commands to its end."""
    return subprocess.run(
        [sys.executable, "-m", "service", *map(str, arguments)],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        check=False,
        timeout=COMMAND_SECONDS,
    )


def findings(product: Product) -> Found:
    """Return check and sentence of each finding of the service itself."""
    found = product.get_json("/doctor")["findings"]
    return [(item["check"], item["what"]) for item in found]


def doctor(product: Product, *arguments: str | Path) -> tuple[int, Found]:
    """Run the command as the harness; return its status and its findings."""
    plane = product.plane
    kubeconfig = plane.kubeconfig(plane.users.harness.token, "caller")
    done = run_command(
        *("doctor", "--url", product.url, "--kubeconfig", kubeconfig),
        *("-o", "json", *arguments),
    )
    assert done.stderr == ""
    found = json.loads(done.stdout)["findings"]
    return done.returncode, [(item["check"], item["what"]) for item in found]


def both(product: Product, *arguments: str | Path) -> Found:
    """Return what service and command find, which must be the same."""
    found = findings(product)
    assert doctor(product, *arguments) == (1 if found else 0, found)
    return found


def wait_found(product: Product, check: str) -> Found:
    """Wait until the service finds something of one kind, and return all."""
    return wait_for(
        lambda: found if check in dict(found := findings(product)) else None,
        timeout_seconds=SEEN_SECONDS,
        what=f"a finding about {check}",
    )


def write_settings(product: Product) -> Path:
    """Write the configuration of the service, for a command."""
    path = product.plane.folder / "for-a-command.yaml"
    path.write_text(yaml.safe_dump(product.settings))
    return path


def register(product: Product, authority: Path | None = None) -> None:
    """Apply what `webhook-config` prints for the configuration."""
    is_own = product.settings["webhook"].get("selfSigned") is not None
    authority = authority or product.plane.authority.file
    done = run_command(
        *("webhook-config", "--config", write_settings(product)),
        *("--url", f"https://{LOOPBACK}:{product.webhook_port}"),
        *(() if is_own else ("--ca-file", authority)),
    )
    assert (done.returncode, done.stderr) == (0, "")
    product.plane.kubectl("apply", "-f", "-", stdin=done.stdout)


def start_up(product: Product) -> None:
    """Start a service that need not become ready."""
    product.start(wait=False)
    wait_for(product.is_up, timeout_seconds=SEEN_SECONDS, what="service alive")
    wait_for(
        lambda: product.get_json("/doctor")["facts"]["nodes"],
        timeout_seconds=SEEN_SECONDS,
        what="nodes read",
    )


def put_node(product: Product, name: str = "node-a", **resources: int) -> None:
    product.client.create(make_node(name, gpus=4, resources=resources))


def refusal(product: Product) -> str:
    """Wait until the API server refuses a GPU pod, and return why."""
    pod = make_pod(generate_name="probe-", gpus=1)

    def why() -> str:
        try:
            product.client.create(pod, query={"dryRun": "All"})
        except ApiError as error:
            return error.message
        return ""

    return wait_for(why, timeout_seconds=SEEN_SECONDS, what="the refusal of a pod")


class Pairs:
    """A CA of our own, and pairs that it signs."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._authority = make_authority(time.time() - 300 * DAY, 1000 * DAY)
        self.bundle = folder / "own-ca.crt"
        self.bundle.write_bytes(self._authority.certificate)

    def use(
        self, product: Product, *names: str, age: float = 1.0, days: float = 90.0
    ) -> None:
        """Have the webhook show a certificate for these names."""
        starts = time.time() - age * DAY
        leaf = issue_leaf(self._authority, names, starts, days * DAY)
        for key, data in (
            ("certificateFile", leaf.certificate),
            ("keyFile", leaf.key),
        ):
            path = self._folder / f"own-{key}.pem"
            path.write_bytes(data)
            product.settings["webhook"][key] = str(path)


@pytest.fixture
def pairs(control_plane: ControlPlane) -> Pairs:
    """Certificates that are not those of the harness."""
    return Pairs(control_plane.folder)


def test_a_sound_installation_has_no_finding(product: Product) -> None:
    put_node(product)
    register(product)
    product.start_all()
    file = product.plane.folder / "scheduler.yaml"
    file.write_text(product.scheduler_config())

    def is_counted() -> int:
        pod = product.client.create(make_pod(generate_name="train-", gpus=1))
        name = pod["metadata"]["name"]
        wait_until_bound(product.client, name)
        product.client.delete("Pod", name, grace_seconds=0)
        return int(product.get_json("/doctor")["facts"]["calledBindings"])

    wait_for(is_counted, timeout_seconds=SEEN_SECONDS, what="a binding after a call")

    page = product.get_json("/doctor")
    assert page["findings"] == []
    assert [item["check"] for item in page["unchecked"]] == ["scheduler configuration"]
    assert abs(page["facts"]["clockOffsetSeconds"]) < 2
    assert page["facts"]["tokenEndsSeconds"] > time.time()
    assert doctor(product, "--scheduler-config", file) == (0, [])


def test_certificates_of_our_own_are_sound_with_their_rights(
    fresh_product: Product,
) -> None:
    product = fresh_product
    put_node(product)
    product.settings["webhook"] |= {
        "certificateFile": None,
        "keyFile": None,
        "selfSigned": {"enabled": True, "dnsNames": [], "ipAddresses": [LOOPBACK]},
    }
    register(product)
    path = str(DEPLOY / "rbac-self-signed.yaml")
    product.plane.kubectl("apply", "-f", path)
    product.start()

    assert both(product) == []

    with product.outage():
        product.plane.kubectl("delete", "-f", path)
        found = wait_found(product, "rights")
        product.plane.kubectl("apply", "-f", path)
    rights = [what for check, what in found if check == "rights"]
    assert [what.removeprefix("gpu-extender may not ") for what in rights] == [
        "patch mutatingwebhookconfigurations/gpu-extender.",
        "get or update secrets/gpu-extender-certificate in gpu-extender.",
        "create secrets in gpu-extender.",
    ]


def test_wrong_san(product: Product, pairs: Pairs) -> None:
    put_node(product)
    pairs.use(product, "gpu-extender.default.svc")
    register(product, pairs.bundle)
    start_up(product)

    assert both(product) == [
        (
            "registration",
            (
                f"The API server calls {LOOPBACK}, and the certificate stands for"
                " gpu-extender.default.svc."
            ),
        )
    ]
    assert "doesn't contain any IP SANs" in refusal(product)


def test_ca_mismatch(product: Product, pairs: Pairs) -> None:
    put_node(product)
    register(product, pairs.bundle)
    start_up(product)

    assert both(product) == [
        (
            "registration",
            (
                "The CA in the registration's caBundle has not signed the certificate"
                " that the webhook shows."
            ),
        )
    ]
    assert "certificate signed by unknown authority" in refusal(product)


def test_expired_certificate(product: Product, pairs: Pairs) -> None:
    put_node(product)
    pairs.use(product, LOOPBACK, age=100.0, days=98.0)
    register(product, pairs.bundle)
    start_up(product)

    ((check, what),) = both(product)

    assert check == "certificate"
    assert what.startswith("The webhook's certificate expired 20")
    assert "certificate has expired" in refusal(product)


def test_dead_token(fresh_control_plane: ControlPlane, fresh_product: Product) -> None:
    product = fresh_product
    put_node(product)
    register(product)
    start_up(product)

    with product.outage():
        fresh_control_plane.kubectl("delete", "serviceaccount", NAME, "-n", NAME)
        ((check, what),) = wait_found(product, "token")
        status, found = doctor(product)

    assert (status, found) == (1, [(check, what)])
    assert what.startswith("The API server does not accept the token of kubeconfig ")
    assert what.endswith(": 401 Unauthorized.")


@contextmanager
def reduced_role(plane: ControlPlane, kind: str, change: list[Any]) -> Iterator[None]:
    """Take a right away for a while."""
    arguments = ("patch", *kind.split(), "--type=json", "-p", json.dumps(change))
    plane.kubectl(*arguments)
    try:
        yield
    finally:
        plane.kubectl("apply", "-f", str(DEPLOY / "rbac.yaml"))


def rule_index(plane: ControlPlane, *role: str, resource: str) -> int:
    """Return the place of the rule about a resource in a role."""
    rules = plane.kubectl.json("get", *role)["rules"]
    return next(i for i, rule in enumerate(rules) if resource in rule["resources"])


def test_missing_right_to_patch_the_status_of_pods(product: Product) -> None:
    put_node(product)
    register(product)
    start_up(product)
    index = rule_index(product.plane, "clusterrole", NAME, resource="pods/status")
    change = [{"op": "remove", "path": f"/rules/{index}"}]

    with reduced_role(product.plane, f"clusterrole {NAME}", change):
        wait_found(product, "rights")

        assert both(product) == [("rights", "gpu-extender may not patch pods/status.")]
    wait_for(
        lambda: not findings(product), timeout_seconds=SEEN_SECONDS, what="the right"
    )


def test_missing_right_to_the_lease(
    fresh_control_plane: ControlPlane, fresh_product: Product
) -> None:
    plane, product = fresh_control_plane, fresh_product
    put_node(product)
    register(product)
    plane.kubectl("apply", "-f", str(DEPLOY / "lease.yaml"))
    pod = plane.client.create(make_pod(NAME, namespace=NAME, node_name="node-a"))
    environment = {
        "POD_NAME": NAME,
        "POD_NAMESPACE": NAME,
        "POD_UID": pod["metadata"]["uid"],
    }
    product.start(wait=False, env=environment)
    wait_for(
        lambda: holder_of(plane), timeout_seconds=SEEN_SECONDS, what="the lease held"
    )
    assert both(product) == []

    role = ("role", "gpu-extender-lease", "-n", NAME)
    index = rule_index(plane, *role, resource="leases")
    change = [{"op": "replace", "path": f"/rules/{index}/verbs", "value": ["get"]}]
    with product.outage():
        plane.kubectl("patch", *role, "--type=json", "-p", json.dumps(change))
        found = wait_found(product, "rights")

    what = "gpu-extender may not update leases/gpu-extender in gpu-extender."
    assert found == [("rights", what)]


def holder_of(plane: ControlPlane) -> str:
    lease = plane.kubectl.json("get", "lease", NAME, "-n", NAME)
    return str(lease.get("spec", {}).get("holderIdentity") or "")


def bind_until(product: Product, is_over: Callable[[], bool], **asked: Any) -> None:
    """Have pods created and bound, one after the other, until something is so."""

    def step() -> bool:
        pod = product.client.create(make_pod(generate_name="train-", **asked))
        name = pod["metadata"]["name"]
        wait_until_bound(product.client, name)
        product.client.delete("Pod", name, grace_seconds=0)
        return is_over()

    wait_for(step, timeout_seconds=SEEN_SECONDS, what="what the bindings show")


def fact(product: Product, name: str) -> Any:
    return product.get_json("/doctor")["facts"][name]


def test_stale_managed_resources(product: Product) -> None:
    put_node(product)
    register(product)
    file = product.plane.folder / "scheduler.yaml"
    file.write_text(product.scheduler_config())
    product.start_all()
    bind_until(product, lambda: fact(product, "calledBindings") > 0, gpus=1)
    assert doctor(product, "--scheduler-config", file) == (0, [])

    put_node(product, "node-b", **{MIG: 2})
    bind_until(
        product, lambda: fact(product, "uncalledBindings") > 0, resources={MIG: 1}
    )

    calls = f"kube-scheduler binds pods that ask {MIG} and does not ask us about them."
    lack = (
        f"managedResources in {file} lack {MIG}, which nodes offer or the configuration"
        " names."
    )
    assert both(product) == [("calls", calls)]
    status, found = doctor(product, "--scheduler-config", file)
    assert (status, sorted(found)) == (
        1,
        [("calls", calls), ("scheduler configuration", lack)],
    )
    assert product.metric("gpu_extender_uncalled_bindings_total", resource=MIG) > 0
    log = product.service.process.log_text()
    assert log.count('"event": "kube-scheduler binds pods that ask a resource') == 1


def test_prefixes_unlike_the_registration(product: Product) -> None:
    put_node(product)
    register(product)
    product.settings["managedPrefixes"] = [  # type: ignore[assignment]
        "nvidia.com/",
        "amd.com/",
        "example.com/",
    ]
    start_up(product)

    assert both(product) == [
        (
            "registration",
            (
                "The registration's matchConditions do not send pods that ask"
                " example.com/*, which the configuration manages."
            ),
        )
    ]


def test_http_timeout_below_the_deadline(product: Product) -> None:
    put_node(product)
    register(product)
    config = yaml.safe_load(product.scheduler_config())
    config["extenders"][0]["httpTimeout"] = "500ms"
    file = product.plane.folder / "scheduler.yaml"
    file.write_text(yaml.safe_dump(config))
    product.settings["extender"] = {"schedulerConfigFile": str(file)}
    start_up(product)
    product.start_scheduler(config)

    assert both(product) == [
        (
            "scheduler configuration",
            (
                f"httpTimeout is 500ms in {file}, and extender.deadlineMilliseconds is"
                " 800."
            ),
        )
    ]


def test_extender_never_called(product: Product) -> None:
    put_node(product)
    register(product)
    start_up(product)
    product.plane.start_scheduler()
    bind_until(product, lambda: fact(product, "uncalledBindings") > 0, gpus=1)

    ((check, what),) = both(product)

    assert check == "calls"
    assert what.endswith(" and has asked it about none of them.")


def test_a_caller_with_few_rights_is_told_what_was_not_looked_at(
    product: Product,
) -> None:
    put_node(product)
    register(product)
    start_up(product)
    plane = product.plane
    plane.kubectl("create", "serviceaccount", "nobody", "-n", NAME)
    try:
        token = plane.client.service_account_token(NAME, "nobody")
        kubeconfig = plane.kubeconfig(token, "nobody")
        done = run_command("doctor", "--url", product.url, "--kubeconfig", kubeconfig)
    finally:
        plane.kubectl("delete", "serviceaccount", "nobody", "-n", NAME)

    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("No fault found.\n\nNot checked:\n")
    assert "- registration: you may not read it: " in done.stdout
    assert "- Lease: it cannot be read: " in done.stdout
    assert max(map(len, done.stdout.splitlines())) <= 100
