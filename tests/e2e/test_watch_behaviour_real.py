"""The behaviour that the fake API server is tested with, on the real one."""

import gc
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from tests.api import test_watch_behaviour
from tests.e2e.harness.control_plane import ControlPlane
from tests.e2e.harness.watched_api import FieldDroppedError, WatchedApi
from tests.fakes.watched_cluster import WatchedCluster

# A connection that the proxy resets before the handshake is left to the interpreter,
# which closes it and says so.
pytestmark = pytest.mark.filterwarnings("ignore:unclosed <ssl.SSLSocket")

# A real API server does not answer 503 for one kind alone.
FAKE_ONLY: Final = frozenset({"test_nobody_is_synced_before_pods_are_counted"})


class SkippingApi(WatchedApi):
    """Skips the test where this minor does not know a field."""

    def put(self, *trees: dict[str, Any]) -> None:
        try:
            super().put(*trees)
        except FieldDroppedError as error:
            pytest.skip(f"this API server drops {error}")


@pytest.fixture
def api(control_plane: ControlPlane) -> SkippingApi:
    """The real control plane, in place of the fake API server."""
    return SkippingApi(control_plane)


@pytest.fixture
def cluster(api: SkippingApi, tmp_path: Path) -> Iterator[WatchedCluster]:
    """A watch over the API server; the test enters it."""
    yield WatchedCluster(api.kubeconfig(tmp_path))
    gc.collect()  # what it leaves is to be found here, not in some later test


def behaviours() -> dict[str, Callable[..., None]]:
    """Return the tests of the fake that the real one can be held to."""
    return {
        name: test
        for name, test in vars(test_watch_behaviour).items()
        if name.startswith("test_") and name not in FAKE_ONLY
    }


globals().update(behaviours())
