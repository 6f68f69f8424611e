"""What is counted, and the packages that it is given to: each of them the real one."""

import asyncio
import io
import os
import pickle
import re
import subprocess
import sys
import tempfile
import time
import unittest

import torch
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics import export as sdk
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from prometheus_client import CollectorRegistry, Counter, generate_latest
from prometheus_client.parser import text_string_to_metric_families
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from torch.utils.tensorboard import SummaryWriter

import ringest
import ringest.fs
import ringest.opentelemetry
import ringest.prometheus
import ringest.safetensors
import ringest.tensorboard
from ringest import _spans, _stages, checkpoint
from support import COUNT, SIZE, Rule, client, emulator

PAGE = os.path.join(os.path.dirname(__file__), "..", "..", "docs", "METRICS.md")
OBJECT = "gs://data/x-00000000"


def value(found, name, **labels):
    return next((m.value for m in found if m.name == name and m.labels == labels), 0)


class Counted(unittest.TestCase):
    def test_requests_are_counted_by_operation_and_status(self):
        with client() as one:
            for _ in range(3):
                one.get(OBJECT)
            one.put("gs://bucket/new", b"x")
            with self.assertRaises(ringest.NotFoundError):
                one.stat("gs://bucket/none")
            found = one.metrics()
            self.assertEqual(value(found, "requests", operation="get", status="OK"), 3)
            self.assertEqual(value(found, "requests", operation="put", status="OK"), 1)
            self.assertEqual(value(found, "requests", operation="stat", status="NOT_FOUND"), 1)
            self.assertEqual(value(found, "request_duration", operation="get"), 3)
            self.assertEqual(value(found, "attempts"), 5)
            self.assertEqual(value(found, "connections_reused"), 5 - value(found, "connections_opened"))
            self.assertEqual(value(found, "tls_handshakes"), value(found, "connections_opened"))
            self.assertGreater(value(found, "loop_cpu"), 0)

    def test_retries_are_counted_by_cause(self):
        with emulator() as place, ringest.Client(*place, hedging=False, backoff_min=0.001) as one:
            for status in (429, 503):
                with Rule(place, times=1, effect="none", answer="failed", status=status):
                    one.get(OBJECT)
            found = one.metrics()
            self.assertEqual(value(found, "refused_429"), 1)
            self.assertEqual(value(found, "refused_503"), 1)
            self.assertEqual(sum(m.value for m in found if m.name == "retries"), 2)
            self.assertEqual(value(found, "retries", cause="THROTTLED"), 1)

    def test_a_histogram_adds_up(self):
        with client() as one:
            for items in one.get_many([f"gs://data/x-{i:08}" for i in range(COUNT)]):
                del items
            gets = next(m for m in one.metrics() if m.name == "request_duration" and m.operation == "get")
            self.assertEqual(gets.value, COUNT)
            self.assertEqual(len(gets.histogram.buckets), len(gets.histogram.bounds))
            self.assertEqual(list(gets.histogram.buckets), sorted(gets.histogram.buckets))
            self.assertLessEqual(gets.histogram.p50, gets.histogram.p99)
            self.assertLessEqual(gets.histogram.p50 * COUNT / 2, gets.histogram.sum * (1 + 1 / 16) + 64 * COUNT)

    def test_closed_clients_count_for_the_process(self):
        before = value(ringest.metrics(), "requests", operation="get", status="OK")
        with client() as one:
            one.get(OBJECT)
        self.assertEqual(value(ringest.metrics(), "requests", operation="get", status="OK"), before + 1)
        with self.assertRaisesRegex(TypeError, "client must be"):
            ringest.metrics("gs://bucket")

    def test_windows_say_how_full_they_are(self):
        with client() as one:
            values = iter(ringest.IterableDataset("gs://data/x-", client=one, requests=8))
            next(values)
            found = one.stats()
            self.assertEqual(found["window_room"], 8)
            self.assertIn(found["window_out"] + found["window_filled"], range(1, 9))
            self.assertEqual(value(one.metrics(), "window_room"), 8)
            values.close()
            found = one.stats()
            self.assertEqual([found[name] for name in ("window_room", "window_out", "window_filled")], [0, 0, 0])

    def test_windows_of_event_loops_do_so_too(self):
        async def look(one):
            values = aiter(ringest.IterableDataset("gs://data/x-", client=one, requests=8))
            await anext(values)
            self.assertEqual(one.stats()["window_room"], 8)
            await values.aclose()
            self.assertEqual(one.stats()["window_room"], 0)

        with client() as one:
            asyncio.run(look(one))

    def test_parts_of_checkpoints_are_timed(self):
        def times(of):
            return {m.name.split("_")[1]: m.value for m in of.metrics() if m.name.startswith("checkpoint_")}

        with client() as one:
            self.assertEqual(times(one), dict.fromkeys((part.name.lower() for part in _stages.Part), 0))
            checkpoint.save({"a": torch.ones(9)}, "gs://bucket/a", client=one)
            self.assertEqual({name for name, ns in times(one).items() if ns}, {"upload", "commit"})
            checkpoint.load("gs://bucket/a", client=one)
            self.assertEqual({name for name, ns in times(one).items() if ns}, {"upload", "commit", "list", "read"})
            with checkpoint.AsyncSaver(client=one) as saver:
                saver.save({"a": torch.ones(9)}, "gs://bucket/b")
            self.assertGreater(times(one)["stage"], 0)
            before = times(one)
            with _stages.at(_stages.Part.READ, one):
                with _stages.at(_stages.Part.PLACE, one):
                    time.sleep(0.05)
            after = times(one)
            self.assertGreaterEqual(after["place"], 50_000_000)
            self.assertLess(after["read"] - before["read"], 50_000_000 + after["place"])
            self.assertGreater(after["read"], before["read"])
        with _stages.at(_stages.Part.READ, one):  # is closed
            pass
        with _stages.at(_stages.Part.READ, None):
            pass

    def times_of(self, place, run):
        """The parts that take time in what `run` does with a client of its own."""
        with ringest.Client(*place, hedging=False) as one:
            run(one)
            found = {m.name.split("_")[1]: m.value for m in one.metrics() if m.name.startswith("checkpoint_")}
            return {name for name, ns in found.items() if ns}

    def test_files_are_timed_and_those_of_data_are_not(self):
        def write(one):
            with checkpoint.open("gs://bucket/file", "wb", client=one) as file:
                torch.save({"a": torch.ones(9)}, file)

        def read(one):
            with checkpoint.open("gs://bucket/file", client=one) as file, pickle.loads(pickle.dumps(file)) as again:
                self.assertEqual(file.read(), again.read())
                self.assertIsNotNone(again.raw.counting)

        def read_again(one):
            with checkpoint.open("gs://bucket/file", client=one) as file:
                torch.load(file)

        def read_data(one):
            files = ringest.fs.GCSFileSystem(client=one)
            with files.open("gs://bucket/file") as file, pickle.loads(pickle.dumps(file)) as again:
                self.assertEqual(file.read(), again.read())
                self.assertIsNone(again.raw.counting)
            files.get_file("gs://bucket/file", io.BytesIO())
            with files.open("gs://bucket/other", "wb") as file:
                file.write(b"data")

        place = self.enterContext(emulator())
        self.assertEqual(self.times_of(place, write), {"upload", "commit"})
        self.assertEqual(self.times_of(place, read), {"read"})
        self.assertEqual(self.times_of(place, read_again), {"read"})
        self.assertEqual(self.times_of(place, read_data), set())

    def test_safetensors_are_timed(self):
        place, uri = self.enterContext(emulator()), "gs://bucket/model.safetensors"
        state = {"a": torch.ones(400, 400), "b": torch.ones(3)}  # more than the first read brings

        def part(one):
            with ringest.safetensors.safe_open(uri, client=one) as file:
                return file.get_slice("a")[:, 3]

        def one_tensor(one):
            with ringest.safetensors.safe_open(uri, client=one) as file:
                return file.get_tensor("b")

        self.assertEqual(
            self.times_of(place, lambda one: ringest.safetensors.save_file(state, uri, client=one)),
            {"stage", "upload", "commit"},
        )
        for read in (
            lambda one: ringest.safetensors.load_file(uri, client=one),
            lambda one: ringest.safetensors.safe_open(uri, client=one).get_tensors(),
            one_tensor,
            part,
        ):
            self.assertEqual(self.times_of(place, read) - {"place"}, {"list", "read"})
        self.assertEqual(self.times_of(place, lambda one: ringest.safetensors.safe_open(uri, client=one)), {"list"})

    def test_the_page_has_the_table(self):
        with open(PAGE, encoding="utf-8") as file:
            rows = re.findall(r"^\| `(\w+)`\s*\| ([\w{}, ]+?)\s*\| (\w+)\s*\| (.*?)\s*\|$", file.read(), re.MULTILINE)
        table = {}
        for metric in ringest.metrics():
            labels = "".join(f"{', ' if i else ''}{label}" for i, label in enumerate(metric.labels))
            kind = f"{metric.kind} {{{labels}}}" if labels else metric.kind
            table.setdefault(metric.name, (metric.name, kind, metric.unit, metric.text))
        self.assertEqual(rows, list(table.values()))


class Exported(unittest.TestCase):
    def test_prometheus_scrapes_what_was_counted(self):
        with client() as one:
            registry = CollectorRegistry()
            registry.register(ringest.prometheus.Collector(one))
            for _ in range(4):
                one.get(OBJECT)
            families = {f.name: f for f in text_string_to_metric_families(generate_latest(registry).decode())}
            samples = families["ringest_requests"].samples
            self.assertIn(
                ("ringest_requests_total", {"operation": "get", "status": "OK"}, 4), [tuple(s[:3]) for s in samples]
            )
            duration = {
                (s.name, s.labels.get("le")): s.value for s in families["ringest_request_duration_seconds"].samples
            }
            self.assertEqual(duration["ringest_request_duration_seconds_count", None], 4)
            self.assertEqual(duration["ringest_request_duration_seconds_bucket", "+Inf"], 4)
            self.assertTrue(0 < duration["ringest_request_duration_seconds_sum", None] < 600)
            self.assertGreater(families["ringest_loop_cpu_seconds"].samples[0].value, 0)
            self.assertGreaterEqual(families["ringest_recv_bytes"].samples[0].value, 4 * SIZE)

    def test_exporters_outlive_the_client_they_look_at(self):
        kept = []

        class Exporter(sdk.ConsoleMetricExporter):
            def export(self, metrics_data, timeout_millis=10_000, **kwargs):
                kept.extend(m.name for r in metrics_data.resource_metrics for s in r.scope_metrics for m in s.metrics)
                return sdk.MetricExportResult.SUCCESS

        registry = CollectorRegistry()
        theirs = Counter("theirs", "of the program", registry=registry)
        theirs.inc()
        with client() as one:
            registry.register(ringest.prometheus.Collector(one))
            exporter = ringest.opentelemetry.Durations(Exporter(), one)
            reader = sdk.PeriodicExportingMetricReader(exporter, export_interval_millis=float("inf"))
            provider = MeterProvider([reader], shutdown_on_exit=False)
            ringest.opentelemetry.observe(one, provider)
            provider.get_meter("theirs").create_counter("theirs").add(1)
        scraped = text_string_to_metric_families(generate_latest(registry).decode())
        self.assertEqual({family.name for family in scraped}, {"theirs", "theirs_created"})
        with self.assertNoLogs(level="ERROR"):
            provider.force_flush()
            provider.shutdown()
        self.assertIn("theirs", kept)
        self.assertNotIn("ringest.attempts", kept)

    def test_names_end_in_their_unit(self):
        units = {"ns": "_seconds", "bytes": "_bytes"}
        registry = CollectorRegistry()
        registry.register(ringest.prometheus.Collector())
        names = {family.name for family in text_string_to_metric_families(generate_latest(registry).decode())}
        for metric in ringest.metrics():
            suffix = units.get(metric.unit, "")
            self.assertIn(f"ringest_{metric.name.removesuffix(suffix)}{suffix}", names)
        self.assertIn("ringest_memory_max_bytes", names)

    def test_a_resumed_run_divides_by_its_own_steps(self):
        class Writer:
            def add_scalar(self, *scalar):
                pass

        with client() as one:
            first = ringest.tensorboard.Scalars(Writer(), one)
            resumed = ringest.tensorboard.Scalars(Writer(), one, step=1000)
            for items in one.get_many([f"gs://data/x-{i:08}" for i in range(COUNT)]):
                del items
            waits = first.write(10)["wait_ms_per_step"], resumed.write(1010)["wait_ms_per_step"]
        self.assertEqual(*waits)

    def test_opentelemetry_collects_and_exports(self):
        kept = []

        class Exporter(sdk.ConsoleMetricExporter):
            def export(self, metrics_data, timeout_millis=10_000, **kwargs):
                kept.append(metrics_data)
                return sdk.MetricExportResult.SUCCESS

        with client() as one:
            reader = sdk.PeriodicExportingMetricReader(
                ringest.opentelemetry.Durations(Exporter(), one), export_interval_millis=float("inf")
            )
            provider = MeterProvider([reader], shutdown_on_exit=False)
            ringest.opentelemetry.observe(one, provider)
            for _ in range(5):
                one.get(OBJECT)
            provider.force_flush()
            provider.shutdown()
        found = {m.name: m for r in kept[0].resource_metrics for s in r.scope_metrics for m in s.metrics}
        requests = {tuple(p.attributes.items()): p.value for p in found["ringest.requests"].data.data_points}
        self.assertEqual(requests[("operation", "get"), ("status", "OK")], 5)
        self.assertEqual(found["ringest.recv_bytes"].unit, "By")
        duration = found["http.client.request.duration"].data.data_points[0]
        self.assertEqual((duration.count, sum(duration.bucket_counts)), (5, 5))
        self.assertEqual(len(duration.bucket_counts), len(duration.explicit_bounds) + 1)
        self.assertEqual(duration.attributes["http.request.method"], "GET")
        quantiles = {p.attributes["quantile"] for p in found["ringest.first_byte"].data.data_points}
        self.assertEqual(quantiles, {"0.5", "0.99"})

    def test_checkpoints_and_epochs_are_spans(self):
        kept = InMemorySpanExporter()
        provider = TracerProvider(shutdown_on_exit=False)
        provider.add_span_processor(SimpleSpanProcessor(kept))
        self.addCleanup(_spans.tell, None)
        with client() as one:
            dataset = ringest.IterableDataset("gs://data/x-0000000", client=one)
            ringest.opentelemetry.spans(provider)
            checkpoint.save({"a": 1}, "gs://bucket/state", client=one)
            checkpoint.load("gs://bucket/state", client=one)
            with self.assertRaises(ringest.NotFoundError):
                checkpoint.load("gs://bucket/none", client=one)
            with provider.get_tracer("theirs").start_as_current_span("training"):
                for _ in dataset:
                    provider.get_tracer("theirs").start_span("step").end()
            dataset.set_epoch(3)
            for _ in dataset:
                break
            bad = ringest.IterableDataset("gs://data/x-0000000", client=one, transform=lambda item: 1 / 0)
            with self.assertRaises(ringest.TransformError):
                list(bad)
        spans = [span for span in kept.get_finished_spans() if span.name.startswith("ringest.")]
        self.assertEqual(
            [(span.name.removeprefix("ringest."), span.status.is_ok) for span in spans],
            [("checkpoint.save", True), ("checkpoint.load", True), ("checkpoint.load", False)]
            + [("epoch", True), ("epoch", True), ("epoch", False)],
        )
        self.assertEqual(spans[0].attributes["ringest.uri"], "gs://bucket/state")
        self.assertEqual([span.attributes["ringest.epoch"] for span in spans[3:]], [0, 3, 0])
        training = next(span for span in kept.get_finished_spans() if span.name == "training")
        parents = {span.parent.span_id for span in kept.get_finished_spans() if span.name == "step"}
        self.assertEqual(parents | {spans[3].parent.span_id}, {training.context.span_id})

    def test_tensorboard_shows_scalars(self):
        folder = self.enterContext(tempfile.TemporaryDirectory())
        with client() as one, SummaryWriter(folder) as writer:
            seen = ringest.tensorboard.Scalars(writer, one)
            for step in (10, 20):
                for items in one.get_many([f"gs://data/x-{i:08}" for i in range(COUNT)]):
                    del items
                written = seen.write(step)
            self.assertGreater(written["megabytes_per_s"], 0)
            self.assertGreater(written["get_p99_ms"], 0)
            self.assertEqual(seen.write(30), dict.fromkeys(written, 0.0))
            checkpoint.save({"a": 1}, "gs://bucket/a", client=one)
            values = iter(ringest.IterableDataset("gs://data/x-", client=one))
            next(values)
            written = seen.write(40)
            self.assertGreater(written["checkpoint_upload_ms"], 0)
            self.assertIn("window_fill", written)
            values.close()
        shown = EventAccumulator(folder).Reload()
        self.assertEqual([s.step for s in shown.Scalars("ringest/wait_ms_per_step")], [10, 20, 30, 40])
        self.assertEqual(
            set(shown.Tags()["scalars"]),
            {f"ringest/{name}" for name in written},
        )

    def test_quantiles_lie_between_the_ends_of_their_bucket(self):
        quantile = ringest.tensorboard.quantile
        self.assertEqual(quantile((10, 20, 40), (0, 0, 0), 0, 0.5), 0)
        self.assertEqual(quantile((10, 20, 40), (10, 10, 10), 10, 0.5), 5)
        self.assertEqual(quantile((10, 20, 40), (0, 5, 10), 10, 0.75), 30)
        self.assertEqual(quantile((10, 20, 40), (0, 0, 0), 4, 0.99), 40)

    def test_a_missing_package_is_named_with_the_extra(self):
        for module, package, extra in (
            ("prometheus", "prometheus_client", "prometheus"),
            ("opentelemetry", "opentelemetry", "opentelemetry"),
        ):
            code = f"import sys; sys.modules['{package}'] = None\nimport ringest.{module}"
            ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
            self.assertIn(f"pip install 'ringest[{extra}]'", ended.stderr)


if __name__ == "__main__":
    unittest.main()
