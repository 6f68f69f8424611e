"""What processes of a host tell each other: limits of a bucket, how many they are, and what the others do when some
are stopped or killed."""

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import unittest

import ringest
import support

PROCESSES = 4
RATE = 150


def read_for_ever(client):
    while True:
        with contextlib.suppress(ringest.Error):
            client.get(support.uri(0))


def child(endpoint, ca):
    """Reads with several threads, and answers each line with what its client knows of the bucket."""
    with ringest.Client(endpoint, ca, hedging=False, connections=64, threads=1) as client:
        for _ in range(8):
            threading.Thread(target=read_for_ever, args=(client,), daemon=True).start()
        for _ in sys.stdin:
            print(json.dumps(client.stats()["buckets"].get("data")), flush=True)
        os._exit(0)


class Reader:
    """A process that reads."""

    def __init__(self, endpoint, ca, folder):
        self.process = subprocess.Popen(
            ["setpriv", "--pdeathsig", "KILL", sys.executable, __file__, endpoint, ca],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, "RINGEST_SHARING": folder},
        )

    def ask(self):
        self.process.stdin.write(b"\n")
        self.process.stdin.flush()
        return json.loads(self.process.stdout.readline())

    def end(self):
        self.process.kill()
        self.process.wait()
        self.process.stdin.close()
        self.process.stdout.close()


def jain(values):
    return sum(values) ** 2 / (len(values) * sum(value * value for value in values))


@unittest.skipUnless(os.path.isdir("/dev/shm"), "there is no /dev/shm")
class SharedLimits(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.mkdtemp(prefix="ringest-test-", dir="/dev/shm")
        self.addCleanup(shutil.rmtree, self.folder)
        self.endpoint, self.ca = self.enterContext(support.emulator("--rate-limit", str(RATE)))

    def reader(self):
        reader = Reader(self.endpoint, self.ca, self.folder)
        self.addCleanup(reader.end)
        return reader

    def test_who_comes_later_begins_with_a_limit(self):
        first = self.reader()
        support.until(lambda: (first.ask() or {"reads": {"backoffs": 0}})["reads"]["backoffs"] > 0)
        second = self.reader()
        support.until(lambda: (known := second.ask()) and known["reads"]["limit"] > 0 and known["processes"] == 2)

    def test_parts_are_equal_and_those_of_the_dead_fall_to_the_others(self):
        readers = [self.reader() for _ in range(PROCESSES)]

        def are_equal():
            known = [reader.ask() for reader in readers]
            if not all(known) or any(one["processes"] != len(readers) for one in known):
                return False
            limits = [one["reads"]["limit"] for one in known]
            # Small numbers are rounded.
            return min(limits) > 0 and (jain(limits) >= 0.95 or max(limits) - min(limits) <= 1)

        support.until(are_equal)
        for how in signal.SIGSTOP, signal.SIGKILL:
            os.kill(readers.pop().process.pid, how)
            support.until(are_equal)

    def test_a_region_of_random_bytes_harms_nobody(self):
        reader = self.reader()
        support.until(lambda: reader.ask())
        (name,) = os.listdir(self.folder)
        before = reader.ask()["reads"]["backoffs"]
        with open(os.path.join(self.folder, name), "r+b") as file:
            size = os.fstat(file.fileno()).st_size
            for _ in range(50):
                file.seek(4096)
                file.write(os.urandom(size - 4096))
                file.flush()
                self.assertEqual(reader.ask()["processes"], 1)
        support.until(lambda: reader.ask()["reads"]["backoffs"] > before)


if __name__ == "__main__":
    if len(sys.argv) == 3:
        child(*sys.argv[1:])
    unittest.main()
