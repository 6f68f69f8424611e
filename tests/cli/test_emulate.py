"""`ringest emulate`: what it says, how it ends, and what it refuses."""

import errno
import json
import os
import signal
import socket
import stat
import subprocess
import sys
import tempfile
import unittest
import urllib.error

from support import DONE, FAILED, PROGRAM, USAGE, Case, Emulator, closed_port, ringest, until

# In which a client begins to write an object.
WAYS = (
    ("PUT", "/typo/name"),
    ("POST", "/typo/name?uploads"),
    ("POST", "/upload/storage/v1/b/typo/o?uploadType=media&name=name"),
    ("POST", "/upload/storage/v1/b/typo/o?uploadType=resumable&name=name"),
)


class Emulate(Case):
    def test_one_line_says_where_it_listens(self):
        with Emulator() as server:
            self.assertEqual(set(server.ready), {"endpoint", "ca", "pid"})
            self.assertRegex(server.endpoint, r"^https://localhost:\d+$")
            self.assertEqual(server.ready["pid"], server.process.pid)
            with open(server.ca, encoding="ascii") as file:
                self.assertIn("BEGIN CERTIFICATE", file.read())
            self.assertEqual(server.end(), DONE)
            self.assertEqual((server.process.stdout.read(), server.stderr()), (b"", ""))
            self.assertFalse(os.path.exists(server.ca), "the temporary folder stayed")

    def test_a_command_uses_it_and_ends_it(self):
        script = 'set -e; echo "$SSL_CERT_FILE"; "$0" cat gs://made/p00000000 | wc -c; exit 7'
        done = ringest("emulate", "--synthetic", "made/p:1:10", "--", "sh", "-c", script, PROGRAM)
        self.assertEqual((done.returncode, done.stderr), (7, ""))
        ca, size = done.stdout.decode().split()
        self.assertEqual(size, "10")
        self.assertFalse(os.path.exists(ca), "the emulator ended without cleaning up")

    def test_a_command_has_signals_as_others_have_them(self):
        done = ringest("emulate", "--plain", "--", "sh", "-c", "grep -E 'Sig(Blk|Ign)' /proc/self/status; kill -9 $$")
        self.assertEqual(done.returncode, 128 + signal.SIGKILL)
        blocked, ignored = (int(line.split()[1], 16) for line in done.stdout.splitlines())
        self.assertEqual((blocked, ignored >> signal.SIGPIPE - 1 & 1), (0, 0), done.stdout)

    def test_sigterm_is_passed_on_to_the_command(self):
        command = [PROGRAM, "emulate", "--plain", "--", "sh", "-c", "echo; exec tail -f /dev/null"]
        with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
            process.stdout.readline()
            process.send_signal(signal.SIGTERM)
            self.assertEqual(process.wait(), 128 + signal.SIGTERM)

    def test_commands_that_cannot_be_run(self):
        self.fails(ringest("emulate", "--plain", "--", "no-such-program"), 127, "no-such-program", "No such file")
        self.fails(ringest("emulate", "sh"), USAGE, '"sh"', "after --")

    def test_signals_end_it_with_status_0(self):
        for number in (signal.SIGINT, signal.SIGTERM):
            with Emulator("--plain") as server:
                self.assertEqual(server.end(number), DONE)

    def test_killed_tests_leave_none_behind(self):
        test = "import support, signal\nwith support.Emulator('--plain') as server:\n print(server.line, flush=True)\n signal.pause()"
        environment = {**os.environ, "PYTHONPATH": os.path.dirname(os.path.abspath(__file__))}
        command = [sys.executable, "-c", test]
        with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE) as killed:
            port = int(json.loads(killed.stdout.readline())["endpoint"].rsplit(":", 1)[1])
            killed.kill()

        def is_refused():
            with socket.socket() as one:
                return one.connect_ex(("127.0.0.1", port)) == errno.ECONNREFUSED

        until(is_refused, "the end of the emulator")

    def test_ending_with_connections_open(self):
        with Emulator("--plain", "--synthetic", "made/p:10:1MiB", "--latency-ms", "60000") as server:
            port = int(server.endpoint.rsplit(":", 1)[1])
            with socket.create_connection(("127.0.0.1", port)) as idle:
                with socket.create_connection(("127.0.0.1", port)) as busy:
                    busy.sendall(b"GET /made/p00000000 HTTP/1.1\r\nHost: localhost\r\n\r\n")
                    self.assertEqual(server.end(), DONE)
                    self.assertIn(idle.recv(1), (b"",))

    def test_plain_http(self):
        with Emulator("--plain") as server:
            self.assertRegex(server.endpoint, r"^http://localhost:\d+$")
            self.assertIsNone(server.ca)
            server.put("bucket", "name", b"data")
            self.assertEqual(self.ok(ringest("cat", "gs://bucket/name", *server.place)), b"data")

    def test_strict_buckets(self):
        """As the service has them: a mistyped name is found, by whichever way an object would be written."""
        with Emulator("--plain", buckets=("made", "other")) as server:
            for method, path in WAYS:
                with self.assertRaises(urllib.error.HTTPError) as raised:
                    server.request(method, path, b"")
                with raised.exception as answer:
                    self.assertEqual(answer.code, 404, path)
                    self.assertIn(b"The specified bucket does not exist.", answer.read())
            self.assertNotIn(b"typo", server.request("GET", "/storage/v1/b?project=p"))
            for bucket in ("made", "other"):
                server.put(bucket, "name", b"data")
                self.assertEqual(self.ok(ringest("cat", f"gs://{bucket}/name", *server.place)), b"data")
            done = ringest("cp", __file__, "gs://typo/name", *server.place)
            self.fails(done, FAILED, "gs://typo/name", "bucket")

    def test_a_bucket_is_made_by_its_first_object(self):
        with Emulator("--plain", strict=False) as server:
            for number, (method, path) in enumerate(WAYS):
                server.request(method, path.replace("typo", f"new-{number}"), b"")
            self.ok(ringest("cp", "-q", __file__, "gs://by-cp/name", *server.place))
            listed = json.loads(server.request("GET", "/storage/v1/b?project=p"))["items"]
        # An upload in parts makes it when it ends.
        self.assertEqual([each["name"] for each in listed], ["by-cp", "new-0", "new-2", "new-3"])

    def test_a_chosen_port(self):
        port = closed_port()
        with Emulator("--plain", "--listen", f"127.0.0.1:{port}") as server:
            self.assertEqual(server.endpoint, f"http://localhost:{port}")

    def test_an_endpoint_that_is_where_it_listens(self):
        # localhost is 127.0.0.1 only, whatever else belongs to the loopback device.
        with Emulator("--listen", "127.0.0.2:0", "--synthetic", "made/p:1:10") as server:
            self.assertEqual(len(self.ok(ringest("cat", "gs://made/p00000000", *server.place))), 10)

    def test_ipv6(self):
        try:
            with socket.socket(socket.AF_INET6) as probe:
                probe.bind(("::1", 0))
        except OSError as error:
            self.skipTest(f"no IPv6 on the loopback device: {error}")
        with Emulator("--listen", "[::1]:0", "--synthetic", "made/p:1:10") as server:
            self.assertEqual(len(self.ok(ringest("cat", "gs://made/p00000000", *server.place))), 10)

    def test_an_address_in_use(self):
        with Emulator("--plain") as server:
            address = server.endpoint.removeprefix("http://").replace("localhost", "127.0.0.1")
            done = ringest("emulate", "--plain", "--listen", address)
            self.fails(done, FAILED, address, "Address already in use", "port")
            self.assertEqual(done.stdout, b"")

    def test_bad_values(self):
        bad = {
            "--listen": ("", "127.0.0.1", "127.0.0.1:", ":0", "127.0.0.1:99999", "127.0.0.1:x", "[::1"),
            "--synthetic": (
                "",
                "bucket",
                "bucket/p",
                "bucket/p:10",
                "bucket/p:x:1",
                "bucket/p:1:x",
                "bucket/p:-1:1",
                "b/p:1:1",
                "/p:1:1",
                "bucket/p:99999999999999999999:1",
            ),
            "--latency-ms": ("", "x", "-1", "30:", "30:20", "30:40:50", "nan"),
            "--conn-mbps": ("", "0", "-1", "x", "nan"),
            "--rate-limit": ("", "0", "-1", "x", "1e400"),
            "--threads": ("0", "-1", "257", "x", ""),
        }
        for option, values in bad.items():
            for value in values:
                with self.subTest((option, value)):
                    done = ringest("emulate", f"{option}={value}")
                    self.fails(done, USAGE, option)
                    self.assertEqual(done.stdout, b"")

    def test_a_host_that_is_not_here(self):
        # From the range for documentation, which no machine has.
        done = ringest("emulate", "--plain", "--listen", "192.0.2.1:0")
        self.fails(done, FAILED, "192.0.2.1", "assign")

    def test_a_root_that_cannot_be_used(self):
        with tempfile.TemporaryDirectory() as folder:
            file = os.path.join(folder, "file")
            with open(file, "w", encoding="ascii"):
                pass
            self.fails(ringest("emulate", "--root", file), FAILED, file)
            self.fails(ringest("emulate", "--root", file + "/below"), FAILED, file)

    def test_a_root_that_cannot_be_made(self):
        # To root nothing is forbidden, but in /proc nobody makes folders.
        self.fails(ringest("emulate", "--root", "/proc/ringest"), FAILED, "/proc/ringest")

    def test_a_root_is_made_when_only_it_is_missing(self):
        with tempfile.TemporaryDirectory() as folder:
            root = os.path.join(folder, "new")
            with Emulator("--root", root) as server:
                server.put("bucket", "name", b"kept")
            with Emulator("--root", root) as server:
                self.assertEqual(self.ok(ringest("cat", "gs://bucket/name", *server.place)), b"kept")
            self.assertEqual(os.listdir(root), ["bucket"])
            below = os.path.join(folder, "a", "b")
            self.fails(ringest("emulate", "--root", below), FAILED, below)
            self.assertEqual(os.listdir(folder), ["new"])

    def test_certificates_are_kept(self):
        with tempfile.TemporaryDirectory() as folder:
            kept = os.path.join(folder, "tls")
            texts = []
            for _ in range(2):
                with Emulator("--tls-dir", kept) as server:
                    self.assertEqual(server.ca, os.path.join(kept, "ca.pem"))
                    with open(server.ca, encoding="ascii") as file:
                        texts.append(file.read())
            self.assertEqual(texts[0], texts[1])
            mode = os.stat(os.path.join(kept, "key.pem")).st_mode
            self.assertEqual(mode & (stat.S_IRWXG | stat.S_IRWXO), 0)

    def test_several_synthetic_buckets(self):
        arguments = ("--synthetic", "one/a:2:5", "--synthetic", "two/b-:1:7", "--synthetic", "one/c:1:3")
        with Emulator(*arguments) as server:
            for bucket, wanted in (("one", ["a00000000", "a00000001", "c00000000"]), ("two", ["b-00000000"])):
                done = self.ok(ringest("ls", "-r", "--json", f"gs://{bucket}/", *server.place))
                self.assertEqual([each["name"] for each in json.loads(done)["objects"]], wanted)

    def test_synthetic_bytes_depend_on_nothing_but_their_name(self):
        first, second = [], []
        for read in (first, second):
            with Emulator("--synthetic", "made/p:2:100KiB") as server:
                for name in ("p00000000", "p00000001"):
                    read.append(self.ok(ringest("cat", "gs://made/" + name, *server.place)))
        self.assertEqual(first, second)
        self.assertEqual([len(each) for each in first], 2 * [102400])
        self.assertNotEqual(first[0], first[1])

    def test_a_kill_in_an_upload_leaves_the_old_object(self):
        old, new = b"old" * 1000, b"new" * 100_000
        with tempfile.TemporaryDirectory() as root:
            with Emulator("--plain", "--root", root) as server:
                server.put("bucket", "name", old)
                port = int(server.endpoint.rsplit(":", 1)[1])
                head = f"PUT /bucket/name HTTP/1.1\r\nHost: h\r\nContent-Length: {len(new)}\r\n\r\n"
                with socket.create_connection(("127.0.0.1", port)) as half:
                    half.sendall(head.encode() + new[:-1])
                    # What was received lies in the folder of our own, until it is complete.
                    until(
                        lambda: any(
                            entry.stat().st_size
                            for entry in os.scandir(root + "/bucket/.ringest")
                            if entry.name.startswith("%t")
                        )
                    )
                    server.kill()
            with Emulator("--plain", "--root", root) as server:
                self.assertEqual(self.ok(ringest("cat", "gs://bucket/name", *server.place)), old)
                server.put("bucket", "name", new)
                server.kill()
            with Emulator("--plain", "--root", root) as server:
                self.assertEqual(self.ok(ringest("cat", "gs://bucket/name", *server.place)), new)
                self.assertFalse([name for name in os.listdir(root + "/bucket/.ringest") if name.startswith("%t")])

    def test_standard_output_that_is_full(self):
        with open("/dev/full", "wb") as full:
            self.fails(ringest("emulate", "--plain", stdout=full), FAILED, "No space left")

    def test_it_goes_on_when_its_input_and_output_are_closed(self):
        with Emulator("--plain", "--synthetic", "made/p:1:10") as server:
            server.process.stdout.close()
            self.assertEqual(len(self.ok(ringest("cat", "gs://made/p00000000", *server.place))), 10)
            self.assertEqual(server.end(), DONE)


if __name__ == "__main__":
    unittest.main()
