"""A small client of the API server for the harness; the product has its own."""

from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from http import HTTPStatus
from pathlib import Path
from typing import Any, Final

import yaml

from tests.e2e.harness.builders import JsonObject
from tests.e2e.harness.connection import ApiConnection, ApiError, UnreachableError
from tests.e2e.harness.paths import Paths
from tests.e2e.harness.watching import WatchStream

MERGE_PATCH: Final = "application/merge-patch+json"
STRATEGIC_PATCH: Final = "application/strategic-merge-patch+json"
JSON_PATCH: Final = "application/json-patch+json"


class ApiClient:
    """Objects of any kind over one connection; safe to share between threads.

    Where an object lives in a namespace and none is named, it is `default`; lists and
    watches are over all namespaces unless one is named.
    """

    def __init__(self, connection: ApiConnection) -> None:
        self.connection = connection
        self._paths = Paths(lambda path: self.request("GET", path))

    def request(self, method: str, path: str, body: Any = None) -> JsonObject:
        """Make one call to a path and return the decoded answer."""
        return self.connection.request(method, path, body)[0]

    def is_ready(self) -> bool:
        """Whether the API server says that it is ready."""
        try:
            self.request("GET", "/readyz")
        except (ApiError, UnreachableError):
            return False
        return True

    def create(
        self, item: JsonObject, *, query: Mapping[str, str] | None = None
    ) -> JsonObject:
        """Create an object of any kind in the namespace that it names."""
        return self.create_with_warnings(item, query=query)[0]

    def create_with_warnings(
        self, item: JsonObject, *, query: Mapping[str, str] | None = None
    ) -> tuple[JsonObject, tuple[str, ...]]:
        """Create an object; return it with the warnings that came along."""
        path = self._paths.of_object(item)
        return self.connection.request("POST", path, item, query=query)

    def create_many(self, items: Iterable[JsonObject]) -> tuple[JsonObject, ...]:
        """Create objects in parallel; return them in the order given."""
        with ThreadPoolExecutor(self.connection.connections) as threads:
            return tuple(threads.map(self.create, items))

    def apply_file(self, path: Path) -> tuple[JsonObject, ...]:
        """Create every object of a YAML file, or replace it where it exists."""
        documents = yaml.safe_load_all(path.read_text(encoding="utf-8"))
        return tuple(self.apply(item) for item in documents if item)

    def apply(self, item: JsonObject) -> JsonObject:
        """Create an object, or replace the one of that name."""
        try:
            return self.create(item)
        except ApiError as error:
            if error.reason != "AlreadyExists":
                raise
        path = f"{self._paths.of_object(item)}/{item['metadata']['name']}"
        version = self.request("GET", path)["metadata"]["resourceVersion"]
        metadata = {**item["metadata"], "resourceVersion": version}
        return self.request("PUT", path, {**item, "metadata": metadata})

    def get(
        self,
        kind: str,
        name: str,
        *,
        namespace: str = "default",
        api_version: str = "v1",
    ) -> JsonObject:
        """Read one object."""
        path = self._paths.of_kind(kind, namespace, api_version)
        return self.request("GET", f"{path}/{name}")

    def exists(
        self,
        kind: str,
        name: str,
        *,
        namespace: str = "default",
        api_version: str = "v1",
    ) -> bool:
        """Whether there is an object of that name."""
        try:
            self.get(kind, name, namespace=namespace, api_version=api_version)
        except ApiError as error:
            if error.status != HTTPStatus.NOT_FOUND:
                raise
            return False
        return True

    def list(
        self,
        kind: str,
        *,
        namespace: str | None = None,
        api_version: str = "v1",
        query: Mapping[str, str] | None = None,
    ) -> tuple[JsonObject, ...]:
        """Read all objects of a kind."""
        page = self.list_page(
            kind, namespace=namespace, api_version=api_version, query=query
        )
        return tuple(page["items"])

    def list_page(
        self,
        kind: str,
        *,
        namespace: str | None = None,
        api_version: str = "v1",
        query: Mapping[str, str] | None = None,
    ) -> JsonObject:
        """Read a list with its metadata (resource version, continue token)."""
        path = self._paths.of_kind(kind, namespace, api_version)
        return self.connection.request("GET", path, query=query)[0]

    def watch(
        self,
        kind: str,
        *,
        resource_version: str,
        namespace: str | None = None,
        api_version: str = "v1",
        query: Mapping[str, str] | None = None,
    ) -> WatchStream:
        """Open a watch that starts after a resource version."""
        path = self._paths.of_kind(kind, namespace, api_version)
        return self.connection.open_watch(
            path, {"resourceVersion": resource_version, **(query or {})}
        )

    def patch(  # noqa: PLR0913 - what is not the usual is named
        self,
        kind: str,
        name: str,
        patch: Any,
        *,
        namespace: str = "default",
        api_version: str = "v1",
        subresource: str = "",
        content_type: str = MERGE_PATCH,
    ) -> JsonObject:
        """Patch an object, or its `status` with `subresource="status"`."""
        path = self._paths.of_kind(kind, namespace, api_version)
        url = f"{path}/{name}/{subresource}".rstrip("/")
        return self.connection.request("PATCH", url, patch, content_type=content_type)[
            0
        ]

    def delete(  # noqa: PLR0913 - what is not the usual is named
        self,
        kind: str,
        name: str,
        *,
        namespace: str = "default",
        api_version: str = "v1",
        grace_seconds: int | None = None,
        propagation: str = "Background",
    ) -> None:
        """Delete an object; 0 grace seconds ends a pod as its kubelet would."""
        path = self._paths.of_kind(kind, namespace, api_version)
        query = {"propagationPolicy": propagation}
        if grace_seconds is not None:
            query["gracePeriodSeconds"] = str(grace_seconds)
        self.connection.request("DELETE", f"{path}/{name}", query=query)

    def delete_many(
        self,
        kind: str,
        names: Iterable[str],
        *,
        namespace: str = "default",
        grace_seconds: int | None = 0,
    ) -> None:
        """Delete objects of one kind in parallel."""

        def delete_one(name: str) -> None:
            self.delete(kind, name, namespace=namespace, grace_seconds=grace_seconds)

        with ThreadPoolExecutor(self.connection.connections) as threads:
            list(threads.map(delete_one, names))

    def service_account_token(self, namespace: str, name: str) -> str:
        """Issue a token of a service account, as its pod would be given one."""
        path = f"/api/v1/namespaces/{namespace}/serviceaccounts/{name}/token"
        asked = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest"}
        token: str = self.request("POST", path, asked)["status"]["token"]
        return token
