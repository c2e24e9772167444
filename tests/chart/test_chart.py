"""What the chart renders, in each mode."""

import base64
import re
import shutil
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import cel
import kubernetes_validate
import pytest
import yaml

from deploy.release_check import (
    RENDERED,
    find_faults_of_package,
    pack_chart,
    read_version,
)
from scoring.resources import ResourceScope
from service.commands.scheduler_config import SchedulerOptions, build_scheduler_config
from service.registration import build_registration
from service.settings.settings import Settings
from tests.chart.rendering import (
    CHART,
    HELMS,
    HOOK,
    IMAGE,
    MODES,
    NAMESPACE,
    OLDEST_MINORS,
    ROOT,
    command,
    find,
    merged,
    render,
    render_with_hooks,
    run,
    settings_of,
)

WIDEST: Final = 100  # columns of what is printed
MINORS: Final = ("1.34", "1.36", "1.37")

# Of others: their schemas are not Kubernetes' own.
FOREIGN: Final = ("cert-manager.io/", "monitoring.coreos.com/")

helms = pytest.mark.parametrize("helm", HELMS)
modes = pytest.mark.parametrize("mode", MODES)


def pod_of(objects: list[dict[str, Any]]) -> Any:
    """Return the template's spec of Deployment or DaemonSet."""
    (workload,) = (o for o in objects if o["kind"] in {"Deployment", "DaemonSet"})
    return workload["spec"]["template"]["spec"]


def pod_selector_of(objects: list[dict[str, Any]]) -> Any:
    """Return the labels by which Deployment or DaemonSet knows its pods."""
    (workload,) = (o for o in objects if o["kind"] in {"Deployment", "DaemonSet"})
    return workload["spec"]["selector"]["matchLabels"]


@helms
@modes
def test_lint_finds_nothing(helm: str, mode: str) -> None:
    values = yaml.safe_dump(merged(IMAGE, MODES[mode]))
    kubernetes = ("--kube-version", "1.36.3")

    printed = run(
        helm, "lint", CHART, *kubernetes, "--strict", "--values", "-", text=values
    )

    assert "0 chart(s) failed" in printed


@modes
def test_both_helms_render_the_same(mode: str) -> None:
    three, four = (render(helm, MODES[mode]) for helm in HELMS)

    assert three == four


@pytest.mark.parametrize("mode", ["own scheduler", "rendered registration"])
def test_helm_3_takes_the_registration_away_before_anything_else(mode: str) -> None:
    """By a hook that puts one without `webhooks` in its place: it has no rank there."""
    three, four = (
        [
            item
            for item in render_with_hooks(helm, MODES[mode])
            if item["kind"] == "MutatingWebhookConfiguration"
        ]
        for helm in HELMS
    )
    (hook,) = (item for item in three if item not in four)

    assert len(three) == 2
    assert len(four) == 1
    assert hook["metadata"]["name"] == four[0]["metadata"]["name"]
    assert "webhooks" not in hook
    assert hook["metadata"]["annotations"] == {
        HOOK: "pre-delete",
        f"{HOOK}-delete-policy": "before-hook-creation,hook-succeeded",
    }


@pytest.mark.parametrize(
    ("mode", "minor"),
    [
        (mode, minor)
        for mode in MODES
        for minor in MINORS
        if minor >= OLDEST_MINORS.get(mode, minor)
    ],
)
def test_each_object_is_one_of_the_minor(mode: str, minor: str) -> None:
    for item in render(HELMS[-1], MODES[mode], kubernetes=f"{minor}.0"):
        if not item["apiVersion"].startswith(FOREIGN):
            kubernetes_validate.validate(item, minor, strict=True)


@modes
def test_the_process_takes_the_configuration(mode: str, tmp_path: Path) -> None:
    settings = settings_of(render(HELMS[0], MODES[mode]), tmp_path)

    assert settings.cluster.source == "kubernetes"
    assert NAMESPACE in settings.injection.skipped_namespaces


def test_names_in_the_configuration_are_those_of_the_objects(tmp_path: Path) -> None:
    objects = render(HELMS[0], {})
    settings = settings_of(objects, tmp_path)

    own = settings.webhook.self_signed
    assert find(objects, "Secret")["metadata"]["name"] == own.secret_name
    registration = find(objects, "MutatingWebhookConfiguration")
    assert registration["metadata"]["name"] == own.registration_name
    service = find(objects, "Service")["metadata"]
    assert own.dns_names == (f"{service['name']}.{service['namespace']}.svc",)
    leases = {o["metadata"]["name"] for o in objects if o["kind"] == "Lease"}
    scheduler_lease = settings.extender.scheduler_lease.partition("/")[2]
    assert leases == {settings.election.lease_name, scheduler_lease}


def test_cert_manager_s_secret_is_none_that_helm_owns_with_another_source() -> None:
    """It stays when its Certificate goes, and Helm takes over no object of others."""
    theirs = find(render(HELMS[0], MODES["everything"]), "Certificate")
    ours = find(render(HELMS[0], {}), "Secret")

    assert theirs["spec"]["secretName"] != ours["metadata"]["name"]


def test_a_name_that_looks_like_a_number_is_a_text() -> None:
    values = {"scheduler": {"name": "123"}, "nameOverride": "456"}
    values |= {"fullnameOverride": "gpus"}
    objects = render(HELMS[0], values, namespace="007")

    for item in objects:
        kubernetes_validate.validate(item, "1.36", strict=True)
    config = find(objects, "ConfigMap", "gpus-config-")["data"]["config.yaml"]
    assert yaml.safe_load(config)["injection"]["schedulerName"] == "123"
    file = find(objects, "ConfigMap", "gpus-scheduler-")["data"]["config.yaml"]
    scheduler = yaml.safe_load(file)
    assert scheduler["leaderElection"]["resourceNamespace"] == "007"
    assert scheduler["profiles"][0]["schedulerName"] == "123"


def test_what_the_process_writes_is_rendered_empty() -> None:
    objects = render(HELMS[0], {})

    assert "webhooks" not in find(objects, "MutatingWebhookConfiguration")
    assert "data" not in find(objects, "Secret")
    assert all("spec" not in o for o in objects if o["kind"] == "Lease")
    assert not [o for o in objects if o["kind"] == "CustomResourceDefinition"]


REGISTRATIONS: Final[Mapping[str, Mapping[str, Any]]] = {
    "defaults": {},
    "other resources": {
        "managedPrefixes": ["x.io/", "it's/"],
        "gpuResources": ["x.io/gpu", "y.io/gpu", "z.io/a-*"],
        "injection": {"triggerAnnotation": "example.com/type"},
    },
    "other prefixes alone": {"managedPrefixes": ["x.io/"]},
    "exact resources alone": {"managedPrefixes": []},
    "prefixes alone": {"gpuResources": []},
    "types alone": {"managedPrefixes": [], "gpuResources": []},
}


@helms
@pytest.mark.parametrize("config", REGISTRATIONS.values(), ids=list(REGISTRATIONS))
def test_the_rendered_registration_is_that_of_webhook_config(
    helm: str, config: Mapping[str, Any], tmp_path: Path
) -> None:
    values = merged(MODES["rendered registration"], {"config": config})
    values["webhook"] |= {"timeoutSeconds": 7, "failurePolicy": "Ignore"}
    objects = render(helm, values)

    client = {
        "service": {
            "namespace": NAMESPACE,
            "name": "gpu-extender",
            "path": "/mutate",
            "port": 443,
        },
        "caBundle": base64.b64encode(b"PEM").decode(),
    }
    wanted = build_registration(settings_of(objects, tmp_path), client)["webhooks"]
    got = find(objects, "MutatingWebhookConfiguration")["webhooks"]
    assert [{**w, "matchConditions": None} for w in got] == [
        {**w, "matchConditions": None} for w in wanted
    ]
    conditions, expected = (
        [(c["name"], c["expression"].strip()) for c in webhooks[0]["matchConditions"]]
        for webhooks in (got, wanted)
    )
    assert conditions == expected


def asking(**resources: Any) -> dict[str, Any]:
    """Return a pod with one container."""
    return {"metadata": {}, "spec": {"containers": [{"resources": resources}]}}


GPU: Final = {"nvidia.com/gpu": "1"}
TRIGGER: Final = {"task.bkbcs.tencent.com/gpu-type": "T4"}
MIRROR: Final = {"kubernetes.io/config.mirror": "x"}
PODS: Final[Mapping[str, tuple[Any, bool]]] = {
    "limits": (asking(limits=GPU), True),
    "requests": (asking(requests={"amd.com/gpu": "1"}), True),
    "nothing": ({"metadata": {}, "spec": {"containers": [{"name": "c"}]}}, False),
    "cpu alone": (asking(limits={"cpu": "1"}), False),
    "named type": (merged(asking(), {"metadata": {"annotations": TRIGGER}}), True),
    "mirror": (
        merged(asking(limits=GPU), {"metadata": {"annotations": MIRROR}}),
        False,
    ),
    "init container": (
        merged(
            asking(),
            {"spec": {"initContainers": [{"resources": {"limits": GPU}}]}},
        ),
        True,
    ),
}


@pytest.mark.parametrize(("pod", "is_sent"), PODS.values(), ids=list(PODS))
def test_the_conditions_send_gpu_pods_alone(pod: Any, is_sent: bool) -> None:
    objects = render(HELMS[0], MODES["rendered registration"])
    (webhook,) = find(objects, "MutatingWebhookConfiguration")["webhooks"]

    verdicts = [
        cel.evaluate(condition["expression"], {"object": pod})
        for condition in webhook["matchConditions"]
    ]

    assert all(verdicts) is is_sent


def test_kube_scheduler_is_started_as_scheduler_config_says() -> None:
    config = {
        "extender": {"deadlineMilliseconds": 2500},
        "scoring": {"maxScore": 30},
        "server": {"port": 9999},
        "fallback": {"chains": [["nvidia.com/mig-9g.1gb", "nvidia.com/gpu"]]},
    }
    scheduler = {"managedResources": ["x.io/gpu"], "name": "gpus"}
    objects = render(HELMS[0], {"config": config, "scheduler": scheduler})

    file = find(objects, "ConfigMap", "gpu-extender-scheduler-")["data"]["config.yaml"]
    got = yaml.safe_load(file)
    listed = yaml.safe_load((CHART / "files" / "managed-resources.yaml").read_text())
    wanted = build_scheduler_config(
        sorted({*listed, "nvidia.com/mig-9g.1gb", "x.io/gpu"}),
        SchedulerOptions(
            scheduler_name="gpus",
            url_prefix="http://127.0.0.1:9999/scheduler",
            kubeconfig=None,
            weight=3,
            timeout_seconds=3,
        ),
    )
    assert got.pop("leaderElection") == {
        "leaderElect": True,
        "resourceNamespace": NAMESPACE,
        "resourceName": "gpu-extender-scheduler",
    }
    assert got == wanted


SCORINGS: Final[Mapping[str, Mapping[str, Any]]] = {
    "classic": {},
    "packing": {"profile": "packing"},
    "training": {"profile": "training"},
    "spread": {"profile": "spread"},
    "one weight": {"weights": {"scarcity": 5}},
    "packing without its weights": {
        "profile": "packing",
        "weights": {"fragmentation": 0, "scarcity": 0, "utilization": 1},
    },
}


@helms
@pytest.mark.parametrize("scoring", SCORINGS.values(), ids=list(SCORINGS))
def test_kube_scheduler_does_not_spread_what_our_scores_pack(
    helm: str, scoring: Mapping[str, Any], tmp_path: Path
) -> None:
    objects = render(helm, {"config": {"scoring": scoring}})

    file = find(objects, "ConfigMap", "gpu-extender-scheduler-")["data"]["config.yaml"]
    wanted = build_scheduler_config(
        [],
        SchedulerOptions(
            scheduler_name="gpu-extender-scheduler",
            url_prefix="",
            kubeconfig=None,
            weight=10,
            timeout_seconds=1,
            is_packing=settings_of(objects, tmp_path).scoring.is_packing,
        ),
    )
    assert yaml.safe_load(file)["profiles"] == wanted["profiles"]


def test_the_managed_resources_are_those_of_the_settings_and_the_table() -> None:
    table = tomllib.loads((ROOT / "scoring/data/gpu_models.toml").read_text())
    scope: ResourceScope = Settings().scope()
    exact = {name for name in scope.gpu_resources if not name.endswith("*")}
    slices = {
        "nvidia.com/mig-" + profile.replace("+", ".")
        for geometry in table["geometries"].values()
        for profile in geometry
    }

    listed = yaml.safe_load((CHART / "files" / "managed-resources.yaml").read_text())

    assert listed == sorted(exact | slices)


def test_the_images_of_kube_scheduler_are_those_that_are_tested() -> None:
    modules = (ROOT / "tests" / "e2e" / "controlplane").glob("1.*/go.mod")
    tested = {
        module.parent.name: match.group(1)
        for module in modules
        if (match := re.search(r"k8s\.io/kubernetes (v\S+)", module.read_text()))
    }

    listed = (CHART / "files" / "kube-scheduler-images.yaml").read_text()

    assert yaml.safe_load(listed) == tested


@pytest.mark.parametrize(
    ("kubernetes", "image", "tag"),
    [
        ("v1.34.0", {}, "v1.34.4"),
        ("v1.36.1-gke.100", {}, "v1.36.3"),
        ("v1.35.2", {"tag": "v1.35.7"}, "v1.35.7"),
    ],
)
def test_the_tag_of_kube_scheduler_follows_the_cluster(
    kubernetes: str, image: Mapping[str, str], tag: str
) -> None:
    values = {"scheduler": {"image": image}}

    (scheduler,) = pod_of(render(HELMS[0], values, kubernetes=kubernetes))["containers"]

    assert scheduler["image"] == f"registry.k8s.io/kube-scheduler:{tag}"


def test_an_image_is_named_by_registry_and_digest() -> None:
    digest = "sha256:" + "0" * 64
    values = {"image": {"digest": digest}, "global": {"imageRegistry": "m.example"}}

    (extender,) = pod_of(render(HELMS[0], values))["initContainers"]

    assert extender["image"] == f"m.example/registry.example/gpu-extender@{digest}"


@pytest.mark.parametrize("mode", ["own scheduler", "cert-manager", "everything"])
def test_pods_beside_their_own_scheduler_are_restricted(mode: str) -> None:
    """By the profile `restricted` of Pod Security Admission."""
    pod = pod_of(render(HELMS[0], MODES[mode]))

    assert pod["securityContext"]["runAsNonRoot"] is True
    assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert not {"hostNetwork", "hostPID", "hostIPC"} & set(pod)
    volumes = {kind for volume in pod["volumes"] for kind in volume} - {"name"}
    assert volumes <= {"configMap", "secret", "emptyDir"}
    for container in pod["initContainers"] + pod["containers"]:
        context = container["securityContext"]
        assert context["allowPrivilegeEscalation"] is False
        assert context["readOnlyRootFilesystem"] is True
        assert context["capabilities"] == {"drop": ["ALL"]}
        assert "host" not in str(container.get("livenessProbe"))


def test_on_the_nodes_network_no_two_pods_want_one_node_s_ports() -> None:
    objects = render(HELMS[0], MODES["own scheduler on the nodes' network"])
    (deployment,) = (o for o in objects if o["kind"] == "Deployment")
    pod = pod_of(objects)

    assert (pod["hostNetwork"], pod["dnsPolicy"]) == (True, "ClusterFirstWithHostNet")
    strategy = deployment["spec"]["strategy"]["rollingUpdate"]
    assert strategy == {"maxUnavailable": 1, "maxSurge": 0}
    (extender,) = pod["initContainers"]
    assert extender["startupProbe"]["httpGet"]["scheme"] == "HTTPS"


@helms
def test_users_and_groups_can_be_left_to_the_platform(helm: str) -> None:
    context = {"runAsUser": None, "fsGroup": None}

    pod = pod_of(render(helm, {"podSecurityContext": context}))

    assert not {"runAsUser", "fsGroup"} & set(pod["securityContext"])
    assert pod["securityContext"]["runAsNonRoot"] is True


def test_kube_scheduler_starts_after_its_extender_and_lives_by_it() -> None:
    pod = pod_of(render(HELMS[0], {}))

    (extender,) = pod["initContainers"]
    (scheduler,) = pod["containers"]
    assert extender["restartPolicy"] == "Always"
    assert extender["startupProbe"]["httpGet"]["path"] == "/readyz/extender"
    assert scheduler["livenessProbe"]["httpGet"]["path"] == "/livez/extender"
    assert pod["schedulerName"] == "default-scheduler"
    assert pod["priorityClassName"] == "system-cluster-critical"


@modes
def test_the_pod_of_helm_test_is_no_replica(mode: str) -> None:
    objects = render(HELMS[0], MODES[mode])
    pod = find(objects, "Pod")

    assert pod["metadata"]["annotations"]["helm.sh/hook"] == "test"
    (doctor,) = pod["spec"]["containers"]
    assert doctor["args"][0] == "doctor"
    (replica,) = pod["spec"]["initContainers"]
    given = {one["name"] for one in replica.get("env", [])}
    assert "POD_NAME" not in given  # without its pod's name it takes no Lease
    for service in (o for o in objects if o["kind"] == "Service"):
        wanted = service["spec"]["selector"].items()
        assert not wanted <= pod["metadata"]["labels"].items()


@pytest.mark.parametrize("mode", ["existing scheduler", "everything"])
def test_the_pod_of_helm_test_goes_where_the_replicas_may_go(mode: str) -> None:
    values = {"nodeSelector": {"pool": "system"}}
    objects = render(HELMS[0], merged(MODES[mode], values))
    pod, replica = find(objects, "Pod")["spec"], pod_of(objects)

    assert pod["nodeSelector"] == replica["nodeSelector"]
    assert pod["tolerations"] == replica["tolerations"]


def test_the_pod_of_helm_test_has_the_environment_that_is_given() -> None:
    given = [{"name": "HTTPS_PROXY", "value": "http://proxy.example:3128"}]
    pod = find(render(HELMS[0], {"extraEnv": given}), "Pod")["spec"]

    for container in pod["initContainers"] + pod["containers"]:
        assert container["env"] == given


def test_critical_pods_of_kube_system_are_not_counted_with_ours() -> None:
    kinds = {
        namespace: {o["kind"] for o in render(HELMS[0], {}, namespace=namespace)}
        for namespace in (NAMESPACE, "kube-system")
    }

    assert kinds[NAMESPACE] - kinds["kube-system"] == {"ResourceQuota"}


def notes_of(values: Mapping[str, Any]) -> str:
    """Return the notes by Helm 4: Helm 3 asks a cluster even in a dry run."""
    scheduler = {"image": {"tag": "v1.36.3"}}  # Helm itself chooses the minor
    text = yaml.safe_dump(merged(IMAGE, {"scheduler": scheduler}, values))
    arguments = ("install", "gpu-extender", CHART, "--namespace", NAMESPACE)
    return run(HELMS[-1], *arguments, "--dry-run=client", "--values", "-", text=text)


@pytest.mark.parametrize("is_sent", [True, False])
def test_the_notes_say_what_becomes_of_pods_while_nobody_answers(
    is_sent: bool,
) -> None:
    webhook = {"failurePolicy": "Ignore"}

    printed = notes_of(
        {"webhook": webhook, "schedulerNamePolicy": {"enabled": is_sent}}
    )

    assert (
        "the policy still sends it to gpu-extender-scheduler." in printed
    ) is is_sent
    assert ("is placed without gpu-extender." in printed) is not is_sent


def test_the_notes_name_what_to_do_next() -> None:
    printed = notes_of({})

    assert "helm test gpu-extender -n gpu-extender --logs" in printed
    assert "kubectl gpu doctor\n" in printed
    assert "kubectl gpu explain POD -n NAMESPACE\n" in printed


@pytest.mark.parametrize(
    ("values", "options"),
    [
        ({"fullnameOverride": "ge"}, "--lease gpu-extender/ge-scheduler"),
        (
            {
                "nameOverride": "ge",
                "fullnameOverride": "gpu-extender",
                "config": {"server": {"port": 9999}},
            },
            "--selector app=ge --port 9999",
        ),
        (
            merged(
                MODES["existing scheduler"],
                {"config": {"extender": {"schedulerLease": "kube-system/theirs"}}},
            ),
            "--lease kube-system/theirs",
        ),
    ],
    ids=["another name", "another label and port", "another scheduler"],
)
def test_the_notes_have_the_options_of_a_release_that_is_not_the_usual_one(
    values: Mapping[str, Any], options: str
) -> None:
    printed = notes_of(values)

    assert f"kubectl gpu doctor {options}\n" in printed
    assert f"kubectl gpu explain POD -n NAMESPACE {options}\n" in printed


@pytest.mark.parametrize(
    ("mode", "registration"),
    [("own scheduler", "patched"), ("cert-manager", "rendered")],
)
def test_the_notes_name_a_registration_that_is_taken_next(
    mode: str, registration: str
) -> None:
    """A certificate of its own has no CA yet that could be rendered."""
    printed = notes_of(merged(MODES[mode], {"webhook": {"registration": "none"}}))

    assert f"upgrade with webhook.registration={registration}.\n" in printed
    assert render(
        HELMS[0], merged(MODES[mode], {"webhook": {"registration": registration}})
    )


@modes
def test_the_notes_say_what_an_uninstall_leaves_behind(mode: str) -> None:
    """Pods that name a scheduler that is gone, or a kube-scheduler that is stuck."""
    has_scheduler = MODES[mode].get("scheduler", {}).get("enabled", True)

    printed = notes_of(MODES[mode])

    assert ("After an uninstall, GPU pods" in printed) is has_scheduler
    assert ("Before an uninstall, start each kube-s" in printed) is not has_scheduler


@modes
def test_the_notes_fit_a_terminal(mode: str) -> None:
    _, _, printed = notes_of(MODES[mode]).partition("NOTES:")

    assert [line for line in printed.splitlines() if len(line) > WIDEST] == []


@modes
def test_the_notes_say_to_wait_where_the_entry_is_yet_to_come(mode: str) -> None:
    objects = render(HELMS[-1], MODES[mode])
    empty = [
        item["metadata"]["name"]
        for item in objects
        if item["kind"] == "MutatingWebhookConfiguration" and "webhooks" not in item
    ]

    waited = re.findall(r"kubectl wait mutating\S+?/(\S+) ", notes_of(MODES[mode]))

    assert waited == empty


@helms
def test_without_a_webhook_nothing_has_a_certificate(helm: str, tmp_path: Path) -> None:
    """And kubelet's probes come over plain HTTP."""
    objects = render(helm, MODES["own scheduler without webhook"])
    settings = settings_of(objects, tmp_path)
    pod = pod_of(objects)
    (extender,), (scheduler,) = pod["initContainers"], pod["containers"]

    probes = [extender[f"{kind}Probe"] for kind in ("startup", "readiness", "liveness")]
    asked = [probe["httpGet"] for probe in (*probes, scheduler["livenessProbe"])]
    assert {(get["scheme"], get["port"]) for get in asked} == {
        ("HTTP", settings.server.probe_port)
    }
    assert settings.webhook.certificate_file is None
    assert not settings.webhook.self_signed.enabled
    kinds = {item["kind"] for item in objects}
    assert "MutatingAdmissionPolicy" in kinds
    assert not kinds & {"MutatingWebhookConfiguration", "Service", "Secret"}
    assert "certificate" not in {volume["name"] for volume in pod["volumes"]}


def test_the_cluster_s_own_scheduler_calls_loopback_of_its_host() -> None:
    pod = pod_of(render(HELMS[0], MODES["existing scheduler"]))

    (extender,) = pod["containers"]
    assert pod["hostNetwork"] is True
    for probe in ("startupProbe", "readinessProbe", "livenessProbe"):
        get = extender[probe]["httpGet"]
        assert (get["host"], get["port"]) == ("127.0.0.1", 8888)


@pytest.mark.parametrize("host", ["127.0.0.1", "::1", "127.0.0.9", "localhost"])
def test_whoever_asks_for_the_verbs_asks_where_they_listen(
    host: str, tmp_path: Path
) -> None:
    values = {"config": {"server": {"host": host, "port": 9999}}}
    own = render(HELMS[0], values)
    existing = render(HELMS[0], merged(MODES["existing scheduler"], values))
    url = settings_of(own, tmp_path).server.url()

    file = find(own, "ConfigMap", "gpu-extender-scheduler-")["data"]["config.yaml"]
    (extender,) = yaml.safe_load(file)["extenders"]
    assert extender["urlPrefix"] == f"{url}/scheduler"
    (replica,) = find(own, "Pod")["spec"]["initContainers"]
    assert f'"{url}/healthz"' in replica["startupProbe"]["exec"]["command"][-1]
    (container,) = pod_of(existing)["containers"]
    assert container["readinessProbe"]["httpGet"]["host"] == host


@modes
def test_ports_are_named_by_number(mode: str) -> None:
    """A kubelet looks a probe's port up in the probed container alone.

    Of a sidecar, older EndpointSlice controllers know no port names.
    """
    objects = render(HELMS[0], MODES[mode])
    pod = pod_of(objects)
    containers = [*pod.get("initContainers", ()), *pod["containers"]]
    kinds = ("startupProbe", "readinessProbe", "livenessProbe")
    probes = [one[kind] for one in containers for kind in kinds if kind in one]
    services = [one for one in objects if one["kind"] == "Service"]

    ports = [probe["httpGet"]["port"] for probe in probes if "httpGet" in probe]
    ports += [port["targetPort"] for one in services for port in one["spec"]["ports"]]
    assert ports
    assert [port for port in ports if not isinstance(port, int)] == []


@pytest.mark.parametrize("egress", [[], [{"ports": [{"port": 16443}]}]])
def test_a_replica_may_call_the_pods_behind_its_own_service(egress: list[Any]) -> None:
    """Else nobody registers: networks may see the pod in the place of the Service."""
    values = {"networkPolicy": {"enabled": True, "egress": egress}}
    objects = render(HELMS[0], values)
    selector = pod_selector_of(objects)
    (port,) = find(objects, "Service")["spec"]["ports"]

    rules = find(objects, "NetworkPolicy")["spec"]["egress"]

    assert {
        "to": [{"podSelector": {"matchLabels": selector}}],
        "ports": [{"port": port["targetPort"]}],
    } in rules
    assert rules[: len(egress)] == egress


@pytest.mark.parametrize("port", [53, 5353])
def test_a_replica_may_ask_the_pods_behind_the_dns(port: int) -> None:
    objects = render(HELMS[0], {"networkPolicy": {"enabled": True}})

    rules = find(objects, "NetworkPolicy")["spec"]["egress"]

    asked = [one for rule in rules for one in rule["ports"] if one["port"] == port]
    assert {one["protocol"] for one in asked} == {"UDP", "TCP"}
    assert all("to" not in rule for rule in rules if asked[0] in rule["ports"])


def test_service_budget_and_spread_select_the_pods_of_the_workload() -> None:
    objects = render(HELMS[0], {})
    (deployment,) = (o for o in objects if o["kind"] == "Deployment")
    labels = deployment["spec"]["template"]["metadata"]["labels"].items()
    spread = pod_of(objects)["topologySpreadConstraints"]

    selectors = [
        find(objects, "Service")["spec"]["selector"],
        find(objects, "PodDisruptionBudget")["spec"]["selector"]["matchLabels"],
        deployment["spec"]["selector"]["matchLabels"],
        *(one["labelSelector"]["matchLabels"] for one in spread),
    ]

    assert all(selector.items() <= labels for selector in selectors)


def test_with_chains_the_service_leads_to_the_replica_that_decides() -> None:
    service = find(render(HELMS[0], MODES["everything"]), "Service")

    assert service["spec"]["selector"]["gpu-extender.io/active"] == "true"


def test_other_settings_have_another_config_map_and_other_rules_the_same() -> None:
    def names(values: Mapping[str, Any]) -> set[str]:
        objects = render(HELMS[0], values)
        return {o["metadata"]["name"] for o in objects if o["kind"] == "ConfigMap"}

    rules = {"resourceMap": {"T4": {"nvidia.com/gpu": {"cpu": "4"}}}}
    before = names({"rules": rules})
    other = {"resourceMap": {"T4": {"nvidia.com/gpu": {"cpu": "8"}}}}
    same = names({"rules": other})
    changed = names({"rules": rules, "config": {"logging": {"level": "debug"}}})

    assert same == before
    assert "gpu-extender-rules" in before
    ours = {name for name in before ^ changed if "-config-" in name}
    assert len(ours) == 2  # the old one and the new one
    assert before ^ changed == ours


def test_the_chart_has_the_version_of_the_package() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())

    assert chart["version"] == chart["appVersion"] == project["version"]


def test_both_helms_make_of_the_packed_chart_what_they_make_of_the_folder(
    tmp_path: Path,
) -> None:
    package = pack_chart(command(HELMS[-1]), CHART, tmp_path / "dist")

    assert find_faults(package, tmp_path) == []


def test_a_package_of_another_chart_is_no_release(tmp_path: Path) -> None:
    shutil.copytree(CHART, tmp_path / "chart")
    for name, old, new in (
        ("Chart.yaml", f"appVersion: {read_version()}", "appVersion: 9.9.9"),
        ("values.yaml", "replicaCount: 2", "replicaCount: 3"),
    ):
        path = tmp_path / "chart" / name
        text = path.read_text()
        assert old in text
        path.write_text(text.replace(old, new))
    package = pack_chart(command(HELMS[-1]), tmp_path / "chart", tmp_path / "dist")

    faults = find_faults(package, tmp_path)

    assert faults[0].endswith(f"appVersion: wanted {read_version()}, got 9.9.9")
    assert all("makes other objects of the folder" in fault for fault in faults[1:])
    assert len(faults) == 1 + len(HELMS) * len(RENDERED)


def find_faults(package: Path, folder: Path) -> list[str]:
    """Return what is wrong with a package of our chart."""
    helms = [command(name) for name in HELMS]
    clean = folder / "clean"
    return list(find_faults_of_package(package, CHART, read_version(), helms, clean))
