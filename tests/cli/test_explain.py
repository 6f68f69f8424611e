"""`ringest explain` of what stands in the shared file; tests/python/test_explain_command.py has loops that run."""

import fcntl
import json
import os
import shutil
import signal
import struct
import subprocess
import tempfile
import time
import unittest

from support import DONE, FAILED, PROGRAM, USAGE, WITH_PARENT, Case, Terminal, environment, ringest, until
from test_top import Region, crc32c

STAGES, GROUPS = 12, 120
FIRST_BYTE = 9
SECOND = 10**9


def step(ended_ns=0, count=0, away_ns=0, inside_ns=0, slept=()):
    stages = [0] * STAGES
    for stage, ns in dict(slept).items():
        stages[stage] = ns
    return struct.pack("<4Q12q", ended_ns, count, away_ns, inside_ns, *stages)


class Told(Region):
    """As gcs/host/told.h has it."""

    TOLD, TOLD_SIZE, TOLD_LOCKS = Region.SIZE - (4 << 20), (4 << 20) // 256, (1 << 48) + (1 << 41)

    def explain(self, place, steps=(), state=0, told_ns=0, pid=0, waiting=b"", source=b"gs://data/x", **names):
        told_ns = told_ns or time.monotonic_ns()
        numbers = (told_ns, 1, 0, 0, len(steps), 1, pid or os.getpid(), state, 0, 1, 0, 1, 0)
        texts = (names.get("command", b"python"), b"IterableDataset", source, b"requests= (now 4)")
        told = struct.pack("<5Q8I16s32s232s64s", *numbers, *texts) + (waiting or step())
        told = (told + b"".join(steps)).ljust(416 + (GROUPS + 1) * 128, b"\0")
        os.pwrite(self.fd, struct.pack("<II", crc32c(told), 0) + told, self.TOLD + place * self.TOLD_SIZE)
        lock = struct.pack("hhqqi4x", fcntl.F_WRLCK, os.SEEK_SET, self.TOLD_LOCKS + place, 1, 0)
        fcntl.fcntl(self.fd, 37, lock)  # F_OFD_SETLK


class Explain(Case):
    def setUp(self):
        if not os.access("/dev/shm", os.W_OK):
            self.skipTest("there is no /dev/shm to write to")
        self.folder = tempfile.mkdtemp(dir="/dev/shm")
        self.addCleanup(shutil.rmtree, self.folder)
        self.env = environment(RINGEST_SHARING=self.folder)

    def explain(self, *arguments):
        return ringest("explain", "--once", *arguments, env=self.env)

    def found(self, *arguments):
        return json.loads(self.ok(self.explain("--json", *arguments)))["iterations"]

    def told(self):
        told = Told(self.folder)
        self.addCleanup(told.close)
        return told

    def test_a_text_names_the_loop_its_parts_and_the_advice(self):
        now = time.monotonic_ns()
        slow = step(now, 10, 80_000, 160_000_000, {FIRST_BYTE: 159_480_000})
        self.told().explain(0, [slow])
        lines = self.ok(self.explain()).decode().splitlines()
        self.assertEqual(
            lines,
            [
                f"process {os.getpid()} (python): IterableDataset of gs://data/x",
                "10 steps of 16 ms each: 0.008 ms in the loop, 16 ms waiting for data",
                "   99.7%    15.9 ms  first_byte  until answers began",
                "    0.3%   0.052 ms  decode      transforms, and making batches",
                "The service takes long to begin its answers: have more of them on the way, by a larger requests= "
                "(now 4).",
            ],
        )

    def test_steps_and_seconds(self):
        now = time.monotonic_ns()
        steps = [step(now if i >= 8 else i + 1, 1, 0, 1000 * (i + 1)) for i in range(10)]
        self.told().explain(0, steps)
        self.assertEqual(self.found()[0]["steps"], 10)
        self.assertEqual(self.found("--steps", "3")[0]["steps"], 3)
        self.assertAlmostEqual(self.found("--steps", "1")[0]["wait"], 10e-6)
        self.assertEqual(self.found("--seconds", "50")[0]["steps"], 2)
        time.sleep(0.11)
        self.assertEqual(self.found("--seconds", "0.1")[0]["steps"], 0)
        self.assertIn("No step has ended in that time.", self.ok(self.explain("--seconds", "0.1")).decode())

    def test_what_goes_on_now_is_said(self):
        told, now = self.told(), time.monotonic_ns()
        told.explain(0, [step(now, 1, 0, 1000)], told_ns=now - 60 * SECOND)
        self.assertIn("No step has ended for 60", self.ok(self.explain()).decode())
        self.assertIn("Look at what the loop does", self.found()[0]["advice"])
        waiting = step(now, 0, 0, 60 * SECOND, {FIRST_BYTE: 60 * SECOND})
        told.explain(0, [], 1, waiting=waiting, told_ns=time.monotonic_ns() + 3600 * SECOND)  # just now, always
        text = self.ok(self.explain()).decode()
        self.assertIn("a step of 60 s so far", text)
        self.assertIn("It has waited for the next batch for 60", text)
        self.assertIn("One batch has not come for 60 s", text)
        self.assertIn("ringest doctor", text)
        told.explain(0, [step(now, 1, 0, 1000)], 2, told_ns=now - 60 * SECOND)
        self.assertIn("The iteration ended 60", self.ok(self.explain()).decode())

    def test_who_is_asked_and_does_not_wait_is_busy(self):
        """Having waited for a second, its thread has run a transform for a minute, of which nothing can tell."""
        told, then = self.told(), time.monotonic_ns() - 60 * SECOND
        told.explain(0, [], 1, told_ns=then, waiting=step(then, 0, 0, SECOND, {FIRST_BYTE: SECOND}))
        (found,) = self.found()
        self.assertEqual(found["state"], "waiting")
        self.assertGreaterEqual(found["wait"], 61)
        self.assertGreaterEqual(found["parts"]["decode"], 60)
        self.assertAlmostEqual(found["parts"]["first_byte"], 1)
        self.assertIn("transform=", found["advice"])
        self.assertRegex(
            self.ok(self.explain()).decode(), r"asked for the next batch 6\d\.\d s ago, and for 6\d\.\d s a transform"
        )

    def test_processes_are_chosen_by_number(self):
        told, now = self.told(), time.monotonic_ns()
        told.explain(0, [step(now, 1, 0, 1000)])
        told.explain(1, [step(now, 2, 0, 1000)], pid=os.getppid())
        self.assertEqual(sorted(one["pid"] for one in self.found()), sorted([os.getpid(), os.getppid()]))
        self.assertEqual([one["steps"] for one in self.found(str(os.getppid()))], [2])
        self.fails(self.explain("2147483646"), FAILED, "there is no process 2147483646")
        with subprocess.Popen(["sleep", "1000"]) as other:
            self.fails(
                self.explain(str(other.pid)), FAILED, f"process {other.pid}", "RINGEST_SHARING", "workers", "sooner"
            )
            other.kill()

    def test_where_nobody_is_there_is_nothing_and_no_file(self):
        self.assertEqual(self.found(), [])
        said = self.ok(self.explain()).decode()
        self.assertIn("No process of this user", said)
        self.assertIn("when it has run for 0.1 s; of epochs that are over sooner, dataset.explain() inside", said)
        self.assertEqual(os.listdir(self.folder), [])

    def test_what_is_damaged_is_not_shown(self):
        told = self.told()
        told.explain(0, [step(time.monotonic_ns(), 1)])
        os.pwrite(told.fd, b"damage", told.TOLD + 500)
        told.explain(1, [step(time.monotonic_ns(), 1)], source=b"x" * 232)
        self.assertEqual(self.found(), [])

    def test_names_may_have_any_bytes(self):
        self.told().explain(0, [step(time.monotonic_ns(), 1, 0, 1)], source=b"gs://\x1b[31m\xff\n", command=b"\x07")
        self.assertEqual((self.found()[0]["source"], self.found()[0]["program"]), ("gs://?[31m??", "?"))

    def test_processes_of_another_version_are_noted(self):
        path = f"{self.folder}/ringest-{os.geteuid()}-v{Region.VERSION - 1}"
        with open(path, "wb") as former:
            fcntl.fcntl(former, 37, struct.pack("hhqqi4x", fcntl.F_WRLCK, os.SEEK_SET, (1 << 48) + 5, 1, 0))
            for command in ("explain", "top"):
                done = ringest(command, "--once", "--json", env=self.env)
                self.assertEqual(done.returncode, DONE)
                self.assertIn(
                    f"another version of ringest are not shown: they share version {Region.VERSION - 1}", done.stderr
                )

    def test_a_file_that_cannot_be_used_is_named(self):
        told = self.told()
        os.chmod(f"/proc/self/fd/{told.fd}", 0o644)
        self.fails(self.explain(), FAILED, f"ringest-{os.geteuid()}-v{Region.VERSION}", "remove it")
        os.chmod(f"/proc/self/fd/{told.fd}", 0o600)
        os.pwrite(told.fd, b"other", 0)
        self.fails(self.explain(), FAILED, "is of another version, or damaged; remove it")

    def test_who_shares_nothing_is_told(self):
        self.env["RINGEST_SHARING"] = "0"
        done = ringest("explain", "--json", env=self.env)
        self.assertEqual((done.returncode, json.loads(done.stdout)), (DONE, {"iterations": []}))
        self.assertIn("RINGEST_SHARING", done.stderr)

    def test_where_they_share_has_to_be_there(self):
        for command in ("explain", "top"):
            self.env["RINGEST_SHARING"] = "somewhere"
            self.fails(ringest(command, "--once", env=self.env), USAGE, "RINGEST_SHARING", '"somewhere"')
            self.env["RINGEST_SHARING"] = f"{self.folder}/none"
            self.fails(ringest(command, "--once", env=self.env), FAILED, f"{self.folder}/none", "RINGEST_SHARING")

    def test_it_goes_on_until_it_is_ended_or_its_process_is(self):
        told = self.told()
        told.explain(0, [step(time.monotonic_ns(), 1, 0, 1)])
        command = [*WITH_PARENT, PROGRAM, "explain", "--json", "--interval", "0.1"]
        with subprocess.Popen(command, env=self.env, stdout=subprocess.PIPE) as process:
            for _ in range(2):
                self.assertEqual(len(json.loads(process.stdout.readline())["iterations"]), 1)
            process.send_signal(signal.SIGINT)
            self.assertEqual(process.wait(), DONE)
        other = subprocess.Popen(["sleep", "1000"])
        self.addCleanup(other.wait)
        self.addCleanup(other.kill)
        told.explain(0, [step(time.monotonic_ns(), 1, 0, 1)], pid=other.pid)
        command.append(str(other.pid))
        with subprocess.Popen(command, env=self.env, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
            process.stdout.readline()
            os.pwrite(told.fd, b"\0" * 8, told.TOLD)  # as between two epochs
            until(lambda: json.loads(process.stdout.readline())["iterations"] == [])
            told.explain(0, [step(time.monotonic_ns(), 1, 0, 1)], pid=other.pid)
            until(lambda: json.loads(process.stdout.readline())["iterations"])
            os.pwrite(told.fd, b"\0" * 8, told.TOLD)
            other.kill()
            other.wait()
            self.assertIn(b"that process has ended", process.communicate()[1])
            self.assertEqual(process.wait(), DONE)

    def test_it_fits_the_terminal(self):
        told = self.told()
        for place in range(30):
            told.explain(place, [step(time.monotonic_ns(), 1, 0, 1)])
        terminal = Terminal(60)
        command = [*WITH_PARENT, PROGRAM, "explain", "--interval", "0.1"]
        with subprocess.Popen(command, env=self.env, stdout=terminal.far) as process:
            frame = terminal.read_until(b"\x1b[J", 2).decode().split("\x1b[H\x1b[J")[1].splitlines()
            process.send_signal(signal.SIGINT)
        terminal.read()
        self.assertEqual(len(frame), 23)
        self.assertLessEqual(max(map(len, frame)), 60)

    def test_wrong_arguments(self):
        for value in ("0", "-1", "x", "1.5"):
            self.fails(self.explain("--steps", value), USAGE, "--steps")
        for value in ("0", "100000", "x"):
            self.fails(self.explain("--seconds", value), USAGE, "--seconds")
        self.fails(self.explain("--seconds", "1", "--steps", "1"), USAGE, "exclude each other")
        self.fails(self.explain("--interval", "4000"), USAGE, "--interval")
        for pid in ("gs://bucket", "0", "12x", "99999999999999999999", ""):
            self.fails(self.explain(pid), USAGE, f'"{pid}" is no number of a process')
        self.fails(self.explain(*["1"] * 257), USAGE, "at most 256 processes")


if __name__ == "__main__":
    unittest.main()
