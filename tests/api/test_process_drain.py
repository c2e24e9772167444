"""The end of the real process: no call fails, and it ends."""

import signal
import socket
import threading
from pathlib import Path

import pytest

from tests.api.two_nodes import FILTER, QUESTION, file_config
from tests.service_process import (
    DEADLINE_SECONDS,
    ServiceProcess,
    exchange,
    wait_until,
)


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
        with socket.create_connection(
            ("127.0.0.1", service.port), DEADLINE_SECONDS
        ) as client:
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
        with socket.create_connection(
            ("127.0.0.1", service.port), DEADLINE_SECONDS
        ) as client:
            client.sendall(b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\n{")
            assert service.get("/healthz").status == 200

            service.send(signal.SIGTERM)

            assert service.wait_stopped() == 0
        assert service.logs("server stopped")[0]["idle"] is False
