"""What ranks of one host cannot do without when they load the same together: for perf/together.py --floor. Nothing of what
ringest does to share is used here.

Exchanges: one of all ranks by sockets as it is in ringest, by bare semaphores, by bare sockets, and by gloo.

Memory: for --megabytes, the CPU seconds of making pages of shared memory, and of copies out of it.

Bytes: the time until all ranks have what is in an object, as new memory of their own, all at once or as calls for CALL_BYTES each:
each reads all of it by itself; each reads its part of it into shared memory whose pages are there, all wait for each other, and all
copy the whole, while the next part is read ("in turns": nothing is read meanwhile); and, without any reading, one has it in shared
memory and the others copy it, or get it by gloo's broadcast. No more is done there than that: nothing is compared, no failure is
told. What is read is read by a plain Client.get_into."""

import concurrent.futures
import ctypes
import functools
import itertools
import mmap
import multiprocessing
import os
import socket
import statistics
import tempfile
import time

import common

# How often, and bytes of an exchange, as of a meeting.
ROUNDS = 300
EXCHANGED = 88
# Of the bytes: how many rounds, without those that warm up; what a call is for, and what a rank reads at a time.
BYTES_ROUNDS, BYTES_WARM = 15, 3
CALL_BYTES, PART_BYTES, AHEAD = 4 << 20, 2 << 20, 4
OBJECT = "gs://models/floor"


def exchanges(size):
    """Ways to make one exchange of all ranks: of this rank's number, what does it."""
    fork = multiprocessing.get_context("fork")
    come = fork.Semaphore(0)
    go = [fork.Semaphore(0) for _ in range(size)]
    pairs = [socket.socketpair() for _ in range(size)]

    def by_semaphores(number):
        if number:
            come.release()
            go[number].acquire()
            return
        for _ in range(1, size):
            come.acquire()
        for each in go[1:]:
            each.release()

    def by_sockets(number):
        if number:
            pairs[number][1].send(bytes(EXCHANGED))
            pairs[number][1].recv(EXCHANGED)
            return
        for first, _ in pairs[1:]:
            first.recv(EXCHANGED)
        for first, _ in pairs[1:]:
            first.send(bytes(EXCHANGED))

    return {"semaphores": by_semaphores, "bare sockets": by_sockets}


def floor_rank(number, count, folder, ways, pipe):
    import torch
    import torch.distributed as dist

    from ringest._exchange import exchange_of

    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder}/store", rank=number, world_size=count)
    ours, tensor = exchange_of(dist.group.WORLD), torch.zeros(EXCHANGED // 8, dtype=torch.int64)
    while not ours.is_near():
        ours.smallest([0])
    calls = {name: functools.partial(call, number) for name, call in ways.items()}
    calls["as it is here"] = lambda: ours.smallest([number] * 10)
    calls["gloo all_reduce"] = lambda: dist.all_reduce(tensor)
    calls["gloo all_gather_object"] = lambda: dist.all_gather_object([None] * count, number)
    found = {name: [] for name in calls}
    for _ in range(ROUNDS):
        for name, call in calls.items():
            started = time.monotonic()
            call()
            found[name].append(time.monotonic() - started)
    dist.barrier()
    dist.destroy_process_group()
    pipe.send({name: statistics.median(each) for name, each in found.items()})


_madvise = ctypes.CDLL(None).madvise
_madvise.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
_POPULATE_WRITE = 23


def copy(target, source, size):
    """To new memory, the way that takes least."""
    for at in range(0, size, PART_BYTES):
        some = min(PART_BYTES, size - at)
        begin = -(-(target + at) // mmap.PAGESIZE) * mmap.PAGESIZE
        end = (target + at + some) // mmap.PAGESIZE * mmap.PAGESIZE
        if begin < end:
            _madvise(begin, end - begin, _POPULATE_WRITE)
        ctypes.memmove(target + at, source + at, some)


def memory_floor(size):
    """CPU seconds of each step, medians."""
    import torch

    found = {"pages of shared memory": [], "a copy out of it to new memory": [], "to memory that is there": []}
    for _ in range(5):
        fd = os.memfd_create("floor")
        os.ftruncate(fd, size)
        with mmap.mmap(fd, size) as shared:
            os.close(fd)
            begin = ctypes.c_char.from_buffer(shared)
            address, times = ctypes.addressof(begin), [time.process_time()]
            _madvise(address, size, _POPULATE_WRITE)
            times.append(time.process_time())
            tensor = torch.empty(size, dtype=torch.uint8)
            for _ in range(2):
                copy(tensor.data_ptr(), address, size)
                times.append(time.process_time())
            for each, (before, after) in zip(found.values(), itertools.pairwise(times), strict=True):
                each.append(after - before)
            del begin
    return {name: statistics.median(each) for name, each in found.items()}


class Bytes:
    """One rank's ways to get the bytes. Each call of `meet` waits for all ranks."""

    def __init__(self, client, shared, number, count, meet):
        self.client, self.shared, self.number, self.count, self.meet = client, shared, number, count, meet
        self.address = ctypes.addressof(ctypes.c_char.from_buffer(shared))

    def read(self, offset, memory):
        self.client.get_into(OBJECT, [(offset, memory)])

    def alone(self, offset, size):
        import torch

        tensor = torch.empty(size, dtype=torch.uint8)
        self.read(offset, tensor.numpy())
        return tensor

    def in_turns(self, offset, size):
        import torch

        part = -(-size // self.count)
        begin, end = part * self.number, min(size, part * (self.number + 1))
        self.read(offset + begin, memoryview(self.shared)[begin:end])
        self.meet()
        tensor = torch.empty(size, dtype=torch.uint8)
        copy(tensor.data_ptr(), self.address, size)
        self.meet()
        return tensor

    def ahead(self, offset, size):
        """Up to AHEAD parts of this rank's are read while others are copied."""
        import torch

        whole = PART_BYTES * self.count

        def read_part(at):
            begin = at + PART_BYTES * self.number
            place = at // whole % (AHEAD + 1) * whole + PART_BYTES * self.number
            self.read(offset + begin, memoryview(self.shared)[place : place + PART_BYTES])

        tensor = torch.empty(size, dtype=torch.uint8)
        rounds = list(range(0, size, whole))
        with concurrent.futures.ThreadPoolExecutor(AHEAD) as pool:
            reading = [pool.submit(read_part, at) for at in rounds[:AHEAD]]
            for number, at in enumerate(rounds):
                reading[number].result()
                self.meet()
                # All have copied what is before this one.
                reading += [pool.submit(read_part, each) for each in rounds[number + AHEAD : number + AHEAD + 1]]
                copy(tensor.data_ptr() + at, self.address + at // whole % (AHEAD + 1) * whole, whole)
        self.meet()
        return tensor

    def copied(self, offset, size):
        import torch

        self.meet()
        tensor = torch.empty(size, dtype=torch.uint8)
        if self.number:
            copy(tensor.data_ptr(), self.address, size)
        self.meet()
        return tensor

    def broadcast(self, offset, size):
        import torch
        import torch.distributed as dist

        tensor = torch.empty(size, dtype=torch.uint8)
        dist.broadcast(tensor, 0)
        return tensor


def bytes_rank(arguments, place, number, count, folder, meet, shared, pipe):
    import torch
    import torch.distributed as dist

    import ringest

    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder}/store", rank=number, world_size=count)
    found = {}
    with ringest.Client(*place, hedging=False) as client:
        each = Bytes(client, shared, number, count, functools.partial(meet, number))
        ways = {
            "each reads all": (each.alone, arguments.size),
            "parts, in turns": (each.in_turns, arguments.size),
            "parts, read ahead": (each.ahead, arguments.size),
            "one has it: copied": (each.copied, arguments.size),
            "one has it: gloo": (each.broadcast, arguments.size),
            "each reads all, by calls": (each.alone, CALL_BYTES),
            "parts, by calls": (each.in_turns, CALL_BYTES),
            "one has it: copied, by calls": (each.copied, CALL_BYTES),
            "one has it: gloo, by calls": (each.broadcast, CALL_BYTES),
        }
        for _ in range(BYTES_ROUNDS + BYTES_WARM):
            for name, (way, size) in ways.items():
                each.meet()
                started, cpu = time.monotonic(), time.process_time()
                kept = [way(at, size) for at in range(0, arguments.size, size)]
                found.setdefault(name, []).append((time.monotonic() - started, time.process_time() - cpu))
                del kept
    dist.barrier()
    dist.destroy_process_group()
    pipe.send({name: each[BYTES_WARM:] for name, each in found.items()})


def ranks_told(count, target, *arguments):
    """What they send."""
    fork = multiprocessing.get_context("fork")
    with tempfile.TemporaryDirectory() as folder:
        pipes = [fork.Pipe(duplex=False) for _ in range(count)]
        ranks = [
            fork.Process(target=target, args=(*arguments[:-1], number, count, folder, *arguments[-1], pipes[number][1]))
            for number in range(count)
        ]
        for each in ranks:
            each.start()
        told = [end.recv() for end, _ in pipes]
        for each in ranks:
            each.join()
    return told


def put_object(place, size):
    import ringest

    with ringest.Client(*place) as client:
        client.put(OBJECT, os.urandom(size))


def show_bytes(arguments, place):
    for count in arguments.ranks or (2, 8):
        shared = mmap.mmap(-1, max(arguments.size, (AHEAD + 1) * PART_BYTES * count))
        meet = exchanges(count)["semaphores"]
        told = ranks_told(count, bytes_rank, arguments, place, (meet, shared))
        alone = None
        for name in told[0]:
            # Of each round the slowest rank; of all ranks the sum.
            seconds = statistics.median(max(s for s, _ in each) for each in zip(*(one[name] for one in told)))
            cpu = statistics.median(sum(c for _, c in each) for each in zip(*(one[name] for one in told)))
            alone = seconds if name.startswith("each reads") else alone
            print(f"{name:32}{count:5}{seconds * 1000:11.2f} ms{cpu * 1000:11.2f} ms of CPU{seconds / alone:8.2f}")


def show(arguments, options):
    for name, seconds in memory_floor(arguments.size).items():
        print(f"{name:32}{seconds * 1000:11.2f} ms of CPU")
    for count in arguments.ranks or (2, 8):
        told = ranks_told(count, floor_rank, (exchanges(count),))
        for name in told[0]:
            print(f"{name:24}{count:5}{max(each[name] for each in told) * 1e6:11.0f} us")
    if any(arguments.size % (PART_BYTES * count) for count in arguments.ranks or (2, 8)):
        return
    with common.Emulator(arguments.program, *options, core=None) as emulator:
        place = emulator.endpoint, emulator.ca
        fork = multiprocessing.get_context("fork")
        # A child: this process forks, and must have no client.
        putting = fork.Process(target=put_object, args=(place, arguments.size))
        putting.start()
        putting.join()
        show_bytes(arguments, place)
