"""The real process: start, faulty starts, reload, overload by idlers, drain."""

import http.client
import json
import signal
import socket
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final

import pytest

from tests.builders import make_node, make_pod
from tests.service_process import (
    DEADLINE_SECONDS,
    ServiceProcess,
    exchange,
    run_command,
    wait_until,
)

FILTER: Final = "/scheduler/filter"
PRIORITIZE: Final = "/scheduler/prioritize"
QUESTION: Final = json.dumps(
    {"Pod": make_pod(gpus=2), "Nodes": None, "NodeNames": ["a", "b"]}
).encode()


def write_dump(path: Path, *items: dict[str, Any]) -> None:
    """Put a dump in the place of `path` at once, as a careful writer does."""
    draft = path.with_suffix(".new")
    draft.write_text(json.dumps({"kind": "List", "items": list(items)}))
    draft.replace(path)


def file_config(**more: Any) -> dict[str, Any]:
    """Return a configuration over ``dump.json``, looked at often."""
    cluster = {"source": "file", "files": ["dump.json"], "pollSeconds": 0.05}
    return {"cluster": cluster, **more}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with a dump of two nodes of 4 GPUs, of which b has 3 in use."""
    write_dump(
        tmp_path / "dump.json",
        make_node(name="a", gpus=4),
        make_node(name="b", gpus=4),
        make_pod(name="holder", gpus=3, node_name="b"),
    )
    return tmp_path


@pytest.fixture
def service(folder: Path) -> Iterator[ServiceProcess]:
    """Run the process over the dump."""
    with ServiceProcess(folder, file_config()) as running:
        running.wait_ready()
        yield running


def fitting(service: ServiceProcess) -> list[str]:
    """Return which of the nodes a and b the process lets pass."""
    names: list[str] = service.request("POST", FILTER, QUESTION).json()["NodeNames"]
    return names


def scores(service: ServiceProcess) -> list[int]:
    """Return the scores of the nodes a and b."""
    answer = service.request("POST", PRIORITIZE, QUESTION).json()
    return [entry["Score"] for entry in answer]


# --- start and pages ---------------------------------------------------------


def test_it_serves_every_page(service: ServiceProcess) -> None:
    pages = ["/healthz", "/readyz", "/readyz/extender", "/metrics", "/cluster"]

    assert [service.get(page).status for page in pages] == [200] * len(pages)
    assert fitting(service) == ["a"]
    assert service.metric("gpu_extender_cache_synced") == 1
    assert service.metric('gpu_extender_cache_objects{kind="nodes"}') == 2
    assert service.metric('gpu_extender_config_reload_ok{file="cluster"}') == 1


def test_examples_are_printed_on_request(folder: Path) -> None:
    with ServiceProcess(folder, file_config(), ["--examples"]) as service:
        wait_until(lambda: "Ctrl-C" in service.stdout, "the examples are printed")

        base = f"http://127.0.0.1:{service.port}"
        assert f"curl -s -d @{folder}/examples/filter.json {base}{FILTER}" in (
            service.stdout
        )


def test_each_request_is_logged_at_debug_with_the_callers_id(folder: Path) -> None:
    config = file_config(logging={"level": "debug"})
    with ServiceProcess(folder, config) as service:
        service.wait_ready()

        service.request("POST", FILTER, QUESTION, {"X-Request-Id": "from-the-caller"})

        service.request("POST", PRIORITIZE, QUESTION)
        wait_until(lambda: len(service.logs("call answered")) == 2, "both are logged")
        first, second = service.logs("call answered")
        assert first["request_id"] == "from-the-caller"
        assert (first["verb"], first["candidates"], first["feasible"]) == (
            "filter",
            2,
            1,
        )
        assert (second["verb"], second["candidates"]) == ("prioritize", 2)
        assert second["request_id"] not in ("", "from-the-caller")


def test_the_name_localhost_is_listened_on(folder: Path) -> None:
    config = file_config(server={"host": "localhost"})
    with ServiceProcess(folder, config) as service:
        service.wait_ready()

        assert fitting(service) == ["a"]


# --- starts that fail --------------------------------------------------------


def test_a_faulty_configuration_ends_with_2_and_all_faults(tmp_path: Path) -> None:
    config = tmp_path / "faulty.yaml"
    config.write_text("server: {port: 99999, threads: eight}\nextra: 1\n")

    served, checked = (
        run_command("serve", "--config", str(config)),
        run_command("check-config", str(config)),
    )

    assert (served.returncode, checked.returncode) == (2, 2)
    assert served.stderr == checked.stderr
    assert served.stderr.startswith("faulty.yaml: ")
    for path in ("server.port", "server.threads", "extra"):
        assert f"\n  {path}: " in served.stderr


def test_a_faulty_dump_ends_with_2_and_all_faults(folder: Path) -> None:
    write_dump(folder / "dump.json", make_node(name="", gpus="1.2.3Gi"))
    config = folder / "config.yaml"
    config.write_text("cluster: {source: file, files: [dump.json]}\n")

    result = run_command("serve", "--config", str(config))

    assert result.returncode == 2
    assert "items[0].metadata.name: wanted text, got none" in result.stderr
    assert "quantity '1.2.3Gi': not a number with an optional suffix" in result.stderr
    assert "Traceback" not in result.stderr


def test_a_port_in_use_ends_with_1_and_says_so(folder: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        config = folder / "config.yaml"
        config.write_text(json.dumps(file_config(server={"port": port})))

        result = run_command("serve", "--config", str(config))

    assert result.returncode == 1
    assert (
        result.stderr == f"cannot listen on 127.0.0.1:{port}: Address already in use\n"
    )


# --- reload ------------------------------------------------------------------


def test_a_changed_dump_is_picked_up(folder: Path, service: ServiceProcess) -> None:
    generation = service.generation()

    write_dump(folder / "dump.json", make_node(name="b", gpus=4))

    wait_until(lambda: fitting(service) == ["b"], "the new dump is in use")
    assert service.generation() > generation
    assert service.metric('gpu_extender_cache_objects{kind="nodes"}') == 1


def test_a_broken_dump_keeps_the_last_good_state_until_it_is_mended(
    folder: Path, service: ServiceProcess
) -> None:
    generation = service.generation()
    reload_ok = 'gpu_extender_config_reload_ok{file="cluster"}'

    write_dump(folder / "dump.json", make_node(name="a", gpus="1.2.3Gi"))

    wait_until(lambda: service.metric(reload_ok) == 0, "the fault is noticed")
    (line,) = service.logs("file refused, the last good contents stay in use")
    assert line["file"] == "cluster"
    assert "status.allocatable['nvidia.com/gpu']: quantity '1.2.3Gi'" in line["faults"]
    assert service.generation() == generation
    assert fitting(service) == ["a"]
    assert service.get("/readyz/extender").status == 200

    write_dump(folder / "dump.json", make_node(name="b", gpus=2))

    wait_until(lambda: service.metric(reload_ok) == 1, "the mended dump is noticed")
    wait_until(lambda: fitting(service) == ["b"], "the mended dump is in use")


def test_a_removed_dump_keeps_the_last_good_state(
    folder: Path, service: ServiceProcess
) -> None:
    reload_ok = 'gpu_extender_config_reload_ok{file="cluster"}'

    (folder / "dump.json").unlink()

    wait_until(lambda: service.metric(reload_ok) == 0, "the loss is noticed")
    assert fitting(service) == ["a"]


def test_weights_are_reloaded_and_other_keys_want_a_restart(
    service: ServiceProcess,
) -> None:
    assert scores(service) == [0, 10]  # u 0 and 0.75
    settings = json.loads(json.dumps(file_config()))
    settings["server"] = {"port": 0, "drainSeconds": 0, "threads": 9}
    settings["scoring"] = {"weights": {"utilization": 0, "typeMatch": 100}}

    service.config.write_text(json.dumps(settings))

    wait_until(lambda: scores(service) == [10, 10], "the new weights are in use")
    (line,) = service.logs("settings changed that need a restart")
    assert line["keys"] == ["server"]


def test_a_faulty_configuration_keeps_the_last_good_one(
    service: ServiceProcess,
) -> None:
    reload_ok = 'gpu_extender_config_reload_ok{file="settings"}'
    good = service.config.read_text()

    service.config.write_text("scoring: {weights: {utilization: -1}}\n")

    wait_until(lambda: service.metric(reload_ok) == 0, "the fault is noticed")
    (line,) = service.logs("file refused, the last good contents stay in use")
    assert "scoring.weights.utilization: " in line["faults"]
    assert scores(service) == [0, 10]

    service.config.write_text(good)

    wait_until(lambda: service.metric(reload_ok) == 1, "the mended file is noticed")


# --- idle and slow clients ---------------------------------------------------


def test_idle_and_slow_clients_keep_nobody_waiting(service: ServiceProcess) -> None:
    head = b"POST /scheduler/filter HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\n"
    address = ("127.0.0.1", service.port)
    with ExitStack() as clients:
        for _ in range(150):
            idler = http.client.HTTPConnection(*address, timeout=DEADLINE_SECONDS)
            clients.callback(idler.close)
            assert exchange(idler, "GET", "/healthz").status == 200
        for _ in range(20):
            slow = clients.enter_context(socket.create_connection(address))
            slow.sendall(head + b"{")

        assert fitting(service) == ["a"]
        assert service.get("/readyz/extender").status == 200


# --- the end -----------------------------------------------------------------


def test_an_idle_process_ends_with_0_on_a_signal(folder: Path) -> None:
    for number in (signal.SIGTERM, signal.SIGINT):
        with ServiceProcess(folder, file_config()) as service:
            service.send(number)

            assert service.wait_stopped() == 0
            assert service.logs("server stopped")[0]["idle"] is True
            assert "Traceback" not in service.stderr


@pytest.mark.parametrize(
    "signals",
    [
        pytest.param([signal.SIGINT], id="an interrupt"),
        pytest.param([signal.SIGTERM, signal.SIGTERM], id="a second signal"),
    ],
)
def test_the_wait_for_clients_is_cut_short(
    folder: Path, signals: list[signal.Signals]
) -> None:
    config = file_config(server={"drainSeconds": 3600})
    with ServiceProcess(folder, config) as service:
        for number in signals:
            service.send(number)
            wait_until(lambda: bool(service.logs("draining started")), "it drains")

        assert service.wait_stopped() == 0


def test_while_draining_calls_are_served_and_told_to_close(folder: Path) -> None:
    config = file_config(server={"drainSeconds": 3600})
    with ServiceProcess(folder, config) as service:
        service.wait_ready()
        connection = service.connect()
        before = exchange(connection, "POST", FILTER, QUESTION)

        service.send(signal.SIGTERM)
        wait_until(lambda: service.get("/readyz").status == 503, "readiness is off")

        during = exchange(connection, "POST", FILTER, QUESTION)
        connection.close()
        assert "connection" not in before.headers
        assert (during.status, during.headers["connection"]) == (200, "close")
        assert during.body == before.body
        assert service.get("/readyz").body == b"draining"
        assert service.get("/readyz/extender").status == 503
        assert service.get("/healthz").status == 200


class Caller(threading.Thread):
    """A keep-alive client that honours ``Connection: close``.

    It calls until it is told to close, then some more on connections of their own.
    """

    def __init__(self, service: ServiceProcess) -> None:
        super().__init__(daemon=True)
        self._connection = service.connect()
        self.answered = 0
        self.failures: list[str] = []

    def run(self) -> None:
        """Make all calls."""
        while not self._is_told_to_close():
            pass
        for _ in range(10):
            self._connection.close()
            self._is_told_to_close()
        self._connection.close()

    def _is_told_to_close(self) -> bool:
        """Make one call."""
        try:
            answer = exchange(self._connection, "POST", FILTER, QUESTION)
        except OSError as error:
            self.failures.append(repr(error))
            return True
        if answer.status != 200:
            self.failures.append(str(answer.status))
        self.answered += 1
        return answer.headers.get("connection") == "close"


def test_a_drain_fails_no_call_of_busy_clients(folder: Path) -> None:
    config = file_config(server={"drainSeconds": 3600})
    with ServiceProcess(folder, config) as service:
        service.wait_ready()
        callers = [Caller(service) for _ in range(4)]
        for caller in callers:
            caller.start()
        wait_until(
            lambda: all(caller.answered for caller in callers), "all callers call"
        )

        service.send(signal.SIGTERM)
        for caller in callers:
            caller.join(DEADLINE_SECONDS)

        assert [caller.failures for caller in callers] == [[]] * 4
        service.send(signal.SIGTERM)
        assert service.wait_stopped() == 0


def test_a_call_under_way_is_answered_before_the_end(folder: Path) -> None:
    with ServiceProcess(folder, file_config()) as service:
        service.wait_ready()
        head = f"POST {FILTER} HTTP/1.1\r\nHost: x\r\nContent-Length: {len(QUESTION)}"
        with socket.create_connection(("127.0.0.1", service.port), 30) as client:
            client.sendall(f"{head}\r\n\r\n".encode() + QUESTION[:-1])
            wait_until(
                lambda: service.get("/healthz").status == 200, "the head has arrived"
            )

            service.send(signal.SIGTERM)
            wait_until(lambda: bool(service.logs("draining started")), "it drains")
            client.sendall(QUESTION[-1:])
            answer = b"".join(iter(lambda: client.recv(65_536), b""))

        assert answer.startswith(b"HTTP/1.1 200 OK\r\n")
        assert b'"NodeNames":["a"]' in answer
        assert service.wait_stopped() == 0


def test_a_call_that_never_ends_is_cut_after_a_while(folder: Path) -> None:
    config = file_config(server={"stopSeconds": 0.3})
    with ServiceProcess(folder, config) as service:
        with socket.create_connection(("127.0.0.1", service.port), 30) as client:
            client.sendall(b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\n{")
            assert service.get("/healthz").status == 200

            service.send(signal.SIGTERM)

            assert service.wait_stopped() == 0
        assert service.logs("server stopped")[0]["idle"] is False
