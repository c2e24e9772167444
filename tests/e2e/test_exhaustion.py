"""More pods than GPUs, all at once, through webhook and scheduler."""

import time
from collections import Counter
from typing import Final

from tests.e2e.harness.builders import GPU, JsonObject, make_node, make_pod
from tests.e2e.harness.control_plane import ControlPlane
from tests.e2e.harness.pods import condition_of, nodes_of_pods
from tests.e2e.harness.product import Product
from tests.e2e.harness.waiting import stays_true, wait_for

MIG_2G: Final = "nvidia.com/mig-2g.20gb"
RECORD: Final = "gpu-webhook.k8s.io/fallback"
NEXT_SECONDS: Final = 2.0
PODS: Final = 10
GPUS: Final = 8


def refused(pods: tuple[JsonObject, ...]) -> list[str]:
    """Return the messages of the pods that could not be scheduled."""
    conditions = [condition_of(pod, "PodScheduled") for pod in pods]
    return [
        condition["message"]
        for condition in conditions
        if condition.get("reason") == "Unschedulable"
    ]


def test_ten_pods_on_eight_gpus_fall_back_fill_the_nodes_and_follow_one_another(
    control_plane: ControlPlane, product: Product
) -> None:
    client = control_plane.client
    client.create_many(make_node(f"node-{i}", gpus=4) for i in range(2))
    product.start_all()
    product.register_webhook()

    created = client.create_many(
        make_pod(f"infer-{i}", resources={MIG_2G: 1}) for i in range(PODS)
    )
    wait_for(
        lambda: (
            len(nodes_of_pods(client)) == GPUS
            and len(refused(client.list("Pod"))) == PODS - GPUS
        ),
        timeout_seconds=30,
        what="8 pods bound and 2 refused",
    )
    stays_true(
        lambda: len(nodes_of_pods(client)) == GPUS,
        for_seconds=1,
        what="no more pods bound than there are GPUs",
    )
    bound = nodes_of_pods(client)
    messages = refused(client.list("Pod"))

    assert [pod["metadata"]["annotations"][RECORD] for pod in created] == (
        ["2g.20gb->gpu"] * PODS
    )
    for pod in created:
        (container,) = pod["spec"]["containers"]
        assert container["resources"] == {"requests": {GPU: "1"}, "limits": {GPU: "1"}}
    assert Counter(bound.values()) == {"node-0": 4, "node-1": 4}
    assert len(messages) == PODS - GPUS
    assert all(f"Insufficient {GPU}" in message for message in messages)

    began = time.monotonic()
    client.delete("Pod", min(bound), grace_seconds=0)
    (next_pod,) = wait_for(
        lambda: nodes_of_pods(client).keys() - bound.keys(),
        timeout_seconds=NEXT_SECONDS,
        what="next pod bound",
    )
    print(f"{next_pod} bound {time.monotonic() - began:.3f} s after the deletion")  # noqa: T201 - a figure, shown with -rP

    assert Counter(nodes_of_pods(client).values()) == {"node-0": 4, "node-1": 4}
