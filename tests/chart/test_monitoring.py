"""What the chart renders for Prometheus, and what promtool says of it."""

import json
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from tests.chart.rendering import CHART, HELMS, find, merged, render, run

UNIT_TESTS: Final = Path(__file__).with_name("alerts.promtool.yaml")


def monitored(kind: str) -> list[dict[str, Any]]:
    """Return the objects with one of those of the Prometheus operator."""
    values = {kind: {"enabled": True, "labels": {"release": "prometheus"}}}
    return render(HELMS[0], {"metrics": values})


def test_promtool_takes_the_rules_that_the_chart_renders(tmp_path: Path) -> None:
    rule = find(monitored("prometheusRule"), "PrometheusRule")
    file = tmp_path / "alerts.yaml"
    file.write_text(yaml.safe_dump(rule["spec"]))

    assert "SUCCESS" in run("promtool", "check", "rules", file)
    alerts = yaml.safe_load((CHART / "files" / "alerts.yaml").read_text())
    assert rule["spec"] == alerts


def test_each_alert_is_raised_when_it_should_be() -> None:
    assert "SUCCESS" in run("promtool", "test", "rules", UNIT_TESTS)


def test_a_pod_monitor_scrapes_every_replica() -> None:
    objects = monitored("podMonitor")
    (deployment,) = (o for o in objects if o["kind"] == "Deployment")
    labels = deployment["spec"]["template"]["metadata"]["labels"]

    monitor = find(objects, "PodMonitor")

    selector = monitor["spec"]["selector"]["matchLabels"]
    assert selector.items() <= labels.items()
    (endpoint,) = monitor["spec"]["podMetricsEndpoints"]
    assert (endpoint["port"], endpoint["scheme"]) == ("webhook", "https")
    assert monitor["metadata"]["labels"]["release"] == "prometheus"


def test_a_service_monitor_scrapes_every_replica() -> None:
    """By a Service of its own: with chains, the webhook's leads to one of them."""
    objects = render(
        HELMS[0],
        {
            "metrics": {"serviceMonitor": {"enabled": True}},
            "config": {
                "fallback": {"chains": [["nvidia.com/mig-1g.5gb", "nvidia.com/gpu"]]}
            },
        },
    )
    (deployment,) = (o for o in objects if o["kind"] == "Deployment")
    labels = deployment["spec"]["template"]["metadata"]["labels"]

    monitor = find(objects, "ServiceMonitor")["spec"]

    wanted = monitor["selector"]["matchLabels"].items()
    (service,) = (
        o
        for o in objects
        if o["kind"] == "Service" and wanted <= o["metadata"]["labels"].items()
    )
    assert service["spec"]["selector"].items() <= labels.items()
    assert service["spec"]["publishNotReadyAddresses"] is True
    (endpoint,), (port,) = monitor["endpoints"], service["spec"]["ports"]
    assert (endpoint["port"], endpoint["scheme"]) == (port["name"], "https")


@pytest.mark.parametrize("kind", ["podMonitor", "serviceMonitor"])
def test_one_host_s_pods_are_scraped_likewise(kind: str) -> None:
    values = {"scheduler": {"enabled": False}, "metrics": {kind: {"enabled": True}}}

    objects = render(HELMS[0], merged(values))

    assert find(objects, kind[0].upper() + kind[1:])


def test_the_dashboard_is_found_by_grafana_s_sidecar() -> None:
    objects = render(HELMS[0], {"grafana": {"enabled": True}})

    config = find(objects, "ConfigMap", "gpu-extender-dashboard")

    assert config["metadata"]["labels"]["grafana_dashboard"] == "1"
    dashboard = json.loads((CHART / "files" / "dashboard.json").read_text())
    assert json.loads(config["data"]["gpu-extender.json"]) == dashboard


def test_nothing_of_the_operator_is_there_unless_asked_for() -> None:
    groups = {o["apiVersion"].partition("/")[0] for o in render(HELMS[0], {})}

    assert "monitoring.coreos.com" not in groups
