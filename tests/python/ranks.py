"""Ranks of a process group (of gloo, unless a test names other backends), each a child of this process: PyTorch is imported once for all of them."""

import multiprocessing
import os
import tempfile
import traceback

import torch
import torch.distributed

from ringest._together import Team

PATIENCE_S = 300
_fork = multiprocessing.get_context("fork")


def run(world_size, function, *arguments, killed=(), backend="gloo"):
    """What function(rank, *arguments) returned on each rank, None for those that are killed. An exception of any of them
    is raised here."""
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        pipes = [_fork.Pipe(duplex=False) for _ in range(world_size)]
        # Nobody goes on, maybe to be killed, while another still connects to it.
        is_connected = _fork.Event()
        processes = [
            _fork.Process(
                target=_rank,
                args=(rank, world_size, folder, pipes[rank][1], is_connected, backend, function, arguments),
            )
            for rank in range(world_size)
        ]
        for process in processes:
            process.start()
        try:
            for rank, pipe in enumerate(pipes):
                _take(pipe[0], rank)
            is_connected.set()
            return [None if rank in killed else _take(pipe[0], rank) for rank, pipe in enumerate(pipes)]
        finally:
            for process in processes:
                process.join(10)
                process.kill()
                process.join()


def _take(pipe, rank):
    if not pipe.poll(PATIENCE_S):
        raise TimeoutError(f"rank {rank} said nothing")
    text, value = pipe.recv()
    if text is not None:
        raise AssertionError(f"rank {rank}:\n{text}")
    return value


def _rank(rank, world_size, folder, pipe, is_connected, backend, function, arguments):
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    try:
        torch.distributed.init_process_group(
            backend, init_method=f"file://{folder}/store", rank=rank, world_size=world_size
        )
        pipe.send((None, None))
        is_connected.wait()
        pipe.send((None, function(rank, *arguments)))
        torch.distributed.barrier()
        torch.distributed.destroy_process_group()
    except BaseException:
        pipe.send((traceback.format_exc(), None))
    finally:
        os._exit(0)


def before_meeting(number, do):
    """Does something before this rank, which loads together with others, comes to the meeting of that number."""
    meet, left = Team._meet, [number]

    def wrapped(team, *arguments):
        left[0] -= 1
        if left[0] == 0:
            do()
        return meet(team, *arguments)

    Team._meet = wrapped


def exchanges_of(load):
    """How many exchanges of the ranks it takes, and what it gives."""
    exchange, count = Team._together, [0]

    def counted(team, function, *arguments, **options):
        count[0] += 1
        return exchange(team, function, *arguments, **options)

    Team._together = counted
    try:
        result = load()
    finally:
        Team._together = exchange
    return count[0], result


def shared_memory(name="memfd:ringest "):
    """Bytes of such mappings of this process, and how many of these have pages."""
    size = there = 0
    is_ours = False
    with open("/proc/self/smaps") as lines:
        for line in lines:
            first, *rest = line.split()
            if not first.endswith(":"):
                is_ours = name in line
            elif is_ours and first == "Size:":
                size += int(rest[0]) << 10
            elif is_ours and first == "Rss:":
                there += int(rest[0]) << 10
    return size, there
