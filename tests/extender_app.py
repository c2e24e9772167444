"""The application over a cluster of the test's own, without process or socket."""

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import falcon.testing

from cluster.ledger.writer import SnapshotCell
from extender.tracking.last_answers import LastAnswers
from injector.http import MutateResource
from injector.rules.rules import Rules
from service.http.app import create_app
from service.http.health import Health
from service.metrics import Metrics
from service.runtime import build_records, build_verb_options
from service.settings.settings import Settings
from tests.builders import make_snapshot
from tests.fakes.webhook import make_admission

FILTER: Final = "/scheduler/filter"
PRIORITIZE: Final = "/scheduler/prioritize"
PREEMPT: Final = "/scheduler/preempt"


def make_settings(tree: Mapping[str, Any] | None = None) -> Settings:
    """Return settings with the source ``file``, which counts for itself."""
    base = {"cluster": {"source": "file", "files": ["cluster.yaml"]}}
    return Settings.model_validate_json(json.dumps({**base, **(tree or {})}))


class ExtenderApp:
    """What a test asks and looks at.

    Parameters
    ----------
    nodes, pods : iterable of dict
        As the API server sends them.
    device_class_resources : iterable of str
    settings : mapping, optional
        Put over the defaults.
    is_synced : bool
        Whether the cluster has been read.
    more
        Arguments of `create_app`. There are no deadlines: a test may be slow.
    """

    def __init__(
        self,
        *,
        nodes: Iterable[dict[str, Any]] = (),
        pods: Iterable[dict[str, Any]] = (),
        device_class_resources: Iterable[str] = (),
        settings: Mapping[str, Any] | None = None,
        is_synced: bool = True,
        **more: Any,
    ) -> None:
        self.cell = SnapshotCell()
        read = make_settings(settings)
        if is_synced:
            self.cell.publish(
                make_snapshot(
                    nodes=nodes,
                    pods=pods,
                    device_class_resources=device_class_resources,
                    label_keys=read.labels.keys().columns(),
                    builder=build_records(read),
                )
            )
        self.metrics = Metrics()
        self.health = Health(self.cell, lambda: {"file": 0.0}, 180.0)
        self.health.serve()
        options = build_verb_options(read)
        self.client = falcon.testing.TestClient(
            create_app(
                self.cell,
                lambda: options,
                MutateResource(make_admission(Rules, self.metrics)),
                self.metrics,
                self.health,
                **{"answered": LastAnswers(), **more},
            )
        )

    def send(self, path: str, body: bytes) -> falcon.testing.Result:
        """Send a body to a verb."""
        return self.client.simulate_post(
            path, body=body, headers={"Content-Type": "application/json"}
        )

    def call(self, path: str, pod: Mapping[str, Any], names: Sequence[str]) -> bytes:
        """Return the answer to a call in the form of names."""
        verb_call = {"Pod": pod, "Nodes": None, "NodeNames": list(names)}
        result = self.send(path, json.dumps(verb_call).encode())
        assert result.status_code == 200, result.text
        return result.content

    def call_with_objects(
        self, path: str, pod: Mapping[str, Any], nodes: Iterable[Mapping[str, Any]]
    ) -> bytes:
        """Return the answer to a call in the form of whole objects."""
        items = {"metadata": {}, "items": list(nodes)}
        verb_call = {"Pod": pod, "Nodes": items, "NodeNames": None}
        result = self.send(path, json.dumps(verb_call).encode())
        assert result.status_code == 200, result.text
        return result.content
