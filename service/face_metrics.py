"""Metrics of the listeners that are read when they are scraped."""

from collections.abc import Mapping

from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from service.certificates import ServedCertificate
from service.gate import Slots


class FaceCollector(Collector):
    """Reads what the faces do, and until when the certificate is valid.

    Parameters
    ----------
    slots : mapping
        face -> its slots
    certificate : ServedCertificate or None
    """

    def __init__(
        self, slots: Mapping[str, Slots], certificate: ServedCertificate | None
    ) -> None:
        self._slots = slots
        self._certificate = certificate

    def collect(self) -> list[Metric]:
        """Return the gauges of this moment."""
        in_flight = GaugeMetricFamily(
            "gpu_extender_requests_in_flight",
            "Requests that are being worked on.",
            labels=["face"],
        )
        for face, slots in self._slots.items():
            in_flight.add_metric([face], slots.count)
        expiry = GaugeMetricFamily(
            "gpu_extender_certificate_expiry_timestamp_seconds",
            "When the certificate in use expires, in seconds since 1970.",
        )
        if self._certificate is not None:
            ends_seconds = self._certificate.ends_seconds
            if ends_seconds is not None:
                expiry.add_metric([], ends_seconds)
        return [in_flight, expiry]
