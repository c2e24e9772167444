"""Jobs of several GPUs get the linked set where there is one, on a real scheduler."""

from typing import Final

from tests.e2e.harness.builders import JsonObject, make_node, make_pod
from tests.e2e.harness.pods import wait_until_bound, wait_until_refused
from tests.e2e.harness.product import Product

LINKS: Final = "gpu-extender.io/links"
ALLOCATED: Final = "gpu-extender.io/allocated"
LINKED: Final = {"gpu-extender.io/linked": "required"}


def node(name: str, layout: str) -> JsonObject:
    tree = make_node(name, gpus=8)
    tree["metadata"]["annotations"] = {LINKS: f'{{"layout": "{layout}"}}'}
    return tree


def holder(name: str, node_name: str, gpus: str) -> JsonObject:
    count = len(gpus.split(","))
    told = {ALLOCATED: gpus}
    return make_pod(name, gpus=count, node_name=node_name, annotations=told)


def test_four_gpus_go_where_four_linked_ones_are_free(product: Product) -> None:
    client = product.client
    client.create_many(
        [
            node("pcie", "pcie-8"),
            node("split", "dgx-1-v100"),
            node("quad", "dgx-1-v100"),
        ]
    )
    # Four free on each: of the one mesh no four are linked, of the other a quad.
    client.create(holder("on-split", "split", "1,3,4,6"))
    client.create(holder("on-quad", "quad", "4,5,6,7"))
    client.create(holder("on-pcie", "pcie", "4,5,6,7"))
    product.start_all()

    client.create(make_pod("wanted", gpus=4, annotations=LINKED))
    assert wait_until_bound(client, "wanted") == "quad"

    client.create(make_pod("late", gpus=4, annotations=LINKED))
    refusal = wait_until_refused(client, "late")
    assert "GPUs are not linked" in refusal["message"]
    # Woken as soon as a quad is free.
    client.delete("Pod", "on-split")
    assert wait_until_bound(client, "late") == "split"


def test_without_insisting_the_linked_set_is_preferred(product: Product) -> None:
    client = product.client
    client.create_many(node(name, "pcie-8") for name in ("a", "b", "d"))
    client.create(node("c", "dgx-1-v100"))
    product.start_all()

    client.create(make_pod("job", gpus=4))

    assert wait_until_bound(client, "job") == "c"
