"""Ranks that load together: each byte comes once from the bucket; all of them have the whole, or none has anything."""

import errno
import gc
import logging
import logging.handlers
import os
import resource
import signal
import threading
import unittest

import torch
import torch.distributed as dist

import ranks
import ringest
import support
from ringest import _exchange, _together, _together_object, _torch_zip, checkpoint

URI = "gs://new/model.pt"
MIB = 1 << 20
# Small, so that a load of a few MiB takes many rounds.
SMALL = {"SET_BYTES": MIB, "PIECE_BYTES_MIN": 64 << 10, "PIECE_BYTES_MAX": 256 << 10}


def state(seed=1):
    torch.manual_seed(seed)
    made = {f"layer{i}": torch.randn(300, 1000 + i) for i in range(12)}
    made |= {"bfloat16": torch.randn(40, 50).bfloat16(), "empty": torch.zeros(0, 3), "step": 7}
    made["view"] = made["layer0"][10:20]
    return made


def check(loaded, good):
    assert loaded.keys() == good.keys()
    for name, each in good.items():
        assert torch.equal(loaded[name], each) if isinstance(each, torch.Tensor) else loaded[name] == each, name


def small_rounds():
    for name, value in SMALL.items():
        setattr(_together, name, value)


def load(rank, place, is_small=True, uri=URI, **options):
    """Bytes that this rank received."""
    if is_small:
        small_rounds()
    with ringest.Client(*place, hedging=False) as client:
        loaded = checkpoint.load(uri, client=client, process_group=dist.group.WORLD, **options)
        check(loaded, state())
        return client.stats()["recv_bytes"]


def error_of(function, *arguments, **options):
    """The exception's type and text."""
    try:
        function(*arguments, **options)
    except Exception as error:
        return type(error).__name__, str(error)
    raise AssertionError("it has loaded")


def on_hosts(rank, place, hosts):
    """As if ranks were on so many hosts."""
    _together._job._host = _together._job._machine = lambda: f"host {rank % hosts}"
    return load(rank, place)


def told_of(rank, call, *arguments):
    """What it returns, and what the log says meanwhile."""
    logger, kept = logging.getLogger("ringest"), logging.handlers.BufferingHandler(100)
    logger.addHandler(kept)
    result = call(rank, *arguments)
    return result, [f"{each.levelname} {each.getMessage()}" for each in kept.buffer]


def of_several_containers(rank, place):
    """Twice."""
    _together._job._host = lambda: f"container {rank % 2}"
    return load(rank, place) + load(rank, place)


def with_memory_that_nobody_makes(rank, place):
    limit = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, limit[1]))
    try:
        return load(rank, place)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limit)


def with_memory_that_nobody_opens(rank, place):
    real = os.open

    def refuse(path, *arguments):
        if str(path).startswith("/proc/"):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), path)
        return real(path, *arguments)

    _together.os.open = refuse
    return load(rank, place)


def with_a_fault(rank, place, which):
    """One rank's requests fail; before that, all may have gone well for a while."""
    small_rounds()
    if rank == which:
        with support.faults(*place, {"storage.objects.get": ["return-503"] * 100}):
            return error_of(failing_load, place)
    return error_of(failing_load, place)


def failing_load(place, **options):
    with ringest.Client(*place, hedging=False, attempts=1) as client:
        checkpoint.load(URI, client=client, process_group=dist.group.WORLD, **options)


def with_an_error_at(rank, place, number):
    def fail():
        raise MemoryError("no memory for this rank")

    small_rounds()
    if rank == 1:
        ranks.before_meeting(number, fail)
    return error_of(failing_load, place)


def with_an_error_between(rank, place):
    def fail(*arguments):
        raise MemoryError("no memory for this rank")

    if rank == 1:
        _torch_zip.ArchiveReader._read_all = fail
    return error_of(failing_load, place)


def with_a_killed_rank(rank, place, number):
    small_rounds()
    if rank == 1:
        ranks.before_meeting(number, lambda: os.kill(os.getpid(), signal.SIGKILL))
    return error_of(failing_load, place)


def with_another_object(rank, place, number, uri, options):
    """It is replaced before that meeting."""

    def replace():
        with ringest.Client(*place) as client:
            checkpoint.save(state(2), uri, client=client)

    small_rounds()
    if rank == 1:
        ranks.before_meeting(number, replace)
    with ringest.Client(*place, hedging=False) as client:
        loaded = checkpoint.load(uri, client=client, process_group=dist.group.WORLD, **options)
    return float(loaded["layer0"][0, 0])


def with_a_wrong_checksum(rank, place):
    small_rounds()
    stat = _together_object.TogetherObject.stat

    def wrong(self, *arguments, **options):
        facts = stat(self, *arguments, **options)
        return {**facts, "crc32c": facts["crc32c"] ^ 1}

    _together_object.TogetherObject.stat = wrong
    return error_of(failing_load, place)


def with_bytes_damaged_between_hosts(rank, place):
    small_rounds()
    _together._job._host = _together._job._machine = lambda: f"host {rank}"
    note = _together._Memory.note
    if rank == 1:
        _together._Memory.note = lambda *arguments: note(*arguments[:-1], arguments[-1] ^ 1)
    return error_of(failing_load, place)


def with_other_arguments(rank, place, name, values):
    return error_of(failing_load, place, **{name: values[rank]})


def of_other_kinds(rank, place, uris):
    with ringest.Client(*place) as client:
        for uri in uris:
            check(checkpoint.load(uri, client=client, process_group=dist.group.WORLD), state())
        missing = error_of(checkpoint.load, "gs://new/none", client=client, process_group=dist.group.WORLD)
        text = error_of(checkpoint.load, "gs://new/text", client=client, process_group=dist.group.WORLD)
        meta = checkpoint.load(uris[0], client=client, process_group=dist.group.WORLD, map_location="meta")
        assert meta["layer0"].is_meta
        # What has failed is over: the group goes on.
        dist.barrier()
        return missing, text


def of_a_part(rank, place):
    """A group of two of three ranks."""
    group = dist.new_group([0, 2])
    with ringest.Client(*place, hedging=False) as client:
        if rank == 1:
            return error_of(checkpoint.load, URI, client=client, process_group=group)
        check(checkpoint.load(URI, client=client, process_group=group), state())
        return client.stats()["recv_bytes"]


def little(seed=1):
    return {"a": torch.full((1000,), seed), "step": seed}


def pattern(size):
    return (torch.arange(size) % 251).to(torch.uint8)


def be_near():
    """All ranks are of one host, and know."""
    exchange = _exchange.exchange_of(dist.group.WORLD)
    while not exchange.is_near():
        exchange.smallest([0])


def load_sizes(rank, place, sizes, alone_max, hosts):
    """Of each size, as many exchanges, bytes and requests as this rank had."""
    if hosts > 1:
        _together._job._host = lambda: f"host {rank % hosts}"
    else:
        be_near()
    found = []
    with ringest.Client(*place, hedging=False) as client:
        for size in sizes:
            options = {"client": client, "process_group": dist.group.WORLD, "alone_max": alone_max}
            before = client.stats()
            count, loaded = ranks.exchanges_of(lambda: checkpoint.load(f"gs://new/{size}.pt", **options))
            assert torch.equal(loaded["a"], pattern(size))
            after = client.stats()
            found.append((count, *(after[name] - before[name] for name in ("recv_bytes", "requests"))))
    return found


def of_nothing(rank, place):
    be_near()
    with ringest.Client(*place) as client:
        return error_of(checkpoint.load, "gs://new/empty", client=client, process_group=dist.group.WORLD)


def load_little(rank, place, uri, before=None, who=1, **options):
    """before: what a rank does before it has all by itself."""
    if before is not None and rank == who:
        load_own = _torch_zip.ArchiveReader._read_all

        def first(*arguments):
            before()
            return load_own(*arguments)

        _torch_zip.ArchiveReader._read_all = first
    with ringest.Client(*place, hedging=False, attempts=1) as client:
        loaded = checkpoint.load(uri, client=client, process_group=dist.group.WORLD, **options)
    return int(loaded["a"][0])


def little_that_is_replaced(rank, place, uri, is_near, who):
    """That rank has asked for it, and reads it later."""

    def replace():
        with ringest.Client(*place) as client:
            checkpoint.save(little(2), uri, client=client)

    if is_near:
        be_near()
    return load_little(rank, place, uri, replace, who)


_READ_ALL = _torch_zip.ArchiveReader._read_all


def little_with_an_error(rank, place, uri, is_near, who):
    """What all raise, and what they have of another load."""

    def fail():
        raise MemoryError("no memory for this rank")

    if is_near:
        be_near()
    told = error_of(load_little, rank, place, uri, fail, who)
    _torch_zip.ArchiveReader._read_all = _READ_ALL
    return told, load_little(rank, place, uri)


def little_that_is_missing(rank, place, uri):
    be_near()
    return error_of(load_little, rank, place, "gs://new/none.pt"), load_little(rank, place, uri)


def little_and_something_else(rank, place, uri):
    be_near()
    told = [error_of(load_little, rank, place, uri if rank else "gs://new/none.pt")]
    told.append(error_of(load_little, rank, place, uri, alone_max=rank))
    return told, load_little(rank, place, uri)


def damaged(given):
    told, came = given
    return told, came[:-1] + b"x" if came else came


def little_that_changes_on_the_way(rank, place, uri):
    give = _together.Team.tell_given
    be_near()
    if rank == 1:
        _together.Team.tell_given = lambda *arguments: damaged(give(*arguments))
    told = error_of(load_little, rank, place, uri)
    _together.Team.tell_given = give
    return told, load_little(rank, place, uri)


def by_two_threads(rank, place, uri, is_near, number):
    """What a second thread gets while the first one is at that meeting; what the first has then, and what both have
    after that."""
    begun, goes_on, found = threading.Event(), threading.Event(), []

    def wait():
        begun.set()
        goes_on.wait(ranks.PATIENCE_S)

    small_rounds()
    if is_near:
        be_near()

    def load_slowly():
        try:
            found.append(load(rank, place))
        finally:
            begun.set()

    ranks.before_meeting(number, wait)
    first = threading.Thread(target=load_slowly)
    first.start()
    begun.wait(ranks.PATIENCE_S)
    told = error_of(load_little, rank, place, uri)
    goes_on.set()
    first.join()
    return told, len(found), load_little(rank, place, uri)


def little_with_a_killed_rank(rank, place, uri, is_near, who):
    if is_near:
        be_near()
    return error_of(load_little, rank, place, uri, lambda: os.kill(os.getpid(), signal.SIGKILL), who)


def little_with_an_interrupted_rank(rank, place, uri, who):
    """What the others have then, and what they have of another load."""

    def interrupt():
        raise KeyboardInterrupt

    be_near()
    try:
        told = error_of(load_little, rank, place, uri, interrupt, who)
    except KeyboardInterrupt:
        told = None
    _torch_zip.ArchiveReader._read_all = _READ_ALL
    return told, error_of(load_little, rank, place, uri)


def most_memory(rank, place, near_s, near_bytes):
    """Bytes of the memory that the ranks share."""
    _together.NEAR_BYTES = near_bytes
    sizes = []
    make = _together._Shared._make

    def noted(self):
        fd, failure = make(self)
        sizes.append(os.fstat(fd).st_size)
        return fd, failure

    _together._Shared._make = noted
    _together.NEAR_S = near_s
    load(rank, place)
    return max(sizes, default=0)


def numbers_of(function):
    """What it returns, and the numbers of all memory that ranks of this one's have made together meanwhile."""
    make, numbers = _together._Shared.__init__, []

    def noted(self, *arguments):
        make(self, *arguments)
        numbers.append(self.number)

    _together._Shared.__init__ = noted
    try:
        return function(), numbers
    finally:
        _together._Shared.__init__ = make


def be_far():
    """However fast it answers: so that as much memory is shared each time."""
    small_rounds()
    _together.NEAR_S = 0


def kept():
    """The number of the memory that the ranks have for the next load, or None."""
    found = _exchange.exchange_of(dist.group.WORLD).kept
    return found and found.number


def load_of_sizes(rank, place, sizes, kept_bytes):
    """One after the other. Of each: what was made for it, and what is there after it."""
    _together.KEPT_BYTES = kept_bytes
    be_far()
    be_near()
    found = []
    with ringest.Client(*place, hedging=False) as client:
        for size in sizes:

            def load_one(size=size):
                loaded = checkpoint.load(f"gs://new/{size}.pt", client=client, process_group=dist.group.WORLD)
                assert torch.equal(loaded["a"], pattern(size))

            _, made = numbers_of(load_one)
            dist.barrier()
            found.append((len(made), kept(), *ranks.shared_memory()))
    return found


def load_after_a_failure(rank, place, how):
    """One load went well, the next one has failed half way, and another one follows."""
    be_far()
    load(rank, place)
    first = kept()
    if how == "meeting" and rank == 1:
        real = _together.Team._meet

        def fail():
            raise MemoryError("no memory for this rank")

        ranks.before_meeting(7, fail)
        told = error_of(failing_load, place)
        _together.Team._meet = real
    elif how == "copy" and rank == 1:
        real, left = _together_object._Ranges.copy, [9]

        def copy(*arguments):
            left[0] -= 1
            if left[0] == 0:
                raise MemoryError("no memory for this rank")
            real(*arguments)

        _together_object._Ranges.copy = copy
        told = error_of(failing_load, place)
        _together_object._Ranges.copy = real
    elif how == "end" and rank == 1:
        real = _torch_zip.ArchiveReader._keep_small

        def keep(*arguments):
            raise MemoryError("no memory for this rank")

        _torch_zip.ArchiveReader._keep_small = keep
        told = error_of(failing_load, place)
        _torch_zip.ArchiveReader._keep_small = real
    elif how == "request" and rank == 1:
        with support.faults(*place, {"storage.objects.get": ["return-503"] * 100}):
            told = error_of(failing_load, place)
    else:
        told = error_of(failing_load, place)
    between = kept(), ranks.shared_memory()
    # Nothing that has a name.
    with open("/proc/self/maps") as lines:
        assert not [line for line in lines if "/dev/shm/" in line and "(deleted)" not in line]
    _, made = numbers_of(lambda: load(rank, place))
    return told[0], first, between, made, kept()


def killed_after_a_load(rank, place):
    load(rank, place)
    assert kept()
    if rank == 1:
        ranks.before_meeting(7, lambda: os.kill(os.getpid(), signal.SIGKILL))
    return error_of(failing_load, place)[0], kept(), ranks.shared_memory()


def forked_after_a_load(rank, place):
    """What a child has of the memory, and whether this process still has it then."""
    be_far()
    load(rank, place)
    before = ranks.shared_memory()
    read_end, write_end = os.pipe()
    child = os.fork()
    if child == 0:
        os.write(write_end, repr((kept(), ranks.shared_memory(), ranks.shared_memory("memfd:ringest-board"))).encode())
        os._exit(0)
    os.waitpid(child, 0)
    _, made = numbers_of(lambda: load(rank, place))
    return before[0], os.read(read_end, 1000).decode(), made


def of_two_groups(rank, place):
    """In turns; what is there while both are, and when the second is gone."""
    other = dist.new_group(backend="gloo")
    be_far()
    found = []
    with ringest.Client(*place, hedging=False) as client:
        for group in (dist.group.WORLD, other, dist.group.WORLD, other):
            _, made = numbers_of(
                lambda group=group: check(checkpoint.load(URI, client=client, process_group=group), state())
            )
            found.append(len(made))
    both = ranks.shared_memory()[0]
    dist.destroy_process_group(other)
    del other, group
    gc.collect()
    return found, both, ranks.shared_memory()[0]


class Loads(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        context = support.emulator()
        cls.place = cls.enterClassContext(context)
        with ringest.Client(*cls.place) as client:
            cls.size = checkpoint.save(state(), URI, client=client)["size"]

    def assert_once(self, received):
        self.assertLessEqual(sum(received), 1.02 * self.size)

    def test_each_byte_comes_once(self):
        for count in (2, 4):
            for is_small in (False, True):
                with self.subTest(count, is_small=is_small):
                    self.assert_once(ranks.run(count, load, self.place, is_small))

    def test_all_ranks_have_a_part_of_the_work(self):
        for received in ranks.run(4, load, self.place):
            self.assertGreater(received, self.size / 8)

    def test_ranks_of_several_hosts(self):
        for count, hosts in ((2, 2), (4, 2), (4, 3)):
            with self.subTest(count=count, hosts=hosts):
                self.assert_once(ranks.run(count, on_hosts, self.place, hosts))

    def test_ranks_that_cannot_share_memory_send_and_say_so_once(self):
        causes = (
            (of_several_containers, 2, r"rank \d is of another user, or in another container"),
            (with_memory_that_nobody_makes, 1, r"no memory file of \d+ bytes: .*File too large|process \d+, which"),
            (with_memory_that_nobody_opens, 1, r"/proc/\d+/fd/\d+: .*Permission denied"),
        )
        for call, times, cause in causes:
            with self.subTest(call.__name__):
                found = ranks.run(2, told_of, call, self.place)
                self.assert_once([received / times for received, _ in found])
                told = [lines for _, lines in found if lines]
                # The rank that has made the memory does not know that nobody opens it.
                self.assertEqual(len(told), 1 if call is with_memory_that_nobody_opens else 2)
                for lines in told:
                    self.assertEqual(len(lines), 1, lines)
                    self.assertRegex(lines[0], f"^WARNING ranks of this host .*: ({cause})")

    def test_ranks_of_other_machines_say_nothing(self):
        for _, lines in ranks.run(2, told_of, on_hosts, self.place, 2):
            self.assertEqual(lines, [])

    def test_one_rank_alone(self):
        self.assert_once(ranks.run(1, load, self.place))

    def test_a_group_of_some_ranks(self):
        first, (kind, text), last = ranks.run(3, of_a_part, self.place)
        self.assert_once([first, last])
        self.assertEqual(kind, "ValueError")
        self.assertIn("no rank of the process group", text)

    def test_memory_is_bounded(self):
        # As if all services were far, or near.
        far, near = min(_together.SETS, self.size / MIB), _together.SETS_NEAR
        for near_s, near_bytes, sets in ((0, MIB, far), (600, MIB, near), (600, MIB // 4, near / 2)):
            with self.subTest(near_s=near_s, near_bytes=near_bytes):
                first, second = ranks.run(2, most_memory, self.place, near_s, near_bytes)
                self.assertLess(first, 1.02 * (sets + 0.5) * MIB)
                self.assertGreater(first, 0.98 * (sets - 1) * MIB)
                self.assertEqual(second, 0)

    def test_memory_stays_for_the_next_load(self):
        sizes = (3_000_000, 4_000_000, 9_000_000, 2_000_000, 9_000_000)
        self.save_sizes(sizes)
        with self.subTest("all of it"):
            for found in ranks.run(3, load_of_sizes, self.place, sizes, 32 * MIB):
                made, numbers, mapped, there = zip(*found)
                # It grows with what is loaded, and then serves all.
                self.assertEqual(made[3:], (0, 0))
                self.assertEqual(len(set(numbers[2:])), 1)
                self.assertLess(max(mapped), 1.1 * max(sizes) + MIB)
        with self.subTest("a part"):
            for found in ranks.run(3, load_of_sizes, self.place, sizes, MIB):
                made, _, _, there = zip(*found)
                self.assertEqual(made[3:], (0, 0))
                self.assertLessEqual(max(there), MIB)

    def test_memory_goes_with_a_load_that_fails(self):
        for how, kind in (
            ("meeting", "MemoryError"),
            ("copy", "MemoryError"),
            ("end", "MemoryError"),
            ("request", "UnavailableError"),
        ):
            with self.subTest(how):
                for told, first, between, made, then in ranks.run(3, load_after_a_failure, self.place, how):
                    self.assertEqual(told, kind)
                    self.assertEqual(between, (None, (0, 0)))
                    self.assertEqual(made, [then])
                    self.assertNotEqual(first, then)

    def test_memory_goes_with_a_rank(self):
        first, _, third = ranks.run(3, killed_after_a_load, self.place, killed=(1,))
        for found in (first, third):
            self.assertEqual(found, ("GroupError", None, (0, 0)))

    def test_a_child_has_no_memory(self):
        for before, child, made in ranks.run(2, forked_after_a_load, self.place):
            self.assertGreater(before, MIB)
            self.assertEqual(child, "(None, (0, 0), (0, 0))")
            self.assertEqual(made, [])

    def test_each_group_has_its_own_memory(self):
        for found, both, then in ranks.run(2, of_two_groups, self.place):
            self.assertEqual(found, [1, 1, 0, 0])
            self.assertEqual(both, 2 * then)
            self.assertGreater(then, MIB)

    def test_files_of_other_kinds(self):
        uris = ["gs://new/torch.pt", "gs://new/legacy.pt"]
        with ringest.Client(*self.place) as client:
            for uri, is_zip in zip(uris, (True, False)):
                with checkpoint.open(uri, "wb", client=client) as file:
                    torch.save(state(), file, _use_new_zipfile_serialization=is_zip)
            client.put("gs://new/text", b"x" * 300)
        for missing, text in ranks.run(2, of_other_kinds, self.place, uris):
            self.assertEqual(missing[0], "NotFoundError")
            self.assertIn("gs://new/none", missing[1])
            self.assertEqual(text[0], "CheckpointError")

    def test_a_fault_of_one_rank_is_one_of_all(self):
        for which in (0, 2):
            with self.subTest(which=which):
                for kind, text in ranks.run(3, with_a_fault, self.place, which):
                    self.assertEqual(kind, "UnavailableError")
                    self.assertIn(URI, text)

    def test_an_error_of_one_rank_is_one_of_all(self):
        for number in (2, 7, 12):
            with self.subTest(number=number):
                told = ranks.run(3, with_an_error_at, self.place, number)
                self.assertEqual(told, [("MemoryError", "no memory for this rank")] * 3)

    def test_an_error_between_reads_is_one_of_all(self):
        told = ranks.run(3, with_an_error_between, self.place)
        self.assertEqual(told, [("MemoryError", "no memory for this rank")] * 3)

    def test_a_killed_rank_is_missed(self):
        for number in (2, 5, 13):
            with self.subTest(number=number):
                told = ranks.run(3, with_a_killed_rank, self.place, number, killed=(1,))
                for kind, text in (told[0], told[2]):
                    self.assertEqual(kind, "GroupError")
                    self.assertIn(URI, text)

    def test_an_object_that_is_replaced_is_not_mixed(self):
        good = [float(state(seed)["layer0"][0, 0]) for seed in (1, 2)]
        uri = "gs://new/replaced.pt"
        for number in (2, 4, 8, 12):
            with self.subTest(number=number), ringest.Client(*self.place) as client:
                checkpoint.save(state(), uri, client=client)
                found = ranks.run(3, with_another_object, self.place, number, uri, {})
                self.assertEqual(len(set(found)), 1)
                self.assertIn(found[0], good)
                # Early on, nobody had all of the old one.
                self.assertTrue(number > 4 or found[0] == good[1])

    def test_a_generation_that_is_replaced_is_missing(self):
        uri = "gs://new/replaced.pt"
        with ringest.Client(*self.place) as client:
            generation = checkpoint.save(state(), uri, client=client)["generation"]
        arguments = (self.place, 3, uri, {"generation": generation})
        for kind, _ in ranks.run(2, lambda rank: error_of(with_another_object, rank, *arguments)):
            self.assertEqual(kind, "NotFoundError")

    def test_what_came_is_compared(self):
        for kind, text in ranks.run(2, with_a_wrong_checksum, self.place):
            self.assertEqual(kind, "ChecksumError")
            self.assertIn(URI, text)

    def test_what_is_sent_between_hosts_is_compared(self):
        for kind, text in ranks.run(2, with_bytes_damaged_between_hosts, self.place):
            self.assertEqual(kind, "ChecksumError")
            self.assertIn("from rank 1", text)

    def save_sizes(self, sizes):
        with ringest.Client(*self.place) as client:
            for size in sizes:
                checkpoint.save({"a": pattern(size)}, f"gs://new/{size}.pt", client=client)

    def test_each_rank_of_several_hosts_reads_by_itself_what_is_small(self):
        sizes = (1, 30_000)
        self.save_sizes(sizes)
        for found in ranks.run(2, load_sizes, self.place, sizes, None, 2):
            for size, (exchanges, received, _) in zip(sizes, found):
                self.assertEqual(exchanges, 1)
                self.assertGreater(received, size)

    def test_each_rank_reads_by_itself_what_it_is_to(self):
        sizes = (300_000,)
        self.save_sizes(sizes)
        for hosts in (1, 2):
            for ((exchanges, received, _),) in ranks.run(2, load_sizes, self.place, sizes, 1 << 20, hosts):
                self.assertEqual(exchanges, 1)
                self.assertGreater(received, sizes[0])

    def test_what_is_small_comes_once(self):
        sizes = (1, 30_000, 300_000, 900_000, 2_000_000)
        self.save_sizes(sizes)
        for alone_max, hosts in ((None, 1), (0, 1), (0, 2)):
            with self.subTest(alone_max=alone_max, hosts=hosts):
                found = zip(*ranks.run(2, load_sizes, self.place, sizes, alone_max, hosts))
                for size, ((exchanges, first, requests), (same, second, more)) in zip(sizes, found):
                    self.assertEqual(exchanges, same)
                    if hosts == 1 and size < 1_000_000:
                        # The bytes come with the facts, and are given at the meeting that tells of both.
                        self.assertEqual((exchanges, requests, more), (2, 1, 0))
                    # Of all of them and of what was read; between hosts memory has to be agreed upon before.
                    self.assertLessEqual(exchanges, 5 if size < 1_000_000 else 15)
                    self.assertLess(first + second, size + 16 * 1024)

    def test_an_object_that_is_not_much_larger_than_what_comes_at_once(self):
        sizes = (1_000_000, 1_048_000, 1_050_000, 1_200_000, 1_400_000)
        self.save_sizes(sizes)
        for size, (first, second) in zip(sizes, zip(*ranks.run(2, load_sizes, self.place, sizes, None, 1))):
            self.assertLess(first[1] + second[1], size + 16 * 1024)

    def test_what_has_no_first_byte(self):
        with ringest.Client(*self.place) as client:
            client.put("gs://new/empty", b"")
        for told in ranks.run(2, of_nothing, self.place):
            self.assertEqual(told[0], "CheckpointError")

    def save_little(self):
        uri = "gs://new/little.pt"
        with ringest.Client(*self.place) as client:
            checkpoint.save(little(), uri, client=client)
        return uri

    def test_a_small_object_that_is_replaced_is_of_one_generation(self):
        for is_near in (False, True):
            for who in (0, 1):
                with self.subTest(is_near=is_near, who=who):
                    uri = self.save_little()
                    found = ranks.run(3, little_that_is_replaced, self.place, uri, is_near, who)
                    self.assertEqual(found, found[:1] * 3)

    def test_an_error_of_one_rank_with_a_small_object_is_one_of_all(self):
        uri = self.save_little()
        for is_near in (False, True):
            for who in (0, 1):
                with self.subTest(is_near=is_near, who=who):
                    for told, then in ranks.run(3, little_with_an_error, self.place, uri, is_near, who):
                        self.assertEqual(told, ("MemoryError", "no memory for this rank"))
                        self.assertEqual(then, 1)

    def test_a_small_object_that_is_missing_is_so_for_all(self):
        for (kind, text), then in ranks.run(3, little_that_is_missing, self.place, self.save_little()):
            self.assertEqual(kind, "NotFoundError")
            self.assertIn("gs://new/none.pt", text)
            self.assertEqual(then, 1)

    def test_near_ranks_that_ask_for_different_things(self):
        for told, then in ranks.run(2, little_and_something_else, self.place, self.save_little()):
            for kind, text in told:
                self.assertEqual(kind, "ValueError")
                self.assertIn("different things", text)
            self.assertEqual(then, 1)

    def test_a_small_object_that_changes_on_the_way_is_refused(self):
        for (kind, text), then in ranks.run(2, little_that_changes_on_the_way, self.place, self.save_little()):
            self.assertEqual(kind, "ChecksumError")
            self.assertIn("other than it had read them", text)
            self.assertEqual(then, 1)

    def test_a_rank_that_is_killed_with_a_small_object_is_missed(self):
        uri = self.save_little()
        for is_near in (False, True):
            for who in (0, 1):
                with self.subTest(is_near=is_near, who=who):
                    told = ranks.run(3, little_with_a_killed_rank, self.place, uri, is_near, who, killed=(who,))
                    for kind, text in (told[1 - who], told[2]):
                        self.assertEqual(kind, "GroupError")
                        self.assertIn(uri, text)

    def test_a_second_thread_is_refused(self):
        uri = self.save_little()
        for is_near, number in ((False, 1), (False, 4), (True, 1), (True, 4)):
            with self.subTest(is_near=is_near, number=number):
                found = ranks.run(2, by_two_threads, self.place, uri, is_near, number)
                for (kind, text), count, then in found:
                    self.assertEqual((kind, count, then), ("GroupError", 1, 1))
                    self.assertIn(f"{uri}: another thread of rank ", text)
                    self.assertIn("one load at a time", text)

    def test_a_rank_that_is_interrupted_ends_it_for_all(self):
        uri = self.save_little()
        for who in (0, 1):
            with self.subTest(who=who):
                found = ranks.run(3, little_with_an_interrupted_rank, self.place, uri, who)
                self.assertIsNone(found[who][0])
                for kind, text in filter(None, sum(found, ())):
                    self.assertEqual(kind, "GroupError")
                    self.assertIn(uri, text)

    def test_ranks_that_ask_for_different_things(self):
        for name, values in (("verify", (True, False)), ("generation", (0, 5)), ("map_location", ("cpu", "meta"))):
            for kind, text in ranks.run(2, with_other_arguments, self.place, name, values):
                self.assertEqual(kind, "ValueError")
                self.assertIn("different things", text)


if __name__ == "__main__":
    unittest.main()
