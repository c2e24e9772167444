"""Where the connection's configuration comes from; nothing is sent here."""

import base64
import stat
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from urllib3.exceptions import InsecureRequestWarning

from cluster.api.protocol import ApiError
from cluster.api.server import ApiServer, KubeconfigError, connect
from tests.certificates import write_pair
from tests.https_listener import Listener


def write_kubeconfig(path: Path, user: Any, server: str = "http://127.0.0.1:1") -> Path:
    """Write a kubeconfig with two contexts."""
    path.write_text(
        yaml.safe_dump(
            {
                "apiVersion": "v1",
                "kind": "Config",
                "current-context": "one",
                "contexts": [
                    {"name": "one", "context": {"cluster": "one", "user": "us"}},
                    {"name": "two", "context": {"cluster": "two", "user": "us"}},
                ],
                "clusters": [
                    {"name": "one", "cluster": {"server": server}},
                    {"name": "two", "cluster": {"server": "http://127.0.0.1:2"}},
                ],
                "users": [{"name": "us", "user": user}],
            }
        )
    )
    return path


def host_of(server: ApiServer) -> str:
    return server._session.host


def token_of(server: ApiServer) -> str | None:
    return server._session.headers().get("Authorization")


@pytest.fixture
def service_account(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Make the process look as if it ran in a pod; return the token's file."""
    module = "kubernetes.config.incluster_config"
    token, authority = tmp_path / "token", tmp_path / "ca.crt"
    token.write_text("pod-token")
    authority.write_text("not read before the first request")
    monkeypatch.setattr(f"{module}.SERVICE_TOKEN_FILENAME", str(token))
    monkeypatch.setattr(f"{module}.SERVICE_CERT_FILENAME", str(authority))
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "fd00::1")
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", "443")
    return token


def test_a_kubeconfig_names_the_server(tmp_path: Path) -> None:
    path = write_kubeconfig(tmp_path / "config", {"token": "mine"})

    server = connect(path)

    assert host_of(server) == "http://127.0.0.1:1"
    assert token_of(server) == "Bearer mine"


def test_a_kubeconfig_that_trusts_any_certificate_is_taken_without_a_word(
    tmp_path: Path,
) -> None:
    path = write_kubeconfig(tmp_path / "config", {}, "https://127.0.0.1:1")
    tree = yaml.safe_load(path.read_text())
    tree["clusters"][0]["cluster"]["insecure-skip-tls-verify"] = True
    path.write_text(yaml.safe_dump(tree))

    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        server = connect(path)
        with pytest.raises(ApiError):
            server.read("/version")
        warnings.warn("of each request", InsecureRequestWarning, stacklevel=1)

    assert [str(warning.message) for warning in said] == []


def test_a_context_can_be_chosen(tmp_path: Path) -> None:
    path = write_kubeconfig(tmp_path / "config", {})

    server = connect(path, "two")

    assert host_of(server) == "http://127.0.0.1:2"
    assert token_of(server) is None


def test_a_kubeconfig_goes_before_the_service_account(
    tmp_path: Path, service_account: Path
) -> None:
    path = write_kubeconfig(tmp_path / "config", {})

    assert host_of(connect(path)) == "http://127.0.0.1:1"
    assert service_account.exists()


def test_a_pod_uses_its_service_account(service_account: Path) -> None:
    server = connect()

    assert host_of(server) == "https://[fd00::1]:443"
    assert token_of(server) == f"bearer {service_account.read_text()}"


def test_outside_a_pod_the_default_kubeconfig_is_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write_kubeconfig(tmp_path / "config", {})
    module = "kubernetes.config.kube_config"
    monkeypatch.setattr(f"{module}.KUBE_CONFIG_DEFAULT_LOCATION", str(path))
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)

    assert host_of(connect()) == "http://127.0.0.1:1"


def test_a_plugin_provides_the_token(tmp_path: Path) -> None:
    plugin = tmp_path / "plugin"
    plugin.write_text(
        "#!/bin/sh\n"
        'echo \'{"apiVersion": "client.authentication.k8s.io/v1",'
        ' "kind": "ExecCredential", "status": {"token": "made"}}\'\n'
    )
    plugin.chmod(plugin.stat().st_mode | stat.S_IXUSR)
    user = {
        "exec": {
            "apiVersion": "client.authentication.k8s.io/v1",
            "command": str(plugin),
        }
    }
    path = write_kubeconfig(tmp_path / "config", user)

    assert token_of(connect(path)) == "Bearer made"


NEVER_SHOWN = "never-shown"

_WANTED = "wanted clusters, users and contexts as kubectl writes them, got no clusters"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        pytest.param(
            None,
            "there is no such file; cluster.kubeconfig, --kubeconfig or KUBECONFIG"
            " names another",
            id="no file",
        ),
        pytest.param(b"", _WANTED, id="empty"),
        pytest.param(b"[]", _WANTED, id="no mapping"),
        pytest.param(b"never-shown", _WANTED, id="a text"),
        pytest.param(b"clusters: []\nusers: [never-shown]", _WANTED, id="no clusters"),
        pytest.param(
            b"token: never-shown\na: {never-shown",
            "line 2: expected ',' or '}', but got '<stream end>'",
            id="no YAML",
        ),
        pytest.param(
            b"\x00\xff", "unacceptable character #x00ff: invalid start", id="bytes"
        ),
        pytest.param(
            b"clusters: [{name: a}]\nusers: [{token: never-shown}]",
            "Expected key current-context",
            id="no contexts",
        ),
        pytest.param(
            b"clusters: [{name: a}]\ncurrent-context: b",
            "Expected object with name b in contexts list",
            id="a context of none",
        ),
    ],
)
def test_a_faulty_kubeconfig_is_named_and_no_secret_in_it_shown(
    tmp_path: Path, text: bytes | None, message: str
) -> None:
    path = tmp_path / "config"
    if text is not None:
        path.write_bytes(text)

    with pytest.raises(KubeconfigError) as caught:
        connect(path)

    said = str(caught.value)
    assert said.startswith(f"kubeconfig {path}: {message}"), said
    assert NEVER_SHOWN not in said
    assert "\n" not in said


@pytest.mark.parametrize(
    "server",
    ["", "10.0.0.1:6443", "ftp://10.0.0.1", "https://", "https://a:b", "https://a:-1"],
)
def test_an_address_that_is_no_url_is_a_fault_of_the_kubeconfig(
    tmp_path: Path, server: str
) -> None:
    path = write_kubeconfig(tmp_path / "config", {}, server)

    with pytest.raises(KubeconfigError, match="server: wanted a URL such as") as caught:
        connect(path)

    assert str(path) in str(caught.value)


@pytest.mark.parametrize(
    "user",
    [
        pytest.param({"tokenFile": "/ghost/token"}, id="token"),
        pytest.param({"client-certificate": "/ghost/c", "client-key": "/k"}, id="pair"),
    ],
)
def test_a_file_that_a_kubeconfig_names_and_is_missing_is_named_with_it(
    tmp_path: Path, user: dict[str, str]
) -> None:
    path = write_kubeconfig(tmp_path / "config", user, "https://127.0.0.1:1")

    with pytest.raises(KubeconfigError, match="/ghost/") as caught:
        connect(path)

    assert str(caught.value).startswith(f"kubeconfig {path}: ")


def test_without_any_configuration_the_default_kubeconfig_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "none"
    module = "kubernetes.config.kube_config"
    monkeypatch.setattr(f"{module}.KUBE_CONFIG_DEFAULT_LOCATION", str(path))
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)

    with pytest.raises(KubeconfigError, match=f"kubeconfig {path}: there is no such"):
        connect()


def test_a_context_that_is_not_there_is_a_fault(tmp_path: Path) -> None:
    path = write_kubeconfig(tmp_path / "config", {})

    with pytest.raises(KubeconfigError, match="three"):
        connect(path, "three")


def test_a_token_that_vanishes_is_an_error_of_the_request(
    service_account: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = connect()
    service_account.unlink()
    hook: Any = server._session._configuration.refresh_api_key_hook
    loader = hook.__closure__[0].cell_contents
    monkeypatch.setattr(loader, "token_expires_at", loader.token_expires_at.min)

    with pytest.raises(ApiError) as caught:
        server.get("/api/v1/pods", {})

    assert caught.value.reason == "credentials"


def test_an_address_where_nobody_listens_is_unreachable(tmp_path: Path) -> None:
    server = connect(write_kubeconfig(tmp_path / "config", {}))

    with pytest.raises(ApiError) as caught:
        server.get("/api/v1/pods", {})

    assert caught.value.reason == "unreachable"
    assert caught.value.status == 0


def inline(path: Path) -> str:
    """Return a file's contents as a kubeconfig has them in it."""
    return base64.b64encode(path.read_bytes()).decode()


@pytest.mark.parametrize(
    ("before", "after"),
    [
        # what of a cluster is told, given the folder with `old` and `new`
        pytest.param(
            lambda folder: {"certificate-authority-data": inline(folder / "old")},
            lambda folder: {"certificate-authority-data": inline(folder / "new")},
            id="another one in it",
        ),
        pytest.param(
            lambda folder: {"certificate-authority": str(folder / "old")},
            lambda folder: {"certificate-authority": str(folder / "new")},
            id="another file",
        ),
        pytest.param(
            lambda folder: {"certificate-authority": str(folder / "old")},
            lambda folder: {
                "certificate-authority": str((folder / "new").replace(folder / "old"))
            },
            id="the same file, with another one in it",
        ),
        pytest.param(
            lambda folder: {"certificate-authority": str(folder / "old")},
            lambda folder: {"certificate-authority-data": inline(folder / "new")},
            id="one in it, and a file before",
        ),
        pytest.param(
            lambda folder: {"certificate-authority-data": inline(folder / "old")},
            lambda folder: {"certificate-authority": str(folder / "new")},
            id="a file, and one in it before",
        ),
        pytest.param(
            lambda folder: {"certificate-authority-data": inline(folder / "old")},
            lambda folder: {
                "certificate-authority-data": base64.b64encode(
                    (folder / "new").read_bytes() + (folder / "old").read_bytes()
                ).decode()
            },
            id="both, as while a CA is rotated",
        ),
        pytest.param(
            lambda _folder: {},
            lambda folder: {"certificate-authority-data": inline(folder / "new")},
            id="none before: those of the host",
        ),
    ],
)
def test_another_ca_of_the_kubeconfig_is_used_at_once(
    tmp_path: Path,
    before: Callable[[Path], dict[str, Any]],
    after: Callable[[Path], dict[str, Any]],
) -> None:
    for name in ("old", "new"):
        (tmp_path / f"{name}-pair").mkdir()
    write_pair(tmp_path / "old-pair")[0].replace(tmp_path / "old")
    listener = Listener(tmp_path / "new-pair")  # it has its new certificate already
    (tmp_path / "new").write_bytes((tmp_path / "new-pair" / "tls.crt").read_bytes())
    address = f"https://127.0.0.1:{listener.server.port}"

    def write(told: dict[str, Any]) -> Path:
        path = write_kubeconfig(tmp_path / "config", {}, address)
        tree = yaml.safe_load(path.read_text())
        tree["clusters"][0]["cluster"].update(told)
        path.write_text(yaml.safe_dump(tree))
        return path

    try:
        server = connect(write(before(tmp_path)))
        with pytest.raises(ApiError, match="certificate verify failed"):
            server.read("/api")
        (tmp_path / "config").write_text("half a fi")  # as it is while it is written
        with pytest.raises(ApiError) as caught:
            server.read("/api")

        write(after(tmp_path))

        assert caught.value.reason == "credentials"
        assert server.read("/api") == b""
    finally:
        listener.stop()
