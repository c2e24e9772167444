"""`ApiServer`: configuration, authentication, connections and raw bytes.

The only module that imports the ``kubernetes`` client. No model of it is ever built:
lists and watches come as bytes, and are decoded into what we read of them.
"""

import base64
import contextlib
import http.client
import re
import socket
import threading
from collections.abc import Callable, Iterator, Mapping
from email.utils import parsedate_to_datetime
from http import HTTPStatus
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlencode, urlsplit

import msgspec
import urllib3
import yaml
from kubernetes import config
from kubernetes.client.configuration import Configuration
from kubernetes.client.rest import RESTClientObject
from kubernetes.config import kube_config
from urllib3.connection import HTTPConnection, HTTPSConnection
from urllib3.connectionpool import HTTPConnectionPool, HTTPSConnectionPool
from urllib3.util import Timeout

from cluster.api.protocol import ApiAnswer, ApiError, ServerClock, TokenTimes
from scoring.quantity import one_line, shorten

USER_AGENT: Final = "gpu-extender"

CONNECT_TIMEOUT_SECONDS: Final = 5.0

READ_TIMEOUT_SECONDS: Final = 90.0

MAX_ERROR_BYTES: Final = 65_536

MAX_MESSAGE: Final = 300

# Header, payload, signature.
JWT_PARTS: Final = 3

CHUNK_BYTES: Final = 262_144

# Of a request whose body is small on both sides, and that nobody waits for.
EXCHANGE_TIMEOUT_SECONDS: Final = 5.0

BUFFER_BYTES: Final = 262_144

# A dead peer is noticed within a minute also where nothing is read or written. The
# names differ between systems; what a system lacks is left out.
_KEEPALIVE: Final = {"TCP_KEEPIDLE": 30, "TCP_KEEPINTVL": 10, "TCP_KEEPCNT": 3}

_SOCKET_OPTIONS: Final = [
    *HTTPConnection.default_socket_options,
    (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1),
    *(
        (socket.IPPROTO_TCP, getattr(socket, name), value)
        for name, value in _KEEPALIVE.items()
        if hasattr(socket, name)
    ),
]

_GOOD: Final = (HTTPStatus.OK, HTTPStatus.CREATED)


class KubeconfigError(ValueError):
    """The configuration of the connection cannot be used."""


class _Status(msgspec.Struct):
    """``Status``, in which the API server says what is wrong."""

    message: str = ""


class ApiServer:
    """Sends requests of the Kubernetes API; any thread may call it.

    Parameters
    ----------
    configure : callable
        Reads the configuration. Called again after 401, and where the server's
        certificate is not trusted: what stands in files, and what a plugin makes, may
        have changed.
    credentials : str
        Where they come from, for a message.
    connect_timeout_seconds, read_timeout_seconds : float
        The second one bounds the silence between two reads, not the whole answer.
    exchange_timeout_seconds : float
        Of a whole request whose body is small on both sides.
    clock : ServerClock, optional
        Told of the time in each answer.
    """

    def __init__(  # noqa: PLR0913 - all but the first are optional and named
        self,
        configure: Callable[[], Configuration],
        *,
        credentials: str = "",
        connect_timeout_seconds: float = CONNECT_TIMEOUT_SECONDS,
        read_timeout_seconds: float = READ_TIMEOUT_SECONDS,
        exchange_timeout_seconds: float = EXCHANGE_TIMEOUT_SECONDS,
        clock: ServerClock | None = None,
    ) -> None:
        self._clock = clock or ServerClock()
        self._configure = configure
        self.credentials = credentials
        self._exchange_timeout = Timeout(total=exchange_timeout_seconds)
        self._timeout = Timeout(
            connect=connect_timeout_seconds, read=read_timeout_seconds
        )
        self._lock = threading.Lock()
        self._session = _Session(configure())

    @property
    def url(self) -> str:
        """Scheme, host and port."""
        return self._session.host

    def get(self, path: str, query: Mapping[str, str]) -> "ApiResponse":
        """Return the body of a 200 answer; raise `ApiError` for any other."""
        target = f"{path}?{urlencode(query)}"
        return ApiResponse(self._request("GET", target, self._timeout))

    def patch(self, path: str, body: bytes) -> None:
        """Merge a JSON object into the one at `path`; raise `ApiError` if refused."""
        self._exchange("PATCH", path, body, "application/merge-patch+json")

    def read(self, path: str) -> bytes:
        """Return one object; raise `ApiError` if there is none."""
        return self._exchange("GET", path)

    def create(self, path: str, body: bytes) -> None:
        """Create an object in the collection at `path`; raise `ApiError` if refused."""
        self._exchange("POST", path, body, "application/json")

    def replace(self, path: str, body: bytes) -> None:
        """Replace the object at `path`; raise `ApiError` if refused."""
        self._exchange("PUT", path, body, "application/json")

    def merge(self, path: str, body: bytes) -> None:
        """Merge an object, and lists by their items' keys, into the one at `path`."""
        self._exchange("PATCH", path, body, "application/strategic-merge-patch+json")

    def ask(self, path: str, body: bytes) -> ApiAnswer:
        """Return the answer to an object that the server does not keep."""
        response = self._request(
            "POST", path, self._exchange_timeout, body, "application/json"
        )
        moment = _time_of(response)
        return ApiAnswer(ApiResponse(response).read(), moment)

    def token_times(self) -> TokenTimes | None:
        """Return the times of our token; None if there is none, or it has none."""
        _, _, token = self._session.headers().get("Authorization", "").partition(" ")
        return read_token_times(token)

    def _exchange(
        self, method: str, path: str, body: bytes | None = None, content_type: str = ""
    ) -> bytes:
        """Return the answer to a request whose bodies are small on both sides."""
        response = self._request(
            method, path, self._exchange_timeout, body, content_type
        )
        return ApiResponse(response).read()

    def _request(
        self,
        method: str,
        target: str,
        timeout: Timeout,
        body: bytes | None = None,
        content_type: str = "",
    ) -> urllib3.BaseHTTPResponse:
        """Return a good answer, its body unread; raise `ApiError` for any other."""
        session = self._session
        try:
            response = session.send(method, target, timeout, body, content_type)
        except ApiError as failure:
            if not isinstance(failure.__cause__, urllib3.exceptions.SSLError):
                raise
            self._renew(session)  # the kubeconfig may have another CA by now
            session = self._session
            response = session.send(method, target, timeout, body, content_type)
        moment = _time_of(response)
        if moment is not None:
            self._clock.note(moment)
        if response.status in _GOOD:
            return response
        error = _error_of(response)
        if response.status == HTTPStatus.UNAUTHORIZED:
            self._renew(session)
        raise error

    def _renew(self, used: "_Session") -> None:
        """Read the configuration again, unless another thread has just done so."""
        with self._lock:
            if self._session is used:
                try:
                    self._session = _Session(self._configure())
                except KubeconfigError as error:
                    raise ApiError(str(error), reason="credentials") from error


class _BufferedResponse(http.client.HTTPResponse):
    """Reads from the socket by the quarter of a megabyte, not by 8 KiB.

    PERF: the API server sends each item of a list in chunks of its own, which are read
    one by one; ``bench.cluster.cache`` shows it in the time to sync.
    """

    def __init__(self, sock: socket.socket, *args: Any, **kwargs: Any) -> None:
        super().__init__(sock, *args, **kwargs)
        self.fp.close()
        file = sock.makefile("rb", buffering=BUFFER_BYTES)
        self.fp = file  # type: ignore[assignment]  # typeshed knows the default size


class _Connection(HTTPConnection):
    response_class = _BufferedResponse


class _TlsConnection(HTTPSConnection):
    response_class = _BufferedResponse


class _Pool(HTTPConnectionPool):
    ConnectionCls = _Connection


class _TlsPool(HTTPSConnectionPool):
    ConnectionCls = _TlsConnection


# scheme -> pool, in the form of urllib3
_POOL_CLASSES: Final[dict[str, type[HTTPConnectionPool]]] = {
    "http": _Pool,
    "https": _TlsPool,
}


class _Claims(msgspec.Struct):
    """What a token says of itself, as far as it matters."""

    exp: float
    iat: float


def read_token_times(token: str) -> TokenTimes | None:
    """Return what a JSON Web Token says of its times, None if it does not.

    It is not verified: the API server does that.
    """
    parts = token.split(".")
    if len(parts) != JWT_PARTS:
        return None
    payload = parts[1] + "=" * (-len(parts[1]) % 4)
    try:
        claims = msgspec.json.decode(base64.urlsafe_b64decode(payload), type=_Claims)
    except (ValueError, msgspec.MsgspecError):
        return None
    return TokenTimes(claims.iat, claims.exp)


class _Session:
    """One configuration and the connections made with it."""

    def __init__(self, configuration: Configuration) -> None:
        self._configuration = configuration
        self._lock = threading.Lock()
        self.host: str = configuration.host
        if not configuration.verify_ssl:
            # The kubeconfig says so; kubectl is silent about it, too.
            urllib3.disable_warnings(urllib3.exceptions.InsecureRequestWarning)
        self.pool: urllib3.PoolManager = RESTClientObject(configuration).pool_manager
        if (
            self.pool.pool_classes_by_scheme
            is urllib3.poolmanager.pool_classes_by_scheme
        ):
            # not for a SOCKS proxy, which has pools of its own
            self.pool.pool_classes_by_scheme = _POOL_CLASSES

    def headers(self) -> dict[str, str]:
        """Return the headers of a request, with a token that the client refreshed."""
        headers = {"Accept": "application/json", "User-Agent": USER_AGENT}
        with self._lock:  # the client's refresh hook may run a plugin: once at a time
            try:
                settings = self._configuration.auth_settings()
            except Exception as error:  # a plugin's fault can be of any type
                message = f"credentials: {shorten(str(error))}"
                raise ApiError(message, reason="credentials") from error
        token = settings.get("BearerToken")
        if token is not None:
            headers["Authorization"] = str(token["value"])
        return headers

    def send(
        self,
        method: str,
        target: str,
        timeout: Timeout,
        body: bytes | None,
        content_type: str,
    ) -> urllib3.BaseHTTPResponse:
        """Return an answer, its body unread; raise `ApiError` if there is none."""
        headers = self.headers()
        if body is not None:
            headers["Content-Type"] = content_type
        with _translated():
            # Retries are the caller's: urllib3's would hide an outage from it, and
            # sleep through a Retry-After that nobody could interrupt.
            return self.pool.request(
                method,
                f"{self.host}{target}",
                body=body,
                headers=headers,
                timeout=timeout,
                preload_content=False,
                retries=False,
                redirect=False,
            )


class ApiResponse:
    """The body of one answer.

    One thread reads; `interrupt` may be called from any other.
    """

    def __init__(self, response: urllib3.BaseHTTPResponse) -> None:
        self._response = response

    def chunks(self) -> Iterator[bytes]:
        """Yield bytes as they come; raise `ApiError` when the stream breaks."""
        with _translated():
            yield from self._response.stream(CHUNK_BYTES)

    def read(self) -> bytes:
        """Return all that is left; raise `ApiError` when the stream breaks."""
        with _translated():
            return self._response.read()

    def interrupt(self) -> None:
        """End a read under way in another thread, which then fails or sees the end."""
        # Closing the file descriptor would leave the reader asleep. The response may
        # end on its own at the same moment, and then has no connection any more.
        with contextlib.suppress(OSError, ValueError, RuntimeError):
            self._response.shutdown()

    def close(self) -> None:
        """Give the connection back if the body was read, or close it."""
        self._response.close()


def connect(  # noqa: PLR0913 - every argument is optional and named
    kubeconfig: Path | None = None,
    context: str | None = None,
    *,
    connect_timeout_seconds: float = CONNECT_TIMEOUT_SECONDS,
    read_timeout_seconds: float = READ_TIMEOUT_SECONDS,
    exchange_timeout_seconds: float = EXCHANGE_TIMEOUT_SECONDS,
    clock: ServerClock | None = None,
) -> ApiServer:
    """Return the API server that a kubeconfig or the pod's service account names.

    Parameters
    ----------
    kubeconfig : Path, optional
        Without one the pod's own service account is used, and outside a pod the default
        kubeconfig (``KUBECONFIG`` or ``~/.kube/config``).
    context : str, optional
        Of the kubeconfig; default is its current one.
    connect_timeout_seconds, read_timeout_seconds, exchange_timeout_seconds : float

    Raises
    ------
    KubeconfigError
        If there is no configuration, or it is faulty.

    Notes
    -----
    Nothing is sent yet.
    """
    if kubeconfig is None and context is None and _is_in_pod():
        credentials = "the pod's service account"
    else:
        credentials = f"kubeconfig {_location(kubeconfig)}"
    return ApiServer(
        lambda: _configuration(kubeconfig, context),
        credentials=credentials,
        connect_timeout_seconds=connect_timeout_seconds,
        read_timeout_seconds=read_timeout_seconds,
        exchange_timeout_seconds=exchange_timeout_seconds,
        clock=clock,
    )


def _is_in_pod() -> bool:
    """Whether there is a service account to be read."""
    try:
        config.load_incluster_config(client_configuration=Configuration())
    except config.ConfigException:
        return False
    return True


def _location(kubeconfig: Path | None) -> str:
    """Return the path of the kubeconfig; several with colons between, by default."""
    if kubeconfig is not None:
        return str(kubeconfig)
    location: str = kube_config.KUBE_CONFIG_DEFAULT_LOCATION
    return str(Path(location).expanduser())


def _configuration(kubeconfig: Path | None, context: str | None) -> Configuration:
    """Read the client's configuration; raise `KubeconfigError`."""
    configuration = Configuration()
    configuration.socket_options = _SOCKET_OPTIONS
    if kubeconfig is None and context is None:
        with contextlib.suppress(config.ConfigException):
            config.load_incluster_config(client_configuration=configuration)
            return configuration
    location = _location(kubeconfig)
    if ":" not in location:
        _check_kubeconfig(location)
    try:
        config.load_kube_config(
            config_file=None if kubeconfig is None else str(kubeconfig),
            context=context,
            client_configuration=configuration,
        )
    except Exception as error:  # the client lets errors of the parser and more through
        message = _one_line(error).removeprefix("Invalid kube-config file. ")
        for own in (f"{location}/", f" in {location}"):
            message = message.replace(own, "")
        raise KubeconfigError(f"kubeconfig {location}: {message}") from error
    _check_server(location, configuration.host)
    return configuration


def _check_kubeconfig(location: str) -> None:
    """Raise `KubeconfigError` for a file in which the client would find no words."""
    try:
        tree = yaml.safe_load(Path(location).read_bytes())
    except FileNotFoundError as error:
        wanted = "cluster.kubeconfig, --kubeconfig or KUBECONFIG names another"
        raise KubeconfigError(
            f"kubeconfig {location}: there is no such file; {wanted}"
        ) from error
    except yaml.MarkedYAMLError as error:  # its text would show the line, a secret
        line = 0 if error.problem_mark is None else error.problem_mark.line + 1
        raise KubeconfigError(
            f"kubeconfig {location}: line {line}: {error.problem}"
        ) from error
    except (OSError, ValueError, RecursionError, yaml.YAMLError) as error:
        message = _one_line(error).removeprefix(f"{location}: ")
        raise KubeconfigError(f"kubeconfig {location}: {message}") from error
    if not isinstance(tree, dict) or not tree.get("clusters"):  # never show secrets
        raise KubeconfigError(
            f"kubeconfig {location}: wanted clusters, users and contexts as kubectl"
            " writes them, got no clusters"
        )


def _check_server(location: str, server: str) -> None:
    """Raise `KubeconfigError` for an address that nobody can be called at."""
    try:
        parts = urlsplit(server)
        is_good = parts.scheme in {"http", "https"} and bool(parts.hostname)
        _ = parts.port
    except ValueError:
        is_good = False
    if not is_good:
        raise KubeconfigError(
            f"kubeconfig {location}: clusters[].cluster.server: wanted a URL such as"
            f" https://10.0.0.1:6443, got {shorten(server)}"
        )


def _one_line(error: Exception) -> str:
    """Return what an error says, on one line and not too long."""
    if isinstance(error, OSError) and error.strerror and error.filename:
        return f"{error.filename}: {error.strerror.lower()}"
    return one_line(error, MAX_MESSAGE)


# What the transport's messages begin with, such as ``HTTPSConnection(host='a'): ``.
_CONNECTION: Final = re.compile(r"^<?\w*(?:Connection|Pool)\w*\([^()]*\)>?: ")

# Where in whose source it was raised.
_ORIGIN: Final = re.compile(r" \(_ssl\.c:\d+\)|\[Errno -?\d+\] ")


def _transport_message(error: Exception) -> str:
    """Return what the transport says, without what is of its own inside."""
    text = _ORIGIN.sub("", _CONNECTION.sub("", _one_line(error)))
    return text.removeprefix("Failed to establish a new connection: ")


@contextlib.contextmanager
def _translated() -> Iterator[None]:
    """Turn the transport's errors into `ApiError`."""
    try:
        yield
    except urllib3.exceptions.ReadTimeoutError as error:
        raise ApiError("no byte within the read timeout", reason="silent") from error
    except (urllib3.exceptions.HTTPError, OSError) as error:
        message = _transport_message(error)
        raise ApiError(message, reason="unreachable") from error


def _time_of(response: urllib3.BaseHTTPResponse) -> float | None:
    """Return the time that the server says in an answer, in seconds since 1970."""
    with contextlib.suppress(ValueError):
        return parsedate_to_datetime(response.headers.get("Date", "")).timestamp()
    return None


def _error_of(response: urllib3.BaseHTTPResponse) -> ApiError:
    """Return the error that an answer other than 200 stands for."""
    message = response.reason or ""
    with contextlib.suppress(ApiError, msgspec.MsgspecError, UnicodeDecodeError):
        with _translated():
            data = response.read(MAX_ERROR_BYTES)
        message = msgspec.json.decode(data, type=_Status).message or message
    response.close()
    return ApiError(
        one_line(message, MAX_MESSAGE),
        reason="expired"
        if response.status == HTTPStatus.GONE
        else f"http_{response.status}",
        status=response.status,
        retry_after_seconds=_retry_after(response.headers.get("Retry-After", "")),
    )


def _retry_after(text: str) -> float:
    """Return a Retry-After header in seconds; the API server never sends a date."""
    return float(text) if text.isascii() and text.isdigit() else 0.0
