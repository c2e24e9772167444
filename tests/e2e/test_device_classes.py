"""GPUs that a DeviceClass carries under the name of an extended resource."""

from typing import Final

import pytest

from tests.e2e.harness.builders import GPU, JsonObject, make_node, make_pod
from tests.e2e.harness.control_plane import ControlPlane
from tests.e2e.harness.pods import wait_until_bound
from tests.e2e.harness.product import Product
from tests.e2e.harness.waiting import stays_true, wait_for

API: Final = "resource.k8s.io/v1"
DRIVER: Final = "gpu.example.com"
POD: Final = make_pod("train", gpus=1)
NO_GPU: Final = "Node has no GPU"


def device_class() -> JsonObject:
    """Return a class whose devices answer to `nvidia.com/gpu`."""
    expression = f"device.driver == '{DRIVER}'"
    return {
        "apiVersion": API,
        "kind": "DeviceClass",
        "metadata": {"name": "gpu"},
        "spec": {
            "extendedResourceName": GPU,
            "selectors": [{"cel": {"expression": expression}}],
        },
    }


def resource_slice(node: str, devices: int) -> JsonObject:
    """Return what the driver on a node would publish."""
    return {
        "apiVersion": API,
        "kind": "ResourceSlice",
        "metadata": {"name": f"{node}-gpus"},
        "spec": {
            "nodeName": node,
            "driver": DRIVER,
            "pool": {"name": node, "generation": 1, "resourceSliceCount": 1},
            "devices": [{"name": f"gpu-{i}"} for i in range(devices)],
        },
    }


def create_class(plane: ControlPlane) -> None:
    """Create the class; skip where the API server drops the name that it carries."""
    created = plane.client.create(device_class())
    if "extendedResourceName" not in created["spec"]:
        pytest.skip(
            "this API server has DRAExtendedResource off: it drops extendedResourceName"
        )


def test_a_node_passes_once_a_device_class_carries_the_resource(
    control_plane: ControlPlane, product: Product
) -> None:
    client = control_plane.client
    client.create(make_node("node-a"))
    product.start()
    status, before = product.ask_filter(POD, "node-a")
    assert (status, before["FailedAndUnresolvableNodes"]) == (200, {"node-a": NO_GPU})

    create_class(control_plane)
    wait_for(
        lambda: product.ask_filter(POD, "node-a")[1]["NodeNames"] == ["node-a"],
        timeout_seconds=5,
        what="node passes the filter",
    )
    scores = product.ask_priorities(POD, "node-a")[1]
    client.delete("DeviceClass", "gpu", api_version=API)
    wait_for(
        lambda: product.ask_filter(POD, "node-a")[1]["NodeNames"] == [],
        timeout_seconds=5,
        what="node refused again",
    )

    assert [score["Host"] for score in scores] == ["node-a"]


def test_a_field_that_the_api_server_drops_changes_nothing(
    control_plane: ControlPlane, product: Product
) -> None:
    created = control_plane.client.create(device_class())
    if "extendedResourceName" in created["spec"]:
        pytest.skip("this API server keeps extendedResourceName")
    control_plane.client.create(make_node("node-a"))
    product.start()

    _, answer = product.ask_filter(POD, "node-a")

    assert answer["FailedAndUnresolvableNodes"] == {"node-a": NO_GPU}


def test_kube_scheduler_binds_a_pod_to_the_devices_of_a_class(
    control_plane: ControlPlane, product: Product
) -> None:
    client = control_plane.client
    client.create(make_node("with-devices"))
    client.create(make_node("without"))
    create_class(control_plane)
    client.create(resource_slice("with-devices", 1))
    product.start_all()

    client.create(POD)

    assert wait_until_bound(client, "train") == "with-devices"
    assert product.calls_of("filter") >= 1


def test_a_restarted_api_server_costs_no_device_class(
    fresh_control_plane: ControlPlane, fresh_product: Product
) -> None:
    plane, product = fresh_control_plane, fresh_product
    plane.client.create(make_node("node-a"))
    create_class(plane)
    product.start()

    def passes() -> bool:
        return bool(product.ask_filter(POD, "node-a")[1]["NodeNames"] == ["node-a"])

    wait_for(passes, timeout_seconds=5, what="node passes the filter")
    # Before it knows the roles, a starting API server forbids the list.
    with product.outage():
        plane.api_server.kill()
        plane.api_server.start()

    # By then each watch has tried again.
    stays_true(passes, for_seconds=5, what="node passes the filter")
    plane.client.delete("DeviceClass", "gpu", api_version=API)
    wait_for(lambda: not passes(), timeout_seconds=5, what="class seen to go")
