"""The load of `ringest bench`: rates, ramps, series, processes, and the document of a result."""

import json
import os
import pathlib
import signal
import subprocess
import tempfile
import unittest

from support import (
    DONE,
    FAILED,
    PATIENCE_S,
    PROGRAM,
    USAGE,
    Case,
    Emulator,
    Rule,
    ServedCase,
    environment,
    ringest,
    until,
)

# No two sets of seven of these sizes have the same sum and number.
SIZES = [1 << each for each in range(7)]
# Of an answer of the slow server.
DELAY_S = 0.2


def children(pid):
    return [int(each) for each in pathlib.Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def is_there(pid):
    try:
        return pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


class Load(ServedCase):
    emulator_arguments = ("--synthetic", "made/p:3000:10KiB", "--synthetic", "other/:5:0")
    buckets = ("sizes", "mine", "mine-2", "mine-3", "mine-4", "mine-5")

    def setUp(self):
        self.folder = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory()))

    def bench(self, *arguments):
        return json.loads(self.ok(self.ringest("bench", *arguments, "--json")))

    def test_latencies_by_connection(self):
        """Of all requests, each on one of the connections."""
        report = self.bench(
            "get",
            "gs://made/p",
            "--count",
            "1000",
            "--concurrency",
            "8",
            "--per-connection",
            "--option",
            "hedging=false",
        )
        found = report["by_connection"]
        self.assertEqual(sum(each["requests"] for each in found), 1000)
        self.assertTrue(1 <= len(found) <= 8)
        for each in found:
            self.assertTrue(0 < each["p50_ms"] <= each["p99_ms"] <= each["max_ms"])
        self.assertEqual(found, sorted(found, key=lambda each: -each["p99_ms"]))
        # On the same clock as the latencies of all.
        self.assertAlmostEqual(max(each["max_ms"] for each in found) / report["max_ms"], 1, delta=0.2)
        self.assertNotIn("by_connection", self.bench("get", "gs://made/p", "--count", "10"))
        text = self.ok(self.ringest("bench", "get", "gs://made/p", "--count", "100", "--per-connection"))
        self.assertIn(b"by connection", text)
        for wrong in (("--processes", "2"), ()):
            what = "list" if not wrong else "get"
            done = self.ringest("bench", what, "gs://made/p", "--per-connection", *wrong)
            self.fails(done, USAGE, "--per-connection is for get and put of one process")

    def start(self, *arguments, rule=None):
        """A benchmark that goes on, once the rule has struck: by itself, when all have warmed up."""
        with Rule((self.server.endpoint, self.server.ca), **(rule or {"nth": 2000})) as counted:
            bench = subprocess.Popen(
                [PROGRAM, "bench", *arguments, *self.server.place],
                env=environment(),
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
            )
            counted.wait()
        return bench

    def listed(self, uri):
        return json.loads(self.ok(self.ringest("ls", "-r", "-a", "--json", uri)))["objects"]

    def check_document(self, path, report):
        """It says what standard output says."""
        document = json.loads(path.read_text())
        self.assertEqual(document["format"], "ringest-bench/1")
        [row] = document["rows"]
        [measured] = row["rounds"]
        self.assertEqual((row["workload"], row["client"]), (report["op"], "ringest"))
        self.assertEqual(measured["operations"], report["requests"])
        self.assertEqual(measured["bytes"], report["bytes"])
        self.assertEqual(measured["errors"], report["errors"])
        self.assertEqual(sum(count for _, count in measured["latency"]["counts"]), report["requests"])
        self.assertAlmostEqual(measured["latency"]["max"] / 1e6, report["max_ms"], places=3)
        self.assertEqual(measured["wire_received_bytes"], report["received_bytes"])
        return row, measured

    def test_a_rate_is_kept(self):
        for arrival in ("fixed", "poisson"):
            report = self.bench("get", "gs://made/", "--rate=400", f"--arrival={arrival}", "--count=100")
            self.assertEqual((report["requests"], report["due"], report["unsent"]), (100, 100, 0))
            self.assertIs(report["rate_kept"], True)
            self.assertEqual((report["arrival"], report["rate"]), (arrival, 400))
            if arrival == "fixed":
                # The last one is due after 99 distances, and none is sent before it is due.
                self.assertGreaterEqual(report["seconds"], 99 / 400)
        put = self.bench("put", "gs://mine/", "--rate=1000", "--count=20", "--processes=2", "--object-size=1K")
        self.assertEqual((put["requests"], put["removed"], put["left"]), (20, 20, 0))
        self.assertGreaterEqual(put["seconds"], 19 / 1000)

    def test_latency_counts_from_when_a_request_was_due(self):
        """One connection answers five times in a second, and what was due in the first of them waits for the rest."""
        with Emulator("--synthetic", "made/p:9:1", "--latency-ms", str(DELAY_S * 1e3)) as server:
            arguments = ("bench", "get", "gs://made/", "--concurrency=1", "--seconds=1", "--option=hedging=0")
            open_loop = json.loads(self.ok(ringest(*arguments, "--rate=1000", "--json", *server.place)))
            text = self.ok(ringest(*arguments, "--rate=1000", *server.place)).decode()
        self.assertEqual(open_loop["due"], 1000)
        self.assertEqual(open_loop["unsent"], 1000 - open_loop["requests"])
        self.assertIs(open_loop["rate_kept"], False)
        self.assertGreater(open_loop["max_ms"], 3 * DELAY_S * 1e3)
        self.assertRegex(text, r"NOT KEPT +the rate: \d+\.\d% of what was due was never sent")

    def test_a_ramp_of_a_rate(self):
        report = self.bench("get", "gs://made/", "--rate=400", "--ramp=0.4", "--count=100")
        # In the ramp 80 of them are due, and the last one 19 distances later.
        self.assertGreaterEqual(report["seconds"], 0.4 + 19 / 400)

    def test_a_ramp_of_the_concurrency(self):
        with Emulator("--synthetic", "made/p:99:1", "--latency-ms", str(DELAY_S * 1e3)) as server:
            done = ringest(
                *("bench", "get", "gs://made/", "--concurrency=100", "--seconds=1", "--ramp=1", "--json"),
                *("--option=hedging=0", *server.place),
            )
        # Half of the connections, on average, and a request that is out when the time is over.
        self.assertLessEqual(json.loads(self.ok(done))["requests"], 50 / DELAY_S + 100)

    def test_a_series(self):
        path = self.folder / "result.json"
        report = self.bench("get", "gs://made/", "--seconds=0.5", "--interval=0.1", "--warm-up=0.1", f"--result={path}")
        points = report["series"]
        self.assertEqual(len(points), 5)
        self.assertEqual(sum(each["requests"] for each in points), report["requests"])
        self.assertEqual(sum(each["bytes"] for each in points), report["bytes"])
        cpu = report["cpu_user_seconds"] + report["cpu_system_seconds"]
        self.assertAlmostEqual(sum(each["cpu_seconds"] for each in points), cpu, places=4)
        times = [each["at_seconds"] for each in points]
        self.assertEqual(times, sorted(times))
        self.assertAlmostEqual(times[0], 0.1)
        self.assertAlmostEqual(times[-1], report["seconds"], places=5)
        for each in points:
            self.assertLessEqual(each["p50_ms"], each["p99_ms"])
            self.assertLessEqual(each["p99_ms"], report["max_ms"])
        _, measured = self.check_document(path, report)
        self.assertEqual([each["name"] for each in measured["phases"]], ["warm-up", "measured"])
        self.assertGreater(measured["phases"][0]["operations"], 0)
        self.assertEqual([each["operations"] for each in measured["series"]], [each["requests"] for each in points])

    def test_a_series_by_count(self):
        """More parts than there are points are in the last one; a run by count has no end that is known."""
        report = self.bench("get", "gs://made/", "--count=200", "--interval=0.01", "--processes=2")
        self.assertEqual(sum(each["requests"] for each in report["series"]), 200)

    def test_bytes_on_the_wire(self):
        for arguments in (
            ("get", "gs://made/", "--count=100"),
            ("put", "gs://mine/", "--count=50", "--object-size=1M"),
        ):
            report = self.bench(*arguments)
            wire = report["sent_bytes" if arguments[0] == "put" else "received_bytes"]
            self.assertGreater(wire, report["bytes"])
            self.assertAlmostEqual(report["amplification"], wire / report["bytes"], places=3)
            self.assertLess(report["amplification"], 1.5)

    def test_processes_share_the_names(self):
        """Each object is read once: sizes and their number tell which were."""
        for index, size in enumerate(SIZES):
            self.server.put("sizes", f"{index}", bytes(size))
        for processes in (2, 3, 7, 9):
            report = self.bench("get", "gs://sizes/", f"--processes={processes}", "--concurrency=2", "--verify")
            self.assertEqual((report["requests"], report["bytes"]), (len(SIZES), sum(SIZES)))
            self.assertEqual(report["processes"], processes)
        report = self.bench("get", "gs://made/", "--processes=2", "--seconds=0.3", "--concurrency=8")
        self.assertEqual((report["errors"], report["connections"]), (0, 16))

    def test_processes_merge_what_they_measured(self):
        path = self.folder / "result.json"
        report = self.bench("get", "gs://made/", "--processes=3", "--count=1000", f"--result={path}")
        row, measured = self.check_document(path, report)
        self.assertEqual((report["requests"], row["parameters"]["processes"]), (1000, 3))
        self.assertGreater(measured["cpu_user_seconds"], 0)
        text = self.ok(self.ringest("bench", "list", "gs://made/", "--processes=2")).decode()
        self.assertIn("names         6000,", text)

    def test_what_costs_time_is_a_parameter(self):
        path = self.folder / "result.json"
        for options in ((), ("--verify",), ("--per-connection",), ("--verify", "--per-connection")):
            row, _ = self.check_document(
                path, self.bench("get", "gs://made/", "--count=50", f"--result={path}", *options)
            )
            told = {name for name in ("verify", "per_connection") if row["parameters"].get(name)}
            self.assertEqual(told, {each.strip("-").replace("-", "_") for each in options})

    def test_processes_remove_what_they_wrote(self):
        report = self.bench("put", "gs://mine-2/a/", "--processes=3", "--count=50", "--object-size=1K")
        self.assertEqual((report["requests"], report["removed"], report["left"]), (50, 50, 0))
        self.assertRegex(report["folder"], r"^a/ringest-bench-[0-9a-f-]+/$")
        self.assertEqual(self.listed("gs://mine-2"), [])
        kept = self.bench("put", "gs://mine-2/", "--processes=3", "--count=50", "--object-size=1K", "--keep")
        objects = self.listed("gs://mine-2")
        self.assertEqual((len(objects), kept["removed"]), (50, 0))
        self.assertEqual(
            {each["name"].rpartition("/")[0] + "/" for each in objects}, {f"{kept['folder']}{i}/" for i in range(3)}
        )

    def test_rounds(self):
        path = self.folder / "result.json"
        for processes in (1, 2):
            done = self.ringest(
                *("bench", "put", "gs://mine-5/", "--count=20", "--object-size=1K", f"--processes={processes}"),
                *("--rounds=3", "--json", f"--result={path}"),
            )
            reports = [json.loads(line) for line in self.ok(done).splitlines()]
            self.assertEqual([each["requests"] for each in reports], [20, 20, 20])
            self.assertEqual(sum(each["removed"] for each in reports), 60)
            [row] = json.loads(path.read_text())["rows"]
            self.assertEqual([each["operations"] for each in row["rounds"]], [20, 20, 20])
            self.assertNotIn("error", row)
        self.assertEqual(self.listed("gs://mine-5"), [])
        # One page after the other: several at once may have less names each.
        arguments = ("gs://made/", "--concurrency=1", "--count=2", "--rounds=2")
        text = self.ok(self.ringest("bench", "list", *arguments)).decode()
        self.assertEqual(text.count("names         2000,"), 2)
        self.assertRegex(text, r"^list gs://made/, round 1 of 2\n(.*\n)*list gs://made/, round 2 of 2\n")

    def rounds(self, *arguments):
        path = self.folder / "result.json"
        self.ok(self.ringest("bench", *arguments, f"--result={path}"))
        return [each["metrics"] for each in json.loads(path.read_text())["rows"][0]["rounds"]]

    def test_each_round_counts_its_own(self):
        cache = ("--option", f"cache={self.folder}/cache")
        found = self.rounds("get", "gs://made/", "--count=40", "--concurrency=1", "--rounds=3", *cache)
        self.assertEqual([each["cache_hits"] + each["cache_misses"] for each in found], [40, 40, 40])
        at = (self.server.endpoint, self.server.ca)
        with Rule(
            at, method="storage.objects.insert", bucket="mine-5", nth=3, effect="none", answer="failed", status=429
        ):
            found = self.rounds("put", "gs://mine-5/", "--count=20", "--object-size=1K", "--rounds=2")
        self.assertGreater(found[0]["backoffs"], 0)
        self.assertEqual(found[1]["backoffs"], 0)

    def test_rounds_that_are_missing(self):
        """The rounds that all processes have measured are a result, and it says that there should be more."""
        path = self.folder / "result.json"
        bench = self.start("get", "gs://made/", "--seconds=0.2", "--processes=2", "--rounds=100", f"--result={path}")
        # Of the first one everything is said at once.
        text = bench.stdout.readline()
        os.kill(children(bench.pid)[0], signal.SIGKILL)
        text += bench.stdout.read()
        _, errors = bench.communicate(timeout=PATIENCE_S)
        self.assertEqual(bench.returncode, FAILED, errors)
        [row] = json.loads(path.read_text())["rows"]
        self.assertEqual(row["error"], "rounds are missing")
        self.assertEqual(len(row["rounds"]), text.count(b"requests/s, "))
        self.assertLess(len(row["rounds"]), 100)

    def test_a_process_that_is_killed_is_an_error(self):
        bench = self.start("get", "gs://made/", "--seconds=60", "--processes=3")
        pids = children(bench.pid)
        self.assertEqual(len(pids), 3)
        os.kill(pids[1], signal.SIGKILL)
        output, errors = bench.communicate(timeout=PATIENCE_S)
        self.assertEqual((bench.returncode, output), (FAILED, b""), errors)
        self.assertIn(b"process 1 of 3 was killed by signal 9 (Killed), so that there is no whole result", errors)
        self.assertEqual([each for each in pids if is_there(each)], [])

    def test_a_killed_process_of_put_leaves_only_its_own(self):
        rule = {"method": "storage.objects.insert", "nth": 50}
        bench = self.start("put", "gs://mine-3/", "--seconds=60", "--processes=2", "--object-size=1", rule=rule)
        os.kill(children(bench.pid)[1], signal.SIGKILL)
        _, errors = bench.communicate(timeout=PATIENCE_S)
        self.assertEqual(bench.returncode, FAILED)
        self.assertRegex(errors.decode(), r"what it wrote is left in gs://mine-3/ringest-bench-[\w-]+/; remove it with")
        self.assertLessEqual({each["name"].split("/")[1] for each in self.listed("gs://mine-3")}, {"1"})

    def test_processes_end_with_the_one_that_started_them(self):
        rule = {"method": "storage.objects.insert", "nth": 50}
        bench = self.start("put", "gs://mine-4/", "--seconds=60", "--processes=2", "--object-size=1", rule=rule)
        pids = children(bench.pid)
        bench.kill()
        bench.communicate()
        until(lambda: not any(is_there(each) for each in pids), "the end of the processes")
        self.assertEqual(self.listed("gs://mine-4"), [])

    def test_interrupted_processes(self):
        path = self.folder / "result.json"
        bench = self.start("get", "gs://made/", "--seconds=60", "--processes=2", f"--result={path}")
        bench.send_signal(signal.SIGINT)
        output, errors = bench.communicate(timeout=PATIENCE_S)
        self.assertEqual((bench.returncode, errors), (128 + signal.SIGINT, b"ringest: bench: interrupted\n"))
        self.assertIn(b"processes     2;", output)
        [row] = json.loads(path.read_text())["rows"]
        self.assertEqual(row["error"], "interrupted")
        self.assertGreater(row["rounds"][0]["operations"], 0)

    def test_processes_that_fail_alike(self):
        done = self.ringest("bench", "get", "gs://no-such-bucket/", "--processes=2")
        self.assertEqual((done.returncode, done.stdout), (FAILED, b""))
        self.assertIn("404", done.stderr)

    def test_a_result_that_cannot_be_written(self):
        path = self.folder / "absent/result.json"
        done = self.ringest("bench", "get", "gs://made/", f"--result={path}")
        self.fails(done, FAILED, f"the result cannot be written to {path}: No such file")
        self.assertEqual(done.stdout, b"")
        done = self.ringest("bench", "get", "gs://made/", "--result=/dev/null")
        self.fails(done, FAILED, "the result cannot be written to /dev/null: it is no file; --json prints")
        # What was there stays if nothing was measured, and nothing else is left.
        before = self.folder / "result.json"
        before.write_text("before")
        self.assertEqual(self.ringest("bench", "get", "gs://made/absent", f"--result={before}").returncode, FAILED)
        self.assertEqual([each.read_text() for each in self.folder.iterdir()], ["before"])


class Wrong(Case):
    def test_what_does_not_go_together(self):
        for arguments, words in (
            (("get", "--arrival=poisson"), "--arrival needs --rate"),
            (("get", "--rate=5", "--arrival=even"), '--arrival must be fixed or poisson, got "even"'),
            (("list", "--rate=5"), "--rate and --ramp are for get and put"),
            (("put", "--verify"), "--verify is for get and list"),
            (("list", "--ramp=5"), "--rate and --ramp are for get and put"),
            (("get", "--seconds=1", "--ramp=2"), "--ramp may be as long as --seconds at most"),
            (("get", "--seconds=3600", "--interval=0.5"), "a series has 3600 points at most"),
            (("get", "--rate=1e9"), "--rate may be 100000000 requests/s at most"),
            (("get", "--processes=0"), "--processes"),
            (("get", "--result=gs://b/o"), "FILE of this machine"),
            (("get", "--result=-"), "--result needs a FILE; --json prints to standard output"),
        ):
            with self.subTest(arguments):
                done = ringest("bench", arguments[0], "gs://bucket/", *arguments[1:])
                self.fails(done, USAGE, words)
                self.assertNotEqual(done.returncode, DONE)


if __name__ == "__main__":
    unittest.main()
