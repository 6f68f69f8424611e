#!/usr/bin/env python3
"""A file of fsspec that is read in order, 1 MiB at a time: ringest.fs beside gcsfs, at the same emulator.

Rows are clients, each in a process of its own, in turns: GB/s and CPU seconds per GB (the median of several repeats), by
how many MiB the process grows at most, connections included, and what it received over what it needed. `ringest emulate` serves them over TLS
on the first core, the client has the others. The last lines are the ratios of ours to gcsfs of the same run.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import time

import common

READ_SIZE = 1 << 20
ROWS = ("ringest", "ringest async", "gcsfs")


def status(name):
    with open("/proc/self/status", encoding="ascii") as file:
        return next(int(line.split()[1]) << 10 for line in file if line.startswith(name))


def make(row, endpoint, ca):
    if row == "gcsfs":
        import gcsfs

        return gcsfs.GCSFileSystem(endpoint_url=endpoint, token="anon")
    from ringest import fs

    return fs.GCSFileSystem(endpoint=endpoint, ca=ca, credentials="anonymous")


def read(files, path):
    got = 0
    with files.open(path, "rb") as file:
        while data := file.read(READ_SIZE):
            got += len(data)
    return got


async def read_awaited(files, path):
    got = 0
    async with await files.open_async(path, "rb") as file:
        while data := await file.read(READ_SIZE):
            got += len(data)
    return got


def client(arguments):
    """One row: prints what it measured as JSON."""
    import asyncio

    files = make(arguments.client_row, arguments.endpoint, arguments.ca)

    def action(path):
        if arguments.client_row == "ringest async":
            return asyncio.run(read_awaited(files, path))
        return read(files, path)

    before = status("VmRSS")
    action("warm/x-00000000")
    received = files.client.stats()["recv_bytes"] if arguments.client_row != "gcsfs" else None
    started, cpu = time.monotonic(), time.process_time()
    got = action("data/x-00000000")
    found = {"bytes": got, "seconds": time.monotonic() - started, "cpu": time.process_time() - cpu}
    found["grown"] = max(0, status("VmHWM") - before)
    found["received"] = files.client.stats()["recv_bytes"] - received if received is not None else None
    print(json.dumps(found))


def row(arguments, name, emulator):
    python = arguments.gcsfs_python if name == "gcsfs" else arguments.python
    command = [
        python,
        os.path.abspath(__file__),
        "--client",
        name,
        "--endpoint",
        emulator.endpoint,
        "--ca",
        emulator.ca,
    ]
    cores = sorted(os.sched_getaffinity(0))
    command = common.pinned(",".join(map(str, cores[1:])), command)
    # gcsfs would first ask by gRPC of what kind the bucket is, for a minute.
    others = {"SSL_CERT_FILE": emulator.ca, "GCSFS_EXPERIMENTAL_ZB_HNS_SUPPORT": "false"}
    env = {**common.environment(), "PYTHONPATH": arguments.package, **others}
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
    if done.returncode:
        common.die(f"{name}: {done.stderr.strip()}")
    return json.loads(done.stdout)


def measure(arguments, rows):
    found = {name: [] for name in rows}
    size = f"{arguments.size}MiB"
    with common.Emulator(
        arguments.program, "--synthetic", f"data/x-:1:{size}", "--synthetic", "warm/x-:1:16MiB"
    ) as emulator:
        for _ in range(arguments.repeats):
            for name in rows:
                common.touch_memory()
                found[name].append(row(arguments, name, emulator))
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", default=common.PROGRAM, help="ringest, which has the emulator")
    parser.add_argument("--python", default=sys.executable, help="an interpreter that has fsspec")
    parser.add_argument("--gcsfs-python", help="an interpreter that has gcsfs; without it, it is left out")
    parser.add_argument("--package", default="", help="where the package ringest is, if not installed: BUILD/python")
    parser.add_argument("--size", type=int, default=2048, help="of the object, in MiB")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--client", dest="client_row", choices=ROWS, help=argparse.SUPPRESS)
    parser.add_argument("--endpoint", help=argparse.SUPPRESS)
    parser.add_argument("--ca", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.client_row:
        client(arguments)
        return
    rows = [name for name in ROWS if name != "gcsfs" or arguments.gcsfs_python]
    found = measure(arguments, rows)
    middle = {
        name: {
            "GB/s": statistics.median(one["bytes"] / one["seconds"] / 1e9 for one in many),
            "CPU s/GB": statistics.median(one["cpu"] / one["bytes"] * 1e9 for one in many),
        }
        for name, many in found.items()
    }
    print(f"{'':16}{'GB/s':>8}{'CPU s/GB':>10}{'MiB more':>10}{'received':>10}")
    for name, many in found.items():
        received = [one["received"] / one["bytes"] for one in many if one["received"] is not None]
        grown = max(one["grown"] for one in many) >> 20
        text = f"{max(received):.3f}" if received else "-"
        print(f"{name:16}{middle[name]['GB/s']:>8.2f}{middle[name]['CPU s/GB']:>10.2f}{grown:>10}{text:>10}")
    if "gcsfs" in middle:
        for name in rows[:-1]:
            speed = middle[name]["GB/s"] / middle["gcsfs"]["GB/s"]
            cost = middle[name]["CPU s/GB"] / middle["gcsfs"]["CPU s/GB"]
            print(f"{name} / gcsfs: {speed:.1f} times as fast, {cost:.2f} times the CPU time")


if __name__ == "__main__":
    main()
