"""`Registrar`: our entry in the webhook's registration, added once somebody answers.

Whoever installs gpu-extender applies a registration without webhooks, so that the API
server sends no pod to nobody. The output of `gpu-extender webhook-config` becomes its
entry when a call of the address in it is answered under the CA that is published.
"""

import base64
import http.client
import logging
import ssl
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, Protocol, TypeAlias
from urllib.parse import urlsplit

from cluster.api.protocol import ApiError
from scoring.quantity import one_line
from service.certificates.files import CertificateError
from service.certificates.rotation import Published
from service.certificates.store import CertificateStore, ConflictError, Registration
from service.certificates.x509 import split_bundle
from service.reload import ReloadObserver
from service.settings.process import WebhookSettings

logger = logging.getLogger(__name__)

Tree: TypeAlias = Mapping[str, Any]

PROBE_PATH: Final = "/healthz"

# Of each step of a call of our own address: connect, shake hands, read.
PROBE_SECONDS: Final = 3.0

# How often it is tried again while the entry waits for an answer.
RETRY_SECONDS: Final = 2.0

# How long the CA from before stays in `caBundle`: kubelet brings a changed Secret to
# all replicas within two minutes.
KEEP_SECONDS: Final = 600.0

# Far more than it takes, also beside another replica.
MAX_STEPS: Final = 12

STOP_SECONDS: Final = 2.0

_ASKED_FOR_CERTIFICATE: Final = "CERTIFICATE_REQUIRED"


class EntryStore(Protocol):
    """Storage of the registration; `CertificateStore`, or a stand-in of the tests."""

    def read_registration(self) -> Registration | None:
        """Return the registration, None if there is none."""
        ...

    def merge_webhook(self, webhook: Tree, registration: Registration) -> None:
        """Add or change one webhook; raise `ConflictError` if others changed it."""
        ...

    def publish(self, bundle: tuple[bytes, ...], registration: Registration) -> None:
        """Have all webhooks trust a bundle; raise `ConflictError` if changed."""
        ...


class Registrar:
    """Keeps our entry in the registration; one thread calls `settle`, any may read.

    What a platform makes of the entry while it is written is left as it is: more terms
    of a selector always, anything else once it has been seen behind a write of ours.

    Parameters
    ----------
    name : str
        Of the registration.
    entry : mapping
        The webhook as it is to be, without `caBundle`.
    find_answer_fault : callable
        Returns why no call under a bundle is answered; empty if one is.
    """

    def __init__(
        self,
        store: EntryStore,
        name: str,
        entry: Tree,
        find_answer_fault: Callable[[tuple[bytes, ...]], str],
    ) -> None:
        self._store = store
        self._name = name
        self._entry = entry
        self.find_answer_fault = find_answer_fault
        self._has_written = False
        self._accepted: Tree | None = None
        self.fault = f"{name} has not been looked at yet"

    def settle(
        self, registration: Registration | None, bundle: tuple[bytes, ...]
    ) -> bool:
        """Write the entry if it is due; whether there was nothing to write.

        Raises `ConflictError` if somebody else has changed the registration.
        """
        try:
            return self._settle(registration, bundle)
        except ApiError as error:
            self.wait(str(error))
            return True

    def _settle(
        self, registration: Registration | None, bundle: tuple[bytes, ...]
    ) -> bool:
        if registration is None:
            self.wait(f"there is no MutatingWebhookConfiguration {self._name}")
            return True
        found = self._find(registration)
        if self._is_settled(found):
            self.fault = ""
            return True
        fault = self.find_answer_fault(bundle)
        if fault:
            self.wait(fault)
            return True
        change = _completed(self._entry, found, bundle)
        self._store.merge_webhook(change, registration)
        self._has_written = True
        logger.info("registration written", extra={"fields": {"is_new": found is None}})
        return False

    def wait(self, reason: str) -> None:
        """Note why the entry is not as it is to be; the log says it once."""
        reason = one_line(reason)
        if reason != self.fault:
            logger.warning(
                "registration waits, trying again", extra={"fields": {"reason": reason}}
            )
        self.fault = reason

    def _find(self, registration: Registration) -> Tree | None:
        """Return our entry as it was read."""
        name = self._entry["name"]
        return next((w for w in registration.webhooks if w["name"] == name), None)

    def _is_settled(self, found: Tree | None) -> bool:
        """Whether an entry is what we want, or what became of it."""
        if found is None:
            return False
        bare = _without_bundle(found)
        if self._has_written:
            self._has_written = False
            self._accepted = bare
        return bare == self._accepted or is_like(self._entry, found)


def is_like(wanted: Tree, found: Tree) -> bool:
    """Whether an entry has all that is wanted; selectors may have more terms.

    >>> term = {"key": "a", "operator": "NotIn", "values": ["x", "y"]}
    >>> other = {"key": "b", "operator": "DoesNotExist"}
    >>> wanted = {"namespaceSelector": {"matchExpressions": [term]}}
    >>> is_like(wanted, {"namespaceSelector": {"matchExpressions": [other, term]}})
    True
    >>> is_like(wanted, {"namespaceSelector": {"matchExpressions": [other]}})
    False
    """
    return all(
        _has_terms(value, found.get(key) or {})
        if key.endswith("Selector")
        else _contains(value, found.get(key))
        for key, value in wanted.items()
    )


def _has_terms(wanted: Tree, found: Tree) -> bool:
    there = found.get("matchExpressions") or ()
    return all(term in there for term in wanted["matchExpressions"])


def _contains(wanted: Any, found: Any) -> bool:
    """Whether a value is what is wanted; an object may have more fields."""
    if not isinstance(wanted, Mapping):
        return bool(wanted == found)
    return isinstance(found, Mapping) and all(
        _contains(value, found.get(key)) for key, value in wanted.items()
    )


def _completed(wanted: Tree, found: Tree | None, bundle: Sequence[bytes]) -> Tree:
    """Return the change that makes an entry what is wanted.

    Terms of selectors with other keys than ours are the platform's, and stay. So does
    `caBundle`, whose keeper knows more than we do.
    """
    if found is None:
        text = base64.b64encode(b"".join(bundle)).decode()
        return {**wanted, "clientConfig": {**wanted["clientConfig"], "caBundle": text}}
    change = dict(wanted)
    for key in ("namespaceSelector", "objectSelector"):
        ours = (wanted.get(key) or {}).get("matchExpressions", [])
        keys = {term["key"] for term in ours}
        there = (found.get(key) or {}).get("matchExpressions") or ()
        more = [term for term in there if term["key"] not in keys]
        if key in wanted and more:
            change[key] = {**wanted[key], "matchExpressions": [*ours, *more]}
    stale = {"url", "service"} & set(found["clientConfig"]) - set(
        wanted["clientConfig"]
    )
    change["clientConfig"] = {**dict.fromkeys(stale), **wanted["clientConfig"]}
    return change


def _without_bundle(webhook: Tree) -> Tree:
    config = {k: v for k, v in webhook["clientConfig"].items() if k != "caBundle"}
    return {**webhook, "clientConfig": config}


def find_answer_fault(
    client: Tree, bundle: Sequence[bytes], *, has_client_ca: bool = False
) -> str:
    """Return why a GET on an address is not answered; empty if it is.

    The server must show a certificate for the name that the API server calls, signed by
    a CA of the bundle. Where it asks for ours, which we have not, its own has passed.
    """
    url = urlsplit(client.get("url", ""))
    host, port = url.hostname or "", url.port or 443
    if "service" in client:
        service = client["service"]
        host, port = f"{service['name']}.{service['namespace']}.svc", service["port"]
    connection = None
    try:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        # As Go does, which has an intermediate CA in the bundle suffice.
        context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
        context.load_verify_locations(cadata=b"".join(bundle).decode())
        connection = http.client.HTTPSConnection(
            host, port, timeout=PROBE_SECONDS, context=context
        )
        connection.request("GET", PROBE_PATH, headers={"Connection": "close"})
        status = connection.getresponse().status
    except (OSError, ValueError, http.client.HTTPException) as error:
        reason = str(getattr(error, "reason", "") or "")
        if has_client_ca and _ASKED_FOR_CERTIFICATE in reason:
            return ""
        return f"{host}:{port} does not answer: {one_line(error)}"
    finally:
        if connection is not None:
            connection.close()
    if status != http.client.OK:
        return f"{host}:{port} does not answer: status {status}"
    return ""


class LookThread:
    """A thread that looks at once and then by intervals; sooner while the entry waits.

    Parameters
    ----------
    look : callable
        Must not raise.
    registrar : Registrar, optional
        Whose fault says that the entry waits.
    """

    def __init__(
        self,
        name: str,
        look: Callable[[], None],
        interval_seconds: float,
        registrar: Registrar | None,
    ) -> None:
        self._look = look
        self._interval_seconds = interval_seconds
        self._registrar = registrar
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        """Start looking."""
        self._thread.start()

    def stop(self, within_seconds: float) -> None:
        """Stop looking; a call under way is left behind after a while."""
        self._stopped.set()
        if self._thread.is_alive():
            self._thread.join(min(within_seconds, STOP_SECONDS))

    def _run(self) -> None:
        self._look()
        while not self._stopped.wait(
            next_look_seconds(self._interval_seconds, self._registrar)
        ):
            self._look()


class FileRegistration:
    """The thread that registers us with the CA of a file.

    A CA that was published before stays beside it for a while: other replicas may
    still show a certificate of it.

    Parameters
    ----------
    interval_seconds : float
        Between two looks.
    on_result : ReloadObserver
        Told after each look, under the name ``registration``.
    monotonic : callable
        Returns seconds.
    """

    def __init__(  # noqa: PLR0913 - the last is for tests
        self,
        store: EntryStore,
        registrar: Registrar,
        ca_file: Path,
        interval_seconds: float,
        on_result: ReloadObserver,
        *,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._store = store
        self._registrar = registrar
        self._ca_file = ca_file
        self._on_result = on_result
        self._monotonic = monotonic
        self._seen_seconds: dict[bytes, float] = {}  # another CA -> first seen
        self._thread = LookThread(
            "registration", self.look, interval_seconds, registrar
        )

    def start(self) -> None:
        """Start looking."""
        self._thread.start()

    def stop(self, within_seconds: float = STOP_SECONDS) -> None:
        """Stop looking; a call under way is left behind after a while."""
        self._thread.stop(within_seconds)

    def look(self) -> None:
        """Do what is to be done, and tell how that went."""
        try:
            self.check()
        except (ApiError, CertificateError, ConflictError) as error:
            self._registrar.wait(str(error))
        except Exception:
            logger.exception("registration could not be checked")
            self._registrar.wait("a fault of gpu-extender, see its log")
        self._on_result("registration", is_ok=not self._registrar.fault)

    def check(self) -> None:
        """Write the entry, or its bundle, if either is due."""
        for _ in range(MAX_STEPS):
            try:
                if self._is_settled():
                    return
            except ConflictError:  # it is read again
                continue
        raise ConflictError("the registration has been changed by others all the time")

    def _is_settled(self) -> bool:
        own = _read_ca(self._ca_file)
        registration = self._store.read_registration()
        if not self._registrar.settle(registration, own):
            return False
        published = None if registration is None else registration.published
        if registration is None or published is None:
            return True
        bundle = (*own, *self._kept(published, own))
        if self._registrar.fault or published.is_like(bundle):
            return True
        fault = self._registrar.find_answer_fault(bundle)
        if fault:
            self._registrar.wait(fault)
            return True
        self._store.publish(bundle, registration)
        fields = {"authorities": len(bundle)}
        logger.info("caBundle published", extra={"fields": fields})
        return False

    def _kept(self, published: Published, own: tuple[bytes, ...]) -> tuple[bytes, ...]:
        """Return other CAs that were first seen in the bundle a short while ago."""
        now = self._monotonic()
        others = {pem for one in published.bundles for pem in one}
        others -= set(own)
        seen = self._seen_seconds
        self._seen_seconds = {pem: seen.get(pem, now) for pem in sorted(others)}
        return tuple(
            pem
            for pem, since in self._seen_seconds.items()
            if now - since < KEEP_SECONDS
        )


def _read_ca(path: Path) -> tuple[bytes, ...]:
    """Return the certificates of a PEM file; raise `CertificateError` for none."""
    try:
        found = split_bundle(path.read_bytes())
    except OSError as error:
        raise CertificateError(f"CA {path.name}: {error.strerror}") from error
    except ValueError:
        found = ()
    if not found:
        raise CertificateError(f"CA {path.name}: wanted PEM certificates, got none")
    return found


def build_registrar(
    settings: WebhookSettings, store: CertificateStore | None, entry: Tree
) -> Registrar | None:
    """Return who adds our entry, None if somebody else does."""
    if settings.registration != "patched" or store is None:
        return None
    has_client_ca = settings.client_ca_file is not None

    def probe(bundle: tuple[bytes, ...]) -> str:
        client = entry["clientConfig"]
        return find_answer_fault(client, bundle, has_client_ca=has_client_ca)

    return Registrar(store, settings.self_signed.registration_name, entry, probe)


def build_file_registration(
    settings: WebhookSettings,
    folder: Path,
    store: CertificateStore | None,
    registrar: Registrar | None,
    on_result: ReloadObserver,
) -> FileRegistration | None:
    """Return the thread of a certificate from files, None where none is needed."""
    if registrar is None or store is None or settings.certificate_file is None:
        return None
    ca_file = (folder / settings.certificate_file).parent / "ca.crt"
    if settings.ca_file is not None:
        ca_file = folder / settings.ca_file
    interval_seconds = settings.self_signed.check_seconds
    return FileRegistration(store, registrar, ca_file, interval_seconds, on_result)


def next_look_seconds(interval_seconds: float, registrar: Registrar | None) -> float:
    """Return the time until the next look: sooner while the entry waits."""
    is_waiting = registrar is not None and bool(registrar.fault)
    return min(interval_seconds, RETRY_SECONDS) if is_waiting else interval_seconds
