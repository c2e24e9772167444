"""``/explain`` over HTTP, and that it says what the verbs really answer."""

import itertools
import json
import re
import textwrap
import threading
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final

import falcon
import falcon.testing
import msgspec
import pytest

from cluster.dump import load_dump
from cluster.ledger.ledger import Ledger
from extender.explain.explain import explain
from extender.explain.http import ExplainResource
from extender.explain.page import ALL_NODES, build_page
from extender.explain.pod import Admit, ReviewedPod, read_subject
from extender.explain.templates import PodTemplate
from extender.tracking.assumed_pods import AssumedPods
from extender.tracking.last_answers import LastAnswers
from extender.verbs.fresh_snapshot import REST_SECONDS
from service.commands.cli import main
from service.runtime import build_verb_options
from tests.builders import (
    BUILDER,
    GPU,
    LABEL_KEYS,
    Tree,
    make_node,
    make_pod,
    make_pod_request,
)
from tests.extender_app import FILTER, PRIORITIZE, ExtenderApp, make_settings

CAPTURES: Final = Path(__file__).parent / "captures"
CONFIGS: Final = Path(__file__).parents[2] / "configs"
# For a kube-scheduler that ignores GPUs, and offers full nodes, too.
COUNTS_ALONE: Final = {"extender": {"counts": "enforce"}}
ROWS: Final = "nodes=true&limit=1000&asIs=true"
TABLE: Final = Path(__file__).parent / "explain_train.table.txt"
CALLS: Final = [
    path
    for path in sorted(CAPTURES.glob("*/scheduler-*-filter.*.json"))
    if not path.name.endswith(".response.json")
]


def post(app: ExtenderApp, pod: object, query: str = "") -> falcon.testing.Result:
    body = pod if isinstance(pod, bytes) else json.dumps(pod).encode()
    return app.client.simulate_post("/explain", body=body, query_string=query)


def get(app: ExtenderApp, query: str) -> falcon.testing.Result:
    return app.client.simulate_get("/explain", query_string=query)


def nodes_of(answer: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    return {node["name"]: node for node in answer["nodes"]}


@pytest.fixture(scope="module")
def captured() -> ExtenderApp:
    """The application over the captured cluster, counting for kube-scheduler."""
    ledger = Ledger(LABEL_KEYS)
    for change in load_dump([CAPTURES / "1.36" / "cluster-dump.yaml"], BUILDER):
        ledger.apply(change)
    app = ExtenderApp(is_synced=False, settings=COUNTS_ALONE)
    app.cell.publish(ledger.build())
    return app


@pytest.fixture
def small() -> ExtenderApp:
    """The application over two nodes, a pending pod and a bound one."""
    return ExtenderApp(
        nodes=[make_node(name="a", gpus=8), make_node(name="b", gpus=1)],
        pods=[
            make_pod(name="waiting", namespace="ml", gpus=2),
            make_pod(name="running", namespace="ml", gpus=3, node_name="a"),
        ],
        settings=COUNTS_ALONE,
    )


def offered_in(call: Mapping[str, Any]) -> list[str]:
    """Return the names of a captured call, whichever its form."""
    if call["NodeNames"] is not None:
        names: list[str] = call["NodeNames"]
        return names
    return [item["metadata"]["name"] for item in call["Nodes"]["items"]]


def reasons_in(answer: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    yield from answer["FailedNodes"].items()
    yield from answer["FailedAndUnresolvableNodes"].items()


def assert_says_what_is_answered(
    app: ExtenderApp, pod: Tree, names: list[str], explained: Mapping[str, Any]
) -> None:
    """Ask both verbs about the pod and compare every fact of their answers."""
    nodes, wire = nodes_of(explained), explained["wire"]
    filtered = json.loads(app.call(FILTER, pod, names))
    passed = filtered["NodeNames"]
    refused = dict(reasons_in(filtered))
    counts: dict[str, int] = {}
    for text in refused.values():
        counts[text] = counts.get(text, 0) + 1
    scores = {
        row["Host"]: row["Score"]
        for row in json.loads(app.call(PRIORITIZE, pod, passed))
    }

    sent = {
        n: row["priority"] for n, row in nodes.items() if row["priority"] is not None
    }
    assert sent == scores
    assert (wire["offered"], wire["passed"]) == (len(names), len(passed))
    assert wire["reasons"] == counts
    if refused and not passed:
        assert set(refused.values()) == {wire["shown"]}
    else:
        assert wire["shown"] == ""
        assert {name: nodes[name]["verdict"]["reason"] for name in refused} == refused
    assert {n for n in names if nodes[n]["verdict"]["resolvable"]} == set(
        filtered["FailedNodes"]
    )


def test_there_are_calls_of_three_versions() -> None:
    assert {path.parent.name for path in CALLS} == {"1.34", "1.36", "1.37"}


@pytest.mark.parametrize("path", CALLS, ids=lambda p: f"{p.parent.name} {p.stem}")
def test_an_explanation_of_offered_nodes_is_what_the_verbs_answer(
    captured: ExtenderApp, path: Path
) -> None:
    call = json.loads(path.read_bytes())
    options = build_verb_options(make_settings())
    names = offered_in(call)

    page = build_page(
        explain(
            read_subject(json.loads(path.read_bytes())["Pod"], options),
            captured.cell.current(),
            options,
            names=names,
        ),
        ALL_NODES,
    )

    explained = json.loads(msgspec.json.encode(page))
    assert_says_what_is_answered(captured, call["Pod"], names, explained)


@pytest.mark.parametrize("path", CALLS, ids=lambda p: f"{p.parent.name} {p.stem}")
def test_the_route_explains_what_the_verbs_answer_about_all_offered_nodes(
    captured: ExtenderApp, path: Path
) -> None:
    pod = json.loads(path.read_bytes())["Pod"]

    explained = post(captured, pod, ROWS).json

    names = [node["name"] for node in explained["nodes"] if node["offered"]]
    assert names
    assert_says_what_is_answered(captured, pod, names, explained)


def test_every_captured_offer_passes_the_modelled_checks(captured: ExtenderApp) -> None:
    """What kube-scheduler really offered is offered here, too."""
    for path in CALLS:
        if path.parent.name != "1.36":  # the dump is of that run
            continue
        call = json.loads(path.read_bytes())

        explained = nodes_of(post(captured, call["Pod"], ROWS).json)

        assert all(explained[name]["offered"] for name in offered_in(call)), path.name


def test_a_pending_pod_is_explained_by_its_name(small: ExtenderApp) -> None:
    answer = get(small, "namespace=ml&pod=waiting")

    assert answer.status_code == 200
    assert answer.headers["content-type"] == "application/json"
    assert answer.json["pod"] == {
        "namespace": "ml",
        "name": "waiting",
        "uid": "uid-of-ml-waiting",
        "origin": "pending",
        "nodeName": "",
        "resource": "nvidia.com/gpu",
        "request": {"nvidia.com/gpu": 2, "pods": 1},
        "accelerator": None,
        "nominatedNode": "",
        "demand": None,
    }
    assert answer.json["snapshot"] == {
        "generation": 1,
        "nodeCount": 2,
        "ageSeconds": 0.0,
    }
    assert answer.json["wire"] == {
        "asked": True,
        "offered": 2,
        "passed": 1,
        "shown": "",
        "reasons": {"Too few GPUs on the node": 1},
    }


def test_what_was_really_sent_about_the_pod_is_shown(small: ExtenderApp) -> None:
    pod = make_pod(name="waiting", namespace="ml", gpus=2)
    small.call(FILTER, pod, ["a", "b"])
    small.call(PRIORITIZE, pod, ["a"])

    sent = get(small, "namespace=ml&pod=waiting").json["lastAnswers"]

    assert sent["filter"].pop("at") > 0
    assert sent["prioritize"].pop("at") > 0
    assert sent == {
        "filter": {"generation": 1, "offered": 2, "passed": 1, "shown": ""},
        "prioritize": {"generation": 1, "offered": 1, "best": ["a"], "bestScore": 10},
    }


def test_a_pod_on_its_way_to_a_node_is_shown_there(small: ExtenderApp) -> None:
    assumed_pods = AssumedPods()
    assumed_pods.note(make_pod_request(2, uid="first"), "a")
    options = build_verb_options(make_settings())
    app: falcon.App[falcon.Request, falcon.Response] = falcon.App()
    resource = ExplainResource(
        small.cell, lambda: options, LastAnswers(), assumed_pods.by_node, lambda: None
    )
    app.add_route("/explain", resource)

    answer = falcon.testing.TestClient(app).simulate_get(
        "/explain", query_string="namespace=ml&pod=waiting&nodes=true"
    )

    node = nodes_of(answer.json)["a"]
    assert node["amounts"]["nvidia.com/gpu"]["underWay"] == 2
    # 3 bound and 2 under way of 8: 62.5 % in use
    assert node["terms"]["utilization"] == 100.0


@pytest.mark.parametrize(
    ("query", "names", "next_offset"),
    [
        pytest.param("", [], None, id="none unless they are asked for"),
        pytest.param("&nodes=true", ["a", "b"], None, id="all"),
        pytest.param("&limit=1", ["a"], 1, id="the first"),
        pytest.param("&limit=1&offset=1", ["b"], None, id="the next"),
        pytest.param("&node=b", ["b"], None, id="one node"),
    ],
)
def test_nodes_are_filtered_and_come_in_pages(
    small: ExtenderApp, query: str, names: list[str], next_offset: int | None
) -> None:
    answer = get(small, f"namespace=ml&pod=waiting{query}").json

    assert [node["name"] for node in answer["nodes"]] == names
    assert answer["nextOffset"] == next_offset


@pytest.mark.parametrize(
    ("accept", "is_text"),
    [
        pytest.param("text/plain", True, id="text"),
        pytest.param("text/plain, application/json;q=0.5", True, id="text first"),
        pytest.param("application/json, text/plain;q=0.5", False, id="JSON first"),
        pytest.param("*/*", False, id="anything"),
        pytest.param("image/png", False, id="neither"),
        pytest.param("", False, id="nothing"),
    ],
)
def test_text_is_answered_to_whoever_prefers_it(
    small: ExtenderApp, accept: str, is_text: bool
) -> None:
    answer = small.client.simulate_get(
        "/explain",
        query_string="namespace=ml&pod=waiting",
        headers={"Accept": accept},
    )

    assert answer.status_code == 200
    assert (answer.headers.get("Gpu-Extender-Fits") == "true") == is_text
    kind = "text/plain; charset=utf-8" if is_text else "application/json"
    assert answer.headers["Content-Type"] == kind
    if is_text:
        page = get(small, "namespace=ml&pod=waiting").json
        assert answer.text.startswith(page["summary"]["sentence"])


def test_text_has_the_rows_that_are_asked_for(small: ExtenderApp) -> None:
    answers = {
        query: small.client.simulate_post(
            "/explain",
            body=json.dumps(make_pod(gpus=99)),
            query_string=query,
            headers={"Accept": "text/plain"},
        )
        for query in ("", "nodes=true", "node=a")
    }

    assert [answer.headers["Gpu-Extender-Fits"] for answer in answers.values()] == [
        "false",
        "false",
        "false",
    ]
    assert "\nNODE " not in answers[""].text
    assert "\nNODE " in answers["nodes=true"].text
    assert "\na: " in answers["node=a"].text


def test_an_unknown_pod_is_404_with_its_name(small: ExtenderApp) -> None:
    answer = get(small, "namespace=ml&pod=ghost")

    assert answer.status_code == 404
    assert "ml/ghost" in answer.json["description"]


@pytest.mark.parametrize(
    ("accept", "text"),
    [
        pytest.param("text/plain", "404 Not Found: no pod ml/ghost", id="text"),
        pytest.param("text/*", "404 Not Found: no pod ml/ghost", id="any text"),
        pytest.param("text/plain, application/json;q=0.5", '{"title"', id="both"),
        pytest.param("image/png", "", id="neither"),
    ],
)
def test_whoever_takes_text_alone_reads_why_there_is_no_explanation(
    small: ExtenderApp, accept: str, text: str
) -> None:
    answer = small.client.simulate_get(
        "/explain",
        query_string="namespace=ml&pod=ghost",
        headers={"Accept": accept},
    )

    assert answer.status_code == 404
    assert answer.text.startswith(text)
    assert bool(answer.text) == bool(text)


@pytest.mark.parametrize(
    ("query", "named"),
    [
        pytest.param("", "namespace and no pod", id="nothing given"),
        pytest.param("namespace=ml", "no pod", id="no pod"),
        pytest.param("pod=waiting&namespace=", "no namespace", id="empty namespace"),
        pytest.param("namespace=ml&pod=waiting&limit=0", "limit", id="no nodes a page"),
        pytest.param("namespace=ml&pod=waiting&offset=x", "offset", id="no number"),
    ],
)
def test_missing_or_odd_parameters_are_400_with_their_names(
    small: ExtenderApp, query: str, named: str
) -> None:
    answer = get(small, query)

    assert answer.status_code == 400
    assert named in answer.text


def test_an_unknown_node_is_404_with_its_name(small: ExtenderApp) -> None:
    by_name = get(small, "namespace=ml&pod=waiting&node=nope")
    of_a_body = post(small, make_pod(gpus=1), "node=nope")

    for answer in (by_name, of_a_body):
        assert answer.status_code == 404
        assert answer.json["description"] == "no node 'nope' in the cache"


def test_unknown_parameters_are_400_with_their_names(small: ExtenderApp) -> None:
    by_name = get(small, "namespace=ml&pod=waiting&name=a&page=2")
    of_a_body = post(small, make_pod(gpus=1), "namespace=ml")

    assert (by_name.status_code, of_a_body.status_code) == (400, 400)
    assert "unknown parameters: name, page;" in by_name.json["description"]
    assert "unknown parameters: namespace;" in of_a_body.json["description"]


LIMITS = {"limits": {"nvidia.com/gpu": "x", "cpu": []}}


@pytest.mark.parametrize(
    ("body", "faults"),
    [
        pytest.param(b"", ["body: input data was truncated"], id="nothing"),
        pytest.param(b"{", ["body: input data was truncated"], id="cut short"),
        pytest.param(b"\xff", ["body: "], id="no text"),
        pytest.param(b"[" * 9000, ["body: "], id="nested without end"),
        pytest.param(b"[1]", ["object: wanted a Pod, got [1]"], id="a list"),
        pytest.param(b"{}", ["spec.containers: wanted containers"], id="empty"),
        pytest.param(b'{"kind":"Node"}', ["kind: wanted Pod or one of"], id="a node"),
        pytest.param(
            b'{"kind":["Pod"]}', ["kind: wanted Pod or one of"], id="odd kind"
        ),
        pytest.param(
            b'{"kind":"Job","spec":{"template":7}}',
            ["spec.template: wanted an object, got 7"],
            id="no template",
        ),
        pytest.param(
            json.dumps({"spec": {"containers": [{"resources": LIMITS}, 3]}}).encode(),
            [
                "spec.containers[1]: wanted object",
                "spec.containers[0].resources.limits['nvidia.com/gpu']",
                "spec.containers[0].resources.limits['cpu']",
            ],
            id="faults of type and of quantity at once",
        ),
        pytest.param(
            json.dumps(
                {
                    "kind": "Deployment",
                    "spec": {"template": {"spec": {"containers": [{"name": 1}]}}},
                }
            ).encode(),
            ["spec.template.spec.containers[0].name: wanted str"],
            id="in a template",
        ),
        pytest.param(
            json.dumps(
                {
                    "metadata": {"creationTimestamp": "yesterday"},
                    "spec": {"containers": [{}]},
                }
            ).encode(),
            ["metadata.creationTimestamp: wanted an RFC 3339 time"],
            id="a time that is none",
        ),
    ],
)
def test_a_malformed_pod_is_400_with_all_faults(
    small: ExtenderApp, body: bytes, faults: list[str]
) -> None:
    answer = post(small, body)

    assert answer.status_code == 400
    for fault in faults:
        assert fault in answer.json["description"]


def test_a_template_is_explained_under_the_name_of_its_owner(
    small: ExtenderApp,
) -> None:
    pod = make_pod(gpus=1)
    owner = {
        "kind": "CronJob",
        "metadata": {"name": "nightly", "namespace": "ml"},
        "spec": {"jobTemplate": {"spec": {"template": {"spec": pod["spec"]}}}},
    }

    answer = post(small, owner).json

    assert (answer["pod"]["namespace"], answer["pod"]["name"]) == ("ml", "nightly")
    assert answer["notes"] == ["The pod is the template of the CronJob 'nightly'."]


VOLUMES = [{"name": "v", "persistentVolumeClaim": {"claimName": "c"}}]
PORTS = [
    {
        "name": "c",
        "resources": {"limits": {"nvidia.com/gpu": 1}},
        "ports": [{"containerPort": 1, "hostPort": 1}],
    }
]


@pytest.mark.parametrize(
    ("spec", "named"),
    [
        pytest.param({}, [], id="nothing"),
        pytest.param(
            {"topologySpreadConstraints": [{}]}, ["topology spread"], id="spread"
        ),
        pytest.param(
            {"affinity": {"podAntiAffinity": {"x": 1}}},
            ["preferred pod affinity"],
            id="affinity",
        ),
        pytest.param({"affinity": {"nodeAffinity": {}}}, [], id="node affinity"),
        pytest.param({"volumes": VOLUMES}, ["volumes (c)"], id="volumes"),
        pytest.param({"volumes": [{"name": "v", "emptyDir": {}}]}, [], id="scratch"),
        pytest.param({"containers": PORTS}, [], id="ports"),
        pytest.param({"resourceClaims": [{}]}, ["resource claims"], id="claims"),
        pytest.param(
            {"volumes": 1, "affinity": None}, [], id="of the wrong type is no matter"
        ),
    ],
)
def test_what_is_not_modelled_is_said_of_pods_that_use_it(
    spec: dict[str, Any], named: list[str]
) -> None:
    pod = make_pod(name="p", gpus=1, spec=spec)
    app = ExtenderApp(nodes=[make_node(name="a", gpus=8)], pods=[pod])

    written, seen = post(app, pod), get(app, "namespace=default&pod=p")

    assert written.json["notModelled"] == [*named, "quota"]
    assert seen.json["notModelled"] == written.json["notModelled"]


def test_quotas_are_said_apart_from_what_the_pod_asks() -> None:
    pod = make_pod(name="p", gpus=1, spec={"volumes": VOLUMES})
    app = ExtenderApp(nodes=[make_node(name="a", gpus=8)], pods=[pod])
    accept = {"Accept": "text/plain"}

    written = app.client.simulate_post(
        "/explain", body=json.dumps(pod).encode(), headers=accept
    ).text
    seen = app.client.simulate_get(
        "/explain", query_string="namespace=default&pod=p", headers=accept
    ).text

    asked = "\nNot modelled, and asked by this pod: volumes (c)\n"
    assert f"{asked}Not looked at here: quotas\n" in written
    assert asked in seen
    assert "quota" not in seen


def explain_app(
    app: ExtenderApp, admit: Admit, begun: Callable[[], int] = lambda: 0
) -> falcon.testing.TestClient:
    """Return the route over the cluster of `app`, with a webhook of the test's own."""
    options = build_verb_options(make_settings())
    resource = ExplainResource(
        app.cell,
        lambda: options,
        LastAnswers(),
        lambda *_: {},
        lambda: None,
        admit=admit,
        begun=begun,
    )
    routes: falcon.App[falcon.Request, falcon.Response] = falcon.App()
    routes.add_route("/explain", resource)
    return falcon.testing.TestClient(routes)


def test_neighbours_are_looked_at_alike_over_get_and_post() -> None:
    def container(**resources: Any) -> Tree:
        ports = [{"containerPort": 1, "hostPort": 80}]
        return {"name": "c", "ports": ports, "resources": resources}

    term = {"labelSelector": {"matchLabels": {"x": "y"}}, "topologyKey": "zone"}
    required = "requiredDuringSchedulingIgnoredDuringExecution"
    affinity = {"podAntiAffinity": {required: [term]}}
    pods = [
        make_pod(name="p", labels={"x": "y"}, containers=[container(limits={GPU: 1})]),
        make_pod(name="serves", node_name="a", containers=[container()]),
        make_pod(name="repels", node_name="b", spec={"affinity": affinity}),
    ]
    nodes = [
        make_node(name="a", gpus=8),
        *(make_node(name=name, gpus=8, labels={"zone": "z"}) for name in "bc"),
    ]
    app = ExtenderApp(nodes=nodes, pods=pods)

    answers = [
        get(app, "namespace=default&pod=p").json,
        post(app, {**pods[0], "metadata": {"name": "p", "labels": {"x": "y"}}}).json,
    ]

    for summary in (answer["summary"] for answer in answers):
        assert summary["sentence"] == (
            "No node fits: 2 have a pod near that keeps away pods with x=y, by zone"
            " (default/repels), 1 has the host port 80 in use (by default/serves)"
        )
        assert summary["schedulerReasons"] == {
            "node(s) didn't have free ports for the requested pod ports": 1,
            "node(s) didn't satisfy existing pods anti-affinity rules": 2,
        }


def test_of_three_explanations_at_once_the_last_is_503_with_a_sentence(
    small: ExtenderApp,
) -> None:
    begun, go_on = threading.Semaphore(0), threading.Event()

    def admit(template: PodTemplate) -> ReviewedPod:
        begun.release()
        assert go_on.wait(10)
        return ReviewedPod(template.tree)

    client = explain_app(small, admit)
    yet_to_be_created = {**make_pod(gpus=1), "metadata": {"name": "p"}}
    body = json.dumps(yet_to_be_created).encode()
    with ThreadPoolExecutor(2) as pool:
        asked = [
            pool.submit(client.simulate_post, "/explain", body=body) for _ in range(2)
        ]
        assert begun.acquire(timeout=10)
        assert begun.acquire(timeout=10)
        third = client.simulate_post("/explain", body=body)
        go_on.set()
        statuses = [answer.result().status_code for answer in asked]
    fourth = client.simulate_post("/explain", body=body)

    assert statuses == [200, 200]
    assert third.status_code == 503
    assert third.json["description"].startswith("2 explanations are under way")
    assert fourth.status_code == 200


def test_an_explanation_rests_while_the_verbs_are_called(
    small: ExtenderApp, monkeypatch: pytest.MonkeyPatch
) -> None:
    rests: list[float] = []
    monkeypatch.setattr("extender.explain.http.time.sleep", rests.append)
    numbers = itertools.count()

    quiet = explain_app(small, lambda template: ReviewedPod(template.tree))
    busy = explain_app(
        small, lambda template: ReviewedPod(template.tree), lambda: next(numbers)
    )

    for client, is_resting in ((quiet, False), (busy, True)):
        answer = client.simulate_get(
            "/explain", query_string="namespace=ml&pod=waiting"
        )
        assert answer.status_code == 200
        assert bool(rests) == is_resting
    assert set(rests) == {REST_SECONDS}
    assert sum(rests) < 0.5  # of the deadline of 0.8 s


def test_before_the_first_list_it_answers_503() -> None:
    app = ExtenderApp(is_synced=False)

    assert get(app, "namespace=a&pod=b").status_code == 503
    assert post(app, make_pod(gpus=1)).status_code == 503


@pytest.mark.usefixtures("root_logger_as_it_was")
def test_the_demo_cluster_is_explained_as_ever(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The table of a Deployment on the demo cluster.

    The totals: a100-01 is in use to 5/8, so 50 + 40 + 15 + 30 = 135; h100-02 to 4/8,
    so 50 + trunc(83 * 0.4) + 15 + 30 = 128; t4-01 to 1/4, so 50 + 16 + 15 + 15 = 96.
    Between 96 and 135, 128 is 32 * 100 // 39 = 82 hundredths, which round to 8.
    """
    manifest, demo = CONFIGS / "examples" / "train.yaml", CONFIGS / "demo-cluster.yaml"

    status = main(
        ["explain", "-f", str(manifest), "--cluster", str(demo), "-o", "wide"]
    )

    assert status == 0
    assert capsys.readouterr().out == TABLE.read_text()


@pytest.mark.usefixtures("root_logger_as_it_was")
def test_the_readme_shows_what_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    readme = (CONFIGS.parent / "README.md").read_text()
    ((command, shown),) = re.findall(
        r"gpu-extender explain (-f .*)\n\n```\n([^`]*)```", readme
    )

    main(["explain", *command.replace("configs/", f"{CONFIGS}/").split()])

    assert capsys.readouterr().out == shown


def test_the_page_of_the_plugin_shows_what_is_printed_of_a_pod_of_the_demo() -> None:
    page = (CONFIGS.parent / "docs" / "kubectl.md").read_text()
    (shown,) = re.findall(r"explain huge-0 -n research\n((?:    .*\n)+)", page)
    ledger = Ledger(LABEL_KEYS)
    for change in load_dump([CONFIGS / "demo-cluster.yaml"], BUILDER):
        ledger.apply(change)
    app = ExtenderApp(is_synced=False)
    app.cell.publish(ledger.build())

    printed = app.client.simulate_get(
        "/explain",
        query_string="namespace=research&pod=huge-0",
        headers={"Accept": "text/plain"},
    ).text

    begun, _, rest = textwrap.dedent(shown).partition("...\n")
    assert rest == ""
    assert printed.startswith(begun)
