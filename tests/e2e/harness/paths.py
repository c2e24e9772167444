"""Where the API server serves a kind, as it says itself."""

from collections.abc import Callable
from typing import Any

from tests.e2e.harness.builders import JsonObject


class Paths:
    """Request paths by API version and kind, learned once for each version."""

    def __init__(self, get: Callable[[str], JsonObject]) -> None:
        self._get = get
        # (API version, kind) -> (plural name, whether it lives in a namespace)
        self._kinds: dict[tuple[str, str], tuple[str, bool]] = {}

    def of_kind(self, kind: str, namespace: str | None, api_version: str) -> str:
        """Return the path of a collection; without a namespace, of all of them."""
        plural, is_namespaced = self._find(api_version, kind)
        root = _root(api_version)
        if is_namespaced and namespace is not None:
            return f"{root}/namespaces/{namespace}/{plural}"
        return f"{root}/{plural}"

    def of_object(self, item: JsonObject) -> str:
        """Return the path of the collection that an object belongs to."""
        namespace: Any = item["metadata"].get("namespace", "default")
        return self.of_kind(item["kind"], namespace, item["apiVersion"])

    def _find(self, api_version: str, kind: str) -> tuple[str, bool]:
        if (api_version, kind) not in self._kinds:
            for entry in self._get(_root(api_version))["resources"]:
                if "/" not in entry["name"]:
                    found = (entry["name"], entry["namespaced"])
                    self._kinds[api_version, entry["kind"]] = found
        return self._kinds[api_version, kind]


def _root(api_version: str) -> str:
    return f"/apis/{api_version}" if "/" in api_version else f"/api/{api_version}"
