import base64
import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

import falcon
import falcon.testing
import pytest

from cluster.ledger.writer import SnapshotCell
from extender.tracking.last_answers import LastAnswers
from scoring.gpu.models import extended_table
from scoring.gpu.node_gpus import GpuLabelRules
from service.http.app import create_app
from service.http.health import Health
from service.http.middleware import MUTATE_PATH
from service.http.waitress_channel import ARRIVED_KEY
from service.metrics import Metrics
from service.runtime import build_verb_options, deadline_seconds
from service.settings.settings import Settings
from service.webhook import Webhook
from tests.builders import make_node, make_snapshot
from tests.extender_app import make_settings

TRIGGER: Final = "task.bkbcs.tencent.com/gpu-type"
MIG: Final = "nvidia.com/mig-2g.20gb"
GPU: Final = "nvidia.com/gpu"


def build(
    tree: dict[str, Any], folder: Path = Path()
) -> tuple[Webhook, falcon.testing.TestClient, SnapshotCell]:
    """Return the webhook of a configuration, a client of it, and its cell."""
    settings: Settings = make_settings(tree)
    cell, metrics = SnapshotCell(), Metrics()
    cell.publish(make_snapshot(nodes=[make_node(gpus=4)]))
    webhook = Webhook(cell, settings, metrics, folder)
    options = build_verb_options(settings)
    health = Health(cell, dict, 180.0)
    app = create_app(
        cell,
        lambda: options,
        webhook.resource,
        metrics,
        health,
        answered=LastAnswers(),
        deadline_seconds=deadline_seconds(settings),
    )
    return webhook, falcon.testing.TestClient(app), cell


def review(client: falcon.testing.TestClient, **asked: str) -> dict[str, Any]:
    """Have a pod reviewed that asks for these resources; return the response."""
    return send_review(client, asked, {})


def review_late(client: falcon.testing.TestClient, **asked: str) -> dict[str, Any]:
    """The same for a review that has waited since the machine started."""
    return send_review(client, asked, {ARRIVED_KEY: 1e-9})


def send_review(  # noqa: PLR0913 - all but the first three are optional
    client: falcon.testing.TestClient,
    asked: dict[str, str],
    environ: dict[str, Any],
    annotations: Mapping[str, str] = MappingProxyType({TRIGGER: "V100"}),
    more: Sequence[dict[str, Any]] = (),
    *,
    labels: Mapping[str, str] = MappingProxyType({}),
) -> dict[str, Any]:
    """Return the response to a review; `environ` goes into its WSGI environment."""
    container = {"name": "main", "resources": {"limits": asked, "requests": asked}}
    body = {
        "apiVersion": "admission.k8s.io/v1",
        "kind": "AdmissionReview",
        "request": {
            "uid": "u",
            "kind": {"group": "", "version": "v1", "kind": "Pod"},
            "namespace": "ml",
            "operation": "CREATE",
            "object": {
                "metadata": {
                    "name": "p",
                    "annotations": dict(annotations),
                    "labels": dict(labels),
                },
                "spec": {"containers": [container, *more]},
            },
        },
    }
    answer = client.simulate_post(MUTATE_PATH, json=body, extras=environ)
    assert answer.status_code == 200
    response: dict[str, Any] = answer.json["response"]
    assert response["uid"] == "u"
    return response


def operations(response: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the patch of a response."""
    patch: list[dict[str, Any]] = json.loads(base64.b64decode(response["patch"]))
    return patch


def test_pods_are_sent_to_the_configured_scheduler() -> None:
    _, client, _ = build({"injection": {"schedulerName": "gpu-scheduler"}})

    patch = operations(review(client, **{GPU: "1"}))

    assert patch == [
        {"op": "add", "path": "/spec/schedulerName", "value": "gpu-scheduler"}
    ]


def test_tolerations_are_added_where_they_are_switched_on() -> None:
    _, client, _ = build({"injection": {"toleration": True}})

    (operation,) = operations(review(client, **{GPU: "1"}))

    assert operation["path"] == "/spec/tolerations"
    assert [item["key"] for item in operation["value"]] == [GPU]


def test_labels_that_are_read_are_known() -> None:
    _, client, _ = build(
        {
            "labels": {"job": "gpu-extender.io/job"},
            "injection": {"schedulerOptOutLabel": "gpu-extender.io/keep"},
        }
    )
    labels = {"gpu-extender.io/job": "a", "gpu-extender.io/keep": "", "app": "b"}

    said = send_review(client, {GPU: "1"}, {}, {}, labels=labels).get("warnings")
    jobs = {"gpu-extender.io/jobs": "a"}
    told = send_review(client, {GPU: "1"}, {}, {}, labels=jobs)["warnings"]

    assert not said
    assert told == [
        (
            "label 'gpu-extender.io/jobs' is not known, has no effect; did you mean"
            " gpu-extender.io/job?"
        )
    ]


def test_a_reload_takes_new_chains() -> None:
    webhook, client, _ = build({})
    before = review(client, **{MIG: "1"})

    webhook.use(make_settings({"fallback": {"chains": [[MIG, GPU]]}}).fallback)

    assert "patch" not in before
    assert operations(review(client, **{MIG: "1"}))


def test_a_faulty_rule_file_leaves_the_rules_in_use(tmp_path: Path) -> None:
    path = tmp_path / "rules.json"
    rule = {"resourceList": [{"name": "cpu", "coefficient": 4, "unit": ""}]}
    path.write_text(json.dumps({"resourceMap": {"V100": {GPU: rule}}}))
    webhook, client, _ = build({"injection": {"rulesFile": "rules.json"}}, tmp_path)
    webhook.load_rules()

    path.write_text('{"resourceMap": 1}')
    with pytest.raises(ValueError, match="resourceMap"):
        webhook.load_rules()

    values = [item["value"] for item in operations(review(client, **{GPU: "1"}))]
    assert values == ["4", "4"]


@pytest.mark.parametrize(
    ("policy", "allowed"),
    [
        pytest.param("Fail", False, id="closed"),
        pytest.param("Ignore", True, id="open"),
    ],
)
def test_a_fault_of_our_own_answers_the_review_as_the_policy_says(
    policy: str, allowed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, client, cell = build({"injection": {"failurePolicy": policy}})

    def fail() -> None:
        raise KeyError("a bug")

    monkeypatch.setattr(cell, "current", fail)

    response = review(client, **{GPU: "1"})

    assert response["allowed"] is allowed


@pytest.mark.parametrize(
    ("policy", "allowed"),
    [
        pytest.param("Fail", False, id="closed"),
        pytest.param("Ignore", True, id="open"),
    ],
)
def test_a_review_that_has_waited_too_long_is_answered_as_the_policy_says(
    policy: str, allowed: bool
) -> None:
    tree = {
        "injection": {"failurePolicy": policy},
        "fallback": {"chains": [[MIG, GPU]]},
    }
    _, client, _ = build(tree)

    late = review_late(client, **{MIG: "1"})

    assert late["allowed"] is allowed
    assert "patch" not in late


def test_a_late_review_is_no_fault_of_ours_in_the_log(
    caplog: pytest.LogCaptureFixture,
) -> None:
    _, client, _ = build({"fallback": {"chains": [[MIG, GPU]]}})

    review_late(client, **{MIG: "1"})

    (record,) = (r for r in caplog.records if r.name == "injector.admission")
    assert (record.levelname, record.message) == ("WARNING", "admission too late")
    assert record.exc_info is None


def test_a_late_review_holds_no_place() -> None:
    _, client, _ = build({"fallback": {"chains": [[MIG, GPU]]}})
    for _ in range(8):  # two times what the node has
        review_late(client, **{MIG: "1"})

    responses = [review(client, **{MIG: "1"}) for _ in range(4)]

    assert all(operations(response) for response in responses)


VGPU: Final = "nvidia.com/vgpu"


def test_chains_that_clash_with_the_rules_are_refused_by_a_reload(
    tmp_path: Path,
) -> None:
    rule = {"resourceList": [{"name": VGPU, "coefficient": 1}]}
    (tmp_path / "rules.json").write_text(
        json.dumps({"resourceMap": {"V100": {GPU: rule}}})
    )
    webhook, client, _ = build({"injection": {"rulesFile": "rules.json"}}, tmp_path)
    webhook.load_rules()

    webhook.use(make_settings({"fallback": {"chains": [[MIG, GPU]]}}).fallback)
    with pytest.raises(ValueError, match="can fall back"):
        webhook.use(make_settings({"fallback": {"chains": [[VGPU, GPU]]}}).fallback)

    # Neither the rules nor the chains that were in use are gone.
    assert "patch" in review(client, **{MIG: "1"})
    assert operations(review(client, **{GPU: "1"}))[0]["value"] == "1"


@pytest.mark.parametrize(
    ("chains", "fault"),
    [
        pytest.param([], None, id="without chains"),
        pytest.param([[MIG, GPU]], "must not change what fallback", id="with chains"),
    ],
)
def test_a_rule_may_say_what_gpus_a_pod_wants_where_nothing_falls_back(
    chains: list[list[str]], fault: str | None, tmp_path: Path
) -> None:
    rule = {"annotations": {"gpu-extender.io/gpu-type": "V100"}}
    (tmp_path / "rules.json").write_text(
        json.dumps({"resourceMap": {"V100": {GPU: rule}}})
    )
    tree = {"injection": {"rulesFile": "rules.json"}, "fallback": {"chains": chains}}
    webhook, client, _ = build(tree, tmp_path)

    if fault is None:
        webhook.load_rules()
        assert operations(review(client, **{GPU: "1"}))[0]["value"] == "V100"
    else:
        with pytest.raises(ValueError, match=fault):
            webhook.load_rules()


@pytest.mark.parametrize(
    ("settings", "has_affinity"),
    [
        pytest.param({}, True, id="by default"),
        pytest.param({"typeAffinity": False}, False, id="off"),
    ],
)
def test_a_demand_becomes_affinity_unless_that_is_off(
    settings: dict[str, Any], has_affinity: bool
) -> None:
    _, client, _ = build({"injection": settings})
    annotations = {"gpu-extender.io/gpu-type": "L4"}

    response = send_review(client, {GPU: "1"}, {}, annotations)

    assert ("patch" in response) == has_affinity


def test_new_names_of_gpus_are_taken_while_running() -> None:
    webhook, client, _ = build({})
    annotations = {"gpu-extender.io/gpu-type": "L4"}
    table = extended_table([], {"L4": ("Team-Card",)})

    webhook.use_gpus(GpuLabelRules(table, ("accelerator",)))
    (operation,) = operations(send_review(client, {GPU: "1"}, {}, annotations))

    assert '"Team-Card"' in json.dumps(operation["value"])


MIG_1G: Final = "nvidia.com/mig-1g.10gb"
RECORD: Final = "gpu-webhook.k8s.io/fallback"


def rules_of(folder: Path, **cores: float) -> None:
    """Write rules of so many cpu for each slice, by its short name."""
    names = {"two": MIG, "one": MIG_1G}
    by_resource = {
        names[key]: {
            "resourceList": [{"name": "cpu", "coefficient": count, "unit": ""}]
        }
        for key, count in cores.items()
    }
    (folder / "rules.json").write_text(
        json.dumps({"resourceMap": {"V100": by_resource}})
    )


@pytest.mark.parametrize(
    ("cores", "beside", "record"),
    [
        pytest.param({"two": 8, "one": 2}, "0", "2g.20gb->1g.10gb",
                     id="what is injected does not fit beside the slice"),
        pytest.param({"two": 4, "one": 2}, "0", "", id="what is injected fits"),
        pytest.param({"two": 3, "one": 2}, "1500m", "", id="with a sidecar it fits"),
        pytest.param({"two": 2, "one": 8}, "2500m", "2g.20gb->1g.10gb",
                     id="a form whose injection is refused is skipped"),
        pytest.param({"two": 2, "one": 2}, "2500m", "",
                     id="where all are refused, the pod is left as it is"),
    ],
)  # fmt: skip
def test_a_fall_weighs_what_will_be_injected(
    tmp_path: Path, cores: dict[str, float], beside: str, record: str
) -> None:
    rules_of(tmp_path, **cores)
    settings = {
        "injection": {"rulesFile": "rules.json"},
        "fallback": {"chains": [[MIG, MIG_1G]]},
    }
    webhook, client, cell = build(settings, tmp_path)
    webhook.load_rules()
    nodes = [
        make_node(name="a", cpu="4", resources={MIG: "1"}),
        make_node(name="b", cpu="64", resources={MIG_1G: "9"}),
    ]
    cell.publish(replace(make_snapshot(nodes=nodes), generation=9))
    sidecar = {"name": "s", "resources": {"requests": {"cpu": beside}}}

    response = send_review(client, {MIG: "1"}, {}, more=[sidecar])

    written = operations(response) if response["allowed"] else []
    path = f"/metadata/annotations/{RECORD.replace('/', '~1')}"
    records = [item["value"] for item in written if item["path"] == path]
    assert records == ([record] if record else [])
