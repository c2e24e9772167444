import base64
import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import pytest

from cluster.api.protocol import ApiError
from service.certificates.registrar import (
    KEEP_SECONDS,
    MAX_STEPS,
    FileRegistration,
    Registrar,
    next_look_seconds,
)
from service.certificates.rotation import Published
from service.certificates.store import ConflictError, Registration
from service.certificates.x509 import make_authority
from service.registration import build_entry
from service.settings.settings import Settings

CA: Final = make_authority(1_900_000_000.0, 1e8).certificate
NEW_CA: Final = make_authority(1_900_000_000.0, 1e8).certificate
ENTRY: Final = build_entry(Settings())
PLATFORM_TERM: Final = {"key": "control-plane", "operator": "DoesNotExist"}


class Store:
    """A registration in memory; `platform` changes each entry that is written."""

    def __init__(self, platform: Callable[[Any], None] = lambda _: None) -> None:
        self.webhooks: dict[str, Any] = {}
        self.is_there = True
        self.version = 1
        self.writes: list[Any] = []
        self.bundles: list[tuple[bytes, ...]] = []
        self.failures: list[Exception] = []
        self._platform = platform

    def read_registration(self) -> Registration | None:
        if not self.is_there:
            return None
        webhooks = tuple(copy.deepcopy(list(self.webhooks.values())))
        bundles = tuple(
            tuple(self.bundles[-1]) if self.bundles else () for _ in webhooks
        )
        published = Published(bundles) if webhooks else None
        return Registration(
            published, tuple(self.webhooks), str(self.version), webhooks
        )

    def merge_webhook(self, webhook: Any, registration: Registration) -> None:
        self._check(registration)
        bundle = webhook["clientConfig"].get("caBundle")
        if bundle is not None:
            self.bundles.append((base64.b64decode(bundle),))
        self.writes.append(webhook)
        stored = self.webhooks.setdefault(webhook["name"], {})
        stored.update(copy.deepcopy(webhook))
        self._platform(stored)
        self.version += 1

    def publish(self, bundle: tuple[bytes, ...], registration: Registration) -> None:
        self._check(registration)
        self.bundles.append(bundle)
        self.version += 1

    def _check(self, registration: Registration) -> None:
        if self.failures:
            raise self.failures.pop(0)
        assert registration.version == str(self.version)


def make_registrar(store: Store, fault: str = "", entry: Any = ENTRY) -> Registrar:
    return Registrar(store, "gpu-extender", entry, lambda _bundle: fault)


def settle(registrar: Registrar, store: Store) -> int:
    """Look until nothing is left to write; return how often something was."""
    before = len(store.writes)
    while not registrar.settle(store.read_registration(), (CA,)):
        pass
    return len(store.writes) - before


def test_the_entry_comes_once_the_address_answers() -> None:
    store = Store()

    assert settle(make_registrar(store, "hook.ns.svc:443 does not answer"), store) == 0
    registrar = make_registrar(store)
    assert settle(registrar, store) == 1

    (webhook,) = store.writes
    bundle = webhook["clientConfig"].pop("caBundle")
    assert (webhook, base64.b64decode(bundle)) == (ENTRY, CA)
    assert registrar.fault == ""
    assert settle(registrar, store) == 0


def test_why_it_waits_is_told_and_logged_once(caplog: Any) -> None:
    store = Store()
    registrar = make_registrar(store, "hook.ns.svc:443 does not answer:\n timed out")

    settle(registrar, store)
    settle(registrar, store)

    assert registrar.fault == "hook.ns.svc:443 does not answer: timed out"
    assert len(caplog.records) == 1
    assert next_look_seconds(10, registrar) == 2
    assert next_look_seconds(10, make_registrar(store)) == 2
    assert next_look_seconds(10, None) == 10


def test_nothing_is_made_where_no_registration_is() -> None:
    store = Store()
    store.is_there = False
    registrar = make_registrar(store)

    assert settle(registrar, store) == 0
    assert registrar.fault == "there is no MutatingWebhookConfiguration gpu-extender"


def add_term(webhook: Any) -> None:
    terms = webhook["namespaceSelector"]["matchExpressions"]
    if PLATFORM_TERM not in terms:
        terms.append(PLATFORM_TERM)


def add_value(webhook: Any) -> None:
    values = webhook["namespaceSelector"]["matchExpressions"][0]["values"]
    if "managed" not in values:
        values.append("managed")


def select_objects(webhook: Any) -> None:
    webhook["objectSelector"] = {"matchExpressions": [PLATFORM_TERM]}
    webhook["namespaceSelector"]["matchLabels"] = {"tenant": "yes"}


def ignore_failures(webhook: Any) -> None:
    webhook["failurePolicy"] = "Ignore"


@pytest.mark.parametrize(
    ("platform", "again"),
    [
        pytest.param(add_term, 0, id="a term of its own"),
        pytest.param(select_objects, 0, id="labels and another selector"),
        # Whoever starts next cannot know that it is the platform's, and finds out.
        pytest.param(add_value, 1, id="a value in our term"),
        pytest.param(ignore_failures, 1, id="another policy"),
    ],
)
def test_what_a_platform_makes_of_the_entry_is_tolerated(
    platform: Callable[[Any], None], again: int
) -> None:
    store = Store(platform)
    registrar = make_registrar(store)

    assert settle(registrar, store) == 1
    assert settle(registrar, store) == 0
    assert settle(make_registrar(store), store) == again


def test_other_settings_change_the_entry_and_keep_bundle_and_foreign_terms() -> None:
    store = Store(add_term)
    settle(make_registrar(store), store)
    other = build_entry(
        Settings.model_validate_json(
            '{"webhook": {"url": "https://10.0.0.1:8443"},'
            ' "injection": {"skippedNamespaces": ["kube-system"]}}'
        )
    )

    assert settle(make_registrar(store, entry=other), store) == 1

    change = store.writes[-1]
    terms = change["namespaceSelector"]["matchExpressions"]
    client = {"url": "https://10.0.0.1:8443/mutate", "service": None}
    assert change["clientConfig"] == client  # no caBundle: that stays
    assert terms[0]["values"] == ["kube-system"]
    assert terms[-1] == PLATFORM_TERM


def test_an_entry_that_was_taken_away_comes_again() -> None:
    store = Store(ignore_failures)
    registrar = make_registrar(store)
    settle(registrar, store)

    store.webhooks.clear()

    assert settle(registrar, store) == 1


def test_a_refusal_is_told_and_a_conflict_is_raised() -> None:
    store = Store()
    store.failures += [ApiError("no right", reason="http_403", status=403)]
    registrar = make_registrar(store)

    assert settle(registrar, store) == 0
    assert registrar.fault == "no right"

    store.failures += [ConflictError("changed")]
    with pytest.raises(ConflictError):
        settle(registrar, store)
    assert settle(registrar, store) == 1
    assert registrar.fault == ""


class FileFace:
    """A registration from a file, with its clock and what it told."""

    def __init__(self, store: Store, folder: Path, fault: str = "") -> None:
        self.now = 0.0
        self.told: list[bool] = []
        self.ca_file = folder / "ca.crt"
        self.ca_file.write_bytes(CA)
        self.registrar = make_registrar(store, fault)
        self.keeper = FileRegistration(
            store,
            self.registrar,
            self.ca_file,
            10.0,
            self.note,
            monotonic=lambda: self.now,
        )

    def note(self, name: str, *, is_ok: bool) -> None:
        assert name == "registration"
        self.told.append(is_ok)

    def look(self) -> bool:
        self.keeper.look()
        return self.told[-1]


def test_the_ca_of_the_file_is_published_and_the_old_one_kept_for_a_while(
    tmp_path: Path,
) -> None:
    store = Store()
    face = FileFace(store, tmp_path)

    assert face.look()
    assert store.bundles == [(CA,)]
    face.ca_file.write_bytes(NEW_CA)
    assert face.look()
    face.now += KEEP_SECONDS - 1
    assert face.look()
    assert store.bundles == [(CA,), (NEW_CA, CA)]
    face.now += 2
    assert face.look()
    assert store.bundles[2:] == [(NEW_CA,)]


@pytest.mark.parametrize(
    ("contents", "fault"),
    [
        pytest.param(None, "CA ca.crt: No such file or directory", id="missing"),
        pytest.param(b"", "CA ca.crt: wanted PEM certificates, got none", id="empty"),
        pytest.param(b"-----BEGIN CERTIFICATE-----\n", "CA ca.crt: wanted", id="half"),
    ],
)
def test_a_ca_that_cannot_be_read_is_told_and_nothing_written(
    tmp_path: Path, contents: bytes | None, fault: str
) -> None:
    store = Store()
    face = FileFace(store, tmp_path)
    if contents is None:
        face.ca_file.unlink()
    else:
        face.ca_file.write_bytes(contents)

    assert not face.look()

    assert face.registrar.fault.startswith(fault)
    assert (store.writes, store.bundles) == ([], [])
    face.ca_file.write_bytes(CA)
    assert face.look()


def test_a_new_ca_that_nobody_answers_under_is_not_published(tmp_path: Path) -> None:
    store = Store()
    assert FileFace(store, tmp_path).look()
    face = FileFace(store, tmp_path, "a:443 does not answer")
    face.ca_file.write_bytes(NEW_CA)

    assert not face.look()

    assert store.bundles == [(CA,)]


def test_conflicts_are_read_again_but_not_for_ever(tmp_path: Path) -> None:
    store = Store()
    face = FileFace(store, tmp_path)
    store.failures += [ConflictError("changed")] * 4
    assert face.look()

    other = Store()
    other.failures += [ConflictError("changed")] * MAX_STEPS
    face = FileFace(other, tmp_path)
    assert not face.look()


def test_a_fault_of_our_own_is_told_and_it_goes_on(tmp_path: Path, caplog: Any) -> None:
    store = Store()
    store.failures += [TypeError("ours")]
    face = FileFace(store, tmp_path)

    assert not face.look()

    assert caplog.records[0].message == "registration could not be checked"
    assert face.look()
