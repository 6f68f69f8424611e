"""`ringest top`: what real processes do, and that one which was killed is gone."""

import json
import os
import shutil
import signal
import stat
import subprocess
import tempfile
import unittest

from support import DONE, FAILED, PROGRAM, USAGE, WITH_PARENT, ServedCase, environment, ringest, until


class Top(ServedCase):
    emulator_arguments = ("--synthetic", "data/x-:200:2000", "--synthetic", "other/x-:10:10")

    def setUp(self):
        if not os.access("/dev/shm", os.W_OK):
            self.skipTest("there is no /dev/shm to write to")
        self.folder = tempfile.mkdtemp(dir="/dev/shm")
        self.addCleanup(shutil.rmtree, self.folder)
        self.env = environment(RINGEST_SHARING=self.folder)

    def top(self, *arguments):
        return ringest("top", *arguments, env=self.env)

    def table(self):
        done = self.top("--once", "--json", "--interval", "0.1")
        return json.loads(self.ok(done))["processes"]

    def reader(self, bucket):
        command = [*WITH_PARENT, PROGRAM, "bench", "get", f"gs://{bucket}/", "--seconds", "600", "--concurrency", "4"]
        process = subprocess.Popen(
            [*command, *self.server.place],
            env=self.env,
            stdout=subprocess.DEVNULL,
        )
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        return process

    def lines(self, process):
        return [line for line in self.table() if line["pid"] == process.pid and line["requests"] > 0]

    def test_processes_are_seen_and_a_killed_one_is_gone(self):
        one, two = self.reader("data"), self.reader("other")
        until(lambda: self.lines(one) and self.lines(two))
        first, second = self.lines(one)[0], self.lines(two)[0]
        self.assertEqual((first["bucket"], first["program"]), ("data", "ringest"))
        self.assertEqual(second["bucket"], "other")
        self.assertEqual((first["retries"], first["limit_per_s"]), (0, 0))
        self.assertGreater(first["first_byte_p99_ms"], 0)
        self.assertGreaterEqual(first["bytes"], 2000)
        until(lambda: any(line["requests_per_s"] > 0 for line in self.lines(one)))
        self.assertGreater(self.lines(one)[0]["requests"], first["requests"] - 1)
        text = self.ok(self.top("--once", "--interval", "0.1")).decode()
        self.assertRegex(text.splitlines()[0], r"^ +PID  PROGRAM .* BUCKET$")
        self.assertEqual(len(text.splitlines()), 3)
        one.send_signal(signal.SIGKILL)
        one.wait()
        self.assertEqual([line["pid"] for line in self.table()], [two.pid])

    def test_where_nobody_is_there_is_an_empty_table_and_no_file(self):
        self.assertEqual(self.table(), [])
        self.assertEqual(os.listdir(self.folder), [])

    def test_it_goes_on_until_it_is_ended(self):
        with subprocess.Popen(
            [*WITH_PARENT, PROGRAM, "top", "--json", "--interval", "0.1"], env=self.env, stdout=subprocess.PIPE
        ) as process:
            for _ in range(2):
                self.assertEqual(json.loads(process.stdout.readline()), {"processes": []})
            process.send_signal(signal.SIGINT)
            self.assertEqual(process.wait(), DONE)

    def test_a_file_that_cannot_be_used_is_named(self):
        one = self.reader("data")
        until(lambda: self.lines(one))
        path = os.path.join(self.folder, os.listdir(self.folder)[0])
        os.chmod(path, stat.S_IRUSR | stat.S_IWUSR | stat.S_IROTH)
        self.fails(self.top("--once"), FAILED, path, "remove it")

    def test_who_shares_nothing_is_told(self):
        self.env["RINGEST_SHARING"] = "0"
        done = self.top("--json")
        self.assertEqual((done.returncode, json.loads(done.stdout)), (DONE, {"processes": []}))
        self.assertIn("RINGEST_SHARING", done.stderr)

    def test_wrong_arguments(self):
        self.fails(self.top("--interval", "0"), USAGE, "--interval")
        self.fails(self.top("--interval", "4000"), USAGE, "--interval")
        self.fails(self.top("gs://bucket"), USAGE, "gs://bucket")


if __name__ == "__main__":
    unittest.main()
