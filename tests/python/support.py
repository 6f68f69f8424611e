"""What the tests of the Python package share: an emulator, and objects in it."""

import contextlib
import ctypes
import http.client
import json
import multiprocessing
import os
import signal
import ssl
import subprocess
import sys
import tempfile
import traceback
import urllib.parse
import urllib.request

sys.path.append(os.path.join(os.path.dirname(__file__), "..", "support"))
import ringest
from rules import FAULTS, Rule, kill_each, run_until_held, strike_each  # noqa: F401  (for the tests)
from waiting import INTERVAL_S, PATIENCE_S, until, until_it_sleeps  # noqa: F401  (for the tests)

# Workers by "forkserver" start as spawned ones do, but for this import, which one process does for all.
multiprocessing.set_forkserver_preload(["torch.utils.data"])
PROGRAM = os.environ["RINGEST_PROGRAM"]
# Of what is left to chance: the same in every run, and another in each round of script/soak.
SEED = int(os.environ.get("RINGEST_TEST_SEED") or 1)
COUNT = 500
SIZE = 2000
# An instruction of a retry test that lets a request through.
PASS = "stall-for-0s-after-0K"


# Buckets that are there from the start. Objects make none, so that a mistyped name is found.
BUCKETS = (
    "bucket",
    "empty",
    "here",
    "large",
    "locks",
    "many",
    "mine",
    "new",
    "odd",
    "other",
    "others",
    "own",
    "run",
    "shards",
    "tar",
)


@contextlib.contextmanager
def emulator(*arguments, buckets=BUCKETS):
    """The endpoint and the file of its certificate, while the `with` lasts."""
    # Asked to end when this process does, however that ends.
    command = ["setpriv", "--pdeathsig", "TERM", PROGRAM, "emulate", "--threads", "1", "--strict-buckets"]
    command += ["--synthetic", f"data/x-:{COUNT}:{SIZE}", *arguments]
    command += [word for bucket in buckets for word in ("--bucket", bucket)]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        try:
            ready = json.loads(process.stdout.readline())
            yield ready["endpoint"], ready.get("ca")
        finally:
            process.terminate()


def make_bucket(endpoint, ca, name, **settings):
    """A bucket with settings of its own, as JSON has them."""
    request = urllib.request.Request(
        f"{endpoint}/storage/v1/b?project=p",
        json.dumps({"name": name, **settings}).encode(),
        {"Content-Type": "application/json"},
    )
    context = ssl.create_default_context(cafile=ca) if ca else None
    urllib.request.urlopen(request, context=context).read()


@contextlib.contextmanager
def client(*arguments, **options):
    """It sends no second requests unless it is asked to: many tests count requests, and a busy machine is late."""
    options.setdefault("hedging", False)
    with emulator(*arguments) as (endpoint, ca), ringest.Client(endpoint, ca, **options) as made:
        yield made


def name(index):
    return f"x-{index:08d}"


@contextlib.contextmanager
def faults(endpoint, ca, instructions):
    """Within it, requests of clients that are made in it meet faults. Gives what is left of them to ask for."""
    place = urllib.parse.urlsplit(endpoint)

    def call(method, path, body=None):
        context = ssl.create_default_context(cafile=ca)
        connection = http.client.HTTPSConnection(place.hostname, place.port, context=context)
        connection.request(method, path, body, {"Content-Type": "application/json"} if body else {})
        with contextlib.closing(connection):
            return json.loads(connection.getresponse().read() or b"{}")

    test = call("POST", "/retry_test", json.dumps({"instructions": instructions}))["id"]
    before = os.environ.get("RINGEST_HEADERS")
    os.environ["RINGEST_HEADERS"] = f"x-retry-test-id: {test}"
    try:
        yield lambda: call("GET", f"/retry_test/{test}")
    finally:
        del os.environ["RINGEST_HEADERS"]
        if before is not None:
            os.environ["RINGEST_HEADERS"] = before


def consumed(capsule):
    """What a consumer of a DLPack capsule has: the address of the managed tensor, and of its deleter."""
    pointer = ctypes.pythonapi.PyCapsule_GetPointer
    pointer.restype, pointer.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
    address = pointer(capsule, b"dltensor")
    rename = ctypes.pythonapi.PyCapsule_SetName
    rename.argtypes = [ctypes.py_object, ctypes.c_char_p]
    rename(capsule, b"used_dltensor")
    # struct DLManagedTensor: a DLTensor of 48 bytes, manager_ctx, deleter.
    return address, ctypes.c_void_p.from_address(address + 56).value


def uploads_in(made, bucket):
    """How many are unfinished; the emulator makes a bucket with its first upload."""
    try:
        return len(made.list_uploads(bucket))
    except ringest.NotFoundError:
        return 0


def killed_while_writing(endpoint, ca, uris):
    """A process begins an upload in parts for each, and is killed when the server knows of them all."""
    heard, say = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            with ringest.Client(endpoint, ca) as made:
                writers = [made.writer(uri, part_size="5MiB") for uri in uris]
                for writer in writers:
                    writer.write(bytes(6 << 20))
                buckets = {"/".join(uri.split("/")[:3]) + "/" for uri in uris}
                until(lambda: sum(uploads_in(made, bucket) for bucket in buckets) >= len(uris), "every upload")
                os.write(say, b"x")
                signal.pause()
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(1)
    os.close(say)
    with open(heard, "rb") as told:
        ready = told.read(1)
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    assert ready == b"x"


def bench_in_child(*arguments, env=None):
    """Exit status, output and errors of `ringest bench`, by a fork of this process: what is refused at once needs no
    interpreter that imports for a second before. It has its own signals and its own environment."""
    from ringest.bench import __main__ as command

    with tempfile.TemporaryFile() as output, tempfile.TemporaryFile() as errors:
        sys.stdout.flush()
        pid = os.fork()
        if pid == 0:
            status = 70
            try:
                os.dup2(output.fileno(), 1)
                os.dup2(errors.fileno(), 2)
                os.environ.update(env or {})
                sys.argv = ["bench", *map(str, arguments)]
                status = command._main_to_its_end()
            except SystemExit as end:
                status = end.code
            except BaseException:
                traceback.print_exc()
            finally:
                sys.stdout.flush()
                sys.stderr.flush()
                os._exit(status)
        status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        said = []
        for file in (output, errors):
            file.seek(0)
            said.append(file.read().decode())
        return status, *said


def uri(index):
    return f"gs://data/{name(index)}"


def entries():
    return [(name(i), SIZE, 0) for i in range(COUNT)]


def files_open():
    return len(os.listdir("/proc/self/fd"))


def threads_running():
    return len(os.listdir("/proc/self/task"))


def take_name(item):
    """A transform that says which object it was given; here, so that spawned workers can import it."""
    assert len(item.data) == SIZE
    return item.uri.rsplit("-", 1)[1]


def take_number(data):
    """Of the connector's kind: gets bytes, which here are digits."""
    assert type(data) is bytes, type(data)
    return int(data)
