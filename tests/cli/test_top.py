"""`ringest top`: what real processes do, and that one which was killed is gone."""

import fcntl
import json
import os
import shutil
import signal
import stat
import struct
import subprocess
import tempfile
import time
import unittest

from support import DONE, FAILED, PROGRAM, USAGE, WITH_PARENT, ServedCase, Terminal, environment, ringest, until


def crc32c(data):
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF


class Region:
    """A shared file as gcs/host/region.h and gcs/host/account.h have it, in which one process tells whatever is
    wanted."""

    VERSION = 5
    SIZE, ACCOUNTS, PLACE_SIZE, LOCKS = 528384 + (4 << 20), 4096 + 2 * 131072, 512, (1 << 48) + (1 << 40)

    def __init__(self, folder):
        self.fd = os.open(f"{folder}/ringest-{os.geteuid()}-v{self.VERSION}", os.O_CREAT | os.O_RDWR, 0o600)
        os.ftruncate(self.fd, self.SIZE)
        os.pwrite(self.fd, struct.pack("<8sIIQ", b"ringest", self.VERSION, 0x01020304, self.SIZE), 0)

    def tell(self, place, requests, told_ns, command=b"test", bucket=b"data", learned=(0, 0), now=(0, 0, 0, 0)):
        numbers = (told_ns, 1, 7, requests, 0, *learned, 1234, place, *now)
        account = struct.pack("<7Q6I16s224s", *numbers, command, bucket)
        os.pwrite(self.fd, struct.pack("<II", crc32c(account), 0) + account, self.ACCOUNTS + place * self.PLACE_SIZE)
        lock = struct.pack("hhqqi4x", fcntl.F_WRLCK, os.SEEK_SET, self.LOCKS + place, 1, 0)
        fcntl.fcntl(self.fd, 37, lock)  # F_OFD_SETLK

    def close(self):
        os.close(self.fd)


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

    def test_doctor_says_what_was_learned_of_each_bucket(self):
        self.assertIn("no process of this user uses a bucket now", ringest("doctor", env=self.env).stdout.decode())
        region = Region(self.folder)
        self.addCleanup(region.close)
        for place in range(2):  # two loops
            region.tell(place, 9, time.monotonic_ns(), learned=(7, 40_250), now=(3, 4, 1500, 2500 * place))
        region.tell(2, 9, time.monotonic_ns(), bucket=b"free")
        checks = json.loads(ringest("doctor", "--json", env=self.env).stdout)["checks"]
        facts = [check["fact"] for check in checks if check["name"] == "limits"]
        learned = "limit 80.5 requests/s; 6 out, 8 waiting; first byte p50 1.5 ms, p99 2.5 ms; 14 retries"
        nothing = "no limit; 0 out, 0 waiting; first byte p50 0.0 ms, p99 0.0 ms; 0 retries"
        self.assertEqual(facts, [f"gs://data: {learned}", f"gs://free: {nothing}"])

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

    def region(self):
        region = Region(self.folder)
        self.addCleanup(region.close)
        return region

    def test_rates_after_a_pause_are_not_of_the_pause(self):
        region = self.region()
        # An hour, or less where the machine has not been up for so long.
        pause_ns = min(3600 * 10**9, time.monotonic_ns() // 2)
        region.tell(0, 10, time.monotonic_ns() - pause_ns)
        with subprocess.Popen(
            [*WITH_PARENT, PROGRAM, "top", "--json", "--interval", "0.1"], env=self.env, stdout=subprocess.PIPE
        ) as process:
            line = json.loads(process.stdout.readline())["processes"][0]
            self.assertEqual((line["requests"], line["requests_per_s"], line["idle"]), (10, 0, True))
            # A minute ahead, so that it is not a pause again, however slow this machine is.
            region.tell(0, 6010, time.monotonic_ns() + 60 * 10**9)
            while line["requests"] == 10:
                line = json.loads(process.stdout.readline())["processes"][0]
            process.send_signal(signal.SIGINT)
            self.assertEqual(process.wait(), DONE)
        self.assertGreater(line["requests_per_s"], 50)

    def test_names_may_have_any_bytes(self):
        # A name of Cyrillic letters, as the kernel cuts it after 15 bytes.
        self.region().tell(0, 1, time.monotonic_ns(), "обучение".encode()[:15], b"\x1b[31m\xff\n")
        line = self.table()[0]
        self.assertEqual((line["program"], line["bucket"]), ("обучени?", "?[31m??"))
        terminal = Terminal(200)
        subprocess.run([PROGRAM, "top", "--once", "--interval", "0.1"], env=self.env, stdout=terminal.far, check=True)
        drawn = terminal.read()
        self.assertIn("?[31m??", drawn)
        self.assertNotIn("\x1b", drawn)

    def test_a_table_fits_the_terminal(self):
        region = self.region()
        for place in range(60):
            region.tell(place, 1, time.monotonic_ns(), bucket=b"%02d" % place + b"b" * 200)
        terminal = Terminal(100)
        with subprocess.Popen(
            [*WITH_PARENT, PROGRAM, "top", "--interval", "0.1"], env=self.env, stdout=terminal.far
        ) as process:
            frame = terminal.read_until(b"\x1b[J", 2).decode().split("\x1b[H\x1b[J")[1].splitlines()
            process.send_signal(signal.SIGINT)
        self.assertEqual(terminal.read().count("\x1b[?"), 0)
        self.assertEqual(len(frame), 23)
        self.assertLessEqual(max(map(len, frame)), 100)
        self.assertEqual(len(self.table()), 60)

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
