import base64
import json
from collections.abc import Mapping
from typing import Any, Final

import pytest

from cluster.api.protocol import ApiError
from service.certificates.rotation import Contents, Published
from service.certificates.store import (
    AUTHORITIES,
    CERTIFICATE,
    KEY,
    REGISTRATIONS,
    CertificateStore,
    ConflictError,
    Registration,
    Stored,
    decode_contents,
    encode_contents,
)
from service.certificates.x509 import issue_leaf, make_authority
from tests.fakes.api import NoApi

NOW: Final = 1_900_000_000.0
OLD: Final = make_authority(NOW, 1000).retired(NOW + 1)
NEW: Final = make_authority(NOW, 1000)
LEAF: Final = issue_leaf(NEW, ["127.0.0.1"], NOW, 500)
CONTENTS: Final = Contents((OLD, NEW), LEAF)
SECRETS: Final = "/api/v1/namespaces/ns/secrets"


class Objects(NoApi):
    """API objects by path; `refuse` is a status that every change is answered with."""

    def __init__(self, refuse: int = 0, **trees: Any) -> None:
        paths = {"secret": f"{SECRETS}/s", "registration": f"{REGISTRATIONS}/r"}
        self.trees = {paths[name]: tree for name, tree in trees.items()}
        self.changes: list[tuple[str, str, Any]] = []
        self._refuse = refuse

    def read(self, path: str) -> bytes:
        if path not in self.trees:
            raise ApiError("not found", reason="http_404", status=404)
        if self.trees[path] is None:
            raise ApiError("forbidden", reason="http_403", status=403)
        return json.dumps(self.trees[path]).encode()

    def create(self, path: str, body: bytes) -> None:
        self._change("create", path, body)

    def replace(self, path: str, body: bytes) -> None:
        self._change("replace", path, body)

    def merge(self, path: str, body: bytes) -> None:
        self._change("merge", path, body)

    def _change(self, verb: str, path: str, body: bytes) -> None:
        if self._refuse:
            raise ApiError("no", reason="no", status=self._refuse)
        self.changes.append((verb, path, json.loads(body)))


def store_of(objects: Objects) -> CertificateStore:
    return CertificateStore(objects, "ns", "s", "r")


def encoded(data: Mapping[str, bytes]) -> dict[str, str]:
    return {name: base64.b64encode(value).decode() for name, value in data.items()}


def registration(*bundles: bytes | None) -> Any:
    webhooks = []
    for place, bundle in enumerate(bundles):
        config = {"service": {"name": "x"}}
        if bundle is not None:
            config |= {"caBundle": base64.b64encode(bundle).decode()}  # type: ignore[dict-item]  # a tree of JSON
        webhooks.append({"name": f"w{place}", "clientConfig": config})
    return {"metadata": {"resourceVersion": "7"}, "webhooks": webhooks}


def test_what_was_written_is_read_again() -> None:
    assert decode_contents(encode_contents(CONTENTS)) == CONTENTS
    assert decode_contents(encode_contents(Contents((NEW,)))) == Contents((NEW,))


@pytest.mark.parametrize(
    ("data", "fault"),
    [
        pytest.param({}, "wanted the key authorities.json", id="empty"),
        pytest.param({AUTHORITIES: b"{"}, "authorities.json: ", id="no JSON"),
        pytest.param({AUTHORITIES: b"[]"}, "got none", id="no authority"),
        pytest.param(
            {AUTHORITIES: b'[{"certificate": "x"}]'}, r"PEM|pem", id="no certificate"
        ),
        pytest.param(
            encode_contents(Contents((OLD,))), "a CA with its key", id="no key"
        ),
    ],
)
def test_data_that_are_not_ours_are_an_error(
    data: dict[str, bytes], fault: str
) -> None:
    with pytest.raises(ValueError, match=fault):
        decode_contents(data)


@pytest.mark.parametrize(
    "change",
    [
        pytest.param({CERTIFICATE: b"", KEY: b""}, id="missing"),
        pytest.param({CERTIFICATE: b"none"}, id="no certificate"),
        pytest.param({KEY: NEW.key}, id="another's key"),
        pytest.param({CERTIFICATE: NEW.certificate, KEY: NEW.key}, id="no server's"),
    ],
)
def test_a_leaf_that_is_not_right_is_left_out(change: dict[str, bytes]) -> None:
    found = decode_contents(encode_contents(CONTENTS) | change)

    assert found == Contents((OLD, NEW))


def test_missing_objects_are_told_from_those_that_may_not_be_read() -> None:
    assert store_of(Objects()).read_registration() is None
    assert store_of(Objects()).read_secret() == Stored(None, None)
    refused = store_of(Objects(secret=None, registration=None))
    with pytest.raises(ApiError, match="forbidden"):
        refused.read_registration()
    with pytest.raises(ApiError, match="forbidden"):
        refused.read_secret()


@pytest.mark.parametrize(
    ("data", "count"), [(None, 0), ({}, 0), ({"x": "eA=="}, 1), ({AUTHORITIES: "%"}, 1)]
)
def test_only_what_cannot_be_read_in_a_secret_is_a_warning(
    data: Any, count: int, caplog: pytest.LogCaptureFixture
) -> None:
    tree = {"metadata": {"resourceVersion": "3"}, "data": data}
    if data is None:
        del tree["data"]

    assert store_of(Objects(secret=tree)).read_secret().contents is None
    assert [record.levelname for record in caplog.records] == ["WARNING"] * count


@pytest.mark.parametrize("data", [None, {}, {"x": "eA=="}, {AUTHORITIES: "%"}])
def test_a_faulty_secret_is_replaced_with_its_labels_kept(data: Any) -> None:
    tree = {"metadata": {"labels": {"a": "b"}, "resourceVersion": "3"}, "data": data}
    objects = Objects(secret=tree)
    store = store_of(objects)

    stored = store.read_secret()
    store.write(CONTENTS, stored)

    assert stored.contents is None
    (change,) = objects.changes
    assert change == (
        "replace",
        f"{SECRETS}/s",
        {
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": tree["metadata"],
            "data": encoded(encode_contents(CONTENTS)),
        },
    )


def test_a_missing_secret_is_created() -> None:
    objects = Objects()
    store = store_of(objects)

    store.write(CONTENTS, store.read_secret())

    ((verb, path, tree),) = objects.changes
    assert (verb, path) == ("create", SECRETS)
    assert tree["metadata"] == {"namespace": "ns", "name": "s"}


def test_the_bundles_of_all_webhooks_are_read() -> None:
    both = NEW.certificate + OLD.certificate
    objects = Objects(registration=registration(both, None, b"\n", b"none"))

    found = store_of(objects).read_registration()

    assert found is not None
    assert found.published == Published(
        ((NEW.certificate, OLD.certificate), (), (), ())
    )
    assert (found.names, found.version) == (("w0", "w1", "w2", "w3"), "7")


@pytest.mark.parametrize("webhooks", [[], None, "missing"])
def test_a_registration_without_webhooks_publishes_nothing(webhooks: Any) -> None:
    tree = {**registration(), "webhooks": webhooks}
    if webhooks == "missing":
        del tree["webhooks"]

    found = store_of(Objects(registration=tree)).read_registration()

    assert found == Registration(None, (), "7")


def test_a_webhook_is_merged_into_the_version_read() -> None:
    objects = Objects(registration=registration())
    store = store_of(objects)
    found = store.read_registration()
    assert found is not None

    store.merge_webhook({"name": "w"}, found)

    ((verb, _, change),) = objects.changes
    wanted = {"metadata": {"resourceVersion": "7"}, "webhooks": [{"name": "w"}]}
    assert (verb, change) == ("merge", wanted)


def test_a_registration_that_does_not_decode_is_an_error() -> None:
    with pytest.raises(ApiError) as caught:
        store_of(Objects(registration=[])).read_registration()

    assert caught.value.reason == "undecodable"


def test_a_bundle_is_published_to_each_webhook_of_the_version_read() -> None:
    objects = Objects(registration=registration(None, None))
    store = store_of(objects)
    found = store.read_registration()
    assert found is not None

    store.publish((OLD.certificate, NEW.certificate), found)

    bundle = base64.b64encode(OLD.certificate + NEW.certificate).decode()
    config = {"clientConfig": {"caBundle": bundle}}
    assert objects.changes == [
        (
            "merge",
            f"{REGISTRATIONS}/r",
            {
                "metadata": {"resourceVersion": "7"},
                "webhooks": [{"name": "w0", **config}, {"name": "w1", **config}],
            },
        )
    ]


@pytest.mark.parametrize(
    ("status", "error"),
    [
        pytest.param(409, ConflictError, id="changed or made meanwhile"),
        pytest.param(404, ConflictError, id="deleted meanwhile"),
        pytest.param(403, ApiError, id="forbidden"),
    ],
)
def test_a_refused_change_is_a_conflict_or_an_error(
    status: int, error: type[Exception]
) -> None:
    store = store_of(Objects(status, registration=registration(None)))
    found = store.read_registration()
    assert found is not None

    with pytest.raises(error):
        store.publish((), found)
    with pytest.raises(error):
        store.write(CONTENTS, Stored(None, None))
