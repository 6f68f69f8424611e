"""Metrics for OpenTelemetry.

    ringest.opentelemetry.observe()                    # needs opentelemetry-api

makes observable instruments of the meter "ringest": "ringest.attempts", "ringest.requests" with the attributes
operation and status, and so on (docs/METRICS.md), and the median and p99 of each duration as gauges in seconds.

The API has no histograms that were counted elsewhere, and to record each request in Python would cost more than the
request. So the exact histogram is added on its way out (needs opentelemetry-sdk):

    reader = PeriodicExportingMetricReader(ringest.opentelemetry.Durations(OTLPMetricExporter()))

exports "http.client.request.duration" beside what the exporter is given.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import itertools
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from ringest import _core, _spans
from ringest._chosen import checked
from ringest._metrics import BOUNDS, Metric, metrics, metrics_if_open
from ringest._needs import needs
from ringest.client import Client

with needs(__name__, "opentelemetry"):
    from opentelemetry.metrics import CallbackOptions, MeterProvider, Observation, get_meter_provider
    from opentelemetry.trace import StatusCode, Tracer, TracerProvider, get_tracer_provider, use_span
try:
    from opentelemetry.sdk.metrics import export as _sdk
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.util.instrumentation import InstrumentationScope
except ModuleNotFoundError:
    _sdk = None  # type: ignore[assignment]

__all__ = ["Durations", "observe", "spans"]

_NS_PER_S = 10**9
# All instruments are asked one after the other.
_SNAPSHOT_SECONDS = 0.1
_QUANTILES = {"0.5": "p50", "0.99": "p99"}
_METHODS = {"get": "GET", "list": "GET", "stat": "GET", "put": "POST", "copy": "POST", "delete": "DELETE"}


class _Snapshots:
    def __init__(self, client: Client | None):
        self._client = client
        self._taken = float("-inf")
        self._metrics: list[Metric] = []

    def of(self, name: str) -> list[Metric]:
        now = time.monotonic()
        if now - self._taken > _SNAPSHOT_SECONDS:
            self._taken, self._metrics = now, metrics_if_open(self._client)
        return [metric for metric in self._metrics if metric.name == name]


def _values(snapshots: _Snapshots, name: str) -> Callable[[CallbackOptions], Iterable[Observation]]:
    def observe_values(options: CallbackOptions) -> Iterable[Observation]:
        for metric in snapshots.of(name):
            yield Observation(metric.value / _NS_PER_S if metric.unit == "ns" else metric.value, metric.labels)

    return observe_values


def _quantiles(snapshots: _Snapshots, name: str) -> Callable[[CallbackOptions], Iterable[Observation]]:
    def observe_quantiles(options: CallbackOptions) -> Iterable[Observation]:
        for metric in snapshots.of(name):
            for quantile, field in _QUANTILES.items():
                value = getattr(metric.histogram, field) / _NS_PER_S
                yield Observation(value, {**metric.labels, "quantile": quantile})

    return observe_quantiles


@contextlib.contextmanager
def _span(tracer: Tracer, name: str, attributes: Mapping[str, Any], is_current: bool) -> Iterator[None]:
    span = tracer.start_span(name, attributes=dict(attributes))
    # One that is left early, as an iteration may be, has not failed.
    with use_span(span, end_on_exit=True) if is_current else contextlib.nullcontext():
        try:
            yield
        except GeneratorExit:
            raise
        except BaseException as error:
            if not is_current:
                span.record_exception(error)
                span.set_status(StatusCode.ERROR, repr(error))
            raise
        finally:
            if not is_current:
                span.end()


def spans(tracer_provider: TracerProvider | None = None) -> None:
    """From now on, checkpoints that this process saves and loads, and epochs that it reads, are spans of the tracer
    "ringest", of the provider or the global one: ringest.checkpoint.save and .load, ringest.safetensors.save_file and
    .load_file, ringest.dcp.write_data and .read_data, and ringest.epoch, with the attributes ringest.uri, or ringest.epoch
    and ringest.source. An epoch is not the parent of what the loop does in it. The call after this one replaces it."""
    if tracer_provider is not None and not callable(getattr(tracer_provider, "get_tracer", None)):
        raise TypeError(f"tracer_provider must be one of OpenTelemetry's, or None, got {tracer_provider!r}")
    tracer = (tracer_provider or get_tracer_provider()).get_tracer("ringest", _core.version)
    _spans.tell(functools.partial(_span, tracer))


def _unit(unit: str) -> str:
    return {"ns": "s", "bytes": "By"}.get(unit, "{" + unit.removesuffix("s") + "}")


def observe(client: Client | None = None, meter_provider: MeterProvider | None = None) -> None:
    """Makes the instruments, once for a provider: by default the global one. They observe all clients of this process,
    or `client` until it is closed, whenever the provider's reader collects."""
    if meter_provider is not None and not callable(getattr(meter_provider, "get_meter", None)):
        raise TypeError(f"meter_provider must be one of OpenTelemetry's, or None, got {meter_provider!r}")
    meter = (meter_provider or get_meter_provider()).get_meter("ringest", _core.version)
    snapshots = _Snapshots(client)
    table = {metric.name: (metric.kind, metric.text, metric.unit) for metric in metrics(client)}
    for name, (kind, text, unit) in table.items():
        make: Any = meter.create_observable_counter if kind == "counter" else meter.create_observable_gauge
        callback = (_quantiles if kind == "histogram" else _values)(snapshots, name)
        make(f"ringest.{name}", callbacks=[callback], unit=_unit(unit), description=text)


if _sdk is not None:

    class Durations(_sdk.MetricExporter):
        """An exporter that adds "http.client.request.duration", of each operation, to what `exporter` is given: from
        submitting a request to its end, retries included, of all clients of this process, or of `client` until
        it is closed. Always cumulative."""

        def __init__(self, exporter: _sdk.MetricExporter, client: Client | None = None):
            if not isinstance(exporter, _sdk.MetricExporter):
                raise TypeError(f"exporter must be a MetricExporter of OpenTelemetry, got {exporter!r}")
            super().__init__(exporter._preferred_temporality, exporter._preferred_aggregation)
            self._exporter, self._client = exporter, checked(client)
            self._started = time.time_ns()

        def _point(self, metric: Metric) -> _sdk.HistogramDataPoint:
            histogram = metric.histogram
            assert histogram is not None
            edges = [0, *histogram.buckets, metric.value]
            operation = metric.operation or "other"
            return _sdk.HistogramDataPoint(
                attributes={"http.request.method": _METHODS.get(operation, "_OTHER"), "ringest.operation": operation},
                start_time_unix_nano=self._started,
                time_unix_nano=time.time_ns(),
                count=metric.value,
                sum=histogram.sum / _NS_PER_S,
                bucket_counts=[end - begin for begin, end in itertools.pairwise(edges)],
                explicit_bounds=[bound / _NS_PER_S for bound in BOUNDS],
                min=0.0,
                max=histogram.max / _NS_PER_S,
            )

        def _ours(self, resource: Resource) -> _sdk.ResourceMetrics:
            points = [self._point(m) for m in metrics_if_open(self._client) if m.name == "request_duration"]
            data = _sdk.Histogram(data_points=points, aggregation_temporality=_sdk.AggregationTemporality.CUMULATIVE)
            text = "Duration of requests, retries included"
            metric = _sdk.Metric(name="http.client.request.duration", description=text, unit="s", data=data)
            scope = InstrumentationScope("ringest", _core.version)
            return _sdk.ResourceMetrics(resource, [_sdk.ScopeMetrics(scope, [metric], "")], "")

        def export(self, metrics_data: _sdk.MetricsData, *args: Any, **kwargs: Any) -> _sdk.MetricExportResult:
            theirs = metrics_data.resource_metrics
            resource = theirs[0].resource if theirs else Resource.get_empty()
            both = dataclasses.replace(metrics_data, resource_metrics=[*theirs, self._ours(resource)])
            return self._exporter.export(both, *args, **kwargs)

        def force_flush(self, timeout_millis: float = 10_000) -> bool:
            return self._exporter.force_flush(timeout_millis)

        def shutdown(self, timeout_millis: float = 30_000, **kwargs: Any) -> None:
            self._exporter.shutdown(timeout_millis, **kwargs)

else:

    class Durations:  # type: ignore[no-redef]
        """Stands for what needs the package opentelemetry-sdk."""

        def __init__(self, exporter: Any, client: Client | None = None):
            raise ModuleNotFoundError(
                "ringest.opentelemetry.Durations needs the package opentelemetry-sdk, which is not installed: "
                "pip install 'ringest[opentelemetry]'",
                name="opentelemetry.sdk",
            )
