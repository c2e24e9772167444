"""Broken installations, each named by the real process and by both commands."""

import argparse
import contextlib
import datetime as dt
import io
import json
import socket
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from cluster.api.protocol import ApiError
from service.certificates.x509 import issue_leaf, make_authority
from service.cluster_link import connect_to
from service.commands.cli import main
from service.settings.process import ClusterSettings
from tests.builders import GPU, make_node, make_pod
from tests.doctor import (
    make_registration_tree,
    make_scheduler_tree,
    make_settings,
)
from tests.fakes.api_http import Silence, Status
from tests.fakes.api_server import FakeApiServer
from tests.kubectl_gpu import load_script
from tests.service_process import ServiceProcess, run_command, wait_until

pytestmark = pytest.mark.usefixtures("root_logger_as_it_was")

VERSION: Final = version("gpu-extender")
KUBECTL_GPU: Final = load_script()
HOUR: Final = 3600.0
DAY: Final = 86_400.0
HOST: Final = "gpu-extender.gpu-extender.svc"
MIG: Final = "nvidia.com/mig-3g.40gb"
RESOURCES: Final = ("amd.com/gpu", GPU, "nvidia.com/mig-1g.10gb")
SLICE_LABEL: Final = {"kubernetes.io/service-name": "gpu-extender"}


def now() -> float:
    return dt.datetime.now(dt.UTC).timestamp()


def rfc3339(seconds: float) -> str:
    return dt.datetime.fromtimestamp(seconds, dt.UTC).isoformat()


@dataclass
class Installation:
    """A fake API server and what is installed there; sound until a test breaks it."""

    api: FakeApiServer
    folder: Path
    names: tuple[str, ...] = (HOST,)
    starts: float = field(default_factory=lambda: now() - DAY)
    lifetime: float = 100 * DAY
    settings: dict[str, Any] = field(default_factory=dict)
    scheduler: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.authority = make_authority(now() - 300 * DAY, 1000 * DAY)
        self.bundle = self.authority.certificate
        self.api.token = "right"  # noqa: S105  of a test
        self.kubeconfig = str(self.api.kubeconfig(self.folder))
        self.callers = self.folder / "caller"
        self.callers.mkdir()
        self.api.kubeconfig(self.callers)
        nodes = [make_node(name="a", gpus=4, resources={"nvidia.com/mig-1g.10gb": "7"})]
        self.api.put(*nodes)
        self.webhook_port = 0

    def write(self) -> dict[str, Any]:
        """Write the files of the service, and return its configuration."""
        leaf = issue_leaf(self.authority, self.names, self.starts, self.lifetime)
        for name, data in (("tls.crt", leaf.certificate), ("tls.key", leaf.key)):
            (self.folder / name).write_bytes(data)
        (self.folder / "rules.json").write_text("{}")
        webhook = {"certificateFile": "tls.crt", "keyFile": "tls.key", "port": 0}
        return {
            "cluster": {"kubeconfig": "kubeconfig"},
            "webhook": {**webhook, "host": "127.0.0.1"},
            "injection": {"rulesFile": "rules.json"},
            "extender": {"schedulerConfigFile": "scheduler.yaml"},
            **self.settings,
        }

    def register(self, **fields: Any) -> None:
        """Register the webhook as `webhook-config` prints it, with other fields."""
        tree = make_registration_tree(make_settings(), bundle=self.bundle)
        tree["webhooks"][0].update(fields)
        self.api.put(tree)

    def publish(self, service: ServiceProcess) -> None:
        """Have a Service lead to the webhook, and the scheduler's file to the verbs."""
        synced = "gpu_extender_cache_synced"
        wait_until(lambda: service.metric(synced) == 1, "the cluster is read")
        self.webhook_port = int(service.logs("serving")[0]["webhook_port"])
        metadata = {"name": "gpu-extender", "namespace": "gpu-extender"}
        self.api.put(
            {
                "kind": "Service",
                "metadata": metadata,
                "spec": {"ports": [{"port": 443}]},
            },
            self.endpoints(),
        )
        tree = make_scheduler_tree(RESOURCES, port=service.port)
        tree["extenders"][0].update(self.scheduler)
        (self.folder / "scheduler.yaml").write_text(yaml.safe_dump(tree))

    def endpoints(self, port: int | None = None, *, ready: bool = True) -> Any:
        return {
            "kind": "EndpointSlice",
            "metadata": {
                "name": "gpu-extender-x",
                "namespace": "gpu-extender",
                "labels": SLICE_LABEL,
            },
            "ports": [{"port": port or self.webhook_port}],
            "endpoints": [{"conditions": {"ready": ready}}],
        }

    def call_and_bind(
        self, service: ServiceProcess, name: str, resource: str = GPU, *, call: bool
    ) -> None:
        """Have a pod created, asked about or not, and bound."""
        pod = make_pod(name=name, requests={resource: "1"})
        before = service.generation()
        self.api.put(pod)
        wait_until(lambda: service.generation() > before, "the pod is seen")
        if call:
            question = {"Pod": pod, "Nodes": None, "NodeNames": ["a"]}
            assert service.post("/scheduler/filter", question).status == 200
        before = service.generation()
        self.api.put(make_pod(name=name, requests={resource: "1"}, node_name="a"))
        wait_until(lambda: service.generation() > before, "the binding is seen")

    def start(self, environment: Mapping[str, str] | None = None) -> ServiceProcess:
        """Return the process of what has been written."""
        return ServiceProcess(self.folder, self.write(), environment=environment)


def findings(service: ServiceProcess) -> list[tuple[str, str]]:
    """Return check and sentence of each finding of the process itself."""
    answer = service.get("/doctor")
    assert answer.status == 200, answer.body
    return [(item["check"], item["what"]) for item in answer.json()["findings"]]


def doctor(
    installation: Installation, service: ServiceProcess | None, *arguments: str
) -> tuple[int, list[tuple[str, str]], str]:
    """Run the command; return its status, its findings and what it complained of.

    `kubectl gpu doctor` with the caller's rights must say the same.
    """
    port = 1 if service is None else service.port
    out, err = io.StringIO(), io.StringIO()
    kubeconfig = str(installation.callers / "kubeconfig")
    command = ["doctor", "--url", f"http://127.0.0.1:{port}", "-o", "json"]
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        status = main([*command, "--kubeconfig", kubeconfig, *arguments])
    page = json.loads(out.getvalue() or '{"findings": []}')
    found = [(item["check"], item["what"]) for item in page["findings"]]
    if service is not None and not arguments and not err.getvalue():
        said = plugin(service, Path(kubeconfig))
        assert said == (status, page["findings"], page["unchecked"])
    return status, found, err.getvalue()


@dataclass(frozen=True)
class RawReads:
    """kubectl, as far as it gets raw objects with a kubeconfig."""

    kubeconfig: Path

    def run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        *verb, path = arguments
        assert verb == ["get", "--raw"]
        settings = ClusterSettings(kubeconfig=str(self.kubeconfig))
        try:
            body = connect_to(settings, Path.cwd()).read(path).decode()
        except ApiError as error:
            # What is told of other faults is their text.
            name = "(NotFound)" if error.status == 404 else ""
            return subprocess.CompletedProcess(arguments, 1, "", f"{name}{error}")
        return subprocess.CompletedProcess(arguments, 0, body, "")


def plugin(service: ServiceProcess, kubeconfig: Path) -> tuple[int, Any, Any]:
    """Run `kubectl gpu doctor`; return its status and both lists."""
    url, out = f"http://127.0.0.1:{service.port}", io.StringIO()
    options = argparse.Namespace(url=url, output="json", scheduler_config=None)
    with contextlib.redirect_stdout(out):
        status = KUBECTL_GPU.doctor(RawReads(kubeconfig), options)
    page = json.loads(out.getvalue())
    return status, page["findings"], page["unchecked"]


@pytest.fixture
def installation(api: FakeApiServer, tmp_path: Path) -> Installation:
    """What is sound so far."""
    made = Installation(api, tmp_path)
    made.register()
    return made


def both(installation: Installation, service: ServiceProcess) -> list[tuple[str, str]]:
    """Return what process and command find, which must be the same."""
    installation.publish(service)
    own = findings(service)
    status, found, said = doctor(installation, service)
    assert found == own
    assert (status, said) == (1 if own else 0, "")
    return own


def test_a_sound_installation_has_no_finding(installation: Installation) -> None:
    with installation.start() as service:
        service.wait_ready()

        assert both(installation, service) == []

        facts = service.get("/doctor").json()["facts"]
        assert (facts["nodes"], abs(facts["clockOffsetSeconds"]) < 5) == (1, True)
        assert facts["certificate"].count("BEGIN CERTIFICATE") == 1
        assert "PRIVATE" not in facts["certificate"]
    asked = installation.api.seen("create", "selfsubjectaccessreviews")
    assert {json.loads(request.body)["kind"] for request in asked} == {
        "SelfSubjectAccessReview"
    }


def test_wrong_san(installation: Installation) -> None:
    installation.names = ("gpu-extender.default.svc",)
    with installation.start() as service:
        service.wait_ready()
        assert both(installation, service) == [
            (
                "registration",
                (
                    f"The API server calls {HOST}, and the certificate stands for"
                    " gpu-extender.default.svc."
                ),
            )
        ]


def test_ca_mismatch(installation: Installation) -> None:
    installation.bundle = make_authority(now() - DAY, 100 * DAY).certificate
    installation.register()
    with installation.start() as service:
        service.wait_ready()
        assert both(installation, service) == [
            (
                "registration",
                (
                    "The CA in the registration's caBundle has not signed the"
                    " certificate that the webhook shows."
                ),
            )
        ]


def test_expired_certificate(installation: Installation) -> None:
    installation.starts, installation.lifetime = now() - 100 * DAY, 98 * DAY
    with installation.start() as service:
        ((check, what),) = both(installation, service)

    assert check == "certificate"
    assert what.startswith("The webhook's certificate expired 20")
    assert what.endswith(", 2 days ago.")


def test_dead_token(installation: Installation) -> None:
    with installation.start() as service:
        service.wait_ready()
        installation.api.token = "another"  # noqa: S105  of a test
        installation.api.kubeconfig(installation.callers)
        installation.publish(service)

        own = findings(service)
        status, found, _ = doctor(installation, service)

    what = (
        "The API server does not accept the token of kubeconfig"
        f" {installation.folder}/kubeconfig: 401 Unauthorized."
    )
    assert own == found == [("token", what)]
    assert status == 1


def test_missing_right_to_patch_the_status_of_pods(installation: Installation) -> None:
    installation.api.denied = {"patch pods/status"}
    with installation.start() as service:
        service.wait_ready()
        assert both(installation, service) == [
            ("rights", "gpu-extender may not patch pods/status.")
        ]


@pytest.mark.parametrize(
    ("denied", "what"),
    [
        ({"watch nodes", "list nodes"}, "list or watch nodes"),
        ({"watch pods"}, "watch pods"),
        ({"list limitranges"}, "list limitranges"),
        ({"watch deviceclasses"}, "watch deviceclasses"),
        (
            {"get mutatingwebhookconfigurations/gpu-extender"},
            "get mutatingwebhookconfigurations/gpu-extender",
        ),
    ],
)
def test_other_rights_that_are_missing_are_named(
    installation: Installation, denied: set[str], what: str
) -> None:
    installation.api.denied = denied
    with installation.start() as service:
        if not any(right.startswith("list") for right in denied):
            service.wait_ready()  # before, that it is not is a finding
        assert both(installation, service) == [
            ("rights", f"gpu-extender may not {what}.")
        ]


def test_rights_for_certificates_of_our_own(installation: Installation) -> None:
    installation.settings = {"webhook": {"selfSigned": {"enabled": True}, "port": 0}}
    installation.api.denied = {
        "create secrets",
        "update secrets/gpu-extender-certificate",
        "patch mutatingwebhookconfigurations/gpu-extender",
    }
    with installation.start() as service:
        service.wait_ready()

        assert both(installation, service) == [
            ("rights", f"gpu-extender may not {what}.")
            for what in (
                "patch mutatingwebhookconfigurations/gpu-extender",
                "update secrets/gpu-extender-certificate in gpu-extender",
            )  # it is there, so nobody need create it
        ]


def test_a_right_that_is_not_needed_is_not_asked_for(
    installation: Installation,
) -> None:
    installation.settings = {"extender": {"wakeUp": False}}
    installation.api.denied = {"patch pods/status"}
    with installation.start() as service:
        installation.publish(service)
        assert findings(service) == []


def test_stale_managed_resources(installation: Installation) -> None:
    offered = {"nvidia.com/mig-1g.10gb": "7", MIG: "2"}
    installation.api.put(make_node(name="a", gpus=4, resources=offered))
    with installation.start() as service:
        service.wait_ready()

        assert both(installation, service) == [
            (
                "scheduler configuration",
                (
                    f"managedResources in scheduler.yaml lack {MIG}, which nodes offer"
                    " or the configuration names."
                ),
            )
        ]


def test_a_node_that_begins_to_offer_a_resource_is_told_by_log_and_metric(
    installation: Installation,
) -> None:
    unsent = f'gpu_extender_unsent_resources{{resource="{MIG}"}}'
    with installation.start() as service:
        installation.publish(service)
        assert service.metric(unsent) == 0
        installation.api.put(make_node(name="b", gpus=4, resources={MIG: "2"}))
        wait_until(lambda: service.metric(unsent) == 1, "the metric tells")
        (line,) = [line for line in warnings_of(service) if "resource" in line]

        tree = make_scheduler_tree([*RESOURCES, MIG], port=service.port)
        (installation.folder / "scheduler.yaml").write_text(yaml.safe_dump(tree))
        wait_until(lambda: service.metric(unsent) == 0, "the file is read again")

    assert line["resource"] == MIG
    assert line["file"].endswith("scheduler.yaml")
    assert line["event"].startswith("nodes offer a resource that kube-scheduler is not")


def test_stale_managed_resources_show_in_what_is_bound(
    installation: Installation,
) -> None:
    installation.settings = {"extender": {}}
    with installation.start() as service:
        service.wait_ready()
        wait_for_audit(installation, service)
        installation.call_and_bind(service, "asked", call=True)
        installation.call_and_bind(service, "unasked", MIG, call=False)

        assert both(installation, service) == [
            (
                "calls",
                (
                    f"kube-scheduler binds pods that ask {MIG} and does not ask us"
                    " about them."
                ),
            )
        ]
        name = f'gpu_extender_uncalled_bindings_total{{resource="{MIG}"}}'
        counted = service.metric(name)
        warned = [
            line["resource"] for line in warnings_of(service) if "resource" in line
        ]
    assert counted == 1
    assert warned == [MIG]


def warnings_of(service: ServiceProcess) -> list[dict[str, Any]]:
    lines = [json.loads(line) for line in service.stderr.splitlines()]
    return [line for line in lines if line["level"] == "warning"]


def wait_for_audit(installation: Installation, service: ServiceProcess) -> None:
    """Wait until bindings count: those of the first moments may be another's."""
    numbers = iter(range(1000))

    def counts() -> bool:
        name = f"probe-{next(numbers)}"
        installation.call_and_bind(service, name, call=True)
        return bool(service.get("/doctor").json()["facts"]["calledBindings"])

    wait_until(counts, "bindings count")


def test_prefixes_unlike_the_registration(installation: Installation) -> None:
    installation.settings = {"managedPrefixes": ["nvidia.com/", "amd.com/", "x.io/"]}
    with installation.start() as service:
        service.wait_ready()
        assert both(installation, service) == [
            (
                "registration",
                (
                    "The registration's matchConditions do not send pods that ask"
                    " x.io/*, which the configuration manages."
                ),
            )
        ]


def test_http_timeout_below_the_deadline(installation: Installation) -> None:
    installation.scheduler = {"httpTimeout": "500ms"}
    with installation.start() as service:
        service.wait_ready()
        assert both(installation, service) == [
            (
                "scheduler configuration",
                (
                    "httpTimeout is 500ms in scheduler.yaml, and"
                    " extender.deadlineMilliseconds is 800."
                ),
            )
        ]


def bind_uncalled(installation: Installation, service: ServiceProcess) -> None:
    """Have pods bound without a call until one of them counts."""
    numbers = iter(range(1000))

    def counts() -> bool:
        installation.call_and_bind(service, f"pod-{next(numbers)}", call=False)
        return bool(service.get("/doctor").json()["facts"]["uncalledBindings"])

    wait_until(counts, "bindings count")


def test_extender_never_called(installation: Installation) -> None:
    with installation.start() as service:
        service.wait_ready()
        bind_uncalled(installation, service)

        ((check, what),) = both(installation, service)

    assert check == "calls"
    assert what.startswith("kube-scheduler has bound ")
    assert what.endswith(" and has asked it about none of them.")


def put_lease(api: FakeApiServer, host: str, renewed: float) -> None:
    """Have kube-scheduler's Lease held on a host."""
    spec = {
        "holderIdentity": f"{host}_0b1c",
        "leaseDurationSeconds": 15,
        "renewTime": rfc3339(renewed),
    }
    metadata = {"name": "kube-scheduler", "namespace": "kube-system"}
    api.put({"kind": "Lease", "metadata": metadata, "spec": spec})


@pytest.mark.parametrize(("host", "count"), [("", 1), ("elsewhere", 0)])
def test_a_replica_beside_a_scheduler_that_does_not_lead_is_sound(
    installation: Installation, host: str, count: int
) -> None:
    with installation.start() as service:
        service.wait_ready()
        bind_uncalled(installation, service)
        put_lease(installation.api, host or socket.gethostname(), now())

        assert len(both(installation, service)) == count


def test_a_lease_that_nobody_renews(installation: Installation) -> None:
    put_lease(installation.api, "host-2", now() - 2 * HOUR)
    with installation.start() as service:
        installation.publish(service)

        assert findings(service) == []
        status, found, _ = doctor(installation, service)

    assert (status, found) == (
        1,
        [
            (
                "Lease",
                (
                    "Nobody has renewed the Lease kube-system/kube-scheduler for 2 h;"
                    " its last holder was host-2_0b1c."
                ),
            )
        ],
    )


CHAINS: Final = {"fallback": {"chains": [["nvidia.com/mig-1g.10gb", GPU]]}}
IN_A_POD: Final = {
    "POD_NAME": "gpu-extender-1",
    "POD_NAMESPACE": "gpu-extender",
    "POD_UID": "uid-1",
}


def put_own_lease(api: FakeApiServer, **spec: Any) -> None:
    metadata = {"name": "gpu-extender", "namespace": "gpu-extender"}
    api.put({"kind": "Lease", "metadata": metadata, "spec": spec})


def own_pod() -> Any:
    return make_pod(name="gpu-extender-1", namespace="gpu-extender", uid="uid-1")


def test_missing_right_to_the_lease(installation: Installation) -> None:
    installation.settings = CHAINS
    put_own_lease(installation.api)
    installation.api.put(own_pod())
    installation.api.denied = {"update leases/gpu-extender"}
    with installation.start(IN_A_POD) as service:
        service.wait_ready()
        wait_until(lambda: holder_of(installation.api) != "", "the lease is held")

        assert both(installation, service) == [
            (
                "rights",
                "gpu-extender may not update leases/gpu-extender in gpu-extender.",
            )
        ]


def holder_of(api: FakeApiServer) -> str:
    lease = api.state.find("leases", "gpu-extender/gpu-extender")
    assert lease is not None
    return str(lease.get("spec", {}).get("holderIdentity", ""))


def test_a_lease_of_ours_that_is_missing_or_held_by_nobody(
    installation: Installation,
) -> None:
    installation.settings = CHAINS
    with installation.start(IN_A_POD) as service:
        service.wait_ready()
        installation.publish(service)
        missing = doctor(installation, service)[1]
        # It is not ours to take while somebody else may hold it.
        old = rfc3339(now() - HOUR)
        forever = {"leaseDurationSeconds": 60, "renewTime": old}
        put_own_lease(installation.api, holderIdentity="uid-2", **forever)
        stale = doctor(installation, service)[1]

    where = "gpu-extender/gpu-extender"
    assert missing == [("Lease", f"There is no Lease {where}.")]
    assert stale == [
        (
            "Lease",
            (
                f"Nobody has renewed the Lease {where} for 60 min; its last holder was"
                " uid-2."
            ),
        )
    ]


def test_outside_of_a_pod_no_lease_is_wanted(installation: Installation) -> None:
    installation.settings = CHAINS
    installation.api.denied = {"update leases/gpu-extender", "patch pods"}
    with installation.start() as service:
        service.wait_ready()
        assert both(installation, service) == []


def test_clocks_that_differ(installation: Installation) -> None:
    installation.api.clock_offset_seconds = -120.0  # far from where its text turns
    with installation.start() as service:
        service.wait_ready()
        ((check, what),) = both(installation, service)

    name = socket.gethostname()
    assert check == "clock"
    assert what.startswith(f"The clock of {name} is ")
    assert what.endswith(" ahead of that of the API server.")


# --- who is behind the registration ------------------------------------------


def test_a_service_that_leads_to_nobody(installation: Installation) -> None:
    with installation.start() as service:
        installation.publish(service)
        other = installation.endpoints(1)
        asleep = installation.endpoints(ready=False)
        found = {}
        for name, tree in (("asleep", asleep), ("other", other), ("gone", None)):
            if tree is None:
                installation.api.remove(other)
            else:
                installation.api.put(tree)
            found[name] = doctor(installation, service)[1]
        installation.api.put(
            {
                "kind": "Service",
                "metadata": {"name": "gpu-extender", "namespace": "gpu-extender"},
                "spec": {"ports": [{"port": 8443}]},
            }
        )
        found["port"] = doctor(installation, service)[1]
        installation.api.withhold("services", 404)
        found["missing"] = doctor(installation, service)[1]
        port = installation.webhook_port

    where = "gpu-extender/gpu-extender"
    asleep_text = f"No endpoint of Service {where} is ready."
    assert found == {
        "asleep": [("endpoints", asleep_text)],
        "other": [
            (
                "endpoints",
                f"Service {where} leads to port 1, and the webhook listens on {port}.",
            )
        ],
        "gone": [("endpoints", asleep_text)],
        "port": [
            (
                "endpoints",
                f"The registration calls port 443 of Service {where}, which has 8443.",
            )
        ],
        "missing": [
            (
                "endpoints",
                f"There is no Service {where}, which the registration calls.",
            )
        ],
    }


# --- what keeps the doctor from looking ----------------------------------------


def unchecked(page: Any) -> dict[str, str]:
    return {item["check"]: item["why"] for item in page["unchecked"]}


def test_what_may_not_be_looked_at_is_said(installation: Installation) -> None:
    with installation.start() as service:
        installation.publish(service)
        api = installation.api
        api.withhold("selfsubjectaccessreviews", 403)
        api.withhold("mutatingwebhookconfigurations", 403)

        page = service.get("/doctor").json()

    assert page["findings"] == []
    assert unchecked(page) == {
        "rights": "the API server does not say which rights the token has",
        "clock": "the API server does not tell its time",
        "registration": "it could not be read: NotFound",
        "calls": "no GPU pod has been placed since the process started",
    }


def test_an_api_server_that_is_away_is_a_finding_at_once(
    installation: Installation,
) -> None:
    with installation.start() as service:
        service.wait_ready()
        installation.publish(service)
        url = installation.api.url
        with installation.api.away():
            own = findings(service)
            status, found, said = doctor(installation, service)

    assert own == found
    ((check, what),) = own
    assert check == "API server"
    assert what.startswith(f"The API server {url} does not answer: ")
    assert status == 3
    assert said.startswith(f"cluster: {url} cannot be reached: ")
    assert said.count("\n") == 1


def test_an_api_server_that_is_silent_or_fails_is_a_finding(
    installation: Installation,
) -> None:
    with installation.start() as service:
        installation.publish(service)
        api = installation.api
        api.script("create", "selfsubjectaccessreviews", Silence(has_headers=False))
        silent = findings(service)
        api.script("create", "selfsubjectaccessreviews", Status(500))
        failing = findings(service)

    assert [check for check, _ in silent + failing] == ["API server"] * 2


def test_a_cluster_from_files_is_not_asked(tmp_path: Path) -> None:
    nodes = {"kind": "List", "items": [make_node(name="a", gpus=1)]}
    (tmp_path / "dump.json").write_text(json.dumps(nodes))
    config = {"cluster": {"source": "file", "files": ["dump.json"]}}
    with ServiceProcess(tmp_path, config) as service:
        service.wait_ready()  # before, that it is not is a finding
        page = service.get("/doctor").json()
        wrong = service.get("/doctor?x=1")

    assert page["findings"] == []
    assert set(unchecked(page)) == {
        "rights", "token", "clock", "registration", "scheduler configuration", "calls",
    }  # fmt: skip
    assert wrong.status == 400


def test_a_scheduler_configuration_that_cannot_be_read_is_a_finding(
    installation: Installation,
) -> None:
    with installation.start() as service:
        service.wait_ready()  # before, that it is not is a finding
        ((check, what),) = findings(service)

    assert check == "scheduler configuration"
    assert what.startswith("extender.schedulerConfigFile cannot be read: ")
    assert "scheduler.yaml" in what


# --- the command's own input ---------------------------------------------------


def test_a_file_that_was_changed_for_the_worse_is_told(
    installation: Installation,
) -> None:
    reloaded = 'gpu_extender_config_reload_ok{file="rules"}'
    with installation.start() as service:
        installation.publish(service)
        (installation.folder / "rules.json").write_text('{"resourceMap": 1}')
        wait_until(lambda: service.metric(reloaded) == 0, "the fault is noticed")
        config = yaml.safe_load(service.config.read_text())
        config["managedPrefixes"] = ["nvidia.com/"]
        service.config.write_text(yaml.safe_dump(config))
        wait_until(
            lambda: bool(service.logs("settings changed that need a restart")),
            "the change is noticed",
        )

        (refused, waiting) = both(installation, service)

        service.config.write_text(yaml.safe_dump({**config, "managedPrefixes": None}))
        settings = 'gpu_extender_config_reload_ok{file="settings"}'
        wait_until(lambda: service.metric(settings) == 0, "the next fault is noticed")
        both_files = [what for _, what in findings(service)]

    assert refused[0] == waiting[0] == "files"
    assert "of `rules` are refused: " in refused[1]
    assert refused[1].endswith("1 fault(s) resourceMap: wanted a mapping, got 1.")
    assert waiting[1] == (
        "managedPrefixes in the configuration changed after the process had started."
    )
    assert sum("are refused: " in what for what in both_files) == 2


def test_a_process_that_has_not_read_the_cluster_is_told(
    installation: Installation,
) -> None:
    installation.api.withhold("pods", 500)
    with installation.start() as service:
        installation.api.wait_seen("list", "pods", 1)
        (installation.folder / "scheduler.yaml").write_text(
            yaml.safe_dump(make_scheduler_tree(RESOURCES, port=service.port))
        )

        ((check, what),) = findings(service)

    assert check == "readiness"
    assert what == ("The extender is not ready: the cluster has not been read yet.")


def test_a_service_that_does_not_answer_is_a_finding_beside_the_rest(
    installation: Installation,
) -> None:
    status, found, said = doctor(installation, None)

    assert (status, said) == (1, "")
    assert found[0] == (
        "service",
        "gpu-extender does not answer on http://127.0.0.1:1: connection refused.",
    )


def test_the_callers_file_goes_before_the_service_s(
    installation: Installation,
) -> None:
    with installation.start() as service:
        installation.publish(service)
        tree = make_scheduler_tree([GPU], port=service.port)
        path = installation.folder / "other.yaml"
        path.write_text(yaml.safe_dump(tree))

        status, found, _ = doctor(
            installation, service, "--scheduler-config", str(path)
        )

    assert status == 1
    assert found == [
        (
            "scheduler configuration",
            (
                f"managedResources in {path} lack nvidia.com/mig-1g.10gb, which nodes"
                " offer or the configuration names."
            ),
        )
    ]


def test_the_text_fits_a_terminal_and_says_why_and_what_to_do(
    installation: Installation,
) -> None:
    installation.api.denied = {"patch pods/status"}
    with installation.start() as service:
        installation.publish(service)
        result = run_command(
            "doctor",
            "--url",
            f"http://127.0.0.1:{service.port}",
            "--kubeconfig",
            str(installation.callers / "kubeconfig"),
        )

    head, mark, last = result.stdout.partition(f"gpu-extender {VERSION}")
    last = mark + last
    assert head == (
        "1 fault found.\n"
        "\n"
        "1. rights: gpu-extender may not patch pods/status.\n"
        "   A refused pod is not woken when a node would take it: it waits for"
        " kube-scheduler's own retry, up\n"
        "   to five minutes and a half.\n"
        "   Apply deploy/rbac.yaml. Or set extender.wakeUp: false.\n"
        "\n"
        "Not checked:\n"
        "- calls: no GPU pod has been placed since the process started\n"
        "\n"
    )
    host = socket.gethostname()
    assert last.startswith(f"gpu-extender {VERSION} on {host}: 1 nodes; 0")
    assert max(map(len, result.stdout.splitlines())) <= 100
