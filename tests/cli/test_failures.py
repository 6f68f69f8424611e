"""Bad luck: wrong certificates, servers that are not there or go away, limits of the system. Each gives
one line that names the object and the cause, or is worked around."""

import contextlib
import errno
import json
import resource
import shutil
import signal
import socket
import ssl
import subprocess
import tempfile
import threading
import time
import unittest

from support import (
    DONE,
    FAILED,
    PATIENCE_S,
    PROGRAM,
    Emulator,
    Rule,
    ServedCase,
    Terminal,
    closed_port,
    environment,
    refuse_uring,
    relay,
    ringest,
    ringest_each,
    scatter,
    until,
)

OBJECT = "gs://made/p00000000"


def port_of(endpoint):
    return int(endpoint.rsplit(":", 1)[1])


class Certificates(ServedCase):
    emulator_arguments = ("--synthetic", "made/p:10:1KiB")
    buckets = ("conditions",)

    def test_a_condition_on_what_is_missing_says_so(self):
        """No try went before: nothing is said about one."""
        done = self.ringest("cp", __file__, "gs://conditions/missing", "--if-generation-match", "7")
        self.fails(done, FAILED, "gs://conditions/missing", "HTTP 412", ": there is no such object")
        self.assertNotIn("earlier try", done.stderr)

    def test_an_authority_that_nobody_trusts(self):
        with Emulator() as other:
            done = ringest("cat", OBJECT, "--endpoint", self.server.endpoint, "--ca", other.ca)
            self.fails(done, FAILED, OBJECT, "certificate", "issuer", other.ca)

            self.assertIn("--ca", done.stderr)

    def test_the_wrong_scheme_names_the_right_one(self):
        port = port_of(self.server.endpoint)
        done = ringest("cat", OBJECT, "--endpoint", f"http://localhost:{port}")
        self.fails(done, FAILED, OBJECT, "HTTPS", "use https:// in the endpoint")
        with Emulator("--plain") as plain:
            done = ringest("cat", OBJECT, "--endpoint", f"https://127.0.0.1:{port_of(plain.endpoint)}")
            self.fails(done, FAILED, OBJECT, "does not speak TLS", "use http:// in the endpoint")

    def test_an_endpoint_with_a_path(self):
        done = ringest("cat", OBJECT, "--endpoint", self.server.endpoint + "/storage/v1")
        self.fails(done, FAILED, "the endpoint has a path", "https://HOST[:PORT]")

    def test_a_host_that_the_certificate_is_not_for(self):
        with relay("127.0.0.3", 0, ("127.0.0.1", port_of(self.server.endpoint))) as port:
            place = ["--endpoint", f"https://127.0.0.3:{port}", "--ca", self.server.ca]
            self.fails(ringest("cat", OBJECT, *place), FAILED, OBJECT, "certificate is for", "127.0.0.3")
            self.fails(ringest("ls", "gs://made/", *place), FAILED, "gs://made/", "127.0.0.3")
            self.fails(ringest("bench", "get", "gs://made/", *place), FAILED, "127.0.0.3")

    def test_an_address_that_the_certificate_is_for(self):
        place = ["--endpoint", f"https://127.0.0.1:{port_of(self.server.endpoint)}", "--ca", self.server.ca]
        self.assertEqual(len(self.ok(ringest("cat", OBJECT, *place))), 1024)

    def test_files_of_certificates_that_are_none(self):
        place = ["--endpoint", self.server.endpoint, "--ca"]
        self.fails(ringest("cat", OBJECT, *place, "/nonexistent/ca.pem"), FAILED, "/nonexistent/ca.pem", "No such")
        self.fails(ringest("cat", OBJECT, *place, "/tmp"), FAILED, "/tmp", "a folder", "SSL_CERT_DIR")
        with tempfile.NamedTemporaryFile() as empty:
            self.fails(ringest("cat", OBJECT, *place, empty.name), FAILED, empty.name)
            empty.write(b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n")
            empty.flush()
            self.fails(ringest("cat", OBJECT, *place, empty.name), FAILED, empty.name)

    def test_plain_http_to_a_port_with_tls(self):
        plain = self.server.endpoint.replace("https", "http")
        self.fails(ringest("cat", OBJECT, "--endpoint", plain), FAILED, OBJECT)

    def test_tls_to_a_port_with_plain_http(self):
        with Emulator("--plain") as server:
            tls = server.endpoint.replace("http", "https")
            self.fails(ringest("cat", OBJECT, "--endpoint", tls, "--ca", self.server.ca), FAILED, OBJECT, "TLS")

    @unittest.skipUnless(shutil.which("openssl"), "no openssl to make certificates with")
    def test_certificates_made_by_others(self):
        """Refused: expired, and self-signed without being trusted. A self-signed one that is trusted
        is as good as any."""
        with tempfile.TemporaryDirectory() as folder:
            key, good, expired = folder + "/key.pem", folder + "/good.pem", folder + "/expired.pem"
            openssl("req", "-x509", "-newkey", "rsa:2048", "-nodes", "-keyout", key, "-out", good)
            openssl("x509", "-in", good, "-signkey", key, "-days", "-1", "-copy_extensions", "copyall", "-out", expired)
            for certificate in (good, expired):
                context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
                context.load_cert_chain(certificate, key)
                with answering(b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n", context) as port:
                    place = ["--endpoint", f"https://localhost:{port}", "--ca"]
                    self.fails(ringest("cat", OBJECT, *place, self.server.ca), FAILED, OBJECT, "certificate")
                    word = "expired" if certificate is expired else "404"
                    self.fails(ringest("cat", OBJECT, *place, certificate), FAILED, OBJECT, word)


def openssl(*arguments):
    if arguments[0] == "req":
        arguments += ("-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost", "-days", "2")
    made = subprocess.run(["openssl", *arguments], capture_output=True, check=False)
    if made.returncode != 0:
        raise unittest.SkipTest("this openssl makes no such certificate: " + made.stderr.decode().strip())


class answering:
    """A server on a port of 127.0.0.1 that says the same to everybody and closes."""

    def __init__(self, answer, context=None):
        self.answer = answer
        self.context = context

    def __enter__(self):
        self.listener = socket.create_server(("127.0.0.1", 0), backlog=64)
        threading.Thread(target=self.serve, daemon=True).start()
        return self.listener.getsockname()[1]

    def __exit__(self, *_):
        self.listener.shutdown(socket.SHUT_RDWR)
        self.listener.close()

    def serve(self):
        while True:
            try:
                peer, _ = self.listener.accept()
            except OSError:
                return
            threading.Thread(target=self.talk, args=(peer,), daemon=True).start()

    def talk(self, peer):
        try:
            with self.context.wrap_socket(peer, server_side=True) if self.context else peer as stream:
                stream.recv(65536)
                stream.sendall(self.answer)
        except OSError:
            pass


def await_refusal(port):
    """The kernel takes a ring down some time after its process has ended, and listens until then."""

    def is_refused():
        with socket.socket() as one:
            return one.connect_ex(("127.0.0.1", port)) == errno.ECONNREFUSED

    until(is_refused, f"port {port} with nobody behind it")


def await_requests(server, count):
    """Until the emulator has seen so many requests."""
    Rule((server.endpoint, server.ca), nth=count).wait()


class Servers(ServedCase):
    emulator_arguments = ("--synthetic", "made/p:200:100KiB")

    def test_a_closed_port(self):
        place = ("--endpoint", f"http://127.0.0.1:{closed_port()}")
        commands = (("cat", OBJECT), ("ls", "gs://made/"), ("bench", "get", "gs://made/"))
        for done in ringest_each([command + place for command in commands]):
            self.fails(done, FAILED, "gs://made/", "127.0.0.1", "refused")

    def test_a_name_that_does_not_exist(self):
        started = time.monotonic()
        try:
            socket.getaddrinfo("ringest.invalid", 443)
            self.skipTest("names under .invalid exist here")
        except socket.gaierror:
            pass
        if time.monotonic() - started > 2:
            self.skipTest("the name server does not answer")
        done = ringest("cat", OBJECT, "--endpoint", "https://ringest.invalid")
        self.fails(done, FAILED, OBJECT, "ringest.invalid", "resolved")

    def test_answers_that_are_no_answers(self):
        head = b"HTTP/1.1 200 OK\r\n"
        answers = (
            b"",
            b"SSH-2.0-OpenSSH_9.2\r\n",
            scatter(5000),
            head + b"Content-Length: 5\r\nContent-Length: 6\r\n\r\nhello",
            head + b"Content-Length: 100\r\n\r\nshort",
            head + b"X-Long: " + (1 << 20) * b"x" + b"\r\n\r\n",
        )
        with contextlib.ExitStack() as servers:
            ports = [servers.enter_context(answering(answer)) for answer in answers]
            runs = [("cat", OBJECT, "--endpoint", f"http://127.0.0.1:{port}") for port in ports]
            for answer, port, done in zip(answers, ports, ringest_each(runs)):
                with self.subTest(answer[:40]):
                    self.fails(done, FAILED, OBJECT, f"127.0.0.1:{port}")

    def test_a_wrong_checksum(self):
        answer = (
            b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nx-goog-generation: 1\r\nx-goog-hash: crc32c=AAAAAA==\r\n"
            b"x-goog-stored-content-length: 5\r\nx-goog-metageneration: 1\r\nConnection: close\r\n\r\nhello"
        )
        with answering(answer) as port:
            done = ringest("cat", OBJECT, "--endpoint", f"http://127.0.0.1:{port}")
            self.fails(done, FAILED, OBJECT, "CRC32C")
            self.assertEqual(done.stdout, b"")

    def test_a_server_that_is_killed_in_mid_run(self):
        # What is killed leaves its temporary folder behind, so it gets one of ours.
        with tempfile.TemporaryDirectory() as tls:
            with Emulator("--synthetic", "made/p:200:100KiB", "--tls-dir", tls) as server:
                bench = subprocess.Popen(
                    [PROGRAM, "bench", "get", "gs://made/", "--seconds=4", "--concurrency=8", "--json", *server.place],
                    env=environment(),
                    stdout=subprocess.PIPE,
                    stderr=subprocess.PIPE,
                )
                await_requests(server, 300)
                server.kill()
                output, errors = bench.communicate(timeout=PATIENCE_S)
        self.assertEqual(bench.returncode, FAILED, errors)
        report = json.loads(output)
        self.assertGreater(report["errors"], 0)
        self.assertGreater(report["requests"], report["errors"])
        for line in errors.decode().splitlines():
            self.assertIn("gs://made/p", line)

    def test_a_server_that_comes_back(self):
        """What was out when it went away is asked for again: nothing is lost."""
        port = closed_port()
        arguments = ("--plain", "--listen", f"127.0.0.1:{port}", "--synthetic", "made/p:200:10KiB")
        arguments += ("--latency-ms", "20")
        with Emulator(*arguments) as first:
            bench = subprocess.Popen(
                [PROGRAM, "bench", "get", "gs://made/", "--seconds=5", "--concurrency=8", "--json", *first.place],
                env=environment(),
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
            )
            await_requests(first, 100)
            first.kill()
        await_refusal(port)
        with Emulator(*arguments):
            output, errors = bench.communicate(timeout=PATIENCE_S)
        self.assertEqual((bench.returncode, errors), (DONE, b""))
        report = json.loads(output)
        self.assertEqual(report["errors"], 0)
        self.assertGreater(report["retries"], 0)

    def test_a_terminal_sees_that_nobody_listens(self):
        terminal = Terminal(40)
        done = subprocess.run(
            [PROGRAM, "cat", OBJECT, "--endpoint", f"http://127.0.0.1:{closed_port()}"],
            env=environment(TERM="xterm"),
            stdout=subprocess.PIPE,
            stderr=terminal.far,
            timeout=PATIENCE_S,
        )
        said = terminal.read()
        self.assertEqual(done.returncode, FAILED)
        self.assertRegex(said, r"\rno connection yet, \d+ tries failed\x1b\[K")
        *_, last, end = said.split("\n")
        self.assertIn("Connection refused", last)
        self.assertIn(end, ("", "\r\x1b[K"))

    def test_interrupted_while_it_waits_for_an_answer(self):
        with socket.create_server(("127.0.0.1", 0)) as silent:
            cat = subprocess.Popen(
                [PROGRAM, "cat", OBJECT, "--endpoint", f"http://127.0.0.1:{silent.getsockname()[1]}"],
                env=environment(),
                stderr=subprocess.PIPE,
            )
            with silent.accept()[0] as peer:
                peer.recv(1)
                cat.send_signal(signal.SIGINT)
                errors = cat.communicate(timeout=PATIENCE_S)[1]
        self.assertIn(cat.returncode, (-signal.SIGINT, FAILED))
        self.assertLessEqual(errors.count(b"\n"), 1)


class Limits(ServedCase):
    emulator_arguments = ("--synthetic", "made/p:500:20KiB")

    def bench(self, *arguments, **options):
        return ringest("bench", "get", "gs://made/", "--json", "--verify", *arguments, *self.server.place, **options)

    def test_too_few_file_descriptors(self):
        done = self.bench("--concurrency=64", preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (40, 40)))
        report = json.loads(self.ok(done))
        self.assertEqual((report["requests"], report["errors"]), (500, 0))
        self.assertLess(report["connections"], 40)

    def test_a_low_soft_limit_is_raised(self):
        hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
        done = self.bench("--concurrency=64", preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (40, hard)))
        self.assertEqual(json.loads(self.ok(done))["connections"], 64)

    def test_no_locked_memory(self):
        done = self.bench(preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_MEMLOCK, (0, 0)))
        report = json.loads(self.ok(done))
        self.assertEqual((report["requests"], report["errors"]), (500, 0))

    def test_uring_that_is_forbidden(self):
        done = self.bench(env=environment(RINGEST_BACKEND=None), preexec_fn=refuse_uring)
        report = json.loads(self.ok(done))
        self.assertEqual((report["requests"], report["errors"], report["backend"]), (500, 0, "epoll"))

    def test_uring_that_is_forbidden_but_demanded(self):
        done = self.bench(env=environment(RINGEST_BACKEND="uring"), preexec_fn=refuse_uring)
        self.fails(
            done, FAILED, "RINGEST_BACKEND is uring, and io_uring is forbidden here", "unset it, and epoll is used"
        )

    def test_an_emulator_without_uring(self):
        env = environment(RINGEST_BACKEND=None)
        with Emulator("--synthetic", "made/p:1:10", env=env, preexec_fn=refuse_uring) as server:
            self.assertEqual(len(self.ok(ringest("cat", OBJECT, *server.place))), 10)


if __name__ == "__main__":
    unittest.main()
