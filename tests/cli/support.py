"""What the black-box tests share: running the program, an emulator as a server, objects to read.

RINGEST_PROGRAM names the program under test. Nothing here talks to anything but 127.0.0.1."""

import concurrent.futures
import contextlib
import ctypes
import fcntl
import json
import os
import random
import re
import select
import signal
import socket
import ssl
import struct
import subprocess
import sys
import tempfile
import termios
import threading
import unittest
import urllib.error
import urllib.parse
import urllib.request

sys.path.append(os.path.join(os.path.dirname(__file__), "..", "support"))
from rules import FAULTS, Rule, kill_each, run_until_held, strike_each  # noqa: F401  (for the tests)
from waiting import PATIENCE_S, until  # noqa: F401  (for the tests)

PROGRAM = os.environ["RINGEST_PROGRAM"]
BACKEND = os.environ.get("RINGEST_BACKEND", "")
# Of what is left to chance: the same in every run, and another in each round of script/soak.
SEED = int(os.environ.get("RINGEST_TEST_SEED") or 1)

DONE, FAILED, USAGE = 0, 1, 2
CONFLICT = 409
# Before a command: it is asked to end when the process that started it does, however that ended.
WITH_PARENT = ("setpriv", "--pdeathsig", "TERM")


def environment(**changes):
    """The environment of a run: nothing of ours but the backend, no tokens of other tests, and the changes (None
    removes)."""
    result = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("RINGEST_", "SSL_CERT_", "STORAGE_", "GOOGLE_", "CLOUDSDK_", "GCE_"))
        or name == "RINGEST_BACKEND"
        if not name.lower().endswith("_proxy")
    }
    result["RINGEST_SHARING"] = "0"
    for name, value in changes.items():
        if value is None:
            result.pop(name, None)
        else:
            result[name] = value
    return result


# What was done, in a line at the end: "3 copied, 0 skipped, ...".
SUMMARY = re.compile(r"^(?:dry run: )?\d+ (?:copied|moved|removed|would be|objects? saved|shards).*\n", re.MULTILINE)


def ringest(*arguments, env=None, **options):
    """Runs the program to its end. Standard output comes back as bytes, standard error as text, without the
    summary, which stands in `summary`."""
    options.setdefault("timeout", PATIENCE_S)
    done = subprocess.run(
        [PROGRAM, *arguments],
        env=env or environment(),
        stdin=subprocess.DEVNULL,
        stdout=options.pop("stdout", subprocess.PIPE),
        stderr=subprocess.PIPE,
        **options,
    )
    errors = done.stderr.decode()
    done.summary = "".join(SUMMARY.findall(errors))
    done.stderr = SUMMARY.sub("", errors)
    return done


def ringest_each(runs):
    """Runs several at once, each a tuple of arguments: most of what fails spends its time waiting for
    another attempt."""
    with concurrent.futures.ThreadPoolExecutor(len(runs)) as pool:
        return list(pool.map(lambda arguments: ringest(*arguments), runs))


kept_sockets: list[socket.socket] = []


class Terminal:
    """What a program writes to a terminal: `far` is for the program, `read` after its end has it all."""

    def __init__(self, columns=0):
        self._near, self.far = os.openpty()
        fcntl.ioctl(self.far, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))

    def read_until(self, text, count):
        """What is written until `text` has come so often."""
        drawn = b""
        while drawn.count(text) < count:
            drawn += os.read(self._near, 1 << 16)
        return drawn

    def write(self, data):
        """As if somebody typed it."""
        os.write(self._near, data)

    def read(self):
        os.close(self.far)
        drawn = b""
        # What was written last may come a moment later; then the other end is gone.
        with contextlib.suppress(OSError):
            while piece := os.read(self._near, 1 << 16):
                drawn += piece
        os.close(self._near)
        return drawn.decode()


def closed_port():
    """A port that nobody listens at, and that the system gives to nobody who asks for any: it stays
    bound. Who asks for this one with SO_REUSEADDR, as the emulator does, can have it."""
    taken = socket.socket()
    taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    taken.bind(("127.0.0.1", 0))
    kept_sockets.append(taken)
    return taken.getsockname()[1]


def scatter(size, seed=1):
    """Bytes without a pattern."""
    return random.Random(seed).randbytes(size)


def refuse_uring():
    """For preexec_fn: io_uring_setup fails with EPERM from here on, as in many containers."""
    # Where the kernel has seccomp; a classic BPF program over struct seccomp_data, whose first word
    # is the number of the system call. io_uring_setup is 425 on every architecture.
    load, jump_if_equal, give = 0x20, 0x15, 0x06
    refuse, allow = 0x00050000 | 1, 0x7FFF0000
    program = b"".join(
        struct.pack("HBBI", *line)
        for line in ((load, 0, 0, 0), (jump_if_equal, 0, 1, 425), (give, 0, 0, refuse), (give, 0, 0, allow))
    )
    code = ctypes.create_string_buffer(program, len(program))
    header = struct.pack("HxxxxxxP" if struct.calcsize("P") == 8 else "HxxP", 4, ctypes.addressof(code))
    filter_ = ctypes.create_string_buffer(header, len(header))
    prctl = ctypes.CDLL(None, use_errno=True).prctl
    prctl.argtypes = [ctypes.c_int] + [ctypes.c_ulong] * 4
    set_no_new_privs, set_seccomp, mode_filter = 38, 22, 2
    if prctl(set_no_new_privs, 1, 0, 0, 0) or prctl(set_seccomp, mode_filter, ctypes.addressof(filter_), 0, 0):
        raise OSError(ctypes.get_errno(), "no seccomp filter can be set")


class Emulator:
    """`ringest emulate` as a server; ended with the block. Objects make no buckets, so that a mistyped name is found:
    `buckets` are there from the start."""

    def __init__(self, *arguments, buckets=(), strict=True, **options):
        self.arguments = [*arguments, *(["--strict-buckets"] if strict else [])]
        self.arguments += [word for bucket in buckets for word in ("--bucket", bucket)]
        self.options = options
        self.buckets = set(buckets)

    def __enter__(self):
        self.errors = tempfile.TemporaryFile()
        self.process = subprocess.Popen(
            [*WITH_PARENT, PROGRAM, "emulate", *self.arguments],
            env=self.options.pop("env", None) or environment(RINGEST_THREADS=None),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=self.errors,
            **self.options,
        )
        readable, _, _ = select.select([self.process.stdout], [], [], PATIENCE_S)
        self.line = self.process.stdout.readline().decode() if readable else ""
        if not self.line:
            self.kill()
            raise AssertionError("the emulator did not start: " + self.stderr())
        self.ready = json.loads(self.line)
        self.endpoint, self.ca = self.ready["endpoint"], self.ready["ca"]
        return self

    def __exit__(self, *_):
        if self.process.poll() is None:
            self.end()
        self.process.stdout.close()
        self.errors.close()

    def stderr(self):
        self.errors.seek(0)
        return self.errors.read().decode()

    def end(self, signal_number=signal.SIGTERM):
        """Asks it to end and returns its exit status."""
        self.process.send_signal(signal_number)
        try:
            return self.process.wait(PATIENCE_S)
        except subprocess.TimeoutExpired:
            self.kill()
            raise

    def kill(self):
        self.process.kill()
        self.process.wait()

    @property
    def place(self):
        """Arguments that send a command there."""
        return ["--endpoint", self.endpoint] + (["--ca", self.ca] if self.ca else [])

    def request(self, method, path, data=None):
        """A request by other means than ours; returns the body."""
        tls = ssl.create_default_context(cafile=self.ca) if self.ca else None
        request = urllib.request.Request(self.endpoint + path, data=data, method=method)
        with urllib.request.urlopen(request, context=tls, timeout=PATIENCE_S) as answer:
            return answer.read()

    def make_bucket(self, bucket):
        """As a user's own bucket is there, where it is not yet."""
        if bucket not in self.buckets:
            try:
                self.request("POST", "/storage/v1/b", json.dumps({"name": bucket}).encode())
            except urllib.error.HTTPError as error:
                if error.code != CONFLICT:
                    raise
            self.buckets.add(bucket)

    def create_hierarchical(self, bucket):
        self.request(
            "POST",
            "/storage/v1/b",
            json.dumps(
                {
                    "name": bucket,
                    "hierarchicalNamespace": {"enabled": True},
                    "iamConfiguration": {"uniformBucketLevelAccess": {"enabled": True}},
                }
            ).encode(),
        )

    def create_folder(self, bucket, name):
        """And those above it."""
        self.request("POST", f"/storage/v1/b/{bucket}/folders?recursive=true", json.dumps({"name": name}).encode())

    def rename_folder(self, bucket, name, new):
        name, new = (urllib.parse.quote(each, safe="") for each in (name, new))
        return json.loads(self.request("POST", f"/storage/v1/b/{bucket}/folders/{name}/renameTo/folders/{new}", b""))

    def put(self, bucket, name, data):
        """Into a bucket that is made for it."""
        self.make_bucket(bucket)
        query = urllib.parse.urlencode({"uploadType": "media", "name": name})
        return json.loads(self.request("POST", f"/upload/storage/v1/b/{bucket}/o?{query}", data))


@contextlib.contextmanager
def relay(host, port, target):
    """Passes connections to (host, port) on to the target; yields the port."""

    def copy(source, sink):
        with contextlib.suppress(OSError):
            while data := source.recv(65536):
                sink.sendall(data)
        with contextlib.suppress(OSError):
            sink.shutdown(socket.SHUT_WR)

    def serve(listener):
        with contextlib.suppress(OSError):
            while True:
                near, _ = listener.accept()
                far = socket.create_connection(target)
                for pair in ((near, far), (far, near)):
                    threading.Thread(target=copy, args=pair, daemon=True).start()

    with socket.create_server((host, port)) as listener:
        threading.Thread(target=serve, args=(listener,), daemon=True).start()
        yield listener.getsockname()[1]


class Case(unittest.TestCase):
    """Checks of what a run says."""

    def ok(self, done):
        self.assertEqual((done.returncode, done.stderr), (DONE, ""))
        return done.stdout

    def fails(self, done, status, *words):
        """One line on standard error, with these words in it, and the exit status."""
        self.assertEqual(done.returncode, status, done.stderr)
        self.assertEqual(done.stderr.count("\n"), 1, done.stderr)
        self.assertTrue(done.stderr.startswith("ringest: "), done.stderr)
        for word in words:
            self.assertIn(word, done.stderr)
        if status == USAGE:
            self.assertIn("--help", done.stderr)


class ServedCase(Case):
    """A case whose class has one emulator, started with `emulator_arguments` and empty `buckets`."""

    emulator_arguments: tuple[str, ...] = ()
    buckets: tuple[str, ...] = ()

    @classmethod
    def setUpClass(cls):
        emulator = Emulator(*cls.emulator_arguments, buckets=cls.buckets)
        cls.server = emulator.__enter__()
        cls.addClassCleanup(emulator.__exit__)

    def own_bucket(self):
        """A bucket that only this case uses."""
        name = self.id().rsplit(".", 1)[1].replace("_", "-")[:60].rstrip("-")
        self.server.make_bucket(name)
        return "gs://" + name

    def ringest(self, command, *arguments, **options):
        return ringest(command, *arguments, *self.server.place, **options)
