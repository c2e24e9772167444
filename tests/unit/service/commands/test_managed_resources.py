"""Resources whose pods kube-scheduler is told to send."""

from scoring.resources import ResourceScope
from service.doctor.scheduler import managed_resources
from tests.builders import make_node, make_pod, make_snapshot

SCOPE = ResourceScope(
    gpu_resources=("nvidia.com/gpu", "nvidia.com/mig-*"),
    managed_prefixes=("nvidia.com/",),
)


def test_all_that_may_be_asked_for_are_sent() -> None:
    snapshot = make_snapshot(
        nodes=[make_node(name="a", resources={"nvidia.com/offered": "1"})],
        pods=[make_pod(requests={"nvidia.com/held": "1"}, node_name="a")],
        device_class_resources=["nvidia.com/carried"],
    )

    assert managed_resources(snapshot, SCOPE, ["nvidia.com/chained"]) == [
        "nvidia.com/carried",
        "nvidia.com/chained",
        "nvidia.com/gpu",
        "nvidia.com/held",
        "nvidia.com/offered",
    ]
