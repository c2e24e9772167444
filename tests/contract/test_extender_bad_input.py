"""What kube-scheduler would never send: refused, named, and without a trace."""

import contextlib
import json
import socket
from typing import Final

import pytest

from tests.builders import make_pod
from tests.extender_app import FILTER, PRIORITIZE, ExtenderApp
from tests.service_process import ServiceProcess, exchange

POD: Final = json.dumps(make_pod(gpus=1)).encode()
HUGE_BODY_BYTES: Final = 100_000_000


def verb_call(
    *, pod: bytes = POD, names: bytes = b"null", nodes: bytes = b"null"
) -> bytes:
    """Return a body with raw parts."""
    return b'{"Pod":%b,"Nodes":%b,"NodeNames":%b}' % (pod, nodes, names)


def asking(quantity: bytes) -> bytes:
    """Return a pod that asks for a raw quantity."""
    return (
        b'{"metadata":{"name":"p","uid":"u"},"spec":{"containers":'
        b'[{"resources":{"limits":{"nvidia.com/gpu":%b}}}]}}' % quantity
    )


BAD_BODIES: Final = [
    pytest.param(b"", "body: input data was truncated", id="empty"),
    pytest.param(b'{"Pod":', "body: input data was truncated", id="cut short"),
    pytest.param(b"not json", "body: JSON is malformed: ", id="not JSON"),
    pytest.param(b"[]", "body: wanted object, got array", id="list"),
    pytest.param(b"null", "body: wanted object, got null", id="null"),
    pytest.param(b"7", "body: wanted object, got int", id="number"),
    pytest.param(b"\xff\xfe", "body: JSON is malformed: ", id="no UTF-8 at all"),
    pytest.param(
        verb_call(names=b'["n"]') + b"{}",
        "body: JSON is malformed: trailing characters",
        id="two values",
    ),
    pytest.param(
        verb_call(names=b'["\xff"]'),
        "NodeNames: 'utf-8' codec can't decode byte 0xff",
        id="name in no UTF-8",
    ),
    pytest.param(
        verb_call(names=b'["\\ud800"]'), "body: ", id="half of a surrogate pair"
    ),
    pytest.param(verb_call(names=b"[NaN]"), "body: JSON is malformed: ", id="NaN"),
    pytest.param(
        verb_call(names=b"[1e999]"), "NodeNames: number out of range", id="huge number"
    ),
    pytest.param(
        b"{}",
        "Pod: wanted an object, got none;"
        " NodeNames: wanted either NodeNames or Nodes, got neither",
        id="nothing in it",
    ),
    pytest.param(
        b'{"NodeNames":["n"]}', "Pod: wanted an object, got none", id="no pod"
    ),
    pytest.param(
        verb_call(pod=b"null", names=b"[]"),
        "Pod: wanted an object, got None",
        id="null for a pod",
    ),
    pytest.param(
        verb_call(pod=b'"p"', names=b"[]"),
        "Pod: wanted an object, got 'p'",
        id="text for a pod",
    ),
    pytest.param(
        verb_call(),
        "NodeNames: wanted either NodeNames or Nodes, got neither",
        id="neither form",
    ),
    pytest.param(
        verb_call(names=b"[]", nodes=b'{"items":[]}'),
        "NodeNames: wanted either NodeNames or Nodes, got both",
        id="both forms",
    ),
    pytest.param(
        b'{"Pod":%b,"NodeNames":[],"nodeNames":[]}' % POD,
        "body: wanted each key once, got 'Pod, NodeNames, nodeNames'",
        id="one key in two casings",
    ),
    pytest.param(
        verb_call(names=b'"n"'),
        "NodeNames: wanted a list, got 'n'",
        id="text for names",
    ),
    pytest.param(
        verb_call(names=b'["n",1,null,["m"]]'),
        "NodeNames[1]: wanted text, got 1; NodeNames[2]: wanted text, got None;"
        " NodeNames[3]: wanted text, got ['m']",
        id="names that are no text",
    ),
    pytest.param(
        verb_call(nodes=b"[]"), "Nodes: wanted object, got array", id="list for Nodes"
    ),
    pytest.param(
        verb_call(nodes=b'{"items":7}'),
        "Nodes.items: wanted array, got int",
        id="number for items",
    ),
    pytest.param(
        verb_call(nodes=b'{"items":[],"Items":[]}'),
        "Nodes: wanted each key once, got 'items, Items'",
        id="items in two casings",
    ),
    pytest.param(
        verb_call(nodes=b'{"items":[null,{},{"metadata":{"name":7}}]}'),
        "Nodes.items[0]: wanted object, got null;"
        " Nodes.items[1]: object missing required field metadata;"
        " Nodes.items[2]: wanted str, got int - at $.metadata.name",
        id="objects that are no nodes",
    ),
    pytest.param(
        verb_call(
            nodes=b'{"items":[{"metadata":{"name":"a","labels":7}},{"metadata":'
            b'{"name":"b"},"status":{"allocatable":{"nvidia.com/gpu":"1.2.3Gi"}}}]}'
        ),
        "Nodes['a'].metadata.labels: wanted object | null, got int: 7;"
        " Nodes['b'].status.allocatable['nvidia.com/gpu']: quantity '1.2.3Gi':"
        " not a number with an optional suffix",
        id="unknown nodes with faults",
    ),
    pytest.param(
        verb_call(
            pod=b'{"metadata":{"uid":7,"labels":{"a":1,"b":"c"}},"spec":{"containers":'
            b'[{},7],"nodeSelector":[]},"status":[]}',
            names=b"[1]",
        ),
        "Pod.metadata.uid: wanted str, got int: 7;"
        " Pod.metadata.labels['a']: wanted text, got 1;"
        " Pod.spec.containers[1]: wanted object, got int: 7;"
        " Pod.spec.nodeSelector: wanted object | null, got array: [];"
        " Pod.status: wanted object, got array: []; Pod.metadata.name: wanted a name,"
        " got none;"
        " NodeNames[0]: wanted text, got 1",
        id="every fault of a pod and of the names",
    ),
    pytest.param(
        verb_call(pod=b"{}", names=b'["n"]'),
        "Pod.metadata.name: wanted a name, got none; Pod.metadata.uid: wanted a UID,"
        " got none; Pod.spec.containers: wanted containers, got none",
        id="empty pod",
    ),
    pytest.param(
        b'{"Pod":{},"Pod":%b,"Nodes":null,"NodeNames":["n"]}' % POD,
        "body: wanted each key once, got 'Pod, Pod, Nodes, NodeNames'",
        id="two pods",
    ),
    pytest.param(
        verb_call(pod=asking(b'"1.2.3Gi"'), names=b'["n"]'),
        "Pod.spec.containers[0].resources.limits['nvidia.com/gpu']:"
        " quantity '1.2.3Gi': not a number with an optional suffix",
        id="quantity with two points",
    ),
    pytest.param(
        verb_call(pod=asking(b'"-1"'), names=b'["n"]'),
        "Pod.spec.containers[0].resources.limits['nvidia.com/gpu']:"
        " quantity '-1': negative",
        id="negative quantity",
    ),
    pytest.param(
        verb_call(pod=asking(b"true"), names=b'["n"]'),
        "Pod.spec.containers[0].resources.limits['nvidia.com/gpu']:"
        " quantity 'True': neither text nor a number",
        id="truth for a quantity",
    ),
    pytest.param(
        verb_call(pod=b'{"a":' * 50_000 + b"1" + b"}" * 50_000, names=b"[]"),
        "body: maximum recursion depth exceeded",
        id="deep nesting of objects",
    ),
    pytest.param(
        verb_call(names=b"[" * 50_000 + b"]" * 50_000),
        "body: maximum recursion depth exceeded",
        id="deep nesting of lists",
    ),
    pytest.param(b"[" * 1_000_000, "body: ", id="a million open brackets"),
]


@pytest.mark.parametrize("path", [FILTER, PRIORITIZE])
@pytest.mark.parametrize(("body", "complaint"), BAD_BODIES)
def test_a_bad_body_is_refused_with_its_faults_and_changes_nothing(
    captured_cluster: ServiceProcess, path: str, body: bytes, complaint: str
) -> None:
    generation = captured_cluster.generation()

    answer = captured_cluster.request("POST", path, body)

    assert answer.status == 400
    assert answer.json()["title"] == "400 Bad Request"
    assert answer.json()["description"].startswith(complaint)
    assert captured_cluster.generation() == generation


def test_a_refusal_is_short_whatever_it_complains_of() -> None:
    app = ExtenderApp()
    pod = asking(b'"1.1.1"').replace(b"gpu", b"g" * 100_000)

    one_long = app.send(FILTER, verb_call(pod=pod, names=b"[]"))
    some = app.send(FILTER, verb_call(names=b"[" + b"7," * 100 + b"7]"))
    many = app.send(FILTER, verb_call(names=b"[" + b"7," * 10_000 + b"7]"))

    assert one_long.status_code == 400
    assert one_long.json["description"].startswith("Pod.spec.containers[0].resources")
    assert len(one_long.content) < 400
    assert some.json["description"].endswith("; and 81 more")
    assert many.json["description"].endswith("; and many more")
    assert len(many.content) < 6000


@pytest.mark.parametrize("path", [FILTER, PRIORITIZE])
@pytest.mark.parametrize("method", ["GET", "PUT", "DELETE", "PATCH", "HEAD"])
def test_a_wrong_method_is_refused(
    captured_cluster: ServiceProcess, method: str, path: str
) -> None:
    answer = captured_cluster.request(method, path)

    assert answer.status == 405
    assert "POST" in answer.headers["allow"]


@pytest.mark.parametrize(
    "path", ["/", "/filter", "/scheduler", "/scheduler/filter/", "/scheduler/bind"]
)
def test_a_wrong_path_is_refused(captured_cluster: ServiceProcess, path: str) -> None:
    answer = captured_cluster.request("POST", path, verb_call(names=b'["h100-01"]'))

    assert answer.status == 404


def is_refused_or_cut(service: ServiceProcess, head: bytes, size: int) -> bool:
    """Send a head and up to `size` bytes; say whether a 413 or an end came of it."""
    chunk = b" " * 1_000_000
    with socket.create_connection(("127.0.0.1", service.port), 30) as client:
        with contextlib.suppress(ConnectionError):
            client.sendall(head)
            for _ in range(size // len(chunk)):
                client.sendall(chunk)
        with contextlib.suppress(ConnectionError):
            answer = client.recv(65_536)
            return answer.startswith(b"HTTP/1.1 413 ") or not answer
    return True


@pytest.mark.parametrize(
    "head",
    [
        pytest.param(
            f"Content-Length: {HUGE_BODY_BYTES}\r\n\r\n".encode(), id="said before"
        ),
        pytest.param(
            f"Transfer-Encoding: chunked\r\n\r\n{HUGE_BODY_BYTES:x}\r\n".encode(),
            id="in one chunk",
        ),
    ],
)
def test_a_body_of_100_megabytes_is_refused_and_others_are_served(
    captured_cluster: ServiceProcess, head: bytes
) -> None:
    line = b"POST /scheduler/filter HTTP/1.1\r\nHost: localhost\r\n"

    assert is_refused_or_cut(captured_cluster, line + head, HUGE_BODY_BYTES)

    assert captured_cluster.get("/readyz/extender").status == 200
    answer = captured_cluster.request("POST", FILTER, verb_call(names=b'["h100-01"]'))
    assert answer.json()["NodeNames"] == ["h100-01"]


def test_a_connection_serves_on_after_a_refusal(
    captured_cluster: ServiceProcess,
) -> None:
    connection = captured_cluster.connect()

    refused = exchange(connection, "POST", FILTER, b"not json")
    served = exchange(connection, "POST", FILTER, verb_call(names=b'["h100-01"]'))
    connection.close()

    assert (refused.status, served.status) == (400, 200)


def test_an_unsynced_cluster_is_an_error_and_not_a_verdict() -> None:
    app = ExtenderApp(is_synced=False)
    body = verb_call(names=b'["n"]')

    answers = [app.send(path, body) for path in (FILTER, PRIORITIZE)]

    assert [answer.status_code for answer in answers] == [503, 503]
    assert "NodeNames" not in answers[0].text
    assert app.client.simulate_get("/readyz/extender").status_code == 503
    assert app.client.simulate_get("/readyz").status_code == 200
    assert app.client.simulate_get("/healthz").status_code == 200
    assert app.client.simulate_get("/cluster").status_code == 503


def test_a_pod_without_gpu_passes_on_a_node_that_cannot_be_read() -> None:
    app = ExtenderApp()
    node = b'{"metadata":{"name":"odd"},"status":{"allocatable":{"cpu":"1.2.3"}}}'

    pod = json.dumps(make_pod()).encode()

    answer = app.send(FILTER, verb_call(pod=pod, nodes=b'{"items":[%b]}' % node))

    assert answer.status_code == 200
    assert answer.content.startswith(b'{"Nodes":{"metadata":{},"items":[%b]}' % node)
