#!/usr/bin/env python3
"""What saving and loading a checkpoint costs the client: CPU seconds per GB, and memory beyond the tensors.

Rows: torch.save and torch.load with a RAM disk, without any network; ringest.checkpoint.save and load; and
torch.save and torch.load through the file of ringest.checkpoint.open; torch.distributed.checkpoint (DCP) with a
RAM disk by torch's own writer and reader, and by ringest.dcp, also with its planners and all tensors below one key; and
DCP with a writer and a reader that do nothing, which is what planning costs whoever stores the bytes; and two floors of
everybody: as many bytes as one piece, sent and received by the client, and tensors that are filled by memcpy. Over TLS; `ringest emulate` on the first
core, the client on the last one. Each row is a process of its own, which makes the state dict, saves and loads
it once so that all memory has been touched, keeps its heap, and then takes the least of several repeats; its
growth is that of one more save and load. Another process loads into memory that was never touched, as a program
does that starts: "new memory".
"""

import argparse
import ctypes
import json
import os
import resource
import shutil
import subprocess
import sys
import time

import common

SHAPES = {"large": (16 << 20, 64), "small": (64 << 10, 2048)}
ROWS = ("disk", "ringest", "file", "dcp-disk", "dcp", "dcp-kept", "plan", "plan-kept", "bytes", "memcpy")
# Of distributed checkpoints, and what is compared with them: they load into tensors that are there.
INTO_ROWS = ROWS[3:]
NAMES = {
    "disk": "torch.save/load, RAM disk",
    "ringest": "ringest.checkpoint",
    "file": "torch.save/load, our file",
    "dcp-disk": "torch's DCP, RAM disk",
    "dcp": "ringest.dcp",
    "dcp-kept": "ringest.dcp, its planners",
    "plan": "DCP that stores nothing",
    "plan-kept": "the same, our planners",
    "bytes": "as many bytes, one piece",
    "memcpy": "tensors filled by memcpy",
}


def status(name):
    with open("/proc/self/status", encoding="ascii") as file:
        return next(int(line.split()[1]) << 10 for line in file if line.startswith(name))


def measured(action):
    """CPU seconds, and seconds. What was loaded is let go of afterwards: to give thousands of pieces back to the kernel
    is no part of a load."""
    started, usage = time.monotonic(), resource.getrusage(resource.RUSAGE_SELF)
    kept = action()
    ended, after = time.monotonic(), resource.getrusage(resource.RUSAGE_SELF)
    del kept
    return after.ru_utime + after.ru_stime - usage.ru_utime - usage.ru_stime, ended - started


def measured_new(action):
    """The same, in memory that the kernel has to give. That it has some is the host's business: see touch_memory."""
    ctypes.CDLL(None).malloc_trim(0)
    common.touch_memory()
    return measured(action)


def grown(action, made):
    """By how many bytes the process grows at most, but for the `made` ones of what the action returns. Not
    while it is timed: a heap that has free pieces of the wrong size would hide what is taken, or add to it."""
    ctypes.CDLL(None).malloc_trim(0)
    with open("/proc/self/clear_refs", "w", encoding="ascii") as file:
        file.write("5")
    before = status("VmRSS")
    action()
    return max(0, status("VmHWM") - before - made)


def best(runs, peak):
    return {"cpu": min(cpu for cpu, _ in runs), "seconds": min(seconds for _, seconds in runs), "grown": peak}


def nowhere(torch):
    """A writer and a reader of DCP that store nothing: what is left is planning."""
    from torch.distributed.checkpoint.storage import StorageReader, StorageWriter, WriteResult

    def done(value):
        future = torch.futures.Future()
        future.set_result(value)
        return future

    class Nowhere:
        def reset(self, checkpoint_id=None):
            pass

        def prepare_local_plan(self, plan):
            return plan

        def prepare_global_plan(self, plans):
            return plans

        @classmethod
        def validate_checkpoint_id(cls, checkpoint_id):
            return True

    class Writer(Nowhere, StorageWriter):
        def set_up_storage_writer(self, is_coordinator, *args, **kwargs):
            pass

        def write_data(self, plan, planner):
            for item in plan.items:
                planner.resolve_data(item)
            return done([WriteResult(item.index, 0, None) for item in plan.items])

        def finish(self, metadata, results):
            metadata.storage_data = {each.index: None for one in results for each in one}
            self.metadata = metadata

    class Reader(Nowhere, StorageReader):
        def __init__(self, writer):
            self.writer = writer

        def read_metadata(self, *args, **kwargs):
            return self.writer.metadata

        def set_up_storage_reader(self, metadata, is_coordinator, *args, **kwargs):
            pass

        def read_data(self, plan, planner):
            for item in plan.items:
                planner.commit_tensor(item, planner.resolve_tensor(item))
            return done(None)

    writer = Writer()
    return writer, Reader(writer)


def saver(is_kept, state):
    """Of torch.distributed.checkpoint; with a planner of ringest.dcp, or without one."""
    import torch.distributed.checkpoint as dcp

    from ringest.dcp import SavePlanner

    if not is_kept:
        return lambda writer: dcp.save(state, storage_writer=writer, no_dist=True)
    planner, given = SavePlanner(), {"model": state}
    return lambda writer: dcp.save(given, storage_writer=writer, planner=planner, no_dist=True)


class Bytes:
    """What it takes to send and to receive so many bytes, if nothing is known of them but where they lie."""

    def __init__(self, torch, opened, size, is_new):
        self.torch, self.opened, self.size, self.is_new = torch, opened, size, is_new
        self.source = self.target = None

    def _memory(self, tensor):
        return memoryview((ctypes.c_char * self.size).from_address(tensor.data_ptr())).cast("B")

    def save(self):
        if self.source is None:
            self.source, self.target = (self.torch.ones(self.size // 4) for _ in range(2))
        with self.opened.writer("gs://checkpoints/bytes", size_hint=self.size) as writer:
            writer.write(self._memory(self.source), borrow=True)

    def load(self):
        into = self.torch.empty_like(self.target) if self.is_new else self.target
        self.opened.get_into("gs://checkpoints/bytes", [(0, self._memory(into))], whole=True)
        return into


def filled(torch, state, target, is_new):
    """Tensors of the same shapes. One tensor is copied into all, so that small ones come from the cache."""
    source = next(iter(state.values()))
    into = {name: torch.empty_like(each) for name, each in state.items()} if is_new else target
    for each in into.values():
        each.copy_(source)
    return into


def figures(arguments, save, load, size):
    if arguments.memory == "new":
        return {"bytes": size, "load": best([measured_new(load) for _ in range(arguments.repeats)], 0)}
    # Nothing is saved where tensors are only filled.
    saves = best([measured(save) for _ in range(arguments.repeats)], grown(save, 0)) if save else None
    made = 0 if arguments.row in INTO_ROWS else size
    loads = best([measured(load) for _ in range(arguments.repeats)], grown(load, made))
    return {"bytes": size, "save": saves, "load": loads}


def client(arguments):
    """One row, in the process that is measured."""
    import torch
    import torch.distributed.checkpoint as dcp

    import ringest
    from ringest import checkpoint
    from ringest.dcp import LoadPlanner, StorageReader, StorageWriter

    torch.set_num_threads(1)
    size, count = SHAPES[arguments.shape]
    count = max(1, count * arguments.scale // 100)
    state = {f"layer.{i}.weight": torch.randn(size // 4) for i in range(count)}
    is_into, is_new = arguments.row in INTO_ROWS, arguments.memory == "new"
    target = {name: torch.zeros_like(each) for name, each in state.items()} if is_into else {}
    nothing, dcp_save = nowhere(torch), saver(arguments.row.endswith("-kept"), state)
    path, uri = f"/dev/shm/ringest-checkpoint-{os.getpid()}.pt", "gs://checkpoints/step.pt"
    with ringest.Client(arguments.endpoint, arguments.ca) as opened:
        bare = Bytes(torch, opened, size * count, is_new)

        def file_save():
            with checkpoint.open(uri, "wb", client=opened) as file:
                torch.save(state, file)

        def file_load():
            with checkpoint.open(uri, client=opened) as file:
                return torch.load(file)

        def dcp_load(reader):
            into = {name: torch.empty_like(each) for name, each in state.items()} if is_new else dict(target)
            if arguments.row.endswith("-kept"):
                dcp.load({"model": into}, storage_reader=reader, planner=LoadPlanner(), no_dist=True)
            else:
                dcp.load(into, storage_reader=reader, no_dist=True)
            return into

        save, load = {
            "dcp-disk": (
                lambda: dcp_save(dcp.FileSystemWriter(path, sync_files=False)),
                lambda: dcp_load(dcp.FileSystemReader(path)),
            ),
            "dcp": (
                lambda: dcp_save(StorageWriter("gs://checkpoints/step", client=opened)),
                lambda: dcp_load(StorageReader("gs://checkpoints/step", client=opened)),
            ),
            "bytes": (bare.save, bare.load),
            "memcpy": (None, lambda: filled(torch, state, target, is_new)),
            "plan": (lambda: dcp_save(nothing[0]), lambda: dcp_load(nothing[1])),
            "disk": (lambda: torch.save(state, path), lambda: torch.load(path)),
            "ringest": (
                lambda: checkpoint.save(state, uri, client=opened),
                lambda: checkpoint.load(uri, client=opened),
            ),
            "file": (file_save, file_load),
        }[arguments.row.removesuffix("-kept")]
        try:
            if save:
                save()
            found = load()
            if not arguments.row.startswith(("plan", "bytes", "memcpy")):
                assert all(torch.equal(found[name], state[name]) for name in state)
            del found
            return figures(arguments, save, load, size * count)
        finally:
            if os.path.isdir(path):
                shutil.rmtree(path)
            elif os.path.exists(path):
                os.unlink(path)


def row(arguments, shape, name, memory, emulator):
    command = common.pinned(
        max(os.sched_getaffinity(0)),
        [arguments.python, os.path.abspath(__file__), "--client", name, "--shape", shape, "--memory", memory]
        + ["--endpoint", emulator.endpoint, "--ca", emulator.ca]
        + ["--repeats", str(arguments.repeats), "--scale", str(arguments.scale)],
    )
    heap = common.KEPT_HEAP if memory == "touched" else {}
    env = common.environment() | heap | {"PYTHONPATH": arguments.package}
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
    if done.returncode:
        common.die(f"{name}: {done.stderr.strip()}")
    return json.loads(done.stdout)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", default=common.PROGRAM, help="ringest, which has the emulator")
    parser.add_argument("--python", default=sys.executable, help="an interpreter that has PyTorch")
    parser.add_argument("--package", default="", help="where the package ringest is, if not installed: BUILD/python")
    parser.add_argument("--shape", choices=SHAPES, help="only 16 MiB (large) or 64 KiB (small) tensors")
    parser.add_argument("--row", choices=ROWS, action="append", help="only these rows")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--scale", type=int, default=100, help="percent of 1 GiB (large) and 128 MiB (small)")
    parser.add_argument("--client", dest="client_row", choices=ROWS, help=argparse.SUPPRESS)
    parser.add_argument("--memory", choices=("touched", "new"), help=argparse.SUPPRESS)
    parser.add_argument("--endpoint", help=argparse.SUPPRESS)
    parser.add_argument("--ca", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.client_row:
        arguments.row = arguments.client_row
        print(json.dumps(client(arguments)))
        return
    print(
        f"{'':28}{'save CPU s/GB':>14}{'GB/s':>7}{'MiB more':>10}{'load CPU s/GB':>15}{'GB/s':>7}{'MiB more':>10}{'new memory':>12}"
    )
    for shape in [arguments.shape] if arguments.shape else SHAPES:
        size, count = SHAPES[shape]
        print(f"{count * arguments.scale // 100} tensors of {size >> 10} KiB")
        for name in arguments.row or ROWS:
            with common.Emulator(arguments.program) as emulator:
                found = row(arguments, shape, name, "touched", emulator)
                new = row(arguments, shape, name, "new", emulator)["load"]["cpu"]
            text = f"  {NAMES[name]:26}"
            for what, wide in (("save", 14), ("load", 15)):
                one = found[what]
                if one is None:
                    text += " " * (wide + 17)
                    continue
                text += f"{one['cpu'] / found['bytes'] * 1e9:>{wide}.2f}{found['bytes'] / one['seconds'] / 1e9:>7.2f}"
                text += f"{one['grown'] >> 20:>10}"
            print(text + f"{new / found['bytes'] * 1e9:>12.2f}", flush=True)


if __name__ == "__main__":
    main()
