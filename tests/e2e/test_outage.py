"""What kube-scheduler does, and says, while the extender is away."""

from tests.e2e.harness.builders import make_node, make_pod
from tests.e2e.harness.pods import nodes_of_pods, wait_until_bound, wait_until_refused
from tests.e2e.harness.product import Product
from tests.e2e.harness.scheduler_log import extender_error_lines
from tests.e2e.harness.waiting import wait_for


def test_gpu_pods_wait_for_the_service_and_others_do_not(product: Product) -> None:
    client = product.client
    client.create(make_node("node-a", gpus=4))
    product.start_all()

    with product.outage():
        product.service.process.kill()
        client.create(make_pod("gpu", gpus=1))
        client.create(make_pod("plain", cpu="1"))
        refusal = wait_until_refused(client, "gpu")
        wait_until_bound(client, "plain")
        during = nodes_of_pods(client)
        product.service.process.start()
        node = wait_until_bound(client, "gpu")

    assert refusal["reason"] == "SchedulerError"
    assert during == {"plain": "node-a"}
    assert node == "node-a"


def test_the_scheduler_has_nothing_to_say_about_a_service_that_runs(
    product: Product,
) -> None:
    client = product.client
    client.create_many(make_node(f"node-{i}", gpus=8) for i in range(4))
    product.start_all()

    client.create_many(make_pod(generate_name="gpu-", gpus=1) for _ in range(32))
    client.create(make_pod("too-big", gpus=9))
    wait_for(
        lambda: len(nodes_of_pods(client)) == 32,
        timeout_seconds=30,
        what="all pods bound",
    )
    wait_until_refused(client, "too-big")

    log = product.scheduler_log()
    assert product.calls_of("filter") >= 32
    assert "Starting Kubernetes Scheduler" in log
    assert extender_error_lines(log, product.url) == ()


def test_a_stopped_service_lets_the_call_under_way_finish(product: Product) -> None:
    client = product.client
    client.create_many(make_node(f"node-{i}", gpus=64) for i in range(2))
    product.start_all()

    with product.outage():
        client.create_many(make_pod(generate_name="gpu-", gpus=1) for _ in range(60))
        code = product.service.process.stop()
        product.service.process.start()
        wait_for(
            lambda: len(nodes_of_pods(client)) == 60,
            timeout_seconds=60,
            what="all pods bound",
        )

    assert code == 0
