"""The examples in C, built as their users build them."""

import os
import resource
import signal
import socket
import subprocess
import unittest
import urllib.error
import urllib.request

from support import DONE, FAILED, PATIENCE_S, USAGE, WITH_PARENT, Rule, ServedCase, environment, until

EXAMPLES = os.environ["RINGEST_EXAMPLES"]
HAS_LIBUV = os.environ["RINGEST_LIBUV"] == "1"
COUNT = 20


class Examples(ServedCase):
    emulator_arguments = ("--synthetic", "made/shard-:20:10KiB")

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.names = [f"shard-{number:08}" for number in range(COUNT)]
        cls.rule_place = (cls.server.endpoint, cls.server.ca)

    def command(self, name, *arguments):
        return [*WITH_PARENT, os.path.join(EXAMPLES, f"example_{name}"), *arguments]

    def environment(self, endpoint=None):
        return environment(STORAGE_EMULATOR_HOST=endpoint or self.server.endpoint, SSL_CERT_FILE=self.server.ca)

    def run_example(self, name, *arguments, status=DONE):
        done = subprocess.run(
            self.command(name, *arguments),
            env=self.environment(),
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
            check=False,
        )
        self.assertEqual(done.returncode, status, done.stdout + done.stderr)
        return done

    def check_usage(self, name):
        for arguments in ((), ("a",)):
            self.assertRegex(
                self.run_example(name, *arguments, status=USAGE).stderr, rf"^usage: {name} [A-Z. \[\]]+\n$"
            )

    def check_loop(self, name):
        """What the two event loops have in common."""
        self.check_usage(name)
        # More than fit the queue.
        done = self.run_example(name, "made", *self.names * 30)
        said = done.stdout.splitlines()
        self.assertEqual(sorted(said), sorted(f"{each}: 10240 bytes" for each in self.names * 30))
        done = self.run_example(name, "made", self.names[0], "missing", "wrong\nname", status=FAILED)
        self.assertEqual(done.stdout, f"{self.names[0]}: 10240 bytes\n")
        self.assertIn("gs://made/missing", done.stderr)
        self.assertIn("gs://made/wrong\nname: Invalid argument", done.stderr)
        self.assertIn("Invalid argument", self.run_example(name, "made", "wrong\nname", status=FAILED).stderr)

    def check_interrupt(self, name):
        with Rule(self.rule_place, bucket="made", answer="held") as rule:
            running = subprocess.Popen(
                self.command(name, "made", *self.names), env=self.environment(), stderr=subprocess.PIPE, text=True
            )
            rule.wait()
            running.send_signal(signal.SIGINT)
            _, errors = running.communicate(timeout=PATIENCE_S)
        self.assertEqual(running.returncode, FAILED, errors)
        self.assertIn("interrupted\n", errors)
        self.assertIn("cancelled", errors)

    def test_get_many(self):
        self.check_usage("get_many")
        done = self.run_example("get_many", "made", "shard-", str(COUNT))
        self.assertEqual(done.stdout, "20 objects, 204800 bytes, 0 failed\n")
        done = self.run_example("get_many", "made", "shard-", str(COUNT + 1), status=FAILED)
        self.assertEqual(done.stdout, "21 objects, 204800 bytes, 1 failed\n")
        self.assertIn("gs://made/shard-00000020", done.stderr)
        for count in ("abc", "0", "-1", " 1", "1x", "", "99999999999999999999"):
            done = self.run_example("get_many", "made", "shard-", count, status=USAGE)
            self.assertEqual((done.stdout, done.stderr), ("", "usage: get_many BUCKET PREFIX COUNT\n"))

    def test_epoll_loop(self):
        self.check_loop("epoll_loop")

    def test_epoll_loop_interrupted(self):
        self.check_interrupt("epoll_loop")

    @unittest.skipIf(not HAS_LIBUV, "built without libuv (libuv1-dev)")
    def test_libuv_loop(self):
        self.check_loop("libuv_loop")

    @unittest.skipIf(not HAS_LIBUV, "built without libuv (libuv1-dev)")
    def test_libuv_loop_interrupted(self):
        self.check_interrupt("libuv_loop")

    def test_two_datasets(self):
        self.check_usage("two_datasets")
        done = self.run_example("two_datasets", "made", "shard-", "made", "shard-0000001")
        self.assertEqual(
            done.stdout,
            "gs://made/shard-: 20 samples, 204800 bytes, 0 failed\n"
            "gs://made/shard-0000001: 10 samples, 102400 bytes, 0 failed\n",
        )
        done = self.run_example("two_datasets", "made", "shard-00000003", "made", "nothing", status=FAILED)
        self.assertEqual(done.stdout, "")
        self.assertEqual(done.stderr, "gs://made/nothing: no object's name begins like this; check the prefix\n")
        with Rule(
            self.rule_place,
            bucket="made",
            target="shard-00000007",
            times=1000,
            effect="none",
            answer="failed",
            status=404,
        ):
            done = self.run_example("two_datasets", "made", "shard-", "made", "shard-", status=FAILED)
        self.assertEqual(done.stdout, "gs://made/shard-: 19 samples, 194560 bytes, 1 failed\n" * 2)
        self.assertIn("gs://made/shard-", done.stderr)
        self.assertIn(
            "gs://absent/x", self.run_example("two_datasets", "absent", "x", "absent", "x", status=USAGE).stderr
        )

    def fetch(self, place, name):
        with urllib.request.urlopen(place + name, timeout=PATIENCE_S) as answer:
            return answer.read()

    def check_refused(self, place, name, code, method="GET"):
        with self.assertRaises(urllib.error.HTTPError) as caught:
            urllib.request.urlopen(urllib.request.Request(place + name, method=method), timeout=PATIENCE_S)
        self.assertEqual(caught.exception.code, code)
        self.assertEqual(caught.exception.headers["Connection"], "close")
        caught.exception.close()

    def test_file_server_without_descriptors(self):
        server = subprocess.Popen(
            self.command("file_server", "0", "made"),
            env=self.environment(),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        try:
            place = server.stdout.readline().strip()
            limit = resource.prlimit(server.pid, resource.RLIMIT_NOFILE)
            resource.prlimit(server.pid, resource.RLIMIT_NOFILE, (3, limit[1]))
            port = int(place.rstrip("/").rpartition(":")[2])
            # One more than there are threads that already wait for one.
            peers = [socket.create_connection(("127.0.0.1", port), PATIENCE_S) for _ in range(65)]
            for peer in peers:
                peer.sendall(b"HEAD / HTTP/1.1\r\n\r\n")
            self.assertIn("Too many open files", server.stderr.readline())
            resource.prlimit(server.pid, resource.RLIMIT_NOFILE, limit)
            for peer in peers:
                with peer, peer.makefile("rb") as answer:
                    self.assertRegex(answer.read(), rb"^HTTP/1.1 405 ")
        finally:
            server.terminate()
            server.communicate()

    def test_file_server(self):
        self.check_usage("file_server")
        for arguments in (("abc", "made"), ("99999", "made"), ("0", "made", "-1"), ("0", "made", "1000")):
            self.run_example("file_server", *arguments, status=USAGE)
        server = subprocess.Popen(
            self.command("file_server", "0", "made", "4"), env=self.environment(), stdout=subprocess.PIPE, text=True
        )
        try:
            place = server.stdout.readline().strip()
            self.assertRegex(place, r"^http://127\.0\.0\.1:\d+/$")
            with Rule(self.rule_place, bucket="made", effect="once") as rule:
                first = self.fetch(place, self.names[9])
                self.assertEqual(first, self.server.request("GET", f"/made/{self.names[9]}"))
                # That one by each of us, and those behind it.
                until(lambda: rule.state()["seen"] >= 6, "reading ahead")
                for name in self.names[10:14]:
                    self.assertEqual(self.fetch(place, name), self.server.request("GET", f"/made/{name}"))
            for name, code in (("missing", 404), ("shard-00000099", 404), ("", 400), ("%0d", 400), ("a?b", 400)):
                self.check_refused(place, name, code)
            self.check_refused(place, "n" * 1025, 414)
            self.check_refused(place, "n" * 5000, 414)
            self.check_refused(place, self.names[0], 405, "HEAD")
            self.check_refused(place, self.names[0], 405, "POST")
            # What is still being read ahead is not struck.
            with Rule(
                self.rule_place, bucket="made", target=self.names[19], effect="none", answer="failed", status=403
            ):
                self.check_refused(place, self.names[19], 403)
            # Peers that go away do no harm.
            self.assertEqual(self.fetch(place, self.names[0]), self.server.request("GET", f"/made/{self.names[0]}"))
        finally:
            server.terminate()
            server.wait(PATIENCE_S)
            server.stdout.close()
        self.assertEqual(server.returncode, -signal.SIGTERM)


if __name__ == "__main__":
    unittest.main()
