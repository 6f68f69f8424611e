"""`ringest bench`: what it counts and reports, and how it ends."""

import json
import os
import pathlib
import re
import signal
import subprocess
import sys
import tempfile
import time
import unittest

from support import (
    BACKEND,
    DONE,
    FAILED,
    PATIENCE_S,
    PROGRAM,
    USAGE,
    Case,
    Emulator,
    Rule,
    ServedCase,
    Terminal,
    environment,
    ringest,
)

FIELDS = {
    "op": str,
    "requests": int,
    "errors": int,
    "retries": int,
    "hedges": int,
    "bytes": int,
    "seconds": float,
    "requests_per_s": float,
    "gb_per_s": float,
    "cpu_us_per_request": float,
    "p50_ms": float,
    "p99_ms": float,
    "p999_ms": float,
    "connections": int,
    "rss_max_mb": float,
    "backend": str,
}


class Bench(ServedCase):
    emulator_arguments = (
        "--synthetic",
        "made/p:3000:10KiB",
        "--synthetic",
        "other/:5:0",
        "--synthetic",
        "huge/:1:4TiB",
    )
    buckets = ("made-here", *(f"users-{number}" for number in range(2, 7)))

    def bench(self, *arguments, **options):
        done = self.ringest("bench", *arguments, "--json", **options)
        report = json.loads(self.ok(done))
        self.assertEqual(done.stdout.count(b"\n"), 1)
        for field, kind in FIELDS.items():
            self.assertIs(type(report[field]), kind, field)
        self.check_plausible(report)
        return report

    def check_plausible(self, report):
        self.assertEqual((report["errors"], report["retries"]), (0, 0))
        self.assertGreater(report["seconds"], 0)
        # Seconds are rounded to six places, and the rates to one and four.
        shortest, longest = report["seconds"] - 1e-6, report["seconds"] + 1e-6
        for rate, amount, rounded in (
            (report["requests_per_s"], report["requests"], 0.1),
            (report["gb_per_s"], report["bytes"] / 1e9, 1e-4),
        ):
            self.assertLessEqual(rate, amount / shortest + rounded)
            self.assertGreaterEqual(rate, amount / longest - rounded)
        self.assertLessEqual(report["p50_ms"], report["p99_ms"])
        self.assertLessEqual(report["p99_ms"], report["p999_ms"])
        self.assertLessEqual(report["p999_ms"], 1.1e3 * report["seconds"])
        self.assertGreater(report["cpu_us_per_request"], 0)
        self.assertGreater(report["rss_max_mb"], 1)
        self.assertIn(report["backend"], [BACKEND] if BACKEND in ("uring", "epoll") else ["uring", "epoll"])

    def test_get_reads_every_object(self):
        report = self.bench("get", "gs://made/", "--verify")
        self.assertEqual((report["op"], report["requests"], report["bytes"]), ("get", 3000, 3000 * 10240))
        self.assertEqual(report["connections"], 64)

    def test_memory_is_not_that_of_whoever_starts_it(self):
        alone = self.bench("get", "gs://made/", "--count=100")["rss_max_mb"]
        held = bytearray(b"\1") * (300 << 20)
        self.assertLess(self.bench("get", "gs://made/", "--count=100")["rss_max_mb"], alone + 100)
        del held

    def test_get_goes_round_when_there_are_fewer_objects(self):
        report = self.bench("get", "gs://other/", "--count=500", "--concurrency=3")
        self.assertEqual((report["requests"], report["bytes"], report["connections"]), (500, 0, 3))

    def test_get_of_the_first_objects(self):
        self.assertEqual(self.bench("get", "gs://made/p", "--count=7")["requests"], 7)

    def test_get_one_at_a_time(self):
        self.assertEqual(self.bench("get", "gs://made/p", "--count=20", "--concurrency=1")["requests"], 20)

    def test_get_with_several_loops(self):
        report = self.bench("get", "gs://made/p", "--threads=3", "--verify")
        self.assertEqual(report["requests"], 3000)

    def test_get_for_some_time(self):
        report = self.bench("get", "gs://made/", "--seconds=0.5")
        self.assertGreater(report["requests"], 1)
        self.assertGreater(report["seconds"], 0.4)

    def listed(self, uri):
        return json.loads(self.ok(self.ringest("ls", "-r", "-a", "--json", uri)))["objects"]

    def put_until_stopped(self, uri):
        return subprocess.Popen(
            [PROGRAM, "bench", "put", uri, "--seconds=60", *self.server.place],
            env=environment(),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )

    def test_put_touches_nothing_else(self):
        """Objects that have the names of a benchmark's, and old versions, stay as they are."""
        for index in range(5):
            self.server.put("users", f"train/{index:08}", b"mine")
        before = self.listed("gs://users")
        report = self.bench("put", "gs://users/train/", "--count=5")
        self.assertEqual((report["requests"], report["removed"], report["left"]), (5, 5, 0))
        self.assertRegex(report["folder"], r"^train/ringest-bench-[0-9a-f]{12}-[0-9a-f]+-[0-9a-f]+-[0-9a-f]{16}/$")
        self.assertEqual(self.listed("gs://users"), before)
        text = self.ok(self.ringest("bench", "put", "gs://users/train/", "--count=5")).decode()
        self.assertRegex(text, r"objects +5 removed again from gs://users/train/ringest-bench-[\w-]+/\n")
        self.assertEqual(self.listed("gs://users"), before)

    def test_put_names_what_a_killed_one_has_left(self):
        at = (self.server.endpoint, self.server.ca)
        with Rule(at, method="storage.objects.insert", bucket="users-6", nth=5, answer="held") as held:
            bench = self.put_until_stopped("gs://users-6/")
            held.wait()
            folder = self.listed("gs://users-6")[0]["name"].partition("/")[0]
            # One that still runs is not named, nor is anything but a folder; those of others are.
            self.server.put("users-6", "ringest-bench-notes", b"mine")
            self.server.put("users-6", "ringest-bench-0123456789abcdef/00000000", b"theirs")
            other = (
                "note: gs://users-6/ringest-bench-0123456789abcdef/ is of a benchmark of another machine or container, "
                "which is running or has left it"
            )
            done = self.ringest("bench", "put", "gs://users-6/", "--count=5")
            self.assertEqual((done.returncode, done.stderr), (DONE, f"ringest: bench: {other}\n"))
            bench.kill()
            bench.communicate()
        note = f"note: gs://users-6/{folder}/ is left by a benchmark that was killed, or had --keep; `ringest rm -r` removes it"
        for _ in range(2):
            done = self.ringest("bench", "put", "gs://users-6/", "--count=5")
            said = {f"ringest: bench: {each}" for each in (other, note)}
            self.assertEqual((done.returncode, set(done.stderr.splitlines())), (DONE, said))
        self.ok(self.ringest("rm", "-q", "-r", f"gs://users-6/{folder}/"))
        left = [object["name"] for object in self.listed("gs://users-6")]
        self.assertEqual(left, ["ringest-bench-0123456789abcdef/00000000", "ringest-bench-notes"])

    def test_where_no_answer_came_there_is_no_first(self):
        for options in ((), ("--json",)):
            done = self.ringest("bench", "get", "gs://huge/", "--seconds", "0.1", *options)
            self.assertIn("does not fit", done.stderr)
            if options:
                report = json.loads(done.stdout)
                self.assertEqual((report["first_ms"], report["requests"] - report["errors"]), (None, 0))
            else:
                self.assertIn(b"no answer came", done.stdout)

    def test_put_removes_what_it_made_after_errors_and_signals(self):
        self.server.put("users", "kept", b"mine")
        before = self.listed("gs://users")
        at = (self.server.endpoint, self.server.ca)
        # Written, and no answer tells of it.
        with Rule(at, method="storage.objects.insert", nth=10, times=3, answer="dropped"):
            done = self.ringest("bench", "put", "gs://users/", "--count=50", "--json")
        self.assertEqual(json.loads(done.stdout)["left"], 0)
        self.assertEqual(self.listed("gs://users"), before)
        with Rule(at, method="storage.objects.insert", nth=300) as counted:
            bench = self.put_until_stopped("gs://users/")
            counted.wait()
        bench.send_signal(signal.SIGINT)
        output, errors = bench.communicate(timeout=PATIENCE_S)
        self.assertEqual(bench.returncode, 128 + signal.SIGINT, errors)
        self.assertIn(b"requests/s", output)
        self.assertIn(b"removed again", output)
        self.assertIn(b"note: removing what was written to gs://users/ringest-bench-", errors)
        self.assertEqual(self.listed("gs://users"), before)

    def test_put_removes_what_was_not_answered(self):
        """The interruption does not wait for an answer that does not come, and the object is there."""
        at = (self.server.endpoint, self.server.ca)
        with Rule(at, method="storage.objects.insert", bucket="users-3", nth=5, answer="held") as held:
            bench = self.put_until_stopped("gs://users-3/")
            held.wait()
            bench.send_signal(signal.SIGINT)
            output, errors = bench.communicate(timeout=PATIENCE_S)
            self.assertEqual(bench.returncode, 128 + signal.SIGINT, errors)
            self.assertIn(b"0 errors", output)
            self.assertEqual(self.listed("gs://users-3/"), [])

    def test_put_leaves_what_others_put_into_its_folder(self):
        """One of its objects is replaced by somebody else, other names are added, and an answer does not come,
        so that the folder is listed."""
        at = (self.server.endpoint, self.server.ca)
        with Rule(at, method="storage.objects.insert", bucket="users-4", nth=5, answer="held") as held:
            bench = subprocess.Popen(
                [PROGRAM, "bench", "put", "gs://users-4/", "--count=5", "--concurrency=1", *self.server.place],
                env=environment(),
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
            )
            held.wait()
            folder = self.listed("gs://users-4/")[0]["name"].rpartition("/")[0]
            theirs = [f"{folder}/00000002", f"{folder}/notes", f"{folder}/00000001x"]
            for name in theirs:
                self.server.put("users-4", name, b"theirs")
            bench.send_signal(signal.SIGINT)
            bench.communicate(timeout=PATIENCE_S)
        left = self.listed("gs://users-4/")
        self.assertEqual([object["name"] for object in left], sorted(theirs))
        self.assertEqual([object["size"] for object in left], [6, 6, 6])

    def test_put_that_may_not_remove_asks_for_one_and_ends(self):
        at = (self.server.endpoint, self.server.ca)
        with Rule(at, writes=True, nth=51, times=10**6, effect="none", answer="failed", status=403) as writes:
            done = self.ringest("bench", "put", "gs://users-5/", "--count=50")
            self.assertLess(writes.state()["seen"], 55)
        self.fails(done, FAILED, "50 objects could not be removed", "gs://users-5/ringest-bench-", "ringest rm -r")

    def test_put_names_what_it_could_not_remove(self):
        at = (self.server.endpoint, self.server.ca)
        with Rule(at, writes=True, nth=6, times=10**6, effect="none", answer="failed", status=403):
            done = self.ringest("bench", "put", "gs://users-2/", "--count=5")
        self.fails(done, FAILED, "5 objects could not be removed", "gs://users-2/ringest-bench-", "ringest rm -r")
        self.assertEqual(len(self.listed("gs://users-2")), 5)

    def test_put_and_what_was_put(self):
        report = self.bench(
            "put", "gs://made-here/dir/x-", "--count=100", "--object-size=20K", "--concurrency=8", "--keep"
        )
        self.assertEqual((report["op"], report["requests"], report["bytes"]), ("put", 100, 100 * 20480))
        read = self.bench("get", "gs://made-here/dir/x-", "--verify")
        self.assertEqual((read["requests"], read["bytes"]), (100, 100 * 20480))

    def test_put_of_empty_objects(self):
        report = self.bench("put", "gs://made-here/empty-", "--count=10", "--object-size=0")
        self.assertEqual((report["requests"], report["bytes"]), (10, 0))

    def test_list_goes_through_the_pages(self):
        report = self.bench("list", "gs://made/", "--count=3", "--concurrency=1")
        self.assertEqual((report["op"], report["requests"], report["names"]), ("list", 3, 3000))

    def test_list_counts_every_name_once(self):
        for concurrency in (1, 16):
            report = self.bench("list", "gs://made/", f"--concurrency={concurrency}")
            self.assertEqual((report["names"], report["errors"]), (3000, 0))

    def listed_while(self, change):
        """A bench of names that are listed before, and after `change`; its status, figures and errors."""
        at = (self.server.endpoint, self.server.ca)
        with Rule(at, method="storage.objects.list", bucket="names", nth=2, effect="none", answer="held") as held:
            bench = subprocess.Popen(
                [PROGRAM, "bench", "list", "gs://names/", "--verify", "--json", *self.server.place],
                env=environment(),
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )
            held.wait()
            change()
        output, errors = bench.communicate(timeout=PATIENCE_S)
        return bench.returncode, json.loads(output), errors

    def test_list_compares_each_name(self):
        """As many names as before prove nothing."""
        for name in ("a", "b", "c"):
            self.server.put("names", name, b"")
        status, report, errors = self.listed_while(lambda: None)
        self.assertEqual((status, report["names"], report["errors"], errors), (DONE, 3, 0, ""))

        def other_names():
            self.server.put("names", "d", b"")
            self.ok(self.ringest("rm", "-q", "gs://names/b"))

        status, report, errors = self.listed_while(other_names)
        self.assertEqual((status, report["names"], report["errors"]), (FAILED, 3, 2))
        self.assertIn("gs://names/d: is listed, and was not before", errors)
        self.assertIn("gs://names/b: was listed before and is not now; 1 of 3 names are missing", errors)
        status, _, errors = self.listed_while(lambda: self.server.put("names", "a", b""))
        self.assertEqual(status, FAILED)
        self.assertIn("gs://names/a: replaced since it was listed before: generation", errors)
        text = self.ok(self.ringest("bench", "list", "gs://made/", "--verify", "--seconds=0.2")).decode()
        self.assertIn("checked       each name, size and generation", text)

    def test_a_report_for_people(self):
        text = self.ok(self.ringest("bench", "get", "gs://made/", "--count=100", "--verify")).decode()
        for word in ("requests/s", "100 in", "p99 ", "CPU", "connections", "memory", "backend"):
            self.assertIn(word, text)

    def test_what_the_cache_had_has_no_latency(self):
        with tempfile.TemporaryDirectory() as folder:
            for expected in (40, None):
                options = ("--count", "40", "--option", f"cache={folder}")
                done = self.ringest("bench", "get", "gs://made/p", *options)
                self.assertEqual(done.returncode, DONE, done.stderr)
                said = re.search(rb"of (\d+) requests; what the cache had", done.stdout)
                asked = int(said[1]) if said else 0
                self.assertTrue(asked == expected if expected else asked < 40, done.stdout)

    def test_nothing_to_get(self):
        done = self.ringest("bench", "get", "gs://made/absent")
        self.fails(done, FAILED, "gs://made", '"absent"', "--synthetic")
        self.assertEqual(done.stdout, b"")
        done = self.ringest("bench", "list", "gs://made/absent")
        self.fails(done, FAILED, 'nothing in gs://made begins with "absent"')

    def test_a_missing_bucket(self):
        self.fails(self.ringest("bench", "get", "gs://no-such-bucket/"), FAILED, "gs://no-such-bucket/", "404")

    def test_errors_are_counted(self):
        with Emulator("--synthetic", "made/p:4:1KiB", "--rate-limit", "5") as server:
            done = ringest("bench", "get", "gs://made/", "--json", *server.place)
            report = json.loads(done.stdout)
            self.assertEqual(report["requests"], 4)
            self.assertGreater(report["retries"], 0)
            self.assertEqual(done.returncode, FAILED if report["errors"] else DONE)

    def test_what_failed_is_no_part_of_the_figures(self):
        """A server that fails is quick."""
        with Emulator() as server, tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder, "result.json")
            done = ringest("bench", "put", "gs://none/", "--count=20", "--json", f"--result={path}", *server.place)
            self.assertEqual(done.returncode, FAILED)
            report = json.loads(done.stdout)
            self.assertEqual((report["requests"], report["errors"]), (20, 20))
            self.assertEqual((report["requests_per_s"], report["p50_ms"], report["cpu_us_per_request"]), (0, 0, 0))
            [row] = json.loads(path.read_text())["rows"]
            [measured] = row["rounds"]
            self.assertEqual((measured["operations"], measured["errors"]), (0, 20))
            self.assertEqual(measured["latency"]["counts"], [])

    def test_a_bucket_that_slows_down_is_told(self):
        with Emulator("--synthetic", "made/p:60:1KiB", "--rate-limit", "20") as server:
            give_up = time.monotonic() + PATIENCE_S
            text = ""
            # A machine that is slow may ask for no more than is allowed.
            while "429" not in text:
                self.assertLess(time.monotonic(), give_up, text)
                text = ringest("bench", "get", "gs://made/", *server.place).stdout.decode()
            self.assertRegex(text, r"  slowed down   (\d+ times|before the clock) by the bucket")

    def test_second_requests_are_no_retries(self):
        with Emulator("--synthetic", "made/p:2000:1KiB", "--latency-ms", "2:60") as server:
            give_up = time.monotonic() + PATIENCE_S
            hedges = retries = 0
            # A machine that holds everybody up makes all answers late, and then there is no hope in a second
            # one; what is late twice may be given up. Then it is tried again.
            while retries >= hedges:
                self.assertLess(time.monotonic(), give_up, f"{hedges} second requests, {retries} retries")
                done = ringest("bench", "get", "gs://made/", "--concurrency=20", "--json", *server.place)
                report = json.loads(self.ok(done))
                self.assertEqual(report["errors"], 0)
                hedges, retries = report["hedges"], report["retries"]

    def test_latency_is_measured(self):
        with Emulator("--synthetic", "made/p:200:1KiB", "--latency-ms", "50:60") as server:
            done = ringest("bench", "get", "gs://made/", "--concurrency=20", "--json", *server.place)
            report = json.loads(self.ok(done))
            self.assertGreater(report["p50_ms"], 40)
            # Of 200 requests there is no 99.9th percentile.
            text = self.ok(ringest("bench", "get", "gs://made/", "--concurrency=20", *server.place)).decode()
            self.assertRegex(text, r"latency +p50 [\d.]+ ms, p90 [\d.]+ ms, p99 [\d.]+ ms, max [\d.]+ ms\n")
            self.assertGreater(report["seconds"], 0.4)

    def test_a_far_bucket_is_listed_by_many_requests(self):
        with Emulator("--synthetic", "made/p:20000:0", "--latency-ms", "100") as server:
            done = ringest("bench", "list", "gs://made/", "--json", *server.place)
            report = json.loads(self.ok(done))
            self.assertEqual((report["names"], report["errors"]), (20000, 0))
            # One after the other, 20 pages wait for two seconds.
            self.assertGreater(report["connections"], 1)

    def test_bandwidth_of_a_connection_is_measured(self):
        with Emulator("--synthetic", "made/p:4:1MiB", "--conn-mbps", "80") as server:
            done = ringest("bench", "get", "gs://made/", "--concurrency=1", "--json", *server.place)
            # 4 MiB at 10 MB/s; the first bytes may come at once.
            self.assertGreater(json.loads(self.ok(done))["seconds"], 0.25)

    def test_interrupted(self):
        for number in (signal.SIGINT, signal.SIGTERM):
            counted = Rule((self.server.endpoint, self.server.ca), nth=600)
            bench = subprocess.Popen(
                [PROGRAM, "bench", "get", "gs://made/", "--seconds=60", *self.server.place],
                env=environment(),
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
            )
            counted.wait()
            counted.end()
            bench.send_signal(number)
            output, errors = bench.communicate(timeout=60)
            self.assertEqual(errors.decode(), "ringest: bench: interrupted\n")
            self.assertEqual(bench.returncode, 128 + number)
            self.assertIn(b"requests/s", output)

    def test_no_progress_without_a_terminal(self):
        done = self.ringest("bench", "get", "gs://made/", env=environment(TERM="xterm"))
        self.assertEqual(done.stderr, "")

    def test_standard_output_that_is_full(self):
        with open("/dev/full", "wb") as full:
            done = self.ringest("bench", "get", "gs://made/", "--count=10", "--json", stdout=full)
        self.fails(done, FAILED, "No space left")

    def test_progress_on_a_terminal(self):
        terminal = Terminal()
        bench = subprocess.Popen(
            [PROGRAM, "bench", "get", "gs://made/", "--count=3000", *self.server.place],
            env=environment(TERM="xterm"),
            stdout=subprocess.PIPE,
            stderr=terminal.far,
        )
        output, _ = bench.communicate(timeout=60)
        drawn = terminal.read()
        self.assertEqual(bench.returncode, DONE)
        self.assertIn(b"requests/s", output)
        self.assertTrue(drawn.endswith("\r\033[K"), drawn)


class InPython(Case):
    """What `ringest bench` hands over: a package that stands in for ringest's says what it was given."""

    def setUp(self):
        self.folder = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory()))
        package = self.folder / "ringest/bench"
        package.mkdir(parents=True)
        (package / "__init__.py").touch()
        (package.parent / "__init__.py").touch()
        (package / "__main__.py").write_text("import json, sys\nprint(json.dumps(sys.argv[1:]))\nsys.exit(7)\n")
        self.environment = environment(PYTHONPATH=str(self.folder), RINGEST_PYTHON=sys.executable)

    def given(self, *arguments):
        done = ringest("bench", *arguments, env=self.environment)
        self.assertEqual((done.returncode, done.stderr), (7, ""))
        return json.loads(done.stdout)

    def test_commands(self):
        for arguments in (
            ["run", "unet3d", "--help"],
            ["presets"],
            ["compare", "--peers", "a b,c"],
            ["report", "A", "-"],
        ):
            self.assertEqual(self.given(*arguments), arguments)

    def test_a_preset(self):
        self.assertEqual(self.given("--preset", "unet3d"), ["run", "unet3d"])
        self.assertEqual(self.given("--preset=unet3d", "--scale", "2"), ["run", "unet3d", "--scale", "2"])
        self.assertEqual(self.given("--seconds", "2", "--preset", "a"), ["run", "--seconds", "2", "a"])
        # Of a command it is that command's own option.
        self.assertEqual(self.given("compare", "--preset", "a"), ["compare", "--preset", "a"])
        self.fails(ringest("bench", "--preset", env=self.environment), USAGE, "--preset needs a value")

    def test_the_interpreter_that_is_found(self):
        tools = self.folder / "tools"
        tools.mkdir()
        (tools / "python3").symlink_to(sys.executable)
        path = os.pathsep.join((str(tools), os.environ.get("PATH", "")))
        self.environment |= {"PATH": path, "RINGEST_PYTHON": ""}
        self.assertEqual(self.given("presets"), ["presets"])

    def test_no_interpreter(self):
        self.environment["RINGEST_PYTHON"] = str(self.folder / "none")
        done = ringest("bench", "presets", env=self.environment)
        self.fails(done, FAILED, f"{self.folder}/none cannot be run", "No such file", "RINGEST_PYTHON")

    def test_no_package(self):
        """What lies in the working directory is none of it."""
        self.environment |= {"PYTHONPATH": "", "PYTHONNOUSERSITE": "1"}
        interpreter = self.folder / "isolated"
        interpreter.write_text(f'#!/bin/sh\nexec {sys.executable} -S "$@"\n')
        interpreter.chmod(0o755)
        self.environment["RINGEST_PYTHON"] = str(interpreter)
        done = ringest("bench", "report", "A.json", env=self.environment, cwd=self.folder)
        self.fails(done, FAILED, "ringest: bench: ", "no package ringest", "RINGEST_PYTHON")

    def test_help_shows_both_halves(self):
        text = self.ok(ringest("bench", "--help")).decode()
        for word in ("get|put|list", "--concurrency", "run NAME", "presets", "compare", "report FILE"):
            self.assertIn(word, text)


if __name__ == "__main__":
    unittest.main()
