"""More than one gpu-extender in a cluster."""

from tests.e2e.harness.ports import free_port
from tests.e2e.harness.product import NAME, Product
from tests.e2e.harness.service import Service


def start_second(product: Product, webhook_port: int) -> Service:
    """Start another replica beside the first, its webhook on a port of its own."""
    port = free_port()
    settings = {
        **product.settings,
        "server": {**product.settings["server"], "port": port},
        "webhook": {**product.settings["webhook"], "port": webhook_port},
    }
    return product.plane.start_service(settings, port=port, name=f"{NAME}-2")
