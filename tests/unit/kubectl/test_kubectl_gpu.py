"""`kubectl gpu` with stand-ins for kubectl and for the service."""

import ast
import doctest
import io
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from tests.kubectl_gpu import (
    SCRIPT,
    KubectlStandIn,
    Reply,
    load_script,
    make_replica,
    serving,
)

gpu: Final = load_script()

TEXT: Final = {"Content-Type": "text/plain", "Gpu-Extender-Fits": "false"}
SAID: Final = b"No node fits: 2 are full.\n"
GPU_NODE: Final = {
    "name": "n1",
    "type": "H100-SXM5-80GB",
    "schedulable": True,
    "gpusReady": True,
    "failing": False,
    "resources": {
        "cpu": {"allocatable": 64_000, "requested": 0, "free": 64_000},
        "nvidia.com/gpu": {
            "allocatable": 8,
            "requested": 6,
            "free": 2,
            "unit": "gpu",
        },
    },
}
POD: Final = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"name": "train", "namespace": "ml"},
    "spec": {"containers": [{"name": "c"}]},
}


class FakeService:
    """Pages by path; what was asked is kept."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, bytes]] = []
        self.pages: dict[str, Reply] = {
            "/explain": (200, TEXT, SAID),
            "/cluster": self.json(page_of(GPU_NODE)),
            "/doctor": self.json({"findings": [], "unchecked": [], "facts": {}}),
        }
        self.url = ""

    @staticmethod
    def json(tree: Any, status: int = 200) -> Reply:
        return status, {"Content-Type": "application/json"}, json.dumps(tree).encode()

    def fail(self, path: str, status: int, description: str = "") -> None:
        tree = {"title": str(status)}
        if description:
            tree["description"] = description
        self.pages[path] = self.json(tree, status)

    def reply(self, path: str, body: bytes) -> Reply:
        self.asked.append((path, body))
        return self.pages.get(path) or self.pages.get(
            path.partition("?")[0], self.json({"title": "404 Not Found"}, 404)
        )


def page_of(*nodes: Any, after: str | None = None) -> dict[str, Any]:
    return {
        "nodeCount": len(nodes),
        "pendingPods": 3,
        "ageSeconds": 0.4,
        "nodes": list(nodes),
        "continue": after,
    }


@pytest.fixture
def service() -> Iterator[FakeService]:
    """A service that answers."""
    fake = FakeService()
    with serving(fake.reply) as url:
        fake.url = url
        yield fake


@pytest.fixture
def kubectl(
    service: FakeService, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> KubectlStandIn:
    """A cluster with two replicas, of which that on host-2 is beside the leader."""
    stand_in = KubectlStandIn(tmp_path)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    monkeypatch.delenv("KUBECTL", raising=False)
    pods = [make_replica("ge-a", "host-1"), make_replica("ge-b", "host-2")]
    stand_in.answer("get pods -l", {"items": pods})
    stand_in.answer("get lease", {"spec": {"holderIdentity": "host-2_5f0c"}})
    port = service.url.rpartition(":")[2]
    stand_in.answer("port-forward", f"Forwarding from 127.0.0.1:{port} -> 8888\n")
    context = {"context": {"namespace": "research"}}
    stand_in.answer("config view", {"contexts": [context]})
    return stand_in


Said = tuple[int, str, str]


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> Said:
    """Run a command; return its exit status and both outputs."""
    try:
        status = gpu.main(arguments)
    except SystemExit as end:
        status = int(end.code or 0)
    said = capsys.readouterr()
    return status, said.out, said.err


def test_a_pod_is_explained_by_the_replica_beside_the_leader(
    kubectl: KubectlStandIn, service: FakeService, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(capsys, "explain", "train") == (1, SAID.decode(), "")

    assert service.asked == [("/explain?namespace=research&pod=train", b"")]
    (forward,) = [words for words, _ in kubectl.calls() if "port-forward" in words]
    assert forward == [
        *("port-forward", "-n", "gpu-extender", "pod/ge-b"),
        *("--address", "127.0.0.1", ":8888"),
    ]


@pytest.mark.usefixtures("kubectl")
def test_a_pod_that_fits_ends_with_0(
    service: FakeService, capsys: pytest.CaptureFixture[str]
) -> None:
    service.pages["/explain"] = (200, {**TEXT, "Gpu-Extender-Fits": "true"}, b"Fits\n")

    assert run(capsys, "explain", "pod/train") == (0, "Fits\n", "")


def test_no_process_is_left(
    kubectl: KubectlStandIn, capsys: pytest.CaptureFixture[str]
) -> None:
    run(capsys, "explain", "train")

    assert "port-forward" in kubectl.calls()[-1][0]
    assert not kubectl.is_running()


@pytest.mark.parametrize(
    "arguments",
    [
        pytest.param(
            ["--context=c", "--as", "ann", "--kubeconfig=f", "-n", "x", "explain", "p"],
            id="before",
        ),
        pytest.param(
            ["explain", "-n", "x", "p", "--as=ann", "--kubeconfig", "f", "--context=c"],
            id="after",
        ),
    ],
)
def test_options_are_handed_on_to_kubectl(
    kubectl: KubectlStandIn,
    service: FakeService,
    capsys: pytest.CaptureFixture[str],
    arguments: list[str],
) -> None:
    run(capsys, *arguments)

    calls = [words for words, _ in kubectl.calls()]
    assert len(calls) == 3
    for words in calls:
        assert words[:3] == ["--context=c", "--kubeconfig=f", "--as=ann"]
    assert service.asked == [("/explain?namespace=x&pod=p", b"")]


def test_rows_are_asked_for(
    service: FakeService, capsys: pytest.CaptureFixture[str]
) -> None:
    more = ["--url", service.url, "-n", "x", "--nodes", "--node", "n", "--limit", "4"]

    run(capsys, "explain", "p", *more)

    query = "nodes=true&node=n&limit=4&namespace=x&pod=p"
    assert service.asked == [(f"/explain?{query}", b"")]


# Which replica is asked

LEASE: Final = "kube-system/kube-scheduler"


@pytest.mark.parametrize(
    ("pods", "holder", "name", "note"),
    [
        pytest.param(
            [make_replica("a", "h1"), make_replica("b", "h2")], "h2_1", "b", "", id="h2"
        ),
        pytest.param(
            [make_replica("a", "h1"), make_replica("b", "h2")], "b_1", "b", "", id="pod"
        ),
        pytest.param(
            [make_replica("a", "h1"), make_replica("b", "h2.example.com")],
            "h2_1",
            "b",
            "",
            id="a node by its whole name",
        ),
        pytest.param(
            [make_replica("a", "h1"), make_replica("b", "h2")],
            "h2.example.com_1",
            "b",
            "",
            id="a host by its whole name",
        ),
        pytest.param(
            [make_replica("a", "h1"), make_replica("b", "h1-x")],
            "h1_1",
            "a",
            "",
            id="=",
        ),
        pytest.param([make_replica("a", "h1")], "h9_1", "a", "", id="one is all"),
        pytest.param(
            [make_replica("a", "h1"), make_replica("b", "h2")],
            "h9_1",
            "a",
            "h9, which holds the Lease",
            id="none beside",
        ),
        pytest.param(
            [make_replica("a", "h1"), make_replica("b", "h2")],
            "",
            "a",
            "nobody holds",
            id="no leader",
        ),
        pytest.param(
            [make_replica("a", "h1", is_ready=False), make_replica("b", "h2")],
            "",
            "b",
            "nobody holds",
            id="the ready one",
        ),
        pytest.param(
            [make_replica("a", "h1", is_ready=False), make_replica("b", "h2")],
            "h1_1",
            "a",
            "a is not ready",
            id="beside, though not ready",
        ),
        pytest.param(
            [make_replica("a", "h1", is_going=True)],
            "h1_1",
            "a",
            "not ready",
            id="ends",
        ),
        pytest.param([make_replica("a", phase="Pending")], "", "", "", id="starts"),
        pytest.param([], "h1_1", "", "", id="none"),
        pytest.param([{}, {"status": "x"}, {"spec": 1}], "h1", "", "", id="no pods"),
    ],
)
def test_the_replica_beside_the_leader_is_chosen(
    pods: list[Mapping[str, Any]], holder: str, name: str, note: str
) -> None:
    chosen, told = gpu.choose_replica(pods, holder, LEASE, "")

    assert chosen == name
    assert note in told
    assert bool(note) == bool(told)


@pytest.mark.parametrize(
    ("own", "asked"),
    [
        pytest.param("ge-a_1", "ge-a", id="its own scheduler leads"),
        pytest.param("ge-gone_1", "ge-b", id="its holder is gone"),
        pytest.param(None, "ge-b", id="none of its own"),
    ],
)
def test_the_lease_of_a_scheduler_of_its_own_needs_no_option(
    kubectl: KubectlStandIn,
    capsys: pytest.CaptureFixture[str],
    own: str | None,
    asked: str,
) -> None:
    words = "get lease gpu-extender-scheduler -n gpu-extender"
    if own is None:
        kubectl.refuse(words, 'Error from server (NotFound): leases "x" not found')
    else:
        kubectl.answer(words, {"spec": {"holderIdentity": own}})
    kubectl.refuse("port-forward", FORBIDDEN)

    _, _, err = run(capsys, "nodes")

    assert err.startswith(f"You may not forward a port of gpu-extender/{asked}: ")


def test_a_note_on_the_replica_fits_a_terminal(
    kubectl: KubectlStandIn, capsys: pytest.CaptureFixture[str]
) -> None:
    kubectl.answer("get lease", {"spec": {"holderIdentity": ""}})

    _, _, err = run(capsys, "explain", "train")

    lease = "nobody holds the Lease gpu-extender/gpu-extender-scheduler"
    assert lease in " ".join(err.split())
    assert max(map(len, err.splitlines())) <= gpu.WIDTH


def test_a_lease_that_may_not_be_read_is_told_and_another_replica_asked(
    kubectl: KubectlStandIn, capsys: pytest.CaptureFixture[str]
) -> None:
    kubectl.refuse(
        "get lease", 'Error from server (Forbidden): leases "x" is forbidden'
    )

    status, out, err = run(capsys, "explain", "train")

    assert (status, out) == (1, SAID.decode())
    assert err.startswith("Note: ge-a is asked, one of 2 replicas: the Lease kube-")
    assert "is forbidden" in err


# Bad input: a sentence, never a trace

FORBIDDEN: Final = (
    'Error from server (Forbidden): pods "ge-b" is forbidden: User "ann" cannot create'
    ' resource "pods/portforward" in API group "" in the namespace "gpu-extender"\n'
)


def is_sentence(text: str) -> bool:
    """Whether a text is a sentence in one line."""
    return bool(re.fullmatch(r"[^\n]+\.\n", text)) and "Traceback" not in text


def test_no_right_to_forward_names_the_role(
    kubectl: KubectlStandIn, capsys: pytest.CaptureFixture[str]
) -> None:
    kubectl.refuse("port-forward", FORBIDDEN)

    status, out, err = run(capsys, "nodes")

    assert (status, out, is_sentence(err)) == (3, "", True)
    assert err.startswith("You may not forward a port of gpu-extender/ge-b: ")
    assert "deploy/kubectl/operator.yaml" in err


@pytest.mark.parametrize(
    ("words", "err", "said"),
    [
        pytest.param(
            "get pods -l",
            "Error from server (Forbidden): no",
            "cannot be list",
            id="list",
        ),
        pytest.param(
            "get pods -l",
            "Unable to connect to the server: x",
            "connect",
            id="no server",
        ),
        pytest.param("get pods -l", "", "does not say why", id="silent"),
        pytest.param(
            "port-forward", 'pods "ge-b" not found', "has just gone", id="replica gone"
        ),
        pytest.param(
            "port-forward", "error: lost connection", "cannot be forwarded", id="lost"
        ),
        pytest.param(
            "port-forward", "\x1b[31m\n\x00", "forwarded: ?[31m", id="escapes"
        ),
    ],
)
def test_what_kubectl_complains_of_is_a_sentence(
    kubectl: KubectlStandIn,
    capsys: pytest.CaptureFixture[str],
    words: str,
    err: str,
    said: str,
) -> None:
    kubectl.refuse(words, err)

    status, out, err = run(capsys, "nodes")

    assert (status, out, is_sentence(err)) == (3, "", True)
    assert said in err


def test_no_replica_names_what_to_say(
    kubectl: KubectlStandIn, capsys: pytest.CaptureFixture[str]
) -> None:
    kubectl.answer("get pods -l", {"items": []})

    status, _, err = run(capsys, "nodes", "--selector=a=b", "--service-namespace=x")

    assert (status, is_sentence(err)) == (3, True)
    assert err.startswith("No pod with the label a=b runs in namespace x")


def test_kubectl_that_is_missing_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("KUBECTL", raising=False)

    for command in (["nodes"], ["explain", "p"], ["explain", "-f", "-"], ["doctor"]):
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO()))
        status, out, err = run(capsys, *command)

        assert (status, out, is_sentence(err)) == (3, "", True)
        assert err.startswith("There is no kubectl on the PATH")


def test_without_kubectl_an_address_is_enough(
    service: FakeService,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))

    assert run(capsys, "explain", "p", "--url", service.url)[0] == 1
    assert service.asked == [("/explain?namespace=default&pod=p", b"")]


def in_places(*namespaces: str, **status: Any) -> dict[str, Any]:
    return {
        "items": [
            {"metadata": {"name": "train", "namespace": name}, "status": status}
            for name in namespaces
        ]
    }


@pytest.mark.parametrize(
    ("found", "said"),
    [
        pytest.param(
            in_places("a", "b"),
            "research has no pod train; a and b have one: say which with -n a",
            id="in two other namespaces",
        ),
        pytest.param(in_places("a"), "a has one: say which with -n a", id="in another"),
        pytest.param(
            in_places(*"abcdefg"), "a, b, c, d, e and 2 more have", id="in many"
        ),
        pytest.param(
            in_places(), "There is no pod research/train: it may have been", id="gone"
        ),
        pytest.param(
            in_places("research", "a", phase="Succeeded"), "has ended (Succ", id="ended"
        ),
        pytest.param(
            in_places("research", phase="Pending"), "asks for nothing", id="no GPU"
        ),
        pytest.param({"items": [1, {}]}, "no pod", id="odd"),
    ],
)
def test_a_pod_that_the_service_does_not_know_is_looked_for(
    kubectl: KubectlStandIn,
    service: FakeService,
    capsys: pytest.CaptureFixture[str],
    found: dict[str, Any],
    said: str,
) -> None:
    service.fail("/explain", 404, "no pod research/train among the pending pods")
    kubectl.answer("get pods -A", found)

    status, out, err = run(capsys, "explain", "train")

    assert (status, out, is_sentence(err)) == (2, "", True)
    assert said in err


def test_a_namespace_that_the_caller_may_not_look_into_is_told_all_the_same(
    kubectl: KubectlStandIn, service: FakeService, capsys: pytest.CaptureFixture[str]
) -> None:
    said = "no pod research/train among them; ml has one of that name"
    service.fail("/explain", 404, said)
    kubectl.refuse("get pods -A", "Error from server (Forbidden): no")
    kubectl.answer("get pods -n research --field-selector", {"items": []})

    status, _, err = run(capsys, "explain", "train")

    assert (status, err) == (2, f"{said}.\n")


def test_who_may_not_look_is_told_what_the_service_says(
    kubectl: KubectlStandIn, service: FakeService, capsys: pytest.CaptureFixture[str]
) -> None:
    service.fail("/explain", 404, "no pod research/train among the pending pods")
    kubectl.refuse("--field-selector", "Error from server (Forbidden): no")

    status, _, err = run(capsys, "explain", "train")

    assert (status, err) == (2, "no pod research/train among the pending pods.\n")


ODD_PAGES: Final = [
    pytest.param((404, {}, b""), id="no such page"),
    pytest.param((200, {}, b""), id="nothing"),
    pytest.param((200, {}, b"<html>"), id="a page of HTML"),
    pytest.param((200, {}, b"\xff\xfe"), id="bytes"),
    pytest.param((200, {}, b"[" * 100_000), id="too deep"),
    pytest.param((200, {}, b"1" * 5000), id="a number"),
    pytest.param((200, {}, b"null"), id="null"),
    pytest.param((200, {}, b"[]"), id="a list"),
    pytest.param((200, {}, b"{}"), id="an empty object"),
    pytest.param((200, {}, b'{"nodes": 1, "findings": {}}'), id="other types"),
    pytest.param((200, {}, b'{"nodes": [1], "findings": 1}'), id="other nodes"),
    pytest.param((200, {}, b'{"nodes": [{}], "summary": {}}'), id="empty nodes"),
]


@pytest.mark.parametrize("reply", ODD_PAGES)
@pytest.mark.parametrize("command", ["explain p", "nodes", "top", "doctor"])
def test_an_older_or_newer_service_is_told_as_such(
    service: FakeService,
    capsys: pytest.CaptureFixture[str],
    command: str,
    reply: Reply,
) -> None:
    path = {"explain p": "/explain", "doctor": "/doctor"}.get(command, "/cluster")
    service.pages[path] = reply

    status, out, err = run(capsys, *command.split(), "--url", service.url, "-n", "x")

    assert (status, out, is_sentence(err)) == (3, "", True)
    assert "is no gpu-extender of this command's version" in err


def test_a_service_that_explains_in_json_only_is_told_as_older(
    service: FakeService, capsys: pytest.CaptureFixture[str]
) -> None:
    page = {"summary": {"fits": True}}
    service.pages["/explain"] = service.json(page)
    where = ("--url", service.url, "-n", "x")

    assert "-o json prints" in run(capsys, "explain", "p", *where)[2]
    status, out, err = run(capsys, "explain", "p", "-o", "json", *where)
    assert (status, json.loads(out), err) == (0, page, "")


def test_a_service_without_types_is_told_as_older(
    service: FakeService, capsys: pytest.CaptureFixture[str]
) -> None:
    old = {"name": "n", "resources": {"nvidia.com/gpu": {"allocatable": 1}}}
    service.pages["/cluster"] = service.json(page_of(old))

    for command in ("nodes", "top"):
        status, out, err = run(capsys, command, "--url", service.url)
        assert (status, out, is_sentence(err)) == (3, "", True)


@pytest.mark.parametrize(
    ("status", "description", "exit_status", "said"),
    [
        pytest.param(503, "2 explanations are under way", 3, "under way", id="busy"),
        pytest.param(503, "", 3, "does not answer now", id="stops"),
        pytest.param(500, "", 3, "answers 500 for /explain", id="a fault"),
        pytest.param(400, "limit: too large", 2, "limit: too large", id="faulty"),
        pytest.param(404, "no node 'n' in the cache", 2, "no node 'n'", id="no node"),
        pytest.param(302, "", 3, "answers 302", id="somewhere else"),
    ],
)
def test_a_refusal_is_a_sentence(  # noqa: PLR0913, PLR0917 - columns of the table
    service: FakeService,
    capsys: pytest.CaptureFixture[str],
    status: int,
    description: str,
    exit_status: int,
    said: str,
) -> None:
    service.fail("/explain", status, description)

    got, out, err = run(capsys, "explain", "p", "--url", service.url, "-n", "x")

    assert (got, out, is_sentence(err)) == (exit_status, "", True)
    assert said in err


def test_nobody_at_an_address_is_a_sentence(
    capsys: pytest.CaptureFixture[str],
) -> None:
    status, out, err = run(capsys, "nodes", "--url", "http://127.0.0.1:1")

    assert (status, out, is_sentence(err)) == (3, "", True)
    assert "connection refused" in err


@pytest.mark.parametrize(
    "arguments",
    [
        pytest.param([], id="nothing"),
        pytest.param(["explain"], id="no pod"),
        pytest.param(["explain", "p", "-f", "x"], id="both"),
        pytest.param(["explain", "p", "--server-dry-run"], id="dry run of a pod"),
        pytest.param(["explain", "A_b"], id="no name"),
        pytest.param(["nodes", "--url", "x"], id="no address"),
        pytest.param(["nodes", "--url", "http://h:99999"], id="no port of one"),
        pytest.param(["nodes", "--url", "http://h/ x"], id="a space in one"),
        pytest.param(["nodes", "--port", "0"], id="no port"),
        pytest.param(["nodes", "--lease", "x"], id="no Lease"),
        pytest.param(["explain", "-f", "/nowhere"], id="no file"),
        pytest.param(["explain", "-f", "/bin/sh"], id="no text"),
        pytest.param(["top", "--interval", "x"], id="no interval"),
        pytest.param(["fly"], id="no command"),
    ],
)
def test_faulty_input_ends_with_2(
    capsys: pytest.CaptureFixture[str], arguments: list[str]
) -> None:
    status, out, err = run(capsys, *arguments)

    assert (status, out) == (2, "")
    assert "Traceback" not in err
    assert err


# Manifests


def test_a_manifest_is_read_by_kubectl_and_explained(
    kubectl: KubectlStandIn,
    service: FakeService,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
) -> None:
    job = {"kind": "Job", "spec": {"template": {"spec": {"containers": []}}}}
    plain = {"kind": "Service", "spec": {"ports": []}}
    kubectl.answer(
        "create --dry-run=client", "\n".join(map(json.dumps, (POD, plain, job)))
    )
    path = tmp_path / "pods.yaml"
    path.write_text("kind: Pod")

    status, out, err = run(capsys, "explain", "-f", str(path), "--as-is")

    assert (status, err) == (1, "")
    assert out == "\n".join([SAID.decode()] * 2)
    assert [path for path, _ in service.asked] == ["/explain?asIs=true"] * 2
    assert [json.loads(body) for _, body in service.asked] == [POD, job]
    assert kubectl.calls()[0][1] == "kind: Pod"


def test_a_manifest_may_be_admitted_by_the_api_server_first(
    kubectl: KubectlStandIn,
    service: FakeService,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
) -> None:
    template = {
        "metadata": {"labels": {"a": "b"}, "creationTimestamp": None},
        "spec": POD["spec"],
    }
    job = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": "train", "namespace": "ml"},
        "spec": {"template": template},
    }
    admitted = {**POD, "metadata": {"uid": "1"}}
    kubectl.answer("create --dry-run=client", job)
    kubectl.answer("create --dry-run=server", admitted)
    path = tmp_path / "job.json"
    path.write_text(json.dumps(job))

    run(capsys, "explain", "-f", str(path), "--server-dry-run")

    asked = [json.loads(text) for words, text in kubectl.calls() if "-f" in words]
    metadata = {"labels": {"a": "b"}, "generateName": "train-", "namespace": "ml"}
    assert asked[1] == {**POD, "metadata": metadata}
    assert service.asked[0][0] == "/explain?asIs=true"
    assert json.loads(service.asked[0][1]) == admitted


NOT_VALIDATED: Final = (
    'error: error validating "STDIN": error validating data: failed to download'
    ' openapi: Get "https://h/openapi/v2": dial tcp 10.0.0.1:443: connection refused;'
    " if you choose to ignore these errors, turn validation off with --validate=false"
)


@pytest.mark.parametrize(
    ("rule", "status", "said"),
    [
        pytest.param(
            ("--dry-run=client", "", "error: cannot restore slice from map", 1),
            2,
            "cannot restore slice from map",
            id="no manifest",
        ),
        pytest.param(
            (
                "--dry-run=server",
                "",
                "Error from server (Forbidden): exceeded quota",
                1,
            ),
            1,
            "The API server would refuse the pod: ",
            id="quota",
        ),
        pytest.param(
            (
                "--dry-run=client",
                "",
                NOT_VALIDATED,
                1,
            ),
            3,
            "is not reached: error validating",
            id="no API server",
        ),
        pytest.param(
            (
                "--dry-run=server",
                "",
                "Unable to connect to the server: dial tcp: lookup h: no such host",
                1,
            ),
            3,
            "The API server is not reached: Unable to connect",
            id="no API server any more",
        ),
        pytest.param(
            (
                "--dry-run=server",
                "",
                "Error from server: failed calling webhook: dial tcp: refused",
                1,
            ),
            1,
            "The API server would refuse the pod: ",
            id="no webhook",
        ),
        pytest.param(("--dry-run=client", "{}", "", 0), 2, "wanted a Pod", id="no pod"),
        pytest.param(("--dry-run=client", "", "", 0), 2, "wanted a Pod", id="nothing"),
        pytest.param(("--dry-run=client", "[1]", "", 0), 2, "an object", id="a list"),
        pytest.param(("--dry-run=client", "pod/x", "", 0), 2, "Expecting", id="a line"),
        pytest.param(
            ("--dry-run=server", "x", "", 0), 3, "prints no pod", id="no JSON"
        ),
    ],
)
def test_a_manifest_that_is_of_no_use_is_a_sentence(  # noqa: PLR0913, PLR0917 - as above
    kubectl: KubectlStandIn,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    rule: tuple[str, str, str, int],
    status: int,
    said: str,
) -> None:
    kubectl.answer("create --dry-run=client", POD)
    kubectl.answer(*rule)
    path = tmp_path / "pod.yaml"
    path.write_text("x")

    got, out, err = run(capsys, "explain", "-f", str(path), "--server-dry-run")

    assert (got, out, is_sentence(err)) == (status, "", True)
    assert said in err
    assert "--validate" not in err


@pytest.mark.parametrize(
    "sample", sorted(p.name for p in (SCRIPT.parents[1] / "samples").glob("*.yaml"))
)
def test_pods_are_found_in_every_kind(sample: str) -> None:
    text = (SCRIPT.parents[1] / "samples" / sample).read_text()
    trees = [tree for tree in yaml.safe_load_all(text) if tree]
    pods = [pod for tree in trees for pod in gpu.pods_in(tree)]

    assert bool(pods) == ("containers:" in text)
    for pod in pods:
        assert pod["spec"]["containers"]
        assert pod["metadata"].get("name") or pod["metadata"]["generateName"]


# Nodes


def test_nodes_are_shown_by_type_and_by_name(
    service: FakeService, capsys: pytest.CaptureFixture[str]
) -> None:
    mig = {
        **GPU_NODE,
        "name": "n2",
        "failing": True,
        "schedulable": False,
        "resources": {
            f"nvidia.com/mig-{profile}": {
                "allocatable": 4,
                "requested": 1,
                "free": 3,
                "unit": "slice",
            }
            for profile in ("2g.20gb", "1g.10gb")
        },
    }
    service.pages["/cluster?limit=1000"] = service.json(page_of(GPU_NODE, after="n1"))
    service.pages["/cluster?limit=1000&continue=n1"] = service.json(page_of(mig))

    status, out, err = run(capsys, "nodes", "--url", service.url)

    assert (status, err) == (0, "")
    assert out.splitlines()[0] == (
        "2 of 1 nodes with GPUs, pending pods: 3, failing nodes: 1,"
        " API server last heard 0 s ago."
    )
    assert [line.split() for line in out.splitlines()[2:6]] == [
        ["TYPE", "RESOURCE", "UNIT", "NODES", "ALLOCATABLE", "USED", "FREE", "FAILING"],
        ["H100-SXM5-80GB", "nvidia.com/gpu", "gpu", "1", "8", "6", "2", "0"],
        ["H100-SXM5-80GB", "nvidia.com/mig-1g.10gb", "slice", "1", "4", "1", "3", "1"],
        ["H100-SXM5-80GB", "nvidia.com/mig-2g.20gb", "slice", "1", "4", "1", "3", "1"],
    ]
    assert [line.split()[0] for line in out.splitlines()[7:]] == [
        "NODE",
        "n1",
        "n2",
        "n2",
    ]
    assert out.endswith("failing, not schedulable\n")


@pytest.mark.parametrize("command", ["nodes", "top"])
@pytest.mark.parametrize(
    ("nodes", "said"),
    [
        pytest.param([], "The cluster has no nodes.\n", id="an empty cluster"),
        pytest.param(
            [{**GPU_NODE, "resources": {}}],
            "No node has a GPU, of 1 node.\n",
            id="none",
        ),
    ],
)
def test_a_cluster_without_gpus_is_a_sentence(
    service: FakeService,
    capsys: pytest.CaptureFixture[str],
    command: str,
    nodes: list[Any],
    said: str,
) -> None:
    service.pages["/cluster"] = service.json(page_of(*nodes))

    assert run(capsys, command, "--url", service.url) == (0, said, "")


def test_one_node_is_shown_alone(
    service: FakeService, capsys: pytest.CaptureFixture[str]
) -> None:
    status, out, _ = run(capsys, "nodes", "n1", "--url", service.url)

    assert status == 0
    assert [line.split()[0] for line in out.splitlines()] == ["NODE", "n1"]
    assert service.asked[0][0] == "/cluster?limit=1000&name=n1"


@pytest.mark.parametrize("size", [(80, 24), (20, 5), (1, 1), (400, 200)])
def test_the_live_screen_fits_the_terminal(size: tuple[int, int]) -> None:
    rows = [
        gpu.Row(f"n{i}", "T4", "nvidia.com/gpu", "gpu", 4, i % 5, 4 - i % 5, "ok")
        for i in range(500)
    ]
    cluster = gpu.Cluster(rows, 500, 0, None)

    lines = gpu.screen(cluster, os.terminal_size(size)).splitlines()

    assert len(lines) <= max(size[1] - 1, 1)
    assert max(map(len, lines)) <= size[0]


def test_the_live_view_goes_on_after_a_failure(
    service: FakeService,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    good, pauses = service.pages["/cluster"], 0

    def pause(_seconds: float) -> None:
        nonlocal pauses
        pauses += 1
        if pauses == 1:
            service.fail("/cluster", 503)
        elif pauses == 2:
            service.pages["/cluster"] = good
        else:
            raise KeyboardInterrupt

    monkeypatch.setattr(gpu.time, "sleep", pause)

    status, out, err = run(capsys, "top", "--url", service.url)

    assert (status, err) == (0, "")
    screens = out.split(gpu.CLEAR)[1:]
    assert [screen.split(maxsplit=1)[0] for screen in screens] == [
        "1",
        "gpu-extender",
        "1",
    ]
    assert "Trying again every 2 s" in screens[1]


# What is wrong


def test_findings_are_shown_as_the_command_of_the_service_does(
    service: FakeService, capsys: pytest.CaptureFixture[str]
) -> None:
    finding = {"check": "rights", "what": "It\x1b[2J may not.", "why": "W.", "do": "D."}
    page = {
        "findings": [finding],
        "unchecked": [{"check": "calls", "why": "no pod yet"}],
        "facts": {"version": "0.1.0"},
    }
    service.pages["/doctor"] = service.json(page)

    status, out, err = run(capsys, "doctor", "--url", service.url)

    assert (status, err) == (1, "")
    assert out.splitlines() == [
        *("1 fault found.", "", "1. rights: It?[2J may not.", "   W.", "   D.", ""),
        *("Not checked:", "- calls: no pod yet", ""),
        f"gpu-extender 0.1.0 on {service.url}.",
    ]


def test_a_sound_installation_ends_with_0(
    service: FakeService, capsys: pytest.CaptureFixture[str]
) -> None:
    status, out, _ = run(capsys, "doctor", "--url", service.url)

    assert (status, out.splitlines()[0]) == (0, "No fault found.")


LEASE_OF: Final = "/apis/coordination.k8s.io/v1/namespaces/{}/leases/{}"
REGISTERED: Final = (
    "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations/ge"
)
CALLED: Final = "/api/v1/namespaces/ns/services/hook"
SLICES: Final = (
    "/apis/discovery.k8s.io/v1/namespaces/ns/endpointslices"
    "?labelSelector=kubernetes.io%2Fservice-name%3Dhook"
)
FACTS: Final = {
    "source": "kubernetes",
    "schedulerLease": "kube-system/kube-scheduler",
    "electsIn": "ge-ns",
    "leaseName": "ge-lease",
    "registrationName": "ge",
}


def doctor_with(
    service: FakeService, capsys: pytest.CaptureFixture[str], **facts: Any
) -> Any:
    """Run the doctor of a service with such facts; return what it was sent."""
    page = {"findings": [], "unchecked": [], "facts": {**FACTS, **facts}}
    service.pages["/doctor"] = service.json(page)
    assert run(capsys, "doctor", "--url", service.url)[::2] == (0, "")
    assert service.asked[0] == ("/doctor", b"")
    return json.loads(service.asked[1][1]) if service.asked[1:] else None


def test_what_the_caller_may_read_is_sent_to_be_judged(
    kubectl: KubectlStandIn, service: FakeService, capsys: pytest.CaptureFixture[str]
) -> None:
    own, leader = (
        LEASE_OF.format("ge-ns", "ge-lease"),
        LEASE_OF.format("kube-system", "kube-scheduler"),
    )
    client = {"service": {"namespace": "ns", "name": "hook"}}
    registration = {"webhooks": [{"clientConfig": client}, {"clientConfig": {}}, 1]}
    kubectl.answer(f"get --raw {REGISTERED}", registration)
    kubectl.answer(f"get --raw {SLICES}", {"items": []})
    kubectl.answer(f"get --raw {leader}", {"spec": {}})
    kubectl.refuse(f"get --raw {own}", "Error from server (NotFound): none there\n")
    kubectl.refuse(f"get --raw {CALLED}", "Error from server (Forbidden): not you\n")

    assert doctor_with(service, capsys) == {
        "objects": {
            leader: {"spec": {}},
            own: None,
            REGISTERED: registration,
            SLICES: {"items": []},
        },
        "unread": {CALLED: "Error from server (Forbidden): not you"},
    }


def test_without_kubectl_what_was_not_read_is_told(
    service: FakeService,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("KUBECTL", raising=False)

    sent = doctor_with(service, capsys)

    assert sent["objects"] == {}
    assert set(sent["unread"].values()) == {
        "There is no kubectl on the PATH, which makes the connection"
    }


def test_an_object_that_is_none_is_not_sent(
    kubectl: KubectlStandIn, service: FakeService, capsys: pytest.CaptureFixture[str]
) -> None:
    kubectl.answer(f"get --raw {REGISTERED}", "<html>")

    sent = doctor_with(service, capsys, electsIn="", schedulerLease="")

    assert sent == {"objects": {}, "unread": {REGISTERED: "it is no JSON"}}


@pytest.mark.parametrize("name", ["../secrets/x", "a?watch", "-f", "", 1, None])
def test_nothing_else_is_read_for_a_service(
    kubectl: KubectlStandIn,
    service: FakeService,
    capsys: pytest.CaptureFixture[str],
    name: Any,
) -> None:
    sent = doctor_with(
        service,
        capsys,
        electsIn="gpu-extender",
        leaseName=name,
        registrationName=name,
        schedulerLease=f"{name}/{name}" if name else name,
    )

    assert sent == {"objects": {}, "unread": {}} or name in {1, None}
    assert not [words for words, _ in kubectl.calls() if ".." in words[-1]]


def test_a_service_over_files_is_sent_nothing(
    service: FakeService, capsys: pytest.CaptureFixture[str]
) -> None:
    assert doctor_with(service, capsys, source="file") is None


def test_the_file_of_kube_scheduler_is_sent_to_be_judged(
    service: FakeService, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "scheduler.yaml"
    path.write_text("kind: KubeSchedulerConfiguration\n")
    page = {"findings": [], "unchecked": [], "facts": {**FACTS, "source": "file"}}
    service.pages["/doctor"] = service.json(page)

    ended = run(capsys, "doctor", "--url", service.url, "--scheduler-config", str(path))
    missing = run(capsys, "doctor", "--url", service.url, "--scheduler-config", "ghost")

    assert ended[::2] == (0, "")
    assert json.loads(service.asked[1][1]) == {
        "objects": {},
        "schedulerConfig": {"name": str(path), "text": path.read_text()},
    }
    assert missing == (2, "", "ghost: No such file or directory.\n")


def test_a_service_that_takes_no_objects_is_of_another_version(
    kubectl: KubectlStandIn, service: FakeService, capsys: pytest.CaptureFixture[str]
) -> None:
    del kubectl
    page = {"findings": [], "unchecked": [], "facts": {"source": "kubernetes"}}
    replies = [service.json(page), service.json({"title": "405"}, 405)]

    def reply(*_: Any) -> Reply:
        return replies.pop(0)

    with serving(reply) as url:
        status, out, err = run(capsys, "doctor", "--url", url)

    assert (status, out) == (3, "")
    assert "its /doctor takes no objects" in err


# Completion, and the file itself


def completed(capsys: pytest.CaptureFixture[str], *arguments: str) -> list[str]:
    assert gpu.complete(arguments) == 0
    return capsys.readouterr().out.splitlines()


def test_command_lines_are_completed(
    kubectl: KubectlStandIn, capsys: pytest.CaptureFixture[str]
) -> None:
    kubectl.answer("get pods -n ml -o name", "pod/train-0\npod/train-1\npod/web\n")

    assert completed(capsys, "") == ["doctor", "explain", "nodes", "top", ":4"]
    assert completed(capsys, "-n", "ml", "explain", "tr") == [
        "train-0",
        "train-1",
        ":4",
    ]
    assert completed(capsys, "explain", "-f", "") == [":0"]
    assert completed(capsys, "explain", "--se") == [
        *("--selector", "--server-dry-run", "--service-namespace", ":4"),
    ]
    assert completed(capsys) == ["doctor", "explain", "nodes", "top", ":4"]
    kubectl.refuse("get pods -n ml -o name", "no")
    assert completed(capsys, "-n", "ml", "explain", "") == [":4"]


def test_the_link_completes() -> None:
    link = SCRIPT.with_name("kubectl_complete-gpu")

    assert os.readlink(link) == SCRIPT.name  # noqa: PTH115
    done = subprocess.run(  # noqa: S603 - our own command
        [link, "ex"], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "explain\n:4\n", "")


def test_the_file_is_for_python_3_9_and_imports_nothing_else() -> None:
    tree = ast.parse(SCRIPT.read_text(), feature_version=(3, 9))

    names = {
        name
        for node in ast.walk(tree)
        for name in (
            [alias.name for alias in node.names]
            if isinstance(node, ast.Import)
            else [node.module or ""]
            if isinstance(node, ast.ImportFrom)
            else []
        )
    }
    assert {name.partition(".")[0] for name in names} <= sys.stdlib_module_names
    assert SCRIPT.stat().st_mode & 0o111


def test_its_examples_are_right() -> None:
    assert doctest.testmod(gpu).failed == 0
