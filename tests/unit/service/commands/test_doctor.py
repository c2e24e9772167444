"""Faulty options of the command, and services that are none."""

import http.server
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from service.commands.cli import main
from service.commands.doctor import _NoPageError, read_page, render
from service.doctor.page import Finding, Page, Unchecked
from tests.doctor import NOW, make_facts


@contextmanager
def answering(status: int, body: bytes) -> Iterator[str]:
    """Answer every request in one way; yield the address."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Keep quiet."""

    server = http.server.HTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


PAGE: Any = {"findings": [], "unchecked": [], "facts": {}}


@pytest.mark.parametrize(
    ("status", "body", "what"),
    [
        pytest.param(404, b"", "is no gpu-extender of this command's", id="older"),
        pytest.param(200, b"<html>", "its page differs", id="another program"),
        pytest.param(200, b"", "its page differs", id="nothing"),
        pytest.param(200, b"\xff\xfe", "its page differs", id="bytes"),
        pytest.param(200, json.dumps(PAGE).encode(), "its page differs", id="no facts"),
        pytest.param(200, b'{"findings": 1}', "its page differs", id="other types"),
        pytest.param(503, b"", "is busy with other requests", id="busy"),
        pytest.param(500, b"x", "answers 500 for /doctor", id="a fault"),
        pytest.param(302, b"", "answers 302 for /doctor", id="somewhere else"),
    ],
)
def test_a_service_that_is_none_or_of_another_version_is_a_sentence(
    status: int, body: bytes, what: str
) -> None:
    with answering(status, body) as url, pytest.raises(_NoPageError) as caught:
        read_page(url)

    assert what in caught.value.finding.what
    assert url in caught.value.finding.what


def test_a_page_of_a_newer_version_may_say_more() -> None:
    page = Page((Finding("a", "b", "c", "d"),), (), make_facts())
    tree = json.loads(render(page, "json"))
    tree["facts"]["later"] = tree["later"] = tree["findings"][0]["later"] = [1]

    with answering(200, json.dumps(tree).encode()) as url:
        assert read_page(url) == page


@pytest.mark.parametrize(
    ("arguments", "fault"),
    [
        pytest.param(["--url", "ftp://x"], "--url: wanted a URL such as", id="ftp"),
        pytest.param(["--url", "127.0.0.1:8888"], "--url: wanted", id="no scheme"),
        pytest.param(["--url", "http://"], "--url: wanted", id="no host"),
        pytest.param(["--url", "http://a:b"], "--url: wanted", id="no port"),
        pytest.param(["--config", "ghost.yaml"], "ghost.yaml: 1 fault(s)", id="config"),
        pytest.param(["--scheduler-config", "ghost"], "ghost: no such file", id="file"),
        pytest.param(["--kubeconfig", "ghost"], "kubeconfig ", id="kubeconfig"),
    ],
)
def test_faulty_options_end_with_2(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    arguments: list[str],
    fault: str,
) -> None:
    monkeypatch.chdir(tmp_path)

    status = main(["doctor", *arguments])

    printed = capsys.readouterr()
    assert (status, printed.out) == (2, "")
    assert printed.err.startswith(fault)


@pytest.mark.parametrize(
    ("source", "is_told"),
    [
        pytest.param("kubernetes", True, id="of a cluster"),
        pytest.param("file", False, id="of a demo, where nothing else is to be read"),
    ],
)
def test_a_service_is_examined_without_a_kubeconfig(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    source: str,
    is_told: bool,
) -> None:
    ghost = str(tmp_path / "ghost")
    monkeypatch.setattr(
        "kubernetes.config.kube_config.KUBE_CONFIG_DEFAULT_LOCATION", ghost
    )
    page = Page((), (), make_facts(source=source))

    with answering(200, render(page, "json").encode()) as url:
        status = main(["doctor", "--url", url])

    printed = capsys.readouterr()
    assert (status, printed.err) == (0, "")
    assert printed.out.startswith("No fault found.\n")
    told = f"\n- what your own rights show: kubeconfig {ghost}: there is no such file"
    assert (told in printed.out.replace("\n  ", " ")) == is_told


def test_several_faults_are_numbered_and_no_line_is_longer_than_100() -> None:
    long = Finding("rights", "what " * 40, "why\x1b[31m " * 30, "do " * 50)
    page = Page((long, long), (Unchecked("clock", "because " * 30),), make_facts())

    text = render(page, "text")

    lines = text.splitlines()
    assert lines[0] == "2 faults found."
    assert max(map(len, lines)) <= 100
    assert [line for line in lines if line.startswith("2. rights: what")]
    assert "\x1b" not in text


def test_nothing_found_is_said_first() -> None:
    assert render(Page((), (), make_facts()), "text") == "No fault found.\n"


def test_what_the_service_has_seen_comes_last() -> None:
    facts = make_facts(
        version="1.2.3",
        nodes=1000,
        nodes_offered=420,
        filter_calls=12,
        called_bindings=10,
        uncalled_bindings=1,
        token_ends_seconds=NOW,
    )

    text = " ".join(render(Page((), (), facts), "text").split())

    assert text == (
        "No fault found. gpu-extender 1.2.3 on host-1: 1000 nodes; 12 filter calls; up"
        " to 420 nodes (42 %) in one of the last; 10 GPU pods bound after a call, 1"
        " without; certificate until 2027-04-24T08:00:00Z; token until"
        " 2027-01-15T08:00:00Z."
    )
