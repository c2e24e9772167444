"""A cluster with one node for each reason to refuse it, and how answers look."""

from typing import Final

from tests.builders import make_node, make_pod

MIG_1G: Final = "nvidia.com/mig-1g.10gb"
MIG_2G: Final = "nvidia.com/mig-2g.20gb"
SHARED: Final = "nvidia.com/gpu.shared"
GPU_MEMORY: Final = "nvidia.com/gpu-memory"

NODES: Final = [
    make_node(name="idle", gpus=8, labels={"accelerator": "v100"}),
    make_node(name="busy", gpus=8),  # 2 free
    make_node(name="small", gpus=2),
    make_node(name="cpu"),
    make_node(name="sick", gpus=0, capacity={"nvidia.com/gpu": "8"}),
    make_node(
        name="changing", gpus=8, labels={"nvidia.com/mig.config.state": "pending"}
    ),
    # the one mig-2g.20gb is held, 2 of 4 mig-1g.10gb, too
    make_node(name="sliced", resources={MIG_1G: "4", MIG_2G: "1"}),
    # 8 of 10 shares held, and 192 of 256 GiB
    make_node(name="shared", resources={SHARED: "10", GPU_MEMORY: "256Gi"}),
]
PODS: Final = [
    make_pod(name="holder", gpus=6, node_name="busy"),
    make_pod(name="slices", requests={MIG_1G: "2", MIG_2G: "1"}, node_name="sliced"),
    make_pod(
        name="shares", requests={SHARED: "8", GPU_MEMORY: "192Gi"}, node_name="shared"
    ),
    make_pod(name="done", gpus=8, node_name="idle", phase="Succeeded"),
]


def answer_of(kept: str, failed: str, unresolvable: str) -> bytes:
    """Return the whole answer in the form of names."""
    return (
        f'{{"Nodes":null,"NodeNames":[{kept}],"FailedNodes":{{{failed}}},'
        f'"FailedAndUnresolvableNodes":{{{unresolvable}}},"Error":""}}'
    ).encode()
