#!/usr/bin/env python3
"""CPU time of a process of DLIO for each GB that it reads, unet3d's files from a bucket by ringest.dlio and from local files by
DLIO itself.

    perf/dlio.py --python build/dlio/bin/python      # as script/soak makes it

Files are of unet3d's size, an array of 147 MB each in NumPy's npz without compression. What a row takes is the difference of a
run of many epochs and one of a single epoch, user and system time of the process, so that starting drops out. What is read is
decoded into an array. The emulator runs on one core and DLIO on the other; local files are in memory (/dev/shm) and no
network is between."""

from __future__ import annotations

import argparse
import contextlib
import os
import resource
import statistics
import subprocess
import tempfile

import common

SERVER_CORE, CLIENT_CORE = 0, 1
RECORD_BYTES = 146_600_628
WORKLOAD = {
    "dataset.num_samples_per_file": 1,
    "dataset.record_length": RECORD_BYTES,
    "dataset.record_length_stdev": 0,
    "reader.batch_size": 1,
    "reader.read_threads": 0,
    "train.computation_time": 0.001,
    "workflow.checkpoint": False,
}
READER = {"reader.data_loader_classname": "ringest.dlio.DataLoader", "reader.data_loader_sampler": "index"}


def words(settings):
    return ["workload=unet3d_a100", *(f"++workload.{name}={value}" for name, value in settings.items())]


def cpu_seconds(command, folder, environment):
    """User and system time of a run, and of what it started."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run(
        common.pinned(CLIENT_CORE, command),
        cwd=folder,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    if done.returncode:
        common.die(f"{' '.join(command)}\nended with {done.returncode}: {done.stdout[-3000:]}")
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n", maxsplit=1)[0])
    parser.add_argument("--ringest", default=common.PROGRAM, metavar="PROGRAM")
    parser.add_argument("--package", default=f"{common.ROOT}/build/root/lib/python", metavar="FOLDER")
    parser.add_argument("--python", default=f"{common.ROOT}/build/dlio/bin/python", metavar="PROGRAM")
    parser.add_argument("--files", type=int, default=8)
    parser.add_argument("--epochs", type=int, default=4, help="of the longer run; 4")
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    python = os.path.abspath(options.python)
    benchmark = os.path.join(os.path.dirname(python), "dlio_benchmark")
    if not os.path.exists(benchmark):
        common.die(f"{benchmark}: is not there; script/soak installs DLIO into build/dlio, or give --python")
    files = {**WORKLOAD, "dataset.num_files_train": options.files}
    with contextlib.ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="ringest-dlio-", dir="/dev/shm"))
        emulator = stack.enter_context(
            common.Emulator(options.ringest, "--threads", "1", "--bucket", "mine", core=SERVER_CORE)
        )
        reached = {
            "STORAGE_EMULATOR_HOST": emulator.endpoint,
            "PYTHONPATH": os.path.abspath(options.package),
            "RINGEST_THREADS": "1",
        }
        if emulator.ca:
            reached["SSL_CERT_FILE"] = emulator.ca
        environment = {**common.environment(), **reached}
        local = {**files, "dataset.data_folder": f"{folder}/data"}
        common.say("files are made")
        cpu_seconds(
            [benchmark, *words({**local, "workflow.generate_data": True, "workflow.train": False})], folder, environment
        )
        common.run([options.ringest, "cp", "-r", *emulator.options(), f"{folder}/data", "gs://mine/data"])
        bucket = {**files, **READER, "storage.storage_root": "gs://mine", "dataset.data_folder": "data"}
        commands = {
            "ringest.dlio, over TLS": [python, "-m", "ringest.dlio", *words(bucket)],
            "DLIO, files in memory": [benchmark, *words(local)],
        }
        gigabytes = options.files * (options.epochs - 1) * RECORD_BYTES / 1e9
        taken = {name: [] for name in commands}
        for number in range(options.rounds):
            for name, command in commands.items():
                one, many = (
                    cpu_seconds([*command, f"++workload.train.epochs={epochs}"], folder, environment)
                    for epochs in (1, options.epochs)
                )
                taken[name].append((many - one) / gigabytes)
                common.say(f"round {number + 1}/{options.rounds}, {name}: {taken[name][-1]:.3f} s/GB")
    for name, values in taken.items():
        print(f"{name:26}{statistics.median(values):.2f} CPU s/GB ({', '.join(f'{each:.2f}' for each in values)})")


if __name__ == "__main__":
    main()
