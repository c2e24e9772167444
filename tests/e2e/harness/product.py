"""The product as it ships: identity, settings, scheduler and webhook of one test."""

import contextlib
import http.client
import json
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from http import HTTPStatus
from pathlib import Path
from typing import Any, Final, Self

import yaml

from tests.e2e.harness.amounts import Amounts, amounts_shown
from tests.e2e.harness.builders import JsonObject, make_pod, question_about
from tests.e2e.harness.connection import ApiError
from tests.e2e.harness.control_plane import ControlPlane
from tests.e2e.harness.ports import LOOPBACK, free_port
from tests.e2e.harness.process import ManagedProcess
from tests.e2e.harness.scheduler_log import extender_error_lines
from tests.e2e.harness.service import REPOSITORY, Service
from tests.e2e.harness.waiting import wait_for

DEPLOY: Final = REPOSITORY / "deploy"
SAMPLES: Final = DEPLOY / "samples"
RULES: Final = REPOSITORY / "configs" / "injection-rules.json"
NAME: Final = "gpu-extender"
CHAIN: Final = ("nvidia.com/mig-2g.20gb", "nvidia.com/mig-1g.10gb", "nvidia.com/gpu")
REGISTRATION_API: Final = "admissionregistration.k8s.io/v1"
REGISTRATION: Final = "MutatingWebhookConfiguration"
CALL_SECONDS: Final = 60.0
SEEN_SECONDS: Final = 20.0


class Product:
    """gpu-extender beside a control plane, set up from the files in `deploy/`.

    Leaving it ends the webhook's registration and looks at what the processes had to
    say: a call that RBAC refused, an error that the service logged, and an error of
    kube-scheduler about its extender outside of `outage` are faults. Owned by the
    test's thread.

    Parameters
    ----------
    plane : ControlPlane
    server : str, optional
        Where the service reaches the API server, such as a proxy.
    settings : mapping, optional
        Sections of the configuration file, over those that every test wants.
    """

    def __init__(
        self,
        plane: ControlPlane,
        *,
        server: str | None = None,
        settings: Mapping[str, Mapping[str, Any]] | None = None,
    ) -> None:
        self.plane = plane
        self.client = plane.client
        self.port = free_port()
        self.webhook_port = free_port()
        self._calls_checked = len(plane.calls())
        plane.kubectl("apply", "-f", str(DEPLOY / "rbac.yaml"))
        token = self.client.service_account_token(NAME, NAME)
        self.settings = self._settings(
            plane.kubeconfig(token, NAME, server=server), settings or {}
        )
        self._service: Service | None = None
        self._scheduler: ManagedProcess | None = None
        self._scheduler_log_checked = 0
        self._is_registered = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if self._is_registered:
            self.unregister_webhook()
        if kind is None:  # else the test's own failure says more
            self.check()

    @property
    def service(self) -> Service:
        """The started service."""
        assert self._service is not None, "the service was not started"
        return self._service

    @property
    def url(self) -> str:
        """Where the verbs are served."""
        return f"http://{LOOPBACK}:{self.port}"

    def start(
        self, *, wait: bool = True, env: Mapping[str, str] | None = None
    ) -> Service:
        """Start the service; `env` adds to its environment."""
        self._service = self.plane.start_service(
            self.settings, port=self.port, name=NAME, wait=wait, env=env
        )
        return self._service

    def start_all(self) -> None:
        """Start the service, and kube-scheduler with what it prints for it."""
        service = self.start(wait=False)
        scheduler = self.start_scheduler(wait=False)
        service.process.wait_ready()
        scheduler.wait_ready()

    def start_scheduler(
        self,
        config: Mapping[str, Any] | None = None,
        *,
        flags: Sequence[str] = (),
        wait: bool = True,
    ) -> ManagedProcess:
        """Start kube-scheduler, by default as `gpu-extender scheduler-config` says."""
        self._scheduler = self.plane.start_scheduler(
            config or self.scheduler_config(), flags=flags, wait=wait
        )
        return self._scheduler

    def scheduler_log(self) -> str:
        """Return what the started kube-scheduler has logged."""
        assert self._scheduler is not None, "kube-scheduler was not started"
        return self._scheduler.log_text()

    def scheduler_config(self) -> str:
        """Return what `gpu-extender scheduler-config` prints for the cluster."""
        config = self.plane.folder / "for-the-scheduler.yaml"
        config.write_text(yaml.safe_dump(self.settings))
        done = subprocess.run(
            [sys.executable, "-m", "service", "scheduler-config", "--config", config],
            cwd=REPOSITORY,
            capture_output=True,
            text=True,
            check=False,
            timeout=CALL_SECONDS,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    def register_webhook(self) -> None:
        """Register `deploy/webhook.yaml` and wait until the API server calls it."""
        item = yaml.safe_load((DEPLOY / "webhook.yaml").read_text(encoding="utf-8"))
        for webhook in item["webhooks"]:
            path = webhook["clientConfig"].pop("service")["path"]
            webhook["clientConfig"] = {
                "url": f"https://{LOOPBACK}:{self.webhook_port}{path}",
                "caBundle": self.plane.authority.bundle,
            }
        self.client.apply(item)
        self._is_registered = True
        before = self.calls_of("mutate")

        def is_called() -> bool:
            self._try_gpu_pod()
            return self.calls_of("mutate") > before

        wait_for(is_called, timeout_seconds=SEEN_SECONDS, what="call of the webhook")

    def unregister_webhook(self) -> None:
        """Take the registration away and wait until the API server knows."""
        name = REGISTRATION.lower()
        self.plane.kubectl("delete", name, NAME, "--ignore-not-found")
        self._is_registered = False

        def is_not_called() -> bool:
            before = self.calls_of("mutate") if self.is_up() else 0
            was_created = self._try_gpu_pod()
            after = self.calls_of("mutate") if self.is_up() else 0
            return was_created and after == before

        wait_for(is_not_called, timeout_seconds=SEEN_SECONDS, what="end of the webhook")

    def _try_gpu_pod(self) -> bool:
        """Try out the creation of a GPU pod; say whether it would be created."""
        pod = make_pod(generate_name="probe-", gpus=1)
        try:
            self.client.create(pod, query={"dryRun": "All"})
        except ApiError:
            return False
        return True

    def is_up(self) -> bool:
        """Whether the service answers at all."""
        return self.service.status("/healthz") == HTTPStatus.OK

    def get_json(self, path: str) -> JsonObject:
        """Read a page of the service that must be there."""
        status, body = self.service.get(path)
        assert status == HTTPStatus.OK, f"{path}: got {status} {body!r}"
        answer: JsonObject = json.loads(body)
        return answer

    def post(self, path: str, verb_call: JsonObject) -> tuple[int, Any]:
        """Ask a verb; return status and decoded answer, None without one."""
        connection = http.client.HTTPConnection(LOOPBACK, self.port, timeout=10)
        try:
            connection.request("POST", path, json.dumps(verb_call))
            answer = connection.getresponse()
            body = answer.read()
        finally:
            connection.close()
        is_answer = answer.status == HTTPStatus.OK
        return answer.status, json.loads(body) if is_answer else None

    def ask_filter(self, pod: JsonObject, *nodes: str) -> tuple[int, Any]:
        """Ask the filter as kube-scheduler does."""
        return self.post("/scheduler/filter", question_about(pod, nodes))

    def ask_priorities(self, pod: JsonObject, *nodes: str) -> tuple[int, Any]:
        """Ask for priorities as kube-scheduler does."""
        return self.post("/scheduler/prioritize", question_about(pod, nodes))

    def amounts(self) -> Amounts:
        """Return node -> resource -> (allocatable, requested), as the cache has it."""
        nodes: list[JsonObject] = []
        after = ""
        while True:
            page = self.get_json(f"/cluster?limit=500&continue={after}")
            nodes += page["nodes"]
            after = page["continue"]
            if not after:
                return amounts_shown(nodes)

    def metric(self, name: str, **labels: str) -> float:
        """Return the sum of a metric's samples that have these labels."""
        return self.service.metric(name, **labels)

    def calls_of(self, verb: str) -> int:
        """Return how many calls of a verb the service has answered."""
        return int(self.metric("gpu_extender_requests_total", verb=verb))

    @contextlib.contextmanager
    def outage(self) -> Iterator[None]:
        """Break something: what is said and refused meanwhile is no fault.

        An API server that has just started forbids everything for a moment.
        """
        self._check_refusals()
        self._check_scheduler_log()
        yield
        self._calls_checked = len(self.plane.calls())
        if self._scheduler is not None:
            self._scheduler_log_checked = self._scheduler.log_size()

    def check(self) -> None:
        """Fail if something was said or refused that must not be."""
        self._check_refusals()
        self._check_scheduler_log()
        if self._service is not None:
            assert error_lines(self._service.process.log_text()) == []

    def _check_refusals(self) -> None:
        calls = self.plane.calls()[self._calls_checked :]
        assert [call for call in calls if call.is_refused and call.is_of(NAME)] == []

    def _check_scheduler_log(self) -> None:
        if self._scheduler is not None:
            log = self._scheduler.log_text(self._scheduler_log_checked)
            lines = extender_error_lines(log, self.url)
            assert not lines, "\n".join(lines)

    def _settings(
        self, kubeconfig: Path, more: Mapping[str, Mapping[str, Any]]
    ) -> dict[str, dict[str, Any]]:
        pair = self.plane.authority.issue("webhook")
        settings: dict[str, dict[str, Any]] = {
            "server": {"host": LOOPBACK, "port": self.port, "drainSeconds": 0},
            "webhook": {
                "certificateFile": str(pair.certificate),
                "keyFile": str(pair.key),
                "host": LOOPBACK,
                "port": self.webhook_port,
            },
            "cluster": {"source": "kubernetes", "kubeconfig": str(kubeconfig)},
            "injection": {"rulesFile": str(RULES)},
            "fallback": {"chains": [list(CHAIN)]},
        }
        for section, values in more.items():
            settings[section] = {**settings.get(section, {}), **values}
        return settings


def error_lines(log: str) -> list[str]:
    """Return the lines of the service's log that report what does not heal itself."""
    lines = (line for line in log.splitlines() if line.startswith("{"))
    return [
        line for line in lines if json.loads(line)["level"] in {"error", "critical"}
    ]
