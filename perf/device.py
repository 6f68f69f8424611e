#!/usr/bin/env python3
"""How fast tensors of one file get into memory of a device: GB/s, CPU seconds per GB, and the CPU's memory that it takes.

Rows over TLS, from `ringest emulate` on this machine: ringest.safetensors.load_file, ringest.checkpoint.load, and torch.load
of the file of ringest.checkpoint.open with .to(device). Rows from a RAM disk, without any network: torch.load and the
safetensors package, with .to(device), and those of fastsafetensors and the Run:ai streamer, where they are installed.

With --device cpu there is no copy to a device, which shows what the rest costs. Each row is a process of its own, which
loads once so that connections are open and memory has been touched, and then takes the least of several repeats. What it
grows by is that of one more load, with the CPU's tensors left out."""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time

import checkpoint
import common

TENSOR_SIZE = 16 << 20
SAFETENSORS, ARCHIVE = "gs://models/model.safetensors", "gs://models/model.pt"
# What a row is called, and the package that it needs.
ROWS = {
    "safetensors": ("ringest.safetensors, TLS", "ringest"),
    "checkpoint": ("ringest.checkpoint, TLS", "ringest"),
    "file": ("torch.load + .to, our file, TLS", "ringest"),
    "torch": ("torch.load + .to, RAM disk", "torch"),
    "package": ("safetensors + .to, RAM disk", "safetensors"),
    "fastsafetensors": ("fastsafetensors, RAM disk", "fastsafetensors"),
    "runai": ("Run:ai streamer, RAM disk", "runai_model_streamer"),
}


def make(count):
    import torch

    torch.manual_seed(1)
    return {f"layer.{i}.weight": torch.randn(TENSOR_SIZE // 4) for i in range(count)}


def by_fastsafetensors(path, device):
    from fastsafetensors import SafeTensorsFileLoader, SingleGroup

    # Without GPUDirect Storage, which a RAM disk does not have.
    loader = SafeTensorsFileLoader(SingleGroup(), device=str(device), nogds=True)
    try:
        loader.add_filenames({0: [path]})
        files = loader.copy_files_to_device()
        try:
            return {name: files.get_tensor(name).clone() for name in files.key_to_rank_lidx}
        finally:
            files.close()
    finally:
        loader.close()


def by_runai(path, device):
    from runai_model_streamer import SafetensorsStreamer

    with SafetensorsStreamer() as streamer:
        streamer.stream_file(path)
        # Their memory is used again.
        return {name: tensor.to(device, copy=True) for name, tensor in streamer.get_tensors()}


def moved(state, device):
    return {name: tensor.to(device) for name, tensor in state.items()}


def by_package(path, device):
    import safetensors.torch

    # It maps the file, so that nothing is read before it is copied.
    return {name: tensor.to(device, copy=True) for name, tensor in safetensors.torch.load_file(path).items()}


def loader(name, folder, device, client):
    """What loads the tensors, all of which are on the device then."""
    import torch

    import ringest.safetensors
    from ringest import checkpoint as ours

    path, archive = os.path.join(folder, "model.safetensors"), os.path.join(folder, "model.pt")

    def by_file():
        with ours.open(ARCHIVE, client=client) as file:
            return moved(torch.load(file), device)

    return {
        "safetensors": lambda: ringest.safetensors.load_file(SAFETENSORS, device, client=client),
        "checkpoint": lambda: ours.load(ARCHIVE, map_location=device, client=client),
        "file": by_file,
        "torch": lambda: moved(torch.load(archive), device),
        "package": lambda: by_package(path, device),
        "fastsafetensors": lambda: by_fastsafetensors(path, device),
        "runai": lambda: by_runai(path, device),
    }[name]


def client(options):
    """One row, in the process that is measured."""
    import torch

    import ringest

    device = torch.device(options.device)
    count = options.count
    with ringest.Client(options.endpoint, options.ca) as opened:
        load = loader(options.client_row, options.folder, device, opened)

        def run():
            found = load()
            if device.type != "cpu":
                torch.get_device_module(device).synchronize(device)
            return found

        found = run()
        wanted = make(count)
        assert all(torch.equal(found[name].cpu(), wanted[name]) for name in wanted) and len(found) == count
        del found, wanted
        size = count * TENSOR_SIZE
        grown = checkpoint.grown(run, size if device.type == "cpu" else 0)
        print(json.dumps(checkpoint.best([checkpoint.measured(run) for _ in range(options.repeats)], grown)))


def fill(options):
    """Both files, on the RAM disk and in the emulator."""
    import ringest.checkpoint
    import ringest.safetensors

    state = make(options.count)
    with ringest.Client(options.endpoint, options.ca) as opened:
        ringest.safetensors.save_file(state, SAFETENSORS, client=opened)
        ringest.checkpoint.save(state, ARCHIVE, client=opened)
        for uri in (SAFETENSORS, ARCHIVE):
            with open(os.path.join(options.folder, os.path.basename(uri)), "wb") as file:
                file.write(opened.get(uri))


def started(options, emulator, folder, *arguments):
    """The output of this script as a client."""
    command = common.pinned(
        max(os.sched_getaffinity(0)),
        [options.python, os.path.abspath(__file__), *arguments, "--device", options.device, "--folder", folder]
        + ["--endpoint", emulator.endpoint, "--ca", emulator.ca]
        + ["--repeats", str(options.repeats), "--count", str(options.count)],
    )
    env = common.environment() | common.KEPT_HEAP | {"PYTHONPATH": options.package}
    return subprocess.run(command, env=env, capture_output=True, text=True, check=False)


def measure(options, emulator, folder):
    """What was measured, by row; None: its package is not there."""
    done = started(options, emulator, folder, "--fill")
    if done.returncode:
        common.die(done.stderr.strip())
    size = options.count * TENSOR_SIZE
    for name in options.row or ROWS:
        done = started(options, emulator, folder, "--client", name)
        if "ModuleNotFoundError" in done.stderr:
            yield name, None
            continue
        if done.returncode:
            common.die(f"{name}: {done.stderr.strip()}")
        found = json.loads(done.stdout.splitlines()[-1])
        yield (
            name,
            {
                "gb_per_second": size / found["seconds"] / 1e9,
                "cpu_seconds_per_gb": found["cpu"] / size * 1e9,
                "grown_bytes": found["grown"],
            },
        )


def show(options, rows):
    print(f"{options.count} tensors of {TENSOR_SIZE >> 20} MiB to {options.device}")
    print(f"{'':34}{'GB/s':>7}{'CPU s/GB':>10}{'MiB more':>10}")
    for name, found in rows:
        text = f"  {ROWS[name][0]:32}"
        if found is None:
            print(f"{text}  needs the package {ROWS[name][1]}", flush=True)
            continue
        text += f"{found['gb_per_second']:>7.2f}{found['cpu_seconds_per_gb']:>10.2f}{found['grown_bytes'] >> 20:>10}"
        print(text, flush=True)


def parse():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cpu", help="cuda, cuda:1, ...; %(default)s")
    parser.add_argument("--program", default=common.PROGRAM, help="ringest, which has the emulator")
    parser.add_argument("--python", default=sys.executable, help="an interpreter that has PyTorch and safetensors")
    parser.add_argument("--package", default="", help="where the package ringest is, if not installed: BUILD/python")
    parser.add_argument("--row", choices=ROWS, action="append", help="only these rows")
    parser.add_argument("--count", type=int, default=64, help="tensors of 16 MiB; %(default)s")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--json", action="store_true", help="JSON in place of a table")
    parser.add_argument("--client", dest="client_row", choices=ROWS, help=argparse.SUPPRESS)
    parser.add_argument("--fill", action="store_true", help=argparse.SUPPRESS)
    for name in ("--endpoint", "--ca", "--folder"):
        parser.add_argument(name, help=argparse.SUPPRESS)
    return parser.parse_args()


def main():
    options = parse()
    if options.client_row:
        return client(options)
    if options.fill:
        return fill(options)
    with common.Emulator(options.program) as emulator, tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
        rows = measure(options, emulator, folder)
        if options.json:
            told = {"device": options.device, "bytes": options.count * TENSOR_SIZE, "started": time.time()}
            print(json.dumps({**told, "rows": dict(rows)}))
        else:
            show(options, rows)
    return None


if __name__ == "__main__":
    main()
