"""Metrics for Prometheus, by the package prometheus-client.

    import prometheus_client, ringest.prometheus

    prometheus_client.REGISTRY.register(ringest.prometheus.Collector())
    prometheus_client.start_http_server(9000)

Names are those of docs/METRICS.md behind "ringest_", and end in their unit ("_seconds", "_bytes"), then in "_total" if
they are counters: ringest_requests_total{operation,status}, ringest_request_duration_seconds{operation}, ringest_recv_bytes_total.
Nothing runs between two scrapes; each takes about a millisecond.
"""

from __future__ import annotations

from collections.abc import Iterator

from ringest._chosen import checked
from ringest._metrics import BOUNDS, Metric, metrics_if_open
from ringest._needs import needs
from ringest.client import Client

with needs(__name__, "prometheus_client"):
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
    from prometheus_client.registry import Collector as _Collector

__all__ = ["Collector"]

Family = CounterMetricFamily | GaugeMetricFamily | HistogramMetricFamily

_FAMILIES: dict[str, type[Family]] = {
    "counter": CounterMetricFamily,
    "gauge": GaugeMetricFamily,
    "histogram": HistogramMetricFamily,
}
_NS_PER_S = 10**9


def _name(metric: Metric) -> str:
    unit = {"ns": "_seconds", "bytes": "_bytes"}.get(metric.unit, "")
    return f"ringest_{metric.name.removesuffix(unit)}{unit}"


def _buckets(metric: Metric) -> list[tuple[str, float]]:
    assert metric.histogram is not None
    pairs = [(repr(bound / _NS_PER_S), float(count)) for bound, count in zip(BOUNDS, metric.histogram.buckets)]
    return [*pairs, ("+Inf", float(metric.value))]


def _sample_add(family: Family, metric: Metric) -> None:
    labels = list(metric.labels.values())
    if isinstance(family, HistogramMetricFamily):
        assert metric.histogram is not None
        family.add_metric(labels, buckets=_buckets(metric), sum_value=metric.histogram.sum / _NS_PER_S)
    else:
        family.add_metric(labels, metric.value / _NS_PER_S if metric.unit == "ns" else metric.value)


class Collector(_Collector):
    """Gives a registry what all clients of this process have counted; with `client`, that one until it is closed.

    Register it once. Its methods are called by any thread, as the registry likes."""

    def __init__(self, client: Client | None = None):
        self._client = checked(client)

    def collect(self) -> Iterator[Family]:
        families: dict[str, Family] = {}
        for metric in metrics_if_open(self._client):
            if metric.name not in families:
                kind = _FAMILIES[metric.kind]
                families[metric.name] = kind(_name(metric), metric.text, labels=list(metric.labels))
            _sample_add(families[metric.name], metric)
        yield from families.values()
