"""Buffers and what is made of them: who may write, and how long memory is there, beyond the interpreter's end, too."""

import contextlib
import ctypes
import gc
import importlib.util
import mmap
import os
import subprocess
import sys
import textwrap
import threading
import unittest

import ringest
import support
from ringest import _core

URI = support.uri(1)


def has(name):
    return importlib.util.find_spec(name) is not None


def exported(buffer):
    return support.consumed(buffer.__dlpack__())


class Emulated(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.stack = contextlib.ExitStack()
        cls.endpoint, cls.ca = cls.stack.enter_context(support.emulator())

    @classmethod
    def tearDownClass(cls):
        cls.stack.close()

    def setUp(self):
        self.client = ringest.Client(self.endpoint, self.ca, threads=1)
        self.addCleanup(self.client.close)

    def held(self):
        gc.collect()
        return self.client.stats()["held_bytes"]


class Ranges(Emulated):
    def readonly(self, ranges):
        parts = self.client.get_ranges(URI, ranges)
        whole = bytes(self.client.get(URI))
        self.assertEqual([bytes(part) for part in parts], [whole[at : at + size] for at, size in ranges])
        return [memoryview(part).readonly for part in parts]

    def test_bytes_of_several_buffers_are_read_only(self):
        self.assertEqual(self.readonly([(0, 10), (10, 10), (30, 5)]), [False] * 3)
        self.assertEqual(self.readonly([(0, 10), (9, 10), (30, 5)]), [True, True, False])
        self.assertEqual(self.readonly([(30, 5), (9, 10), (0, 10)]), [False, True, True])
        self.assertEqual(self.readonly([(0, 100), (5, 5), (90, 20), (300, 1)]), [True, True, True, False])
        self.assertEqual(self.readonly([(7, 7), (7, 7)]), [True, True])
        self.assertEqual(self.readonly([(0, 50), (20, 0), (50, 50)]), [False] * 3)

    def test_what_is_written_is_seen_by_nobody_else(self):
        for ranges in ([(0, 10), (5, 10), (12, 4)], [(3, 3), (0, 3), (6, 3)]):
            parts = self.client.get_ranges(URI, ranges)
            before = [bytes(part) for part in parts]
            for number, part in enumerate(parts):
                with contextlib.suppress(TypeError):
                    memoryview(part)[:] = bytes([number]) * len(part)
                    before[number] = bytes([number]) * len(part)
            self.assertEqual([bytes(part) for part in parts], before)

    def test_dlpack_gives_a_copy_of_them_only(self):
        part = self.client.get_ranges(URI, [(0, 10), (5, 10)])[0]
        with self.assertRaisesRegex(BufferError, "copy=True"):
            part.__dlpack__()
        self.assertIsNotNone(part.__dlpack__(copy=True))
        if has("numpy"):
            import numpy

            with self.assertRaises(BufferError):
                numpy.from_dlpack(part)
            self.assertEqual(numpy.from_dlpack(part, copy=True).tobytes(), bytes(part))


class Into(Emulated):
    def test_ranges_do_not_share_what_they_are_read_into(self):
        memory = bytearray(100)
        view = memoryview(memory)
        for first, second in ((view[:10], view[9:20]), (view[9:20], view[:10]), (view[5:9], view), (view, view)):
            requests = [(0, view[60:]), (1000, first), (7, second)] if len(second) < 60 else [(0, first), (7, second)]
            with self.assertRaisesRegex(ValueError, f"{URI}.*bytes .* the same memory"):
                self.client.get_into(URI, requests)
        self.client.get_into(URI, [(0, view[50:]), (3, view[:50]), (9, view[20:20])])
        whole = bytes(self.client.get(URI))
        self.assertEqual(bytes(memory), whole[3:53] + whole[:50])
        # Of the object they may have bytes in common.
        other = bytearray(30)
        self.client.get_into(URI, [(0, memory), (50, other)])
        self.assertEqual((bytes(memory), bytes(other)), (whole[:100], whole[50:80]))


HUGE = 2 << 20


def advised(address, size):
    """The parts of that memory which the kernel may give huge pages to, from the address on."""
    found = []
    with open("/proc/self/smaps", encoding="ascii") as file:
        for line in file:
            first = line.split()[0]
            if not first.endswith(":"):
                begin, end = (int(text, 16) - address for text in first.split("-"))
            elif first == "VmFlags:" and "hg" in line.split() and end > 0 and begin < size:
                found.append((max(begin, 0), min(end, size)))
    merged = found[:1]
    for begin, end in found[1:]:
        if begin == merged[-1][1]:
            merged[-1] = (merged[-1][0], end)
        else:
            merged.append((begin, end))
    return merged


def huge_bytes(address, size):
    """How many of that memory lie in huge pages."""
    found, is_inside = 0, False
    with open("/proc/self/smaps", encoding="ascii") as file:
        for line in file:
            first, second = line.split()[:2]
            if not first.endswith(":"):
                begin, end = (int(text, 16) for text in first.split("-"))
                is_inside = end > address and begin < address + size
            elif first == "AnonHugePages:" and is_inside:
                found += int(second) << 10
    return found


def can_move():
    """Whether the kernel moves a page into a huge one when it is asked to."""
    memory = mmap.mmap(-1, 2 * HUGE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    memory.madvise(mmap.MADV_NOHUGEPAGE)
    begin = -ctypes.addressof(ctypes.c_char.from_buffer(memory)) % HUGE
    memory[begin] = 1
    memory.madvise(mmap.MADV_HUGEPAGE)
    try:
        memory.madvise(25, begin, HUGE)  # MADV_COLLAPSE
    except OSError:
        return False
    return True


@unittest.skipUnless(os.path.isdir("/sys/kernel/mm/transparent_hugepage"), "the kernel has no huge pages to give")
class HugePages(Emulated):
    """Of memory that is read into, all that are inside of it, and nothing else."""

    def setUp(self):
        super().setUp()
        self.content = os.urandom(1 << 20) * 16
        self.client.put("gs://mine/large", self.content)
        self.make_memory()

    def make_memory(self):
        self.memory = mmap.mmap(-1, 24 << 20, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        self.memory.madvise(mmap.MADV_NOHUGEPAGE)  # else a kernel that gives them to all says so nowhere
        address = ctypes.addressof(ctypes.c_char.from_buffer(self.memory))
        self.begin = -address % HUGE
        self.address = address + self.begin

    def view(self, begin, size):
        return memoryview(self.memory)[self.begin + begin :][:size]

    def check(self, begin, size, wanted):
        self.assertEqual(self.view(begin, size), self.content[:size])
        self.assertEqual(self.view(0, begin), bytes(begin))
        behind = (22 << 20) - begin - size
        self.assertEqual(self.view(begin + size, behind), bytes(behind))
        self.assertEqual(advised(self.address, 22 << 20), wanted)

    def test_one_range(self):
        self.client.get_into("gs://mine/large", [(0, self.view(100, 9 << 20))])
        self.check(100, 9 << 20, [(HUGE, 4 * HUGE)])

    def test_neighbours(self):
        requests = [(at, self.view(at + 3, 1 << 20)) for at in range(0, 16 << 20, 1 << 20)]
        self.client.get_into("gs://mine/large", requests)
        self.check(3, 16 << 20, [(HUGE, 8 * HUGE)])

    def test_what_heads_of_an_allocator_have_touched_is_moved_into_huge_pages(self):
        with open("/sys/kernel/mm/transparent_hugepage/enabled", encoding="ascii") as file:
            if "[never]" in file.read():
                self.skipTest("this machine's setting for huge pages is never")
        piece, head = 64 << 10, b"an allocator's: "
        begins = range(16, 14 << 20, piece + 64)
        # The machine may have no huge page to give, and bytes may come before one is asked for.
        for _ in range(50):
            self.make_memory()
            for at in begins:
                self.view(at - 16, 16)[:] = head
            self.memory.madvise(mmap.MADV_HUGEPAGE)
            self.client.get_into("gs://mine/large", [(i * piece, self.view(at, piece)) for i, at in enumerate(begins)])
            for i, at in enumerate(begins):
                self.assertEqual(self.view(at - 16, 16), head)
                self.assertEqual(self.view(at, piece), self.content[i * piece :][:piece])
            if huge_bytes(self.address, 14 << 20):
                return
        if can_move():
            self.fail("none in 50 times")
        self.skipTest("the kernel moves nothing into huge pages: it is older than 6.1, or has none")

    def test_too_little_to_have_one(self):
        self.client.get_into("gs://mine/large", [(0, self.view(HUGE - 1, (4 << 20) - 1))])
        self.check(HUGE - 1, (4 << 20) - 1, [])

    def test_a_file(self):
        from ringest import checkpoint

        with checkpoint.open("gs://mine/large", client=self.client) as file:
            self.assertEqual(file.readinto(self.view(0, 8 << 20)), 8 << 20)
        self.check(0, 8 << 20, [(0, 4 * HUGE)])


class Shares(Emulated):
    def test_memory_is_held_by_buffers_and_by_what_was_made_of_them(self):
        buffer = self.client.get(URI)
        for _ in range(2):
            address, deleter = exported(buffer)
            self.assertEqual(self.held(), support.SIZE)
            data = ctypes.string_at(ctypes.c_void_p.from_address(address).value, support.SIZE)
            self.assertEqual(data, bytes(buffer))
            ctypes.CFUNCTYPE(None, ctypes.c_void_p)(deleter)(address)
            self.assertEqual(self.held(), support.SIZE)
        address, deleter = exported(buffer)
        del buffer
        self.assertEqual(self.held(), support.SIZE)
        ctypes.CFUNCTYPE(None, ctypes.c_void_p)(deleter)(address)
        self.assertEqual(self.held(), 0)
        self.assertEqual(self.client.stats()["leased_bytes"], 0)

    def test_parts_keep_what_they_are_parts_of(self):
        parts = self.client.get_ranges(URI, [(0, 10), (100, 20)])
        address, deleter = exported(parts[1])
        del parts
        self.assertEqual(self.held(), 20)
        self.assertGreater(self.client.stats()["leased_bytes"], 0)
        ctypes.CFUNCTYPE(None, ctypes.c_void_p)(deleter)(address)
        self.assertEqual((self.held(), self.client.stats()["leased_bytes"]), (0, 0))

    def test_a_session_is_there_as_long_as_its_memory(self):
        client = ringest.Client(self.endpoint, self.ca, threads=1)
        address, deleter = exported(client.get(URI))
        threads = support.threads_running()
        client.close()
        del client
        gc.collect()
        self.assertEqual(support.threads_running(), threads)
        self.assertEqual(ctypes.c_int64.from_address(ctypes.c_void_p.from_address(address + 24).value).value, 2000)
        # By a thread that knows nothing of Python: destructors of its keys run when it ends.
        libc = ctypes.CDLL(None)
        key = ctypes.c_uint()
        self.assertEqual(libc.pthread_key_create(ctypes.byref(key), ctypes.c_void_p(deleter)), 0)
        thread = threading.Thread(target=libc.pthread_setspecific, args=(key, ctypes.c_void_p(address)))
        thread.start()
        thread.join()
        while support.threads_running() >= threads:
            pass

    def test_a_copy_is_nobody_elses(self):
        buffer = self.client.get(URI)
        with self.assertRaises(BufferError):
            buffer.__dlpack__(dl_device=(2, 0))
        if not has("numpy"):
            self.skipTest("numpy is not installed")
        import numpy

        copy = numpy.from_dlpack(buffer, copy=True)
        view = numpy.from_dlpack(buffer)
        memoryview(buffer)[0] = buffer[0] ^ 255
        self.assertEqual(buffer[0], view[0])
        self.assertNotEqual(buffer[0], copy[0])

    def run_to_its_end(self, program):
        folder = os.path.dirname(os.path.abspath(__file__))
        begin = (
            f"import sys; sys.path.insert(0, {folder!r}); import atexit, ctypes, gc, threading, ringest, test_buffers\n"
        )
        begin += f"client = ringest.Client({self.endpoint!r}, {self.ca!r}, threads=1)\n"
        program = begin + textwrap.dedent(program)
        done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        return done.stdout

    def test_a_deleter_runs_after_the_interpreters_end(self):
        self.run_to_its_end(
            """
            whole = test_buffers.exported(client.get(test_buffers.URI))
            part = test_buffers.exported(client.get_ranges(test_buffers.URI, [(0, 9), (50, 9)])[1])
            libc = ctypes.CDLL(None)
            for address, deleter in (whole, part):
                # What exit() calls when Python is gone.
                assert libc.__cxa_atexit(ctypes.c_void_p(deleter), ctypes.c_void_p(address), None) == 0
            """
        )

    def test_views_are_there_at_the_interpreters_end(self):
        for kept in (
            "kept = client.get(test_buffers.URI)",
            "kept = memoryview(client.get(test_buffers.URI))[5:]",
            "kept = client.get(test_buffers.URI).__dlpack__()",
            "kept = []; kept += [kept, client.get(test_buffers.URI)]",
            "sys.kept = client.get(test_buffers.URI); del client",
            "kept = client.get(test_buffers.URI); atexit.register(lambda: print(len(kept)))",
            "atexit.register(lambda: client.get(test_buffers.URI))",
            "atexit.register(client.close)",
            "many = client.get_many([test_buffers.URI] * 500); next(many)",
            "class A:\\n    def __del__(self): client.get(test_buffers.URI)\\nkept = A()",
        ):
            with self.subTest(kept):
                self.run_to_its_end(kept.encode().decode("unicode_escape"))

    @unittest.skipUnless(has("torch"), "PyTorch is not installed")
    def test_tensors_are_there_at_the_interpreters_end(self):
        self.run_to_its_end(
            """
            import torch
            kept = torch.from_dlpack(client.get(test_buffers.URI))
            torch.kept = torch.from_dlpack(client.get(test_buffers.URI))[3:]
            view = torch.frombuffer(client.get(test_buffers.URI), dtype=torch.uint8)
            """
        )


class Others(Emulated):
    def test_samples_of_one_lease_have_no_byte_in_common(self):
        import io
        import tarfile

        shard = io.BytesIO()
        with tarfile.open(fileobj=shard, mode="w") as tar:
            for number in range(6):
                for extension in ("a", "b"):
                    entry = tarfile.TarInfo(f"{number}.{extension}")
                    entry.size = 5 * number
                    tar.addfile(entry, io.BytesIO(f"{number}{extension}abc".encode() * number))
        self.client.put("gs://mine/x.tar", shard.getvalue())
        stat = self.client.stat("gs://mine/x.tar")
        index = _core.TarIndex.scan(self.client, "mine", [("x.tar", stat["size"], stat["generation"])])
        # Neighbours share a request; the same one twice does not.
        reader = _core.Reader(self.client, index, indices=[0, 1, 1, 2, 3, 3, 3, 4, 5, 0])
        samples = [item.data for item in reader.take(20)]
        parts = [sample[name] for sample in samples for name in ("a", "b")]
        before = [bytes(part) for part in parts]
        for number, part in enumerate(parts):
            memoryview(part)[:] = before[number] = bytes([number]) * len(part)
        self.assertEqual([bytes(part) for part in parts], before)


if __name__ == "__main__":
    unittest.main()
