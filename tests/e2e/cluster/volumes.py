"""Volumes of a pod: ConfigMaps, Secrets, tokens, downward API, empty folders.

What comes from objects is written as a kubelet does: into a folder with the time in its
name, which a link `..data` names, so that all files of a volume change at once.
"""

import base64
import contextlib
import os
import shutil
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from tests.e2e.harness.builders import JsonObject
from tests.e2e.harness.client import ApiClient
from tests.e2e.harness.connection import ApiError

DATA: Final = "..data"
TOKEN_SECONDS: Final = 3607
AUTHENTICATION: Final = "authentication.k8s.io/v1"
# Of its lifetime, after which a kubelet asks for the next token.
TOKEN_PART: Final = 0.8
DEFAULT_MODE: Final = 0o644


class VolumeError(RuntimeError):
    """What a volume is made of is not there yet, or is not known here."""


class Volumes:
    """The volumes of one pod, in a folder of their own. Owned by the pod's thread."""

    def __init__(
        self, client: ApiClient, pod: JsonObject, folder: Path, group: int | None
    ) -> None:
        self._client = client
        self._pod = pod
        self._folder = folder
        self._group = group
        self._tokens: dict[str, tuple[float, str]] = {}  # audience -> until, token
        self._written: dict[str, Mapping[str, tuple[bytes, int]]] = {}

    def path_of(self, name: str) -> Path:
        """Return where a volume is on this machine."""
        volume = self._volume(name)
        if "hostPath" in volume:
            return Path(volume["hostPath"]["path"])
        return self._folder / name

    def write(self) -> None:
        """Write what is new in the objects; raise `VolumeError` if one is missing."""
        for volume in self._pod["spec"].get("volumes", ()):
            name = volume["name"]
            folder = self._folder / name
            if "emptyDir" in volume:
                self._make_empty(folder)
            elif "hostPath" not in volume:
                files = dict(self._files_of(volume))
                if self._written.get(name) != files:
                    write_atomically(folder, files, self._group)
                    self._written[name] = files

    def _volume(self, name: str) -> JsonObject:
        volumes: Sequence[JsonObject] = self._pod["spec"].get("volumes", ())
        return next(volume for volume in volumes if volume["name"] == name)

    def _make_empty(self, folder: Path) -> None:
        if not folder.exists():
            folder.mkdir(parents=True)
            folder.chmod(0o777)
            if self._group is not None:
                os.chown(folder, -1, self._group)
                folder.chmod(0o2777)

    def _files_of(self, volume: JsonObject) -> Iterator[tuple[str, tuple[bytes, int]]]:
        """Yield relative path -> contents and mode."""
        if "projected" in volume:
            projected = volume["projected"]
            mode = projected.get("defaultMode", DEFAULT_MODE)
            for source in projected["sources"]:
                ((kind, said),) = source.items()
                yield from self._source(kind, said, mode)
            return
        for kind in ("configMap", "secret", "downwardAPI"):
            if kind in volume:
                said = volume[kind]
                named = {**said, "name": said.get("secretName", said.get("name"))}
                yield from self._source(
                    kind, named, said.get("defaultMode", DEFAULT_MODE)
                )
                return
        raise VolumeError(
            f"volume {volume['name']}: {sorted(volume)} is not known here"
        )

    def _source(
        self, kind: str, said: JsonObject, mode: int
    ) -> Iterator[tuple[str, tuple[bytes, int]]]:
        if kind == "serviceAccountToken":
            token = self._token(said).encode()
            yield said["path"], (token, 0o600 if self._group is None else 0o640)
        elif kind == "downwardAPI":
            for item in said["items"]:
                text = field_of(self._pod, item["fieldRef"]["fieldPath"])
                yield item["path"], (text.encode(), item.get("mode", mode))
        elif kind in {"configMap", "secret"}:
            yield from self._items(kind, said, mode)
        else:
            raise VolumeError(f"a volume of {kind} is not known here")

    def _items(
        self, kind: str, said: JsonObject, mode: int
    ) -> Iterator[tuple[str, tuple[bytes, int]]]:
        found = read_data(self._client, self._pod, kind, said)
        items = said.get("items")
        if items is None:
            yield from ((key, (found[key], mode)) for key in sorted(found))
            return
        for item in items:
            if item["key"] not in found and not said.get("optional"):
                raise VolumeError(f"{kind} {said['name']}: no key {item['key']}")
            if item["key"] in found:
                yield item["path"], (found[item["key"]], item.get("mode", mode))

    def _token(self, said: JsonObject) -> str:
        audience = said.get("audience", "")
        until, token = self._tokens.get(audience, (0.0, ""))
        if time.monotonic() < until:
            return token
        metadata = self._pod["metadata"]
        seconds = said.get("expirationSeconds", TOKEN_SECONDS)
        account = self._pod["spec"].get("serviceAccountName", "default")
        bound = {"kind": "Pod", "apiVersion": "v1"}
        bound |= {"name": metadata["name"], "uid": metadata["uid"]}
        asked: dict[str, Any] = {"expirationSeconds": seconds, "boundObjectRef": bound}
        if audience:
            asked["audiences"] = [audience]
        path = f"/api/v1/namespaces/{metadata['namespace']}/serviceaccounts/{account}"
        request = {"apiVersion": AUTHENTICATION, "kind": "TokenRequest", "spec": asked}
        try:
            answer = self._client.request("POST", f"{path}/token", request)
        except ApiError as error:
            raise VolumeError(f"token of {account}: {error.message}") from error
        issued: str = answer["status"]["token"]
        self._tokens[audience] = time.monotonic() + TOKEN_PART * seconds, issued
        return issued


def write_atomically(
    folder: Path, files: Mapping[str, tuple[bytes, int]], group: int | None
) -> None:
    """Have a folder show these files, all at once: path -> contents and mode."""
    folder.mkdir(parents=True, exist_ok=True)
    data = folder / DATA
    old = data.resolve() if data.is_symlink() else None
    new = folder / f"..{time.strftime('%Y_%m_%d_%H_%M_%S')}.{time.monotonic_ns()}"
    for name, (contents, mode) in files.items():
        path = new / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(contents)
        if group is not None:
            os.chown(path, -1, group)
        path.chmod(mode if group is None else mode | 0o040)
    new.mkdir(exist_ok=True)
    link = folder / "..data_tmp"
    link.unlink(missing_ok=True)
    link.symlink_to(new.name)
    link.replace(data)
    firsts = {name.partition("/")[0] for name in files}
    for first in firsts:
        if not (folder / first).is_symlink():
            (folder / first).symlink_to(f"{DATA}/{first}")
    for path in folder.iterdir():
        if path.is_symlink() and path != data and path.name not in firsts:
            path.unlink()
    if old is not None:
        shutil.rmtree(old, ignore_errors=True)


def read_data(
    client: ApiClient, pod: JsonObject, kind: str, said: JsonObject
) -> Mapping[str, bytes]:
    """Return the contents of a ConfigMap or Secret; `VolumeError` if it is missing."""
    kinds = {"configMap": "ConfigMap", "secret": "Secret"}
    namespace = pod["metadata"]["namespace"]
    try:
        found = client.get(kinds[kind], said["name"], namespace=namespace)
    except ApiError as error:
        if said.get("optional") and error.reason == "NotFound":
            return {}
        raise VolumeError(f"{kind} {said['name']}: {error.message}") from error
    decode: Callable[[str], bytes] = base64.b64decode
    if kind == "configMap":
        binary = found.get("binaryData") or {}
        plain = {k: v.encode() for k, v in (found.get("data") or {}).items()}
        return {**plain, **{key: decode(text) for key, text in binary.items()}}
    return {key: decode(text) for key, text in (found.get("data") or {}).items()}


def field_of(pod: JsonObject, path: str) -> str:
    """Return what the downward API says of a pod."""
    metadata = pod["metadata"]
    for kind in ("labels", "annotations"):
        if path.startswith(f"metadata.{kind}['"):
            key = path[len(f"metadata.{kind}['") : -2]
            return str(metadata.get(kind, {}).get(key, ""))
        if path == f"metadata.{kind}":
            return "".join(f'{k}="{v}"\n' for k, v in metadata.get(kind, {}).items())
    value: Any = pod
    for step in path.split("."):
        with contextlib.suppress(AttributeError):
            value = value.get(step, "")
    return str(value)
