"""`Rotator`: the thread that keeps certificates of our own up to date."""

import contextlib
import logging
import os
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Final, Protocol

from cluster.api.protocol import Api, ApiError
from service.certificates.files import (
    Certificate,
    Pair,
    ServedCertificate,
    load_pair,
    make_context,
)
from service.certificates.registrar import STOP_SECONDS, LookThread, Registrar
from service.certificates.rotation import (
    Contents,
    Published,
    RotationOptions,
    Write,
    may_serve,
    next_step,
    trusted_until_seconds,
)
from service.certificates.store import (
    CertificateStore,
    ConflictError,
    Registration,
    Stored,
)
from service.certificates.x509 import Leaf
from service.reload import ReloadObserver, WatchedFiles
from service.settings.process import SelfSignedSettings, WebhookSettings

logger = logging.getLogger(__name__)

# Far more than a rotation takes, also beside another replica.
MAX_STEPS: Final = 12


class Store(Protocol):
    """Storage of certificates; `CertificateStore`, or a stand-in of the tests."""

    def read_registration(self) -> Registration | None:
        """Return the registration, None if there is none."""
        ...

    def read_secret(self) -> Stored:
        """Return the Secret."""
        ...

    def write(self, contents: Contents, stored: Stored) -> None:
        """Create or replace the Secret; raise `ConflictError` if it has changed."""
        ...

    def publish(self, bundle: tuple[bytes, ...], registration: Registration) -> None:
        """Have all webhooks trust a bundle; raise `ConflictError` if changed."""
        ...


class Rotator:
    """A served certificate that is kept in a Secret and rotated.

    One thread calls `check`, another may call `load`; any may read.

    Parameters
    ----------
    interval_seconds : float
        Between two checks.
    on_result : ReloadObserver
        Told after each check, under the name ``certificate``.
    client_ca : Path, optional
        Clients must show a certificate that it has signed.
    registrar : Registrar, optional
        Adds our entry to the registration; without one somebody else does.
    clock : callable
        Returns seconds since 1970.
    """

    def __init__(  # noqa: PLR0913 - the last three are optional
        self,
        store: Store,
        options: RotationOptions,
        interval_seconds: float,
        on_result: ReloadObserver,
        *,
        client_ca: Path | None = None,
        registrar: Registrar | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._store = store
        self._options = options
        self._on_result = on_result
        self._client_ca = client_ca
        self._registrar = registrar
        self._clock = clock
        self._lock = threading.Lock()  # over what is loaded
        self._leaf: Leaf | None = None
        self._pair: Pair | None = None
        self._no_pair = make_context(client_ca)  # handshakes fail, politely
        self._is_trusted = False
        # Until when the CA of what is served is trusted, if nobody tells us more, and
        # when that was last known.
        self._trusted_until_seconds = clock()
        self._known_seconds = clock()
        self._is_failing = False
        self._thread = LookThread(
            "certificates", self.look, interval_seconds, registrar
        )

    # --- what is served ------------------------------------------------------

    @property
    def files(self) -> tuple[Path, ...]:
        """Files that `load` reads."""
        return () if self._client_ca is None else (self._client_ca,)

    @property
    def context(self) -> ssl.SSLContext:
        """Context for handshakes of new connections."""
        pair = self._pair
        return self._no_pair if pair is None else pair.context

    @property
    def ends_seconds(self) -> float | None:
        """End of the pair in use, in seconds since 1970; None while there is none."""
        pair = self._pair
        return None if pair is None else pair.ends_seconds

    @property
    def pem(self) -> bytes:
        """What clients are shown, as PEM; empty while there is nothing."""
        pair = self._pair
        return b"" if pair is None else pair.pem

    def not_ready_reasons(self) -> list[str]:
        """Return why no client would take the pair in use; empty if one might."""
        pair, now = self._pair, self._clock()
        if pair is None:
            return ["certificate: none is published yet"]
        if not self._is_trusted:
            return ["certificate: its CA is not in the caBundle of the registration"]
        if now >= self._trusted_until_seconds:  # the others may have dropped its CA
            age = now - self._known_seconds
            return [f"certificate: last seen in the Secret {age:.0f} s ago"]
        return pair.not_ready_reasons(now)

    def load(self) -> None:
        """Take the CA for clients as it is now; raise `CertificateError`."""
        with self._lock:
            self._no_pair = make_context(self._client_ca)
            if self._leaf is not None:
                self._pair = load_leaf(self._leaf, self._client_ca)

    def is_due(self) -> bool:
        """Whether the file is to be read although unchanged: never."""
        return False

    # --- how it is kept up to date -------------------------------------------

    def start(self) -> None:
        """Start checking."""
        self._thread.start()

    def stop(self, within_seconds: float = STOP_SECONDS) -> None:
        """Stop checking; a call under way is left behind after a while."""
        self._thread.stop(within_seconds)

    def look(self) -> None:
        """Check, and tell how that went."""
        try:
            self.check()
        except (ApiError, ConflictError) as error:
            self._fail(str(error))
        except Exception:
            logger.exception("certificates could not be checked")
            self._on_result("certificate", is_ok=False)
        else:
            self._is_failing = False
            self._on_result("certificate", is_ok=True)
        if self._registrar is not None:
            self._on_result("registration", is_ok=not self._registrar.fault)

    def _fail(self, reason: str) -> None:
        """Tell that a check has failed; the log says it once."""
        if not self._is_failing:
            logger.warning(
                "certificates not checked, trying again",
                extra={"fields": {"reason": reason}},
            )
        self._is_failing = True
        self._on_result("certificate", is_ok=False)

    def check(self) -> None:
        """Do all that is to be done now.

        Raises
        ------
        ApiError
            If the API server refuses, or does not answer.
        ConflictError
            If others change the same objects all the time.
        """
        for _ in range(MAX_STEPS):
            with contextlib.suppress(ConflictError):  # it is read again
                if self._is_settled():
                    return
        raise ConflictError("the objects have been changed by others at each attempt")

    def _is_settled(self) -> bool:
        """Read both objects and take one step; whether there was none to take."""
        begun = self._clock()
        # In this order: see `next_step`.
        registration = self._store.read_registration()
        stored = self._store.read_secret()
        now = self._clock()
        if now - begun > self._options.switch_delay_seconds:
            raise ConflictError("reading took too long")
        published = None if registration is None else registration.published
        self._take(stored.contents, published, begun)
        step = next_step(stored.contents, published, now, self._options)
        if step is None:
            if self._registrar is None or stored.contents is None:
                return True
            return self._registrar.settle(registration, stored.contents.bundle)
        if isinstance(step, Write):
            self._store.write(step.contents, stored)
            _log_write(stored.contents, step.contents)
        elif registration is not None:
            self._store.publish(step.bundle, registration)
            fields = {"authorities": len(step.bundle)}
            logger.info("caBundle published", extra={"fields": fields})
        return False

    def _take(
        self, contents: Contents | None, published: Published | None, begun: float
    ) -> None:
        """Serve the Secret's leaf from now on, if those who call us trust it."""
        leaf = None if contents is None else contents.leaf
        with self._lock:
            if leaf is not None and leaf != self._leaf and may_serve(leaf, published):
                self._pair = load_leaf(leaf, self._client_ca)
                self._leaf = leaf
                logger.info(
                    "certificate in use",
                    extra={"fields": {"ends_seconds": leaf.ends_seconds}},
                )
            self._is_trusted = self._leaf is not None and may_serve(
                self._leaf, published
            )
        self._note_trust(contents, begun)

    def _note_trust(self, contents: Contents | None, begun: float) -> None:
        """Note how long the CA of what is served is trusted, where the Secret says it.

        A Secret that does not list it says nothing: others may have put it there again,
        and dropped it, by the time that we look again.
        """
        if self._leaf is None or contents is None:
            return
        until = trusted_until_seconds(contents, self._leaf, begun, self._options)
        if until is not None:
            self._trusted_until_seconds = until
            self._known_seconds = begun


def load_leaf(leaf: Leaf, client_ca: Path | None = None) -> Pair:
    """Return a fresh context for a leaf, whose key touches no disk."""
    with _in_memory(leaf.certificate) as certificate, _in_memory(leaf.key) as key:
        pair = load_pair(certificate, key, client_ca)
    return replace(pair, name="of our own")


@contextlib.contextmanager
def _in_memory(data: bytes) -> Iterator[Path]:
    """Make a file that exists in memory only; the library reads files alone."""
    descriptor = os.memfd_create("pem")
    try:
        os.write(descriptor, data)
        yield Path(f"/proc/self/fd/{descriptor}")
    finally:
        os.close(descriptor)


def _log_write(old: Contents | None, new: Contents) -> None:
    """Log what has changed in the Secret."""
    before = () if old is None else old.bundle
    fields = {
        "authorities": len(new.bundle),
        "authorities_added": len(set(new.bundle) - set(before)),
        "authorities_dropped": len(set(before) - set(new.bundle)),
        "is_leaf_new": old is None or old.leaf != new.leaf,
    }
    logger.info("certificates written", extra={"fields": fields})


def connect_store(
    settings: WebhookSettings, connect: Callable[[], Api]
) -> CertificateStore | None:
    """Return where certificate and registration are kept, None if we keep neither."""
    own = settings.self_signed
    if not own.enabled and settings.registration != "patched":
        return None
    names = own.namespace, own.secret_name, own.registration_name
    return CertificateStore(connect(), *names)


def load_certificate(
    settings: WebhookSettings,
    folder: Path,
    store: CertificateStore | None,
    on_result: ReloadObserver,
    registrar: Registrar | None = None,
) -> ServedCertificate | None:
    """Return the certificate that the settings name, None if they do not.

    Raises `CertificateError` for files that cannot be served.
    """
    client_ca = None
    if settings.client_ca_file is not None:
        client_ca = folder / settings.client_ca_file
    own = settings.self_signed
    if own.enabled and store is not None:
        return build_rotator(own, store, on_result, client_ca, registrar)
    if settings.certificate_file is None or settings.key_file is None:
        return None
    return Certificate(
        folder / settings.certificate_file,
        folder / settings.key_file,
        client_ca=client_ca,
    )


def build_rotator(
    settings: SelfSignedSettings,
    store: Store,
    on_result: ReloadObserver,
    client_ca: Path | None = None,
    registrar: Registrar | None = None,
) -> Rotator:
    """Return a certificate of our own, which is kept in `store`."""
    options = RotationOptions(
        frozenset(settings.dns_names + settings.ip_addresses),
        settings.leaf_lifetime_seconds,
        settings.leaf_rotation_seconds,
        settings.ca_lifetime_seconds,
        settings.ca_rotation_seconds,
        settings.switch_delay_seconds,
        settings.drop_delay_seconds,
    )
    return Rotator(
        store,
        options,
        settings.check_seconds,
        on_result,
        client_ca=client_ca,
        registrar=registrar,
    )


def watch_files(certificate: ServedCertificate | None) -> list[WatchedFiles]:
    """Return the files of a certificate that are to be read when they change."""
    if certificate is None or not certificate.files:
        return []
    # That of the Secret tells of itself.
    name = "clientCa" if isinstance(certificate, Rotator) else "certificate"
    load, is_due = certificate.load, certificate.is_due
    return [WatchedFiles(name, certificate.files, load, is_due)]
