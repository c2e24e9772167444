"""The real process: what it serves, starts that fail, idle and slow clients."""

import http.client
import json
import os
import shutil
import signal
import socket
import subprocess
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Final

import pytest

from service.http.middleware import EXPLAIN_PATH as EXPLAIN
from service.http.middleware import PREEMPT_PATH as PREEMPT
from tests.api.two_nodes import (
    FILTER,
    PRIORITIZE,
    QUESTION,
    file_config,
    fitting,
    write_dump,
)
from tests.builders import make_node
from tests.service_process import (
    DEADLINE_SECONDS,
    ROOT,
    ServiceProcess,
    exchange,
    run_command,
    wait_until,
)


def resident_mebibytes(pid: int) -> float:
    """Return how much memory a process holds."""
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20


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


def test_a_port_of_the_command_line_goes_before_the_configured_one(
    folder: Path,
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        config = file_config(server={"port": taken.getsockname()[1]})
        with ServiceProcess(folder, config, ["--port", "0"]) as service:
            service.wait_ready()
            settings = json.loads(json.dumps(config))
            settings["scoring"] = {"weights": {"utilization": 0, "typeMatch": 100}}
            settings["server"] = {**settings["server"], "drainSeconds": 0}
            service.config.write_text(json.dumps(settings))
            wait_until(lambda: len(service.logs("file reloaded")) > 0, "it is reloaded")

            assert service.logs("settings changed that need a restart") == []
            assert fitting(service) == ["a"]


def test_a_giant_request_id_is_cut(folder: Path) -> None:
    config = file_config(logging={"level": "debug"})
    with ServiceProcess(folder, config) as service:
        service.wait_ready()

        answer = service.request(
            "POST", FILTER, QUESTION, {"X-Request-Id": "long" * 50_000}
        )

        assert answer.status == 200
        wait_until(lambda: bool(service.logs("call answered")), "it is logged")
        assert service.logs("call answered")[0]["request_id"] == "long" * 32


def test_sighup_has_the_settings_read_again(folder: Path) -> None:
    config = file_config()
    config["cluster"]["pollSeconds"] = 3600
    with ServiceProcess(folder, config) as service:
        service.wait_ready()
        assert fitting(service) == ["a"]
        write_dump(folder / "dump.json", make_node(name="b", gpus=4))

        service.send(signal.SIGHUP)

        wait_until(lambda: fitting(service) == ["b"], "the cluster is read again")
        service.send(signal.SIGHUP)
        wait_until(
            lambda: (
                [line["file"] for line in service.logs("file reloaded")].count(
                    "cluster"
                )
                == 2
            ),
            "it is read again, changed or not",
        )
        assert service.process.poll() is None


def test_make_run_takes_a_port() -> None:
    make = shutil.which("make")
    assert make is not None
    # What a `make` around the tests hands on would change what this one prints.
    env = {name: value for name, value in os.environ.items() if "MAKE" not in name}
    commands = [
        subprocess.run(  # noqa: S603  prints what it would run
            [make, "--dry-run", "run", *port],
            cwd=ROOT,
            env=env,
            capture_output=True,
            text=True,
            check=True,
        ).stdout.splitlines()[-1]
        for port in ([], ["PORT=9000"])
    ]

    serve = ".venv/bin/gpu-extender serve --config configs/demo.yaml --examples"
    assert [command.rstrip() for command in commands] == [serve, f"{serve} --port 9000"]


# --- starts that fail --------------------------------------------------------


def test_a_faulty_configuration_ends_with_2_and_all_faults(tmp_path: Path) -> None:
    config = tmp_path / "faulty.yaml"
    config.write_text("server: {port: 99999, maxInFlight: eight}\nextra: 1\n")

    served, checked = (
        run_command("serve", "--config", str(config)),
        run_command("check-config", str(config)),
    )

    assert (served.returncode, checked.returncode) == (2, 2)
    assert served.stderr == checked.stderr
    assert served.stderr.startswith("faulty.yaml: ")
    for path in ("server.port", "server.maxInFlight", "extra"):
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
    assert result.stderr == (
        f"cannot listen on 127.0.0.1:{port}: Address already in use;"
        " server.port, webhook.port, or --port choose another\n"
    )


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


# path, body, status
GIANTS: Final = (
    (
        FILTER,
        b'{"Pod":{},"Nodes":null,"NodeNames":["n"%b]}' % (b',"node-123"' * 3_000_000),
        413,
    ),
    (PRIORITIZE, b'{"pod":{},"nodenames":["n"%b]}' % (b',"n-1"' * 3_000_000), 413),
    (
        FILTER,
        b'{"Pod":{},"Nodes":{"items":[{"metadata":{"name":"n"}}%b]}}'
        % (b',{"metadata":{"name":"n"}}' * 1_000_000),
        413,
    ),
    (
        PREEMPT,
        b'{"Pod":{},"NodeNameToMetaVictims":{"n":{"Pods":[{"UID":"u"}%b]}}}'
        % (b',{"UID":"u"}' * 2_000_000),
        413,
    ),
    (FILTER, b'{"Pod":{},"Nodes":{"items":[{}%b]}}' % (b",{}" * 8_000_000), 400),
    (FILTER, b'{"Pod":"%b","NodeNames":["n"]}' % (b"x" * 30_000_000), 400),
    (PRIORITIZE, b" " * 30_000_000, 400),
    (EXPLAIN, b"[" * 30_000_000, 413),
)


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="tells no memory")
def test_giants_are_refused_beside_small_calls_and_leave_no_memory_behind(
    service: ServiceProcess,
) -> None:
    for _ in range(20):
        assert fitting(service) == ["a"]
    before = resident_mebibytes(service.process.pid)
    is_over = threading.Event()
    slowest: list[float] = []

    def ask() -> None:
        while not is_over.is_set():
            began = time.monotonic()
            assert fitting(service) == ["a"]
            assert service.get("/livez/extender").status == 200
            slowest.append(time.monotonic() - began)

    with ThreadPoolExecutor(1) as pool:
        small = pool.submit(ask)
        statuses = [
            service.request("POST", path, body).status for path, body, _ in GIANTS * 2
        ]
        is_over.set()
        small.result()

    assert statuses == [status for *_, status in GIANTS * 2]
    assert max(slowest) < 2.0  # each call and each probe within a second
    wait_until(
        lambda: resident_mebibytes(service.process.pid) - before < 50,
        "memory of the bodies is given back",
    )
