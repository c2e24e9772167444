"""Rules that change under a running service, and pods that are created under them."""

import copy
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from tests.e2e.harness.builders import JsonObject
from tests.e2e.harness.product import Product
from tests.e2e.harness.waiting import wait_for

READ_SECONDS: Final = 10.0


class RulesInForce:
    """The rule file of the running service, exchanged without a restart."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._rules: Mapping[str, Any] | None = None

    def write(self, rules: Mapping[str, Any]) -> None:
        """Replace the file, whole."""
        fresh = self.path.with_suffix(".new")
        fresh.write_text(json.dumps(rules), encoding="utf-8")
        fresh.replace(self.path)
        self._rules = rules

    def use(self, rules: Mapping[str, Any], product: Product) -> None:
        """Have the service use `rules`; nothing to do if it does."""
        if rules == self._rules:
            return
        before = times_read(product)
        self.write(rules)
        wait_for(
            lambda: times_read(product) > before,
            timeout_seconds=READ_SECONDS,
            what="rules read again",
        )


def times_read(product: Product) -> int:
    """Return how often the service has said that it took the rule file anew."""
    lines = product.service.process.log_text().splitlines()
    return sum("file reloaded" in line and '"rules"' in line for line in lines)


@dataclass
class Creator:
    """Creates pods and keeps what became of them."""

    product: Product
    warnings: str = ""
    pods: list[JsonObject] = field(default_factory=list)

    def create(self, pod: JsonObject, namespace: str = "default") -> JsonObject:
        """Create a pod and return it as it is read back."""
        sent = copy.deepcopy(pod)
        sent["metadata"]["namespace"] = namespace
        made, warnings = self.product.client.create_with_warnings(sent)
        self.pods.append(made)
        self.warnings = "\n".join(warnings)
        return self.product.client.get(
            "Pod", made["metadata"]["name"], namespace=namespace
        )

    def delete_all(self) -> None:
        """Delete the pods that were created."""
        while self.pods:
            metadata = self.pods.pop()["metadata"]
            self.product.client.delete(
                "Pod",
                metadata["name"],
                namespace=metadata["namespace"],
                grace_seconds=0,
            )


def containers_of(pod: JsonObject) -> list[JsonObject]:
    return [*pod["spec"].get("initContainers", ()), *pod["spec"]["containers"]]
