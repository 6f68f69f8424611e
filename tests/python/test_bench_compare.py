"""ringest bench compare: the same work for all clients, nobody credited for nothing, and a client that fails is a row."""

import asyncio
import io
import os
import signal
import subprocess
import sys
import tempfile
import textwrap
import time
import unittest
import unittest.mock

import ringest
from ringest.bench import compare, peers, result
from ringest.bench import run as bench_run
from ringest.bench.peers import measuring, work
from ringest.bench.peers.data import Place
from support import PROGRAM, bench_in_child, emulator, until

# A run takes as long as its processes; what hangs fails the test.
RUN_S = 300
SHORT = ["--seconds", "0.1", "--warm-up", "0", "--rounds", "1", "--concurrency", "4"]
# Ways of a client of one's own, none of which does what it should.
BAD = """
    import os, subprocess, sys, time
    from ringest.bench.peers import ours
    from ringest.bench.peers.work import Counted, Peer, Way, iterate

    def fails(work):
        try:
            raise ConnectionRefusedError("the endpoint refused")
        except OSError as error:
            raise RuntimeError("no answer") from error

    def short(work):
        def counts():
            while True:
                work.check(bytes(work.size - 1))
                yield 1
        return iterate(work, counts())

    def wrong(work):
        def counts():
            while True:
                work.check(bytes(work.size))
                yield 1
        return iterate(work, counts())

    def nothing(work):
        return Counted(0, 1.0, 0.0, 0.0)

    def dies(work):
        sys.stderr.write("the last \\x1b[2Jwords\\n")
        sys.stderr.flush()
        os._exit(3)

    def hangs(work):
        child = subprocess.Popen(["sleep", "1000"])
        with open(os.environ["PID_FILE"], "w") as file:
            file.write(str(child.pid))
        while True:
            time.sleep(1)

    def lies(work):
        return Counted(1000, 1.0, 0.5, 0.5)

    def half(work):
        work.check_listed(work.listed // 2)

    PEER = Peer("bad", None, (
        Way("fails", get=fails),
        Way("short", get=short),
        Way("wrong", get=wrong),
        Way("nothing", get=nothing),
        Way("dies", get=dies),
        Way("hangs", get=hangs),
        Way("lies", put=lies),
        Way("half", list=half),
        Way("absent", get=fails, needs=("no-such-package",)),
    ))
"""

# Does its first piece of work right, and no other.
LATER = """
    from ringest.bench.peers import ours
    from ringest.bench.peers.work import Peer, Read, Way, iterate

    def get(work):
        client = ours.client(work)
        def counts():
            work.check(client.get(f"gs://{work.bucket}/{work.next()}"))
            yield 1
            while True:
                work.check(bytes(work.size))
                yield 1
        return iterate(work, counts())

    def put(work, wrong):
        client, body = ours.client(work), bytes(work.size)
        def counts():
            client.put(f"gs://{work.bucket}/{work.next()}", body)
            yield 1
            while True:
                name = f"gs://{work.bucket}/{work.next()}"
                if wrong is not None and not name.endswith("/00000000"):
                    client.put(name, wrong)
                yield 1
        return iterate(work, counts())

    def reader(work):
        client, seen = ours.client(work), set()
        def read(name):
            body = bytes(client.get(f"gs://{work.bucket}/{name}"))
            seen.add(name)
            return body if len(seen) == 1 else bytes(len(body))
        return read

    PEER = Peer("later", None, (
        Way("wrong", get=get, put=lambda work: put(work, b"x" * work.size),
            dataset=lambda work, objects: Read(work, objects, reader), needs=("torch",)),
        Way("absent", put=lambda work: put(work, None)),
    ))
"""

# Lists as many names as there are, of which some are others: from the first listing on, or later.
LISTERS = """
    from ringest.bench.peers.work import Peer, Way, iterate

    def listing(work, *wrong):
        names = [f"{work.prefix}{index:08d}" for index in range(work.listed)]
        def counts():
            work.check_listed(len(names), lambda: names)
            yield len(names)
            while True:
                others = [*names[:-1], wrong[0] if wrong else names[0]]
                work.check_listed(len(others), lambda: others)
                yield len(others)
        return iterate(work, counts())

    def other(work):
        work.check_listed(work.listed, lambda: [work.prefix + "x"] * work.listed)

    def silent(work):
        def counts():
            while True:
                work.check_listed(work.listed)
                yield work.listed
        return iterate(work, counts())

    PEER = Peer("names", None, (
        Way("other", list=other),
        Way("later", list=lambda work: listing(work, "elsewhere")),
        Way("twice", list=listing),
        Way("silent", list=silent),
    ))
"""

# Loaders for presets, of which one is right.
LOADERS = """
    from ringest.bench.peers import ours
    from ringest.bench.peers.work import Peer, Read, Way

    def reader(work):
        client = ours.client(work)
        return lambda name: bytes(client.get(f"gs://{work.bucket}/{name}"))

    def right(work, objects):
        return Read(work, objects, reader)

    def wrong(work, objects):
        def changed(work):
            read = reader(work)
            return lambda name: bytes(len(read(name)))
        return Read(work, objects, changed)

    def fails(work, objects):
        raise ConnectionRefusedError("the endpoint refused")

    ways = (("right", right), ("wrong", wrong), ("fails", fails))
    PEER = Peer("own", None, tuple(Way(name, dataset=each, needs=("torch",)) for name, each in ways))
"""
TRAIN = """
    title = "tiny"
    kind = "train"
    [data]
    objects = 32
    size = 5000
    [work]
    epochs = 2
    batch_size = 8
    compute_seconds = 0.002
"""
# Measures once, and then says that it runs, and does not end.
ONCE = """
    import os, time
    from ringest.bench.peers import ours
    from ringest.bench.peers.work import Peer, Way

    def get(work):
        try:
            with open(os.environ["SEEN_FILE"], "x"):
                return ours.get_in_threads(work)
        except FileExistsError:
            with open(os.environ["AGAIN_FILE"], "x"):
                time.sleep(1000)

    PEER = Peer("once", None, (Way("threads", get=get),))
"""


def run(*arguments, **environment):
    """What it prints, and its exit status."""
    done = subprocess.run(
        [sys.executable, "-m", "ringest.bench", "compare", *arguments],
        env={**os.environ, "RINGEST_PROGRAM": PROGRAM, **environment},
        capture_output=True,
        text=True,
        timeout=RUN_S,
        check=False,
    )
    return done


class Saying(unittest.TestCase):
    def said(self, lines_s):
        """What is written where standard error is no terminal."""
        out = io.StringIO()
        with (
            unittest.mock.patch.object(sys, "stderr", out),
            unittest.mock.patch.object(bench_run, "LINES_S", lines_s),
            compare._saying() as say,
        ):
            say("round 1/3 [1/2] get-4k: ringest threads, 16")
            say("round 1/3 [2/2] get-4k: gcsfs, 16")
        return out.getvalue().splitlines()

    def test_a_log_has_plain_lines(self):
        lines = [
            f"ringest bench compare: round 1/3 {step}"
            for step in ("[1/2] get-4k: ringest threads, 16", "[2/2] get-4k: gcsfs, 16")
        ]
        self.assertEqual(self.said(0), lines)

    def test_not_many(self):
        self.assertEqual(self.said(1000), [])


class Compare(unittest.TestCase):
    maxDiff = 3000

    def setUp(self):
        self.folder = self.enterContext(tempfile.TemporaryDirectory())
        self.path = os.path.join(self.folder, "result.json")

    def measured(self, *arguments, status=0, **environment):
        """The rows of a run, by workload and client."""
        done = run(*arguments, "--result", self.path, **environment)
        self.assertEqual(done.returncode, status, done.stdout + done.stderr)
        self.document = result.read(self.path)
        self.output = done.stdout
        return {(row.workload, row.client): row for row in self.document.rows}

    def test_ours_by_all_verbs(self):
        rows = self.measured(
            "--emulate", "--peers", "ringest", "--verbs", "get,put,list", "--sizes", "1k,20k", "--names", "1500", *SHORT
        )
        self.assertEqual(
            list(rows),
            [(f"get-{size}", f"ringest {way}") for size in ("1k", "20k") for way in ("get_many", "threads")]
            + [(f"put-{size}", f"ringest {way}") for size in ("1k", "20k") for way in ("get_many", "threads")]
            + [("list", "ringest get_many")],
        )
        for (workload, client), row in rows.items():
            (measured,) = row.rounds
            self.assertIsNone(row.error)
            self.assertEqual(row.parameters["concurrency"], 4)
            self.assertGreater(measured.operations, 0)
            self.assertGreater(measured.cpu_seconds, 0)
            size = row.parameters.get("object_size", 0)
            self.assertEqual(measured.bytes, measured.operations * size)
            self.assertEqual(measured.time_to_first_seconds is not None, workload.startswith("get"))
            # Requests can be told apart where one object is asked for at a time.
            self.assertEqual(measured.latency is not None, client == "ringest threads")
            self.assertIn(workload, self.output)
        self.assertEqual(rows["list", "ringest get_many"].rounds[0].operations % 1500, 0)
        slow = self.output.split("50th / 99th percentile")[1]
        self.assertRegex(slow, r"ringest threads +[0-9.,]+ / ([0-9.,]+|-)")
        self.assertNotIn("get_many", slow)
        self.assertIn("ringest", self.document.versions)
        self.assertTrue(self.document.endpoint.startswith("https://127.0.0.1:"))
        self.assertRegex(self.document.server, r"^the emulator, on (CPUs of its own \([0-9]+\)|the client's own CPUs)")
        self.assertIn(f"Server: {self.document.server}.", self.output)

    def test_ours_in_a_data_loader(self):
        try:
            import torch  # noqa: F401
        except ImportError:
            self.skipTest("torch is not installed")
        rows = self.measured("--emulate", "--peers", "ringest", "--verbs", "load", "--sizes", "1k", *SHORT)
        self.assertEqual(set(rows), {("load-1k", "ringest IterableDataset"), ("load-1k", "ringest dataflux map-style")})
        self.assertIn("torch", self.document.versions)
        for row in rows.values():
            self.assertGreater(row.rounds[0].operations, 0)

    def write(self, name, text):
        path = os.path.join(self.folder, name)
        with open(path, "w", encoding="utf-8") as file:
            file.write(textwrap.dedent(text))
        return path

    def test_a_preset_with_loaders_of_others(self):
        try:
            import torch  # noqa: F401
        except ImportError:
            self.skipTest("torch is not installed")
        preset, own = self.write("train.toml", TRAIN), self.write("own.py", LOADERS)
        arguments = ["--preset", preset, "--peers", f"ringest,{own}", "--rounds", "1", "--warm-up", "0"]
        with emulator() as (endpoint, ca), ringest.Client(endpoint, ca) as ours:
            ours.put("gs://mine/others", b"not of the benchmark")
            before = list(ours.list("gs://mine/"))
            place = {"STORAGE_EMULATOR_HOST": endpoint, "SSL_CERT_FILE": ca}
            rows = self.measured("gs://mine/run/", *arguments, **place)
            self.assertEqual(list(ours.list("gs://mine/")), before)
        errors = {client: row.error for (_, client), row in rows.items()}
        self.assertIsNone(errors.pop("ringest get_many"))
        self.assertIsNone(errors.pop("ringest dataflux map-style"))
        self.assertIsNone(errors.pop("own right"))
        self.assertIn("its bytes are not those that are stored", errors.pop("own wrong"))
        self.assertIn("the endpoint refused", errors.pop("own fails"))
        self.assertEqual(errors, {})
        for client in ("ringest get_many", "ringest dataflux map-style", "own right"):
            (measured,) = rows["train", client].rounds
            self.assertEqual((measured.operations, measured.bytes), (64, 64 * 5000))
            self.assertIn("au_percent", measured.metrics)
            self.assertEqual(measured.latency.total, 8)
            self.assertGreater(measured.cpu_seconds, 0)
            self.assertRegex(self.output, rf"{client} +[0-9.,]+ ")
        self.assertIn("torch", self.document.versions)

    def test_who_does_not_do_the_work_is_a_row_that_says_why(self):
        bad, pid = os.path.join(self.folder, "bad.py"), os.path.join(self.folder, "pid")
        with open(bad, "w", encoding="utf-8") as file:
            file.write(textwrap.dedent(BAD))
        arguments = [
            "--emulate",
            "--peers",
            f"ringest:get_many,{bad},mosaicml-streaming",
            "--verbs",
            "get,put,list",
            "--sizes",
            "1k",
        ]
        rows = self.measured(*arguments, *SHORT, "--rounds", "2", "--limit", "5", "--names", "100", PID_FILE=pid)
        errors = {way.split()[1]: row.error for (_, way), row in rows.items() if way.startswith("bad")}
        flight = " (with 4 requests in flight)"
        self.assertEqual(
            errors,
            {
                "fails": f"RuntimeError: no answer; because of ConnectionRefusedError: the endpoint refused{flight}",
                "short": f"ValueError: 1,023 bytes came instead of 1,024{flight}",
                "wrong": errors["wrong"],
                "nothing": f"RuntimeError: nothing came within 0.1 s{flight}",
                "dies": f"the last \x1b[2Jwords{flight}",
                "hangs": f"was not done after 5.1 s (--limit){flight}",
                "lies": f"it says that it wrote an object that is not there{flight}",
                "half": f"ValueError: 50 names came instead of 100{flight}",
                "absent": "no-such-package not installed: pip install no-such-package",
            },
        )
        unable = rows["get-1k", "mosaicml-streaming"]
        self.assertIn("from Google's own endpoint only", unable.error)
        self.assertRegex(errors["wrong"], "^the first body has the CRC32C [0-9]+, which no object has ")
        for error in errors.values():
            # A terminal is not driven by what others write.
            self.assertIn(error.replace("\x1b", "\N{REPLACEMENT CHARACTER}"), self.output)
        self.assertNotIn("\x1b", self.output)
        # It did not stop the others, and what it had started is gone.
        self.assertEqual(len(rows["get-1k", "ringest get_many"].rounds), 2)
        with open(pid, encoding="ascii") as file:
            child = file.read()
        self.assertTrue(until(lambda: not os.path.exists(f"/proc/{child}")))

    def test_who_has_no_way_is_a_row_too(self):
        own = self.write("own.py", LATER)
        arguments = ["--emulate", "--peers", f"ringest:get_many,litdata,{own}", "--verbs", "list", "--names", "10"]
        rows = self.measured(*arguments, *SHORT)
        self.assertEqual({client: row.error for (_, client), row in rows.items()}, {
            "ringest get_many": None, "litdata": "has no way to list", "later": "has no way to list",
        })  # fmt: skip
        self.assertNotIn("failed", self.output.lower())
        self.assertRegex(self.output, "(?m)^litdata +-$")
        self.assertIn("\nNot measured:\n  list, litdata: has no way to list\n", self.output)
        preset = self.write("train.toml", TRAIN)
        arguments = ["--emulate", "--preset", preset, "--peers", "ringest:get_many,litdata,webdataset"]
        rows = self.measured(*arguments, "--rounds", "1", "--warm-up", "0")
        self.assertEqual(rows["train", "litdata"].error, "has no way to load what presets ask for")
        self.assertIn("tar shards", rows["train", "webdataset"].error)
        self.assertIsNone(rows["train", "ringest get_many"].error)

    def test_verify_looks_at_all_that_others_read_and_write(self):
        later = self.write("later.py", LATER.replace('needs=("torch",)', ""))
        arguments = ["--emulate", "--peers", f"ringest:get_many,{later}", "--verbs", "get,put", "--sizes", "1k", *SHORT]
        rows = self.measured(*arguments)
        self.assertEqual([row.error for row in rows.values()], [None] * 5)
        rows = self.measured(*arguments, "--verify")
        self.assertIn("Verified: the CRC32C of every body", self.output)
        for workload in ("get-1k", "put-1k"):
            self.assertIsNone(rows[workload, "ringest get_many"].error)
            self.assertTrue(rows[workload, "ringest get_many"].parameters["verify"])
        self.assertRegex(
            rows["get-1k", "later wrong"].error, "^ValueError: a body has the CRC32C [0-9]+, which no object"
        )
        self.assertIn("not the bytes that were to be written", rows["put-1k", "later wrong"].error)
        self.assertIn("wrote an object that is not there", rows["put-1k", "later absent"].error)

    def test_names_of_listings_are_compared(self):
        listers = self.write("listers.py", LISTERS)
        arguments = ["--emulate", "--peers", f"ringest:get_many,{listers}", "--verbs", "list", "--names", "100", *SHORT]

        def errors(*more):
            rows = self.measured(*arguments, *more)
            return {client: row.error for (_, client), row in rows.items()}

        found = errors()
        self.assertRegex(found.pop("names other"), "^ValueError: .*/names/x is listed, and is not there")
        self.assertEqual(found, dict.fromkeys(["ringest get_many", "names later", "names twice", "names silent"]))
        found = errors("--verify")
        self.assertIsNone(found["ringest get_many"])
        self.assertIn("elsewhere is listed, and is not there", found["names later"])
        self.assertIn("1 of 100 names did not come, and others came twice", found["names twice"])
        self.assertIn("its adapter gives no names to compare", found["names silent"])

    def test_verify_with_loaders_of_a_preset(self):
        try:
            import torch  # noqa: F401
        except ImportError:
            self.skipTest("torch is not installed")
        preset, later = self.write("train.toml", TRAIN), self.write("later.py", LATER)
        arguments = ["--emulate", "--preset", preset, "--peers", f"ringest:get_many,{later}", "--rounds", "1"]
        rows = self.measured(*arguments, "--warm-up", "0", "--verify")
        self.assertIsNone(rows["train", "ringest get_many"].error)
        self.assertIn("its bytes are not those that are stored", rows["train", "later wrong"].error)

    def test_nothing_is_left_and_nothing_of_others_is_touched(self):
        with emulator() as (endpoint, ca), ringest.Client(endpoint, ca) as ours:
            ours.put("gs://mine/run/4k-00000000", b"not of the benchmark")
            place = {"STORAGE_EMULATOR_HOST": endpoint, "SSL_CERT_FILE": ca}
            self.measured(
                "gs://mine/run/",
                "--peers",
                "ringest:get_many",
                "--verbs",
                "get,put,list",
                "--sizes",
                "4k",
                *SHORT,
                **place,
            )
            self.assertEqual([name for name, _, _ in ours.list("gs://mine/")], ["run/4k-00000000"])
            self.assertEqual(bytes(ours.get("gs://mine/run/4k-00000000")), b"not of the benchmark")

    def test_a_signal_leaves_nothing(self):
        with emulator() as (endpoint, ca), ringest.Client(endpoint, ca) as ours:
            ours.put("gs://mine/others", b"not of the benchmark")
            before = list(ours.list("gs://mine/"))
            for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
                process = subprocess.Popen(
                    [sys.executable, "-m", "ringest.bench", "compare", "gs://mine/run/", "--peers", "ringest:get_many"]
                    + ["--verbs", "put", "--sizes", "1k", "--seconds", "1000"],
                    env={**os.environ, "STORAGE_EMULATOR_HOST": endpoint, "SSL_CERT_FILE": ca},
                    stderr=subprocess.PIPE,
                    text=True,
                )
                self.addCleanup(process.kill)
                self.assertTrue(until(lambda: len(ours.list("gs://mine/")) > 1))
                process.send_signal(number)
                _, errors = process.communicate(timeout=RUN_S)
                self.assertEqual(process.returncode, 130, errors)
                self.assertEqual(list(ours.list("gs://mine/")), before)

    def test_an_interruption_keeps_what_was_measured(self):
        with emulator() as (endpoint, ca), ringest.Client(endpoint, ca) as ours:
            ours.put("gs://mine/others", b"not of the benchmark")
            before = list(ours.list("gs://mine/"))
            once, seen, again = (os.path.join(self.folder, name) for name in ("once.py", "seen", "again"))
            with open(once, "w", encoding="utf-8") as file:
                file.write(textwrap.dedent(ONCE))
            process = subprocess.Popen(
                [sys.executable, "-m", "ringest.bench", "compare", "gs://mine/run/", "--result", self.path]
                + ["--peers", f"ringest:get_many,{once}", "--verbs", "get", "--sizes", "1k", *SHORT, "--rounds", "3"],
                env={
                    **os.environ,
                    "STORAGE_EMULATOR_HOST": endpoint,
                    "SSL_CERT_FILE": ca,
                    "SEEN_FILE": seen,
                    "AGAIN_FILE": again,
                },
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )
            self.addCleanup(process.kill)
            self.assertTrue(until(lambda: os.path.exists(again), "the second round"))
            process.send_signal(signal.SIGINT)
            output, errors = process.communicate(timeout=RUN_S)
            self.assertEqual(process.returncode, 130, errors)
            self.assertEqual(list(ours.list("gs://mine/")), before)
        rows = {row.client: row for row in result.read(self.path).rows}
        self.assertEqual({client: len(row.rounds) for client, row in rows.items()}, dict.fromkeys(rows, 1))
        for row in rows.values():
            self.assertEqual(row.error, "interrupted after 1 of 3 measurements")
        self.assertIn("Partial: interrupted. Of 2 rows, 2 lack measurements.", output)
        self.assertRegex(output, r"ringest get_many +[0-9.,]+ \(4\)")
        self.assertNotIn("failed", output.lower())
        self.assertIn("interrupted; what was measured", errors)

    def test_a_client_ends_with_a_run_that_is_killed(self):
        seen, again = os.path.join(self.folder, "seen"), os.path.join(self.folder, "again")
        once = self.write("once.py", ONCE)
        command = [sys.executable, "-m", "ringest.bench", "compare", "--emulate", "--peers", f"ringest:get_many,{once}"]
        process = subprocess.Popen(
            [*command, "--verbs", "get", "--sizes", "1k", "--limit", "600", *SHORT, "--rounds", "2"],
            env={
                **os.environ,
                "RINGEST_PROGRAM": PROGRAM,
                "SEEN_FILE": seen,
                "AGAIN_FILE": again,
                "TMPDIR": self.folder,
            },
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        self.assertTrue(until(lambda: os.path.exists(again), "the second round"))
        with open(f"/proc/{process.pid}/task/{process.pid}/children", encoding="ascii") as file:
            children = file.read().split()
        self.assertGreaterEqual(len(children), 2)  # an emulator and a client
        process.kill()
        process.wait()
        self.assertTrue(until(lambda: not any(os.path.exists(f"/proc/{child}") for child in children)))

    def test_objects_that_exist(self):
        with emulator("--synthetic", "made/run/4k-:3:4KiB") as (endpoint, ca):
            arguments = [
                "gs://made/run/",
                "--endpoint",
                endpoint,
                "--ca",
                ca,
                "--existing",
                "--peers",
                "ringest:get_many",
            ]
            rows = self.measured(*arguments, "--verbs", "get", "--sizes", "4k", "--objects", "3", *SHORT)
            self.assertGreater(rows["get-4k", "ringest get_many"].rounds[0].operations, 0)
            done = run(*arguments, "--verbs", "get", "--sizes", "5k", *SHORT)
            self.assertEqual(done.returncode, 1)
            self.assertIn("gs://made/run/5k-00000000", done.stderr)

    def test_the_list(self):
        done = run("--peers", "list")
        self.assertEqual(done.returncode, 0, done.stderr)
        for name in ("ringest", "obstore", "dataflux", "get_many", "requirements.txt"):
            self.assertIn(name, done.stdout)

    def test_what_is_asked_for_wrongly(self):
        cases = {
            ("--emulate", "--peers", "nobody"): "there is no client nobody; there are ringest, obstore",
            ("--emulate", "--peers", "obstore:nohow"): "obstore has no way nohow; it has uvloop, asyncio, threads",
            ("--emulate", "--peers", "/nowhere/x.py"): "/nowhere/x.py: FileNotFoundError",
            ("--emulate", "--peers", "ringest:IterableDataset", "--verbs", "put"): "none of these clients can put",
            ("--emulate", "--sizes", "4x"): "a size must be a size",
            ("--emulate", "--verbs", "get,fly"): "there is no fly",
            ("--emulate", "--rounds", "0"): "must be at least 1, is 0",
            ("--emulate", "--concurrency", "4,0"): "must be at least 1, is 0",
            ("--emulate", "--concurrency", "4,x"): "--concurrency: invalid list of numbers value: '4,x'",
            ("--emulate", "--concurrency", ","): "--concurrency: needs one at least, is empty",
            ("--emulate", "--sizes", ""): "--sizes: needs one at least, is empty",
            ("--emulate", "--sizes", "1k,5t"): "a size may be 1024 MiB at most, is 5t",
            ("--emulate", "--verbs", ","): "--verbs: needs one at least, is empty",
            ("--emulate", "--seconds", "inf"): "must be at most 1,000,000,000, is inf",
            ("--emulate", "gs://b/"): "--emulate has its own endpoint and objects",
            ("bucket",): "must be gs://BUCKET/PREFIX, is bucket",
            (): "needs gs://BUCKET/PREFIX, or --emulate",
            ("gs://b/", "--existing", "--verbs", "put"): "--existing writes nothing",
            ("--emulate", "--preset", "unet3d", "--sizes", "4k"): "--preset has its own work: leave --sizes away",
            ("--emulate", "--preset", "parquet"): "a preset of kind train",
            ("--emulate", "--preset", "unet3d", "--peers", "s3dlio:get_many"): "s3dlio has no loader get_many",
            ("--emulate", "--scale", "0.5"): "--scale and --ranks are of a --preset",
        }
        for arguments, expected in cases.items():
            with self.subTest(arguments=arguments):
                status, said, errors = bench_in_child("compare", *arguments)
                self.assertEqual(status, 2, said + errors)
                self.assertIn(expected, errors)

    def test_no_emulator(self):
        done = run("--emulate", "--peers", "ringest", RINGEST_PROGRAM="/nowhere/ringest")
        self.assertEqual(done.returncode, 2)
        self.assertIn("/nowhere/ringest cannot be run: No such file or directory", done.stderr)


class Parts(unittest.TestCase):
    def test_tasks_count_what_each_of_them_did(self):
        """Adding to a sum in the same statement as a wait would lose what others added meanwhile."""
        calls = 0

        async def opened():
            async def call():
                nonlocal calls
                await asyncio.sleep(0)
                calls += 1
                return 1

            return call

        seen = []

        class Watched(work.Meter):
            def _snapshot(self):
                seen.append((self.count, calls))
                return super()._snapshot()

        asked = work.Work("b", ["n"], 1, concurrency=16, seconds=0.05, warm_up=0.05)
        with unittest.mock.patch.object(work, "Meter", Watched):
            work.in_tasks(asked, opened, "asyncio")
        for count, made in seen:
            # What a task has just done it has not yet added.
            self.assertLessEqual(count, made)
            self.assertGreaterEqual(count, made - asked.concurrency)
        self.assertGreater(seen[-1][0], seen[1][0])

    def test_what_takes_longer_than_the_measurement_is_counted(self):
        def call():
            time.sleep(0.2)
            return 1

        async def opened():
            async def awaited():
                await asyncio.sleep(0.2)
                return 1

            return awaited

        asked = work.Work("b", ["n"], 1, concurrency=2, seconds=0.01, warm_up=0)
        for counted in (work.in_threads(asked, call), work.in_tasks(asked, opened, "asyncio")):
            self.assertGreater(counted.operations, 0)
            self.assertGreater(counted.seconds, 0)
            self.assertGreaterEqual(min(counted.latencies.counts), 200_000_000)
            self.assertGreater(sum(counted.latencies.counts.values()), 0)

    def test_threads_stop_at_the_first_error(self):
        def call():
            raise OSError("broken")

        asked = work.Work("b", ["n"], 1, concurrency=4, seconds=1000, warm_up=1000)
        with self.assertRaisesRegex(OSError, "broken"):
            work.in_threads(asked, call)

    def test_credentials_go_to_the_cloud_alone(self):
        secrets = {"GOOGLE_APPLICATION_CREDENTIALS": "/key", "AWS_SECRET_ACCESS_KEY": "x", "https_proxy": "http://p"}
        with unittest.mock.patch.dict(os.environ, secrets):
            there = measuring.environment(Place("https://127.0.0.1:1", "/ca.pem"), "/home")
            cloud = measuring.environment(Place(None, None), "/home")
        self.assertFalse(secrets.keys() & there.keys())
        self.assertEqual(there["SSL_CERT_FILE"], "/ca.pem")
        self.assertEqual(secrets.items() & cloud.items(), secrets.items())

    def test_every_client_has_a_pin(self):
        pins = peers.pins()
        for peer in peers.known().values():
            for way in () if peer.unable else peer.ways:
                wanted = {peer.distribution, *way.needs} - {None}
                self.assertLessEqual(wanted, pins.keys(), peer.name)


if __name__ == "__main__":
    unittest.main()
