"""Memory that a writer was lent: it is there until the service has it, and let go of then, however the stream ends."""

import gc
import sys
import threading
import unittest
import weakref

import numpy

import ringest
import support
from ringest import _core, _pace

MIB = 1 << 20
URI = "gs://new/o"
# One part at a time, so that more than a part waits for the server.
PARTS = {"part_size": "5MiB", "parts_in_flight": 1}


class Memories:
    """Memory that only a writer keeps alive, and who is still alive of it."""

    def __init__(self, *sizes):
        self.given = [numpy.full(size, 7, "u1") for size in sizes]
        self.refs = [weakref.ref(each) for each in self.given]

    def pieces(self, *more):
        """For _write_framed, once: from then on nobody else has the memory."""
        given, self.given = self.given, []
        return [*((b"", each.ctypes.data, each.size, each, b"") for each in given), *more]

    def alive(self):
        return [ref() is not None for ref in self.refs]


def framed(writer, memories):
    writer._write_framed(memories.pieces())


def addressed(writer, memories):
    for _, address, size, owner, _ in memories.pieces():
        writer._write_address(address, size, owner, 0)


def borrowed(writer, memories):
    for *_, owner, _ in memories.pieces():
        writer.write(owner, borrow=True)


WAYS = (framed, addressed, borrowed)


def writing(way, writer, memories):
    """A thread that writes until another ends the stream, and what it raises then."""
    raised = []

    def write():
        try:
            way(writer, memories)
        except ValueError as error:
            raised.append(str(error))

    thread = threading.Thread(target=write)
    thread.start()
    return thread, raised


class Lent(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.context = support.client()
        cls.client = cls.context.__enter__()

    @classmethod
    def tearDownClass(cls):
        cls.context.__exit__(None, None, None)

    def setUp(self):
        # What is let go of late is not to be found by chance.
        gc.disable()
        self.addCleanup(gc.enable)

    def test_it_stays_until_it_is_sent(self):
        # Of less than a part nothing is sent before the end; and the first one begins where nothing was sent, either.
        sizes = (3, MIB, 1, MIB, MIB)
        for way in WAYS:
            with self.subTest(way.__name__):
                memories = Memories(*sizes)
                writer = self.client.writer(URI, **PARTS)
                way(writer, memories)
                self.assertEqual(memories.alive(), [True] * len(sizes))
                writer.finish()
                self.assertEqual(memories.alive(), [False] * len(sizes))
                self.assertEqual(bytes(self.client.get(URI)), b"\7" * sum(sizes))

    def test_a_stream_that_ends_early(self):
        def failed(writer):
            with self.assertRaises(TypeError):
                writer.write("no bytes", borrow=True)
            writer.abort()

        def left(writer):
            with self.assertRaises(RuntimeError), writer:
                raise RuntimeError

        for way in WAYS:
            for end in _core.Writer.abort, failed, left, lambda writer: None:
                for sizes in ((MIB, 3), (3 * MIB, 3 * MIB, 3 * MIB, 1)):
                    with self.subTest(way=way.__name__, end=end, sizes=sizes):
                        memories = Memories(*sizes)
                        writer = self.client.writer("gs://new/none", **PARTS)
                        way(writer, memories)
                        self.assertTrue(memories.alive()[-1])
                        end(writer)
                        del writer
                        self.assertEqual(memories.alive(), [False] * len(sizes))
        self.assertEqual(list(self.client.list("gs://new/none")), [])
        self.assertEqual(support.uploads_in(self.client, "gs://new/"), 0)

    def test_a_piece_that_is_none_between_others(self):
        for strange in b"bytes", (b"", 0, 1, None), ("text", 0, 0, None, b""), (b"", 0, 0, None, "text"):
            for sizes in ((MIB, 3), (6 * MIB, 6 * MIB)):
                with self.subTest(strange, sizes=sizes):
                    memories, unused = Memories(*sizes), Memories(MIB)
                    writer = self.client.writer("gs://new/none", **PARTS)
                    with self.assertRaises(TypeError):
                        writer._write_framed(memories.pieces(strange, *unused.pieces()))
                    self.assertTrue(writer.ended)
                    self.assertEqual(memories.alive() + unused.alive(), [False] * (len(sizes) + 1))
        self.assertEqual(list(self.client.list("gs://new/none")), [])

    def test_an_upload_that_fails_in_the_middle(self):
        # There is no such bucket, which is told while more than a part waits.
        for way in WAYS:
            with self.subTest(way.__name__):
                memories = Memories(*[3 * MIB] * 12)
                writer = self.client.writer("gs://no-such-bucket/o", **PARTS)
                with self.assertRaises(ringest.NotFoundError):
                    way(writer, memories)
                self.assertTrue(writer.ended)
                self.assertEqual(memories.alive(), [False] * 12)

    def test_a_paced_writer_writes_the_same(self):
        sizes = (0, 3, MIB, 0, 5 * MIB, 1)
        made = [numpy.full(size, i, "u1") for i, size in enumerate(sizes)]
        pieces = [(b"before%d" % i, each.ctypes.data, each.size, each, b"behind%d" % i) for i, each in enumerate(made)]
        wanted = b"".join(
            before + bytes(each) + behind for (before, *_, behind), each in zip(pieces, made, strict=True)
        )
        with _pace.paces(None).one() as pace:
            for wrap in (lambda writer: writer, lambda writer: _pace.PacedWriter(writer, pace)):
                writer = wrap(self.client.writer(URI, **PARTS))
                self.assertEqual(writer._write_framed(pieces), [_core.crc32c(each) for each in made])
                self.assertEqual(writer.finish()["size"], len(wanted))
                self.assertEqual(bytes(self.client.get(URI)), wanted)

    def test_one_owner_of_many_pieces(self):
        owner = numpy.full(4 * MIB, 7, "u1")
        before = sys.getrefcount(owner)
        piece = (b"before", owner.ctypes.data, owner.size, owner, b"behind")
        for pieces, error in (([piece] * 5, None), ([piece] * 5 + [None], TypeError)):
            writer = self.client.writer(URI, **PARTS)
            if error is None:
                self.assertEqual(writer._write_framed(pieces), [_core.crc32c(owner)] * 5)
                self.assertGreater(sys.getrefcount(owner), before + 1)
                writer.finish()
                self.assertEqual(bytes(self.client.get(URI)), (b"before" + bytes(owner) + b"behind") * 5)
            else:
                with self.assertRaises(error):
                    writer._write_framed(pieces)
            # The tuple has it, too.
            self.assertEqual(sys.getrefcount(owner), before + 1)


class Closed(unittest.TestCase):
    def test_another_thread_ends_the_stream_meanwhile(self):
        """The server answers nothing, so that the call waits for room in the middle of its pieces."""
        with (
            support.emulator("--latency-ms", "600000") as (endpoint, ca),
            ringest.Client(endpoint, ca, threads=1) as client,
        ):
            for way in WAYS:
                with self.subTest(way.__name__):
                    memories = Memories(*[2 * MIB] * 12)
                    writer = client.writer(URI, **PARTS)
                    thread, raised = writing(way, writer, memories)
                    support.until(lambda writer=writer: writer.size >= 4 * MIB, "as much as there is room for")
                    support.until_it_sleeps(thread.native_id)
                    self.assertTrue(all(memories.alive()))
                    writer.abort()
                    thread.join()
                    self.assertRegex(raised[0], "was closed while it was in use")
                    self.assertEqual(memories.alive(), [False] * 12)

    def test_another_thread_ends_a_stream_that_is_held_back(self):
        with support.client() as client:
            memories = Memories(MIB, 4 * MIB, MIB)
            writer = client.writer("gs://new/none", **PARTS)
            writer._set_rate(MIB // 2)
            thread, raised = writing(framed, writer, memories)
            support.until(lambda: writer.size > 0, "the first bytes")
            writer.abort()
            thread.join()
            self.assertRegex(raised[0], "was closed while it was in use")
            self.assertEqual(memories.alive(), [False] * 3)
            self.assertEqual(list(client.list("gs://new/none")), [])

    def test_an_owner_that_ends_the_stream_when_it_is_let_go_of(self):
        """Its last moment is in the middle of a call of the stream, which is then told."""

        class Owner:
            def __init__(self, writer):
                self.writer = writer
                self.memory = bytearray(2 * MIB)

            def __del__(self):
                ended.append(self.writer.abort())

        with support.client() as client:
            ended = []
            writer = client.writer("gs://new/none", **PARTS)
            with self.assertRaisesRegex(ValueError, "was closed while it was in use"):
                for _ in range(20):
                    owner = Owner(writer)
                    address = numpy.frombuffer(owner.memory, "u1").ctypes.data
                    pieces = [(b"before", address, len(owner.memory), owner, b"behind")]
                    del owner
                    writer._write_framed(pieces)
                    pieces.clear()
            del pieces
            gc.collect()
            self.assertTrue(writer.ended)
            self.assertGreater(len(ended), 1)
            self.assertEqual(list(client.list("gs://new/none")), [])
