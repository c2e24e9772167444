"""Commands that do not reach a cluster: one sentence, no log lines, exit status 3."""

import json
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from service.commands import inputs
from service.commands.cli import main
from tests.builders import make_node, make_pod
from tests.certificates import write_pair
from tests.fakes.api_http import Held, Status
from tests.fakes.api_server import FakeApiServer
from tests.https_listener import Listener
from tests.service_process import run_command

GPU_POD: Final = make_pod(name="p", gpus=1)


def write_kubeconfig(folder: Path, server: str, **cluster: Any) -> Path:
    path = folder / "kubeconfig"
    entry = {"name": "a", "cluster": {"server": server, **cluster}}
    context = {"name": "a", "context": {"cluster": "a", "user": "a"}}
    tree = {"current-context": "a", "contexts": [context], "clusters": [entry]}
    path.write_text(yaml.safe_dump({**tree, "users": [{"name": "a", "user": {}}]}))
    return path


def write_pod(folder: Path) -> str:
    """Write a manifest and return its path."""
    path = folder / "pod.yaml"
    path.write_text(yaml.safe_dump(GPU_POD))
    return str(path)


@pytest.fixture
def pod(tmp_path: Path) -> str:
    """A manifest."""
    return write_pod(tmp_path)


def explain(pod: str, kubeconfig: Path) -> int:
    return main(["explain", "-f", pod, "--kubeconfig", str(kubeconfig)])


def said_by(capsys: pytest.CaptureFixture[str]) -> str:
    """Return the one sentence that a command has said, without its end of line."""
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.count("\n") == 1, printed.err
    return printed.err.rstrip("\n")


pytestmark = pytest.mark.usefixtures("root_logger_as_it_was")


def test_where_nobody_listens_one_sentence_says_so(
    pod: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = write_kubeconfig(tmp_path, "http://127.0.0.1:1")

    assert explain(pod, path) == 3

    assert said_by(capsys) == (
        "cluster: http://127.0.0.1:1 cannot be reached: Connection refused;"
        " check the address in kubeconfig"
        f" {path}, and the way there"
    )


def test_a_name_that_nobody_knows_is_said(
    pod: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = write_kubeconfig(tmp_path, "https://ghost.invalid:6443")

    assert explain(pod, path) == 3

    assert "https://ghost.invalid:6443 " in said_by(capsys)


def test_a_server_that_takes_the_connection_and_is_silent_is_given_up(
    pod: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(inputs, "REACH_SECONDS", 0.3)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        path = write_kubeconfig(tmp_path, f"http://127.0.0.1:{port}")

        assert explain(pod, path) == 3

    assert said_by(capsys).startswith(
        f"cluster: http://127.0.0.1:{port} has not answered within 0.3 s; check"
    )


def test_within_four_seconds_something_is_said() -> None:
    # The process itself takes a moment to start: five seconds are promised.
    assert inputs.REACH_SECONDS <= 4


def refuse_nodes(api: FakeApiServer) -> None:
    api.script("list", "nodes", Status(403, "Forbidden"))


def refuse_pods(api: FakeApiServer) -> None:
    api.script("list", "pods", Status(403, "Forbidden"))


def fail(api: FakeApiServer) -> None:
    api.script("list", "pods", Status(500, "InternalError"))


def lack(api: FakeApiServer) -> None:
    api.script("list", "nodes", Status(404, "NotFound"))


def be_busy(api: FakeApiServer) -> None:
    api.script("list", "nodes", Status(429, "TooManyRequests", "1"))


def want_a_token(api: FakeApiServer) -> None:
    api.token = "another"  # noqa: S105  of a test


@pytest.mark.parametrize(
    ("break_it", "words"),
    [
        pytest.param(refuse_nodes, "forbids it: Forbidden; grant the right", id="403"),
        pytest.param(refuse_pods, "forbids it: Forbidden; grant", id="403 for pods"),
        pytest.param(
            want_a_token, "does not accept the credentials of kubeconfig", id="401"
        ),
        pytest.param(lack, "has no /api/v1/nodes: it is no Kubernetes", id="404"),
        pytest.param(fail, "answers 500 for /api/v1/pods: InternalErr", id="500"),
        pytest.param(be_busy, "answers 429 for /api/v1/nodes: TooMany", id="429"),
    ],
)
def test_an_api_server_that_refuses_is_quoted_in_one_sentence(
    api: FakeApiServer,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    break_it: Callable[[FakeApiServer], None],
    words: str,
) -> None:
    path = api.kubeconfig(tmp_path)
    break_it(api)

    assert explain(write_pod(tmp_path), path) == 3

    said = said_by(capsys)
    assert said.startswith(f"cluster: {api.url} {words}"), said


def test_a_certificate_that_the_kubeconfig_does_not_trust_is_said(
    pod: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    other = tmp_path / "other"
    other.mkdir()
    authority, _ = write_pair(other)
    listener = Listener(tmp_path)
    try:
        server = f"https://127.0.0.1:{listener.server.port}"
        path = write_kubeconfig(
            tmp_path, server, **{"certificate-authority": str(authority)}
        )

        assert explain(pod, path) == 3
    finally:
        listener.stop()

    said = said_by(capsys)
    assert "certificate verify failed" in said
    assert "_ssl.c" not in said


def test_a_list_that_breaks_off_later_is_given_up(
    api: FakeApiServer,
    pod: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(inputs, "GIVE_UP_SECONDS", 0.0)
    hold = Held()
    hold.release.set()
    refusals = [Status(500)] * 100
    api.script("list", "pods", hold, *refusals)  # the first is the small question

    assert explain(pod, api.kubeconfig(tmp_path)) == 3

    assert said_by(capsys) == (
        f"cluster: pods could not be read from {api.url}: http_500; try again"
    )


def test_a_faulty_manifest_is_told_without_asking_the_cluster(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = write_kubeconfig(tmp_path, "http://127.0.0.1:1")

    assert explain(str(tmp_path / "ghost.yaml"), path) == 2

    assert "ghost.yaml" in said_by(capsys)


def test_the_process_writes_no_log_lines_and_no_trace(
    api: FakeApiServer, pod: str, tmp_path: Path
) -> None:
    api.put(make_node(name="a", gpus=4))
    kubeconfig = str(api.kubeconfig(tmp_path))
    config = tmp_path / "config.yaml"
    config.write_text(json.dumps({"cluster": {"kubeconfig": kubeconfig}}))
    commands = [
        ["explain", "-f", pod, "--kubeconfig", kubeconfig],
        ["scheduler-config", "--config", str(config)],
    ]

    good = [run_command(*command) for command in commands]
    api.refuse()
    bad = [run_command(*command) for command in commands]

    assert [result.returncode for result in good + bad] == [0, 0, 3, 3]
    assert [result.stderr for result in good] == ["", ""]
    for result in bad:
        assert result.stderr.startswith(f"cluster: {api.url} cannot be reached: ")
        assert result.stderr.count("\n") == 1
