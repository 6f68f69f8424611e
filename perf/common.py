"""What the scripts of this folder share: starting servers, running clients, describing the machine.
Python's standard library only."""

import contextlib
import json
import mmap
import os
import platform
import re
import select
import shutil
import signal
import subprocess
import sys
import time

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
PROGRAM = os.path.join(ROOT, "build/root/bin/ringest")
START_TIMEOUT_S = 30
# The exit status that meson takes for a test that was not run.
SKIPPED = 77
BACKENDS = ("uring", "epoll")
# Debian keeps nginx there, where users do not look.
os.environ["PATH"] += ":/usr/sbin"
# For Python's environment: freed memory stays, as it would in a process that saves again and again.
# Otherwise it is chance whether malloc gives it back, and each page of a tensor is touched anew.
KEPT_HEAP = {
    "GLIBC_TUNABLES": "glibc.malloc.mmap_max=0:glibc.malloc.trim_threshold=1099511627776:glibc.malloc.top_pad=67108864"
}
# Of what a program says at its end.
WORDS_MAX = 300
# What touch_memory() makes ready for the next client, more than any of them takes.
MEMORY_TOUCHED = 512 << 20
MADV_HUGEPAGE, MADV_POPULATE_WRITE = 14, 23  # not named by Python; linux/mman.h
# Ours and what would send our client elsewhere than a script means.
FOREIGN_ENVIRONMENT = ("RINGEST_", "STORAGE_EMULATOR_HOST", "GOOGLE_")


def die(text):
    sys.exit(f"{os.path.basename(sys.argv[0])}: {text}")


def say(text):
    print(text, file=sys.stderr, flush=True)


def touch_memory():
    """Takes memory and gives it back, so that the next process finds it ready. On a virtual machine,
    what nobody has used for some seconds may be gone to the host, and taking it again costs 25 times
    as much (8.9 against 0.35 ms for 2 MiB): whoever runs first after a pause would pay for it."""
    with mmap.mmap(-1, MEMORY_TOUCHED) as memory, contextlib.suppress(OSError):
        memory.madvise(MADV_HUGEPAGE)
        memory.madvise(MADV_POPULATE_WRITE)


def environment(backend=None):
    kept = {k: v for k, v in os.environ.items() if not k.startswith(FOREIGN_ENVIRONMENT)}
    if backend:
        kept["RINGEST_BACKEND"] = backend
    return kept


def pinned(core, command):
    """The command, on one core where there are two and on any otherwise."""
    if core is None or len(os.sched_getaffinity(0)) < 2:
        return command
    return ["taskset", "-c", str(core), *command]


def need(*programs):
    missing = [program for program in programs if not shutil.which(program)]
    if missing:
        print(f"needs {', '.join(missing)}, which script/setup --test installs")
        sys.exit(SKIPPED)


def end(process):
    """Ends a process that was started here."""
    if process.poll() is None:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def run(command, backend=None, timeout=600):
    """The standard output of a command that must succeed."""
    done = subprocess.run(
        command, env=environment(backend), capture_output=True, text=True, timeout=timeout, check=False
    )
    if done.returncode:
        die(f"{' '.join(command)}\nended with {done.returncode}: {(done.stdout + done.stderr).strip()}")
    return done.stdout


class Emulator:
    """`ringest emulate` while the `with` lasts: endpoint, ca, pid."""

    def __init__(self, program, *options, core=0):
        # Asked to end when this process does, however that ends.
        self.command = ["setpriv", "--pdeathsig", "TERM", *pinned(core, [program, "emulate", *options])]

    def __enter__(self):
        self.process = subprocess.Popen(self.command, env=environment(), stdout=subprocess.PIPE)
        ready, _, _ = select.select([self.process.stdout], [], [], START_TIMEOUT_S)
        line = self.process.stdout.readline() if ready else b""
        if not line:
            end(self.process)
            die(f"{' '.join(self.command)} did not start")
        told = json.loads(line)
        self.endpoint, self.ca, self.pid = told["endpoint"], told.get("ca"), self.process.pid
        return self

    def __exit__(self, *_):
        end(self.process)
        self.process.stdout.close()

    def url(self):
        """For clients that would first try another address of localhost."""
        return self.endpoint.replace("//localhost", "//127.0.0.1")

    def options(self):
        return ["--endpoint", self.endpoint] + (["--ca", self.ca] if self.ca else [])


def bench(program, uri, *options, backend=None, core=1):
    """`ringest bench get` with one event loop; its JSON. Errors end the script."""
    command = pinned(core, [program, "bench", "get", uri, "--threads", "1", "--json", *options])
    result = json.loads(run(command, backend))
    if result["errors"] or backend not in (None, result["backend"]):
        die(f"{' '.join(command)}\n{result['errors']} errors, backend {result['backend']}")
    return result


def cpu_seconds(pid):
    """User and system time of all threads of a live process."""
    with open(f"/proc/{pid}/stat", encoding="ascii") as stat:
        fields = stat.read().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def children(pid):
    found = []
    for entry in os.listdir("/proc"):
        with contextlib.suppress(OSError):
            if entry.isdigit():
                with open(f"/proc/{entry}/stat", encoding="ascii", errors="replace") as stat:
                    if stat.read().rsplit(")", 1)[1].split()[1] == str(pid):
                        found.append(int(entry))
    return found


def memory_mb(pid, field):
    """A field of /proc/PID/status such as VmRSS or VmHWM, in MB; 0 when the process has ended."""
    with contextlib.suppress(OSError), open(f"/proc/{pid}/status", encoding="ascii") as status:
        for line in status:
            if line.startswith(field + ":"):
                return int(line.split()[1]) * 1024 / 1e6
    return 0


def last_words(text):
    """What a program said at its end: of a traceback the exception, however many lines it has."""
    said = text.strip()
    exceptions = list(re.finditer(r"^[\w.]*(?:Error|Exception)\b", said, re.MULTILINE))
    last = said[exceptions[-1].start() :] if exceptions else said.rpartition("\n")[2]
    return " ".join(last.split())[:WORDS_MAX]


def version(command):
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    text = (done.stdout + done.stderr).strip().splitlines()
    return text[0].strip() if text else command[0]


def machine():
    cpu = platform.machine()
    with open("/proc/cpuinfo", encoding="utf-8") as info:
        for line in info:
            if line.startswith("model name"):
                cpu = line.split(":", 1)[1].strip()
                break
    return {
        "cpu": cpu,
        "cores": len(os.sched_getaffinity(0)),
        "load": os.getloadavg()[0],  # before anything was measured: what others do
        "kernel": platform.release(),
        "time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
    }
