"""The document of a benchmark: what is written is read again, and what is broken is refused with file and field."""

import copy
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

from ringest.bench import machine, result
from support import SIZE, emulator

GOOD = {
    "format": "ringest-bench/1",
    "made": "2026-11-24T08:00:00Z",
    "command": ["ringest", "bench", "run"],
    "endpoint": "https://localhost:1",
    "machine": {"cpu": "Some CPU", "cpus": 2, "memory_bytes": 1 << 34, "kernel": "6.1", "hypervisor": None},
    "versions": {"ringest": "0.1.0"},
    "a later field": {"ignored": True},
    "rows": [
        {
            "workload": "get-4k",
            "client": "ringest",
            "parameters": {"connections": 16},
            "error": None,
            "rounds": [
                {
                    "seconds": 1,
                    "operations": 1000,
                    "bytes": 4096000,
                    "cpu_user_seconds": 0.25,
                    "cpu_system_seconds": 0.5,
                    "latency": {
                        "unit": "ns",
                        "counts": [[1000, 3], [2000, 0], [3000, 997]],
                        "from": "sent",
                        "max": 2900,
                    },
                    "series": [{"at_seconds": 0.5, "operations": 400}, {"at_seconds": 1, "operations": 600}],
                    "phases": [{"name": "warm-up", "seconds": 0.5}],
                    "metrics": {"au": 0.93, "growth_mib": -0.5},
                    "also later": 1,
                }
            ],
        },
        {"workload": "get-4k", "client": "another", "error": "another is not installed"},
    ],
}
FIRST = ("rows", 0, "rounds", 0)
# (where, what to put there, what the error must say after the name of the file)
MISSING = object()
BROKEN = (
    (("format",), "ringest-bench/2", 'format: must be "ringest-bench/1", is "ringest-bench/2"'),
    (("format",), MISSING, 'format: must be "ringest-bench/1", is null'),
    (("rows",), MISSING, "rows: is missing"),
    (("rows",), {"a": 1}, 'rows: must be a list, is {"a": 1}'),
    (("rows", 0), None, "rows[0]: must be an object, is null"),
    (("rows", 1, "client"), 7, "rows[1].client: must be a text, is 7"),
    (("rows", 1, "error"), None, "rows[1].rounds: is empty"),
    ((*FIRST, "seconds"), MISSING, "rows[0].rounds[0].seconds: is missing"),
    ((*FIRST, "seconds"), "1 s", 'rows[0].rounds[0].seconds: must be a number, is "1 s"'),
    ((*FIRST, "operations"), -1, "rows[0].rounds[0].operations: must not be negative, is -1"),
    ((*FIRST, "operations"), 1.5, "rows[0].rounds[0].operations: must be a whole number, is 1.5"),
    ((*FIRST, "operations"), True, "rows[0].rounds[0].operations: must be a whole number, is true"),
    ((*FIRST, "cpu_user_seconds"), 10**400, "rows[0].rounds[0].cpu_user_seconds: is too large a number"),
    ((*FIRST, "latency", "unit"), "ms", 'rows[0].rounds[0].latency.unit: is "ms"'),
    ((*FIRST, "latency", "from"), "later", 'rows[0].rounds[0].latency.from: is "later"'),
    ((*FIRST, "latency", "counts", 1), [2000], "latency.counts[1]: must have 2 members, has 1"),
    ((*FIRST, "latency", "counts", 2), [2000, 1], "latency.counts[2]: has the bound 2,000 after 2,000"),
    ((*FIRST, "series", 1, "at_seconds"), 0.1, "series[1].at_seconds: is 0.1 after 0.5; must ascend"),
    ((*FIRST, "metrics", "au"), "high", 'rows[0].rounds[0].metrics["au"]: must be a number, is "high"'),
    (("machine", "cpus"), "two", 'machine.cpus: must be a whole number, is "two"'),
    (("made",), "yesterday", 'made: is "yesterday", must be a time'),
)


def changed(path, value):
    document = copy.deepcopy(GOOD)
    at = document
    for step in path[:-1]:
        at = at[step]
    if value is MISSING:
        del at[path[-1]]
    else:
        at[path[-1]] = value
    return json.dumps(document)


class Result(unittest.TestCase):
    def setUp(self):
        self.folder = self.enterContext(tempfile.TemporaryDirectory())
        self.path = os.path.join(self.folder, "result.json")

    def save(self, text):
        with open(self.path, "wb") as file:
            file.write(text if isinstance(text, bytes) else text.encode())
        return self.path

    def refused(self, text):
        with self.assertRaises(result.ResultError) as caught:
            result.read(self.save(text))
        said = str(caught.exception)
        self.assertTrue(said.startswith(self.path + ": "), said)
        return said

    def test_what_was_written_is_read_again(self):
        document = result.read(self.save(json.dumps(GOOD)))
        first = document.rows[0].rounds[0]
        self.assertEqual((first.seconds, first.operations, first.cpu_seconds), (1.0, 1000, 0.75))
        self.assertEqual((first.latency.total, first.latency.origin), (1000, "sent"))
        self.assertEqual((first.requests, first.errors, document.rows[1].rounds), (None, 0, []))
        result.write(document, self.path)
        self.assertEqual(result.read(self.path), document)
        with open(self.path, encoding="utf-8") as file:
            told = json.load(file)
        self.assertEqual(told["rows"][0]["rounds"][0]["latency"]["from"], "sent")

    def test_each_broken_field_is_named(self):
        for path, value, said in BROKEN:
            with self.subTest(path=path, value=str(value)[:20]):
                self.assertIn(said, self.refused(changed(path, value)))

    def test_what_is_not_json_is_refused(self):
        good = json.dumps(GOOD)
        for text, said in (
            ("", "is empty"),
            (good[:200], "was it written to its end?"),
            (b"\xff\xfe\xfd", "not JSON"),
            (good.replace("0.93", "NaN"), "NaN is no number of JSON"),
            ("[" * 200_000, "nested too deeply"),
            ("[]", "must be an object, is []"),
        ):
            with self.subTest(text=text[:20]):
                self.assertIn(said, self.refused(text))

    def test_a_file_that_is_no_file(self):
        with self.assertRaisesRegex(result.ResultError, "cannot be read: No such file"):
            result.read(self.path)
        with self.assertRaisesRegex(result.ResultError, "cannot be read: Is a directory"):
            result.read(self.folder)

    def test_what_cannot_be_read_is_not_written(self):
        """The file that was there stays, and nothing is left beside it."""
        self.save("before")
        bad = result.Document(rows=[result.Row("get-4k", "ringest", rounds=[result.Round(seconds=-1, operations=0)])])
        with self.assertRaisesRegex(result.ResultError, r"rows\[0\].rounds\[0\].seconds: must not be negative"):
            result.write(bad, self.path)
        good = result.Document(rows=[])
        with self.assertRaisesRegex(result.ResultError, "cannot be written"):
            result.write(good, os.path.join(self.folder, "none", "result.json"))
        os.mkdir(os.path.join(self.folder, "taken"))
        with self.assertRaisesRegex(result.ResultError, "cannot be written"):
            result.write(good, os.path.join(self.folder, "taken"))
        self.assertEqual(sorted(os.listdir(self.folder)), ["result.json", "taken"])
        with open(self.path, encoding="utf-8") as file:
            self.assertEqual(file.read(), "before")

    def test_what_the_program_writes(self):
        """`ringest bench get --result`: of a closed loop in two processes, and of a rate."""
        program = os.environ["RINGEST_PROGRAM"]
        with emulator() as (endpoint, ca):
            bench = [program, "bench", "get", "gs://data/", "--endpoint", endpoint, "--ca", ca, "--result", self.path]
            for more, origin in ((["--processes=2", "--interval=1"], "sent"), (["--rate=1000"], "scheduled")):
                done = subprocess.run([*bench, "--count=500", *more], capture_output=True, text=True)
                self.assertEqual((done.returncode, done.stderr), (0, ""))
                document = result.read(self.path)
                [row] = document.rows
                [measured] = row.rounds
                self.assertEqual((row.workload, row.client, row.error), ("get", "ringest", None))
                self.assertEqual((measured.operations, measured.errors, measured.bytes), (500, 0, 500 * SIZE))
                self.assertEqual((measured.latency.total, measured.latency.origin), (500, origin))
                self.assertGreaterEqual(measured.latency.counts[-1][0], measured.latency.max)
                self.assertEqual(sum(each.operations for each in measured.series), 500 if origin == "sent" else 0)
                self.assertEqual([each.name for each in measured.phases], ["measured"])
                self.assertGreater(measured.cpu_seconds, 0)
                self.assertGreater(measured.wire_received_bytes, measured.bytes)
                self.assertLessEqual(measured.time_to_first_seconds, measured.seconds)
                self.assertEqual(document.endpoint, endpoint)
                self.assertEqual(document.command[:3], ["ringest", "bench", "get"])
                self.assertEqual(document.versions, machine.versions([]))
                self.assertEqual(document.machine, machine.describe())

    def test_what_is_no_file_is_not_replaced(self):
        pipe = os.path.join(self.folder, "pipe")
        os.mkfifo(pipe)
        reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
        self.addCleanup(os.close, reader)
        result.write_text(pipe, "text")
        self.assertEqual(os.read(reader, 10), b"text")
        self.assertEqual(os.listdir(self.folder), ["pipe"])

    def test_a_link_to_a_stream_is_not_replaced(self):
        """/dev/stdout of a program whose output goes to a file, which has something already."""
        link = os.path.join(self.folder, "stdout")
        os.symlink("/proc/self/fd/1", link)
        program = """if True:
            import sys
            from ringest.bench import result
            print("before")
            result.check_place(sys.argv[1])
            result.write_text(sys.argv[1], "text, ")
            print("behind")
        """
        with open(self.path, "w", encoding="utf-8") as output:
            subprocess.run([sys.executable, "-c", program, link], stdout=output, check=True)
        self.assertTrue(os.path.islink(link))
        with open(self.path, encoding="utf-8") as output:
            self.assertEqual(output.read(), "before\ntext, behind\n")
        self.assertEqual(sorted(os.listdir(self.folder)), sorted([os.path.basename(self.path), "stdout"]))

    def test_this_machine_is_described(self):
        described = machine.describe()
        self.assertEqual(described.cpus, len(os.sched_getaffinity(0)))
        self.assertGreater(described.memory_bytes, 1 << 20)
        document = result.Document(rows=[], machine=described, versions=machine.versions(["no-such-package"]))
        self.assertEqual(list(document.versions), ["ringest"])
        result.write(document, self.path)

    def test_memory_is_that_of_the_control_groups(self):
        def write(path, text):
            place = pathlib.Path(self.folder, path)
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_text(text)

        def left():
            return machine.memory_available(self.folder)

        self.assertIsNone(left())
        write("proc/meminfo", "MemTotal: 9 kB\nMemAvailable: 8 kB\n")
        self.assertEqual(left(), 8192)
        for name, membership, group, files in (
            ("version 2", "0::/a/b\n", "", ("memory.max", "memory.current", "inactive_file")),
            (
                "version 1",
                "4:memory:/a/b\n0::/\n",
                "memory/",
                ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),
            ),
        ):
            with self.subTest(name):
                write("proc/self/cgroup", membership)
                for place in ("a/b", "a", "."):
                    at = f"sys/fs/cgroup/{group}{place}"
                    write(f"{at}/{files[0]}", "5000\n")
                    write(f"{at}/{files[1]}", "3000\n")
                    write(f"{at}/memory.stat", f"{files[2]} 500\nother 7\n")
                    self.assertEqual(left(), 2500)
                    write(f"{at}/{files[1]}", "6000\n")
                    self.assertEqual(left(), 0)
                    write(f"{at}/{files[0]}", "max\n")
                    self.assertEqual(left(), 8192)

    def test_a_reader_that_went_away(self):
        """Through the program, which hands over to this interpreter."""
        program = [os.environ["RINGEST_PROGRAM"], "bench", "presets"]
        environment = {**os.environ, "RINGEST_PYTHON": sys.executable}
        far, near = os.pipe()
        os.close(far)
        with os.fdopen(near, "wb") as gone:
            done = subprocess.run(program, stdout=gone, stderr=subprocess.PIPE, text=True, env=environment)
        self.assertEqual((done.returncode, done.stderr), (1, ""))
        done = subprocess.run(program, capture_output=True, text=True, env=environment)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        self.assertIn("unet3d", done.stdout)

    def test_a_wrong_command_line(self):
        for arguments in ([], ["no-such-command"]):
            done = subprocess.run([sys.executable, "-m", "ringest.bench", *arguments], capture_output=True, text=True)
            self.assertEqual(done.returncode, 2, done.stderr)
            self.assertIn("COMMAND", done.stderr)
