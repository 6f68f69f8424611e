"""Loads to a device by way of pieces: what stands in for the device is the CPU's memory, and its copies take place when
they are waited for, so that a piece that is used too early shows in what was loaded."""

import contextlib
import io
import itertools
import os
import signal
import threading
import types
import unittest
import unittest.mock

import safetensors.torch
import torch
import torch.distributed.checkpoint as dcp

import ringest
import support
from ringest import _dcp_ranges, _dcp_reader, _lane, _staging, checkpoint
from ringest import safetensors as ours
from ringest._staging import Staging
from ringest.dcp import StorageReader, StorageWriter

KIB = 1 << 10
URI = "gs://new/model"
CPU = torch.device("cpu")


class Mark:
    def __init__(self, lane, count):
        self.lane = lane
        self.count = count

    def wait(self):
        self.lane.do(self.count)


class Late(_lane.DirectLane):
    """Its copies take place, in order, when a mark behind them is waited for."""

    def __init__(self):
        super().__init__(CPU)
        self.given = []  # copies
        self.done = 0
        self.followed = 0
        self.pieces = []
        self.inside = 0

    @contextlib.contextmanager
    def entered(self):
        self.inside += 1
        try:
            yield
        finally:
            self.inside -= 1

    def follow(self):
        assert not self.given
        self.followed += 1

    def copy_into(self, target, host):
        assert self.inside == 1
        self.given.append((target, host))

    def mark(self):
        assert self.inside == 1
        return Mark(self, len(self.given))

    def do(self, count):
        while self.done < count:
            target, host = self.given[self.done]
            target.copy_(host)
            self.given[self.done] = None
            self.done += 1

    def staging(self, size):
        self.pieces.append(size)
        return super().staging(size)


class Case(unittest.TestCase):
    """A device that stands in, and pieces that are small."""

    piece_size = 64 * KIB
    pieces_max = 3

    def setUp(self):
        self.lanes = []
        self.lane_type = Late

        def open_lane(device):
            self.lanes.append(self.lane_type())
            return self.lanes[-1]

        patch = unittest.mock.patch.object
        self.enterContext(patch(_lane, "open_lane", open_lane))
        self.enterContext(patch(_lane, "has_streams", lambda device: device.type == "cpu"))
        self.enterContext(patch(_staging, "PIECE_SIZE", self.piece_size))
        self.enterContext(patch(_staging, "STAGED_MAX", self.piece_size * self.pieces_max))
        self.endpoint, self.ca = self.enterContext(support.emulator())
        self.client = self.enterContext(ringest.Client(self.endpoint, self.ca, hedging=False))

    def tearDown(self):
        for lane in self.lanes:
            self.assertEqual((lane.done, lane.inside), (len(lane.given), 0), "a copy was left under way")
            self.assertLessEqual(sum(lane.pieces), self.piece_size * self.pieces_max)

    def equal(self, found, wanted):
        self.assertEqual(found.keys(), wanted.keys())
        for name, tensor in wanted.items():
            self.assertEqual((found[name].dtype, found[name].shape), (tensor.dtype, tensor.shape), name)
            same = [each.contiguous().reshape(-1).view(torch.uint8) for each in (found[name], tensor)]
            self.assertTrue(torch.equal(*same), name)


def state():
    """Types of all sizes, tensors larger than a piece, more than there are pieces, and some without elements."""
    torch.manual_seed(support.SEED)
    made = {f"small.{i}": torch.randn(i % 7, 5) for i in range(40)}
    made |= {f"large.{i}": torch.randn(20_001 * i + 70_000) for i in range(5)}
    made |= {
        "none": torch.empty(0, 7),
        "one": torch.tensor(1.5, dtype=torch.bfloat16),
        "bytes": torch.arange(100_003).to(torch.uint8),
        "bool": torch.rand(33) > 0.5,
        "complex": torch.randn(11, dtype=torch.complex64),
        "eighth": torch.randn(13).to(torch.float8_e4m3fn),
    }
    return made


class Safetensors(Case):
    def save(self, **made):
        self.client.put(URI, safetensors.torch.save(made))
        return made

    def load(self, **options):
        return ours.load_file(URI, "cpu", client=self.client, **options)

    def test_what_is_loaded_is_what_the_package_loads(self):
        wanted = self.save(**state())
        self.equal(self.load(), wanted)
        (lane,) = self.lanes
        self.assertEqual((lane.followed, lane.pieces), (1, [self.piece_size] * self.pieces_max))

    def test_one_tensor_and_none(self):
        wanted = self.save(**state())
        with ours.safe_open(URI, device="cpu", client=self.client) as file:
            for name in ("large.3", "none", "one"):
                self.equal({name: file.get_tensor(name)}, {name: wanted[name]})
        self.equal(self.load(verify=False), wanted)
        wanted = self.save(none=torch.empty(0))
        self.equal(self.load(), wanted)

    def test_what_comes_is_compared(self):
        self.save(**state())
        read = _staging.read
        with (
            unittest.mock.patch.object(_staging, "read", lambda *given: read(*given) ^ 1),
            self.assertRaisesRegex(ringest.ChecksumError, URI),
        ):
            self.load()

    def test_a_copy_that_fails_in_the_middle(self):
        class Full(Late):
            def copy_into(self, target, host):
                if len(self.given) == 20:
                    raise torch.OutOfMemoryError("the device is full")
                super().copy_into(target, host)

        self.save(**state())
        self.lane_type = Full
        with self.assertRaisesRegex(torch.OutOfMemoryError, "full"):
            self.load()
        self.assertGreaterEqual(self.lanes[0].done, 20)

    def test_a_range_that_fails_in_the_middle(self):
        self.save(**state())
        with support.faults(self.endpoint, self.ca, {"storage.objects.get": [*[support.PASS] * 4, "return-403"]}):
            with ringest.Client(self.endpoint, self.ca, hedging=False) as client:
                with self.assertRaises(ringest.PermissionDeniedError):
                    ours.load_file(URI, "cpu", client=client)

    def test_an_interrupt_waits_for_what_is_under_way(self):
        class Interrupted(Late):
            def copy_into(self, target, host):
                super().copy_into(target, host)
                if len(self.given) == 10:
                    signal.raise_signal(signal.SIGINT)

        self.save(**state())
        self.lane_type = Interrupted
        with self.assertRaises(KeyboardInterrupt):
            self.load()
        self.assertGreaterEqual(self.lanes[0].done, 10)
        self.lane_type = Late
        self.assertEqual(len(self.load()), len(state()))

    def test_an_interrupt_between_a_copy_and_its_mark_waits_for_the_copy(self):
        become = Staging._become

        def interrupted(staging, piece, state):
            if state is _staging.PieceState.COPYING:
                signal.raise_signal(signal.SIGINT)
            become(staging, piece, state)

        self.save(**state())
        with unittest.mock.patch.object(Staging, "_become", interrupted), self.assertRaises(KeyboardInterrupt):
            self.load()
        self.assertGreater(self.lanes[0].done, 0)

    def test_who_interrupts_the_wait_is_heard_behind_it(self):
        class Interrupted(Late):
            def do(self, count):
                super().do(count)
                if self.is_ending:
                    self.is_ending = False
                    signal.raise_signal(signal.SIGINT)

            is_ending = False

        lane = Interrupted()
        with unittest.mock.patch.object(_lane, "open_lane", lambda device: lane), self.assertRaises(KeyboardInterrupt):
            with Staging(KIB, 3) as staging:
                for _ in range(3):
                    with staging.copying(staging.take(CPU)) as copying:
                        copying.copy(torch.zeros(KIB, dtype=torch.uint8), torch.ones(KIB, dtype=torch.uint8))
                lane.is_ending = True
        self.assertEqual(lane.done, 3)

    def test_two_loads_at_once(self):
        wanted = self.save(**state())
        found = [None, None]
        begin = threading.Barrier(2)

        def run(number):
            begin.wait(support.PATIENCE_S)
            found[number] = self.load()

        threads = [threading.Thread(target=run, args=(number,)) for number in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        for each in found:
            self.equal(each, wanted)
        self.assertEqual(len(self.lanes), 2)

    def test_a_child_of_fork_loads_while_its_parent_does(self):
        wanted = self.save(**state())
        case, result = self, []

        class Forking(Late):
            def copy_into(self, target, host):
                super().copy_into(target, host)
                if len(self.given) == 10:
                    case.lane_type = Late
                    pid = os.fork()
                    if pid == 0:
                        torch.set_num_threads(1)  # those of the parent are not here
                        with contextlib.suppress(BaseException):
                            with ringest.Client(case.endpoint, case.ca) as client:
                                case.equal(ours.load_file(URI, "cpu", client=client), wanted)
                            os._exit(0)
                        os._exit(1)
                    result.append(os.waitpid(pid, 0)[1])

        self.lane_type = Forking
        self.equal(self.load(), wanted)
        self.assertEqual(result, [0])


class Checkpoints(Case):
    def save(self, value):
        memory = io.BytesIO()
        torch.save(value, memory)
        self.client.put(URI, memory.getvalue())
        return torch.load(io.BytesIO(memory.getvalue()), weights_only=False)

    def load(self, **options):
        return checkpoint.load(URI, map_location="cpu", client=self.client, **options)

    def test_what_is_loaded_is_what_torch_loads(self):
        wanted = self.save(state())
        for where in ("cpu", CPU):
            self.equal(checkpoint.load(URI, map_location=where, client=self.client), wanted)
        self.assertEqual([lane.pieces for lane in self.lanes], [[self.piece_size] * self.pieces_max] * 2)
        self.equal(self.load(weights_only=False, verify=False), wanted)

    def test_where_nothing_is_asked_for_nothing_is_staged(self):
        wanted = self.save(state())
        self.equal(checkpoint.load(URI, client=self.client), wanted)
        self.equal(checkpoint.load(URI, map_location=lambda storage, place: storage, client=self.client), wanted)
        self.assertEqual(self.lanes, [])

    def test_what_shares_memory_still_does(self):
        base = torch.arange(100_000.0)
        wanted = self.save(
            {"a": base, "b": base[5:7], "c": base.view(2, -1).t(), "p": torch.nn.Parameter(base[:3].clone())}
        )
        for found in (self.load(), self.load(weights_only=False)):
            self.equal(found, wanted)
            self.assertEqual(found["b"].data_ptr(), found["a"].data_ptr() + 20)
            self.assertIs(type(found["p"]), torch.nn.Parameter)

    def test_numbers_of_the_other_byte_order(self):
        with unittest.mock.patch.object(torch.serialization.sys, "byteorder", "big"):
            torch.save({"x": torch.arange(40_000, dtype=torch.int32)}, memory := io.BytesIO())
        self.client.put(URI, memory.getvalue())
        wanted = torch.load(io.BytesIO(memory.getvalue()))
        self.equal(self.load(), wanted)

    def test_what_comes_is_compared(self):
        self.save(state())
        read = _staging.read
        with (
            unittest.mock.patch.object(_staging, "read", lambda *given: read(*given) ^ 1),
            self.assertRaisesRegex(ringest.ChecksumError, URI),
        ):
            self.load()


class Distributed(Case):
    piece_size = 256 * KIB
    pieces_max = 2 * _dcp_reader.FILES_AT_ONCE

    def setUp(self):
        super().setUp()
        patch = unittest.mock.patch.object
        for module in (_dcp_ranges, _dcp_reader):
            self.enterContext(patch(module, "PIECE_SIZE", self.piece_size))

    def load(self, into):
        dcp.load(into, storage_reader=StorageReader(URI, client=self.client), no_dist=True)
        return into

    def save(self):
        torch.manual_seed(support.SEED)
        made = {
            "rows": torch.randn(700, 1000),
            "long": torch.arange(1 << 20),
            "none": torch.empty(0, 3),
            "one": torch.tensor(3.5),
            **{f"small.{i}": torch.randn(i + 1, 3) for i in range(300)},
        }
        dcp.save(made, storage_writer=StorageWriter(URI, client=self.client), no_dist=True)
        return made

    def test_tensors_of_other_types_and_strides(self):
        wanted = self.save()
        target = {
            "rows": torch.zeros(1000, 700).t(),
            "long": torch.zeros(1 << 20, dtype=torch.int32),
            "none": torch.zeros(0, 3, dtype=torch.float64),
            "one": torch.zeros((), dtype=torch.float64),
            **{f"small.{i}": torch.zeros(3, i + 1, dtype=torch.float64).t() for i in range(300)},
        }
        self.load(target)
        self.equal({name: tensor.to(wanted[name].dtype) for name, tensor in target.items()}, wanted)
        self.assertGreater(self.lanes[0].done, 300)

    def test_tensors_of_the_saved_type(self):
        wanted = self.save()
        # As on a device, whose memory requests cannot write to.
        with unittest.mock.patch.object(_dcp_reader, "fits", lambda *given: False):
            with unittest.mock.patch.object(_dcp_ranges, "fits", lambda *given: False):
                self.equal(self.load({name: torch.zeros_like(each) for name, each in wanted.items()}), wanted)
        self.assertGreater(len(self.lanes[0].pieces), 8)

    def test_a_copy_that_fails_names_the_tensor(self):
        class Full(Late):
            def copy_into(self, target, host):
                if target.numel() == 1 << 20 or len(self.given) > 100:
                    raise RuntimeError("the device is full")
                super().copy_into(target, host)

        self.save()
        self.lane_type = Full
        with self.assertRaisesRegex(dcp.CheckpointException, "cannot be copied into a tensor of .*the device is full"):
            self.load({f"small.{i}": torch.zeros(i + 1, 3, dtype=torch.float64) for i in range(300)})


class Pieces(unittest.TestCase):
    def setUp(self):
        self.lane = Late()
        self.enterContext(unittest.mock.patch.object(_lane, "open_lane", lambda device: self.lane))

    def test_a_piece_is_filled_again_when_its_copy_is_done_and_not_before(self):
        target = torch.zeros(3, dtype=torch.uint8)
        with Staging(1, 2) as staging:
            pieces = [staging.take(CPU), staging.take(CPU)]
            self.assertIsNone(staging.take(CPU))
            for i in (1, 0):
                pieces[i].memory[0] = i + 5
                with staging.copying(pieces[i]) as copying:
                    copying.copy(target[i : i + 1], pieces[i].memory)
            self.assertEqual((self.lane.done, target.tolist()), (0, [0, 0, 0]))
            # The one that has been copied from for longer.
            self.assertIs(staging.take(CPU), pieces[1])
            self.assertEqual(target.tolist(), [0, 6, 0])
            pieces[1].memory[0] = 9
            with staging.copying(pieces[1]) as copying:
                copying.copy(target[2:], pieces[1].memory)
            self.assertIs(staging.take(CPU), pieces[0])
        self.assertEqual(target.tolist(), [5, 6, 9])
        self.assertEqual(self.lane.pieces, [1, 1])

    def test_windows_cover_what_is_wanted_and_nothing_else(self):
        for sizes, size in itertools.product(([], [0], [5], [3, 0, 4], [1] * 9, [8, 8], [17, 1]), (1, 3, 8, 100)):
            targets = [memoryview(bytearray(each)) for each in sizes]
            at = 10
            for window in _staging._windows(10, targets, size):
                self.assertEqual((window.offset, window.size <= size), (at, True))
                end = 0
                for begin, part in window.parts:
                    self.assertEqual(begin, end)
                    end += len(part)
                    part[:] = bytes([window.offset + begin + i for i in range(len(part))])
                self.assertEqual(end, window.size)
                at += end
            self.assertEqual(b"".join(targets), bytes(range(10, 10 + sum(sizes))))


class Default(unittest.TestCase):
    """Within `with torch.device(...)`, which says where new tensors are: what is loaded, and the memory that requests write
    to, is where it would be otherwise, as with torch.load."""

    def test_loads_are_where_they_would_be(self):
        wanted = {"x": torch.arange(200_000.0), "y": torch.ones(3)}
        targets = {name: torch.zeros_like(each, dtype=torch.float64) for name, each in wanted.items()}
        with support.client() as client:
            dcp.save(wanted, storage_writer=StorageWriter("gs://new/d", client=client), no_dist=True)
            with torch.device("meta"):
                ours.save_file(wanted, URI, client=client)
                found = [ours.load_file(URI, client=client)]
                checkpoint.save(wanted, "gs://new/c", client=client)
                found.append(checkpoint.load("gs://new/c", client=client))
                dcp.load(targets, storage_reader=StorageReader("gs://new/d", client=client), no_dist=True)
                with ours.safe_open(URI, client=client) as file:
                    part = file.get_slice("x")[5:9:2]
        self.assertEqual((part.device, part.tolist()), (CPU, [5, 7]))
        for each in (*found, targets):
            for name, tensor in wanted.items():
                self.assertEqual(each[name].device, CPU)
                self.assertTrue(torch.equal(each[name].float(), tensor))


class Streams(unittest.TestCase):
    """What a StreamLane asks of PyTorch's module for a device."""

    def setUp(self):
        self.told = told = []

        class Event:
            def __init__(self, **options):
                told.append(("event", options))

            def record(self, stream):
                told.append(("record", stream))

            def synchronize(self):
                told.append("synchronize")

        class Stream:
            def __init__(self, device):
                self.device = device

            def wait_stream(self, other):
                told.append(("wait", self, other))

        @contextlib.contextmanager
        def entered(stream):
            told.append(("enter", stream))
            yield
            told.append(("leave", stream))

        self.current = object()
        self.module = types.SimpleNamespace(
            Event=Event, Stream=Stream, stream=entered, current_stream=lambda device: self.current
        )

    def test_copies_follow_the_current_stream_and_are_waited_for_by_an_event(self):
        device = torch.device("cuda", 0)
        lane = _lane.StreamLane(device, self.module)
        stream = lane._stream
        source = unittest.mock.Mock()
        with (
            unittest.mock.patch.object(lane, "staging", lambda size: source),
            unittest.mock.patch.object(_lane, "open_lane", lambda given: lane),
            Staging(KIB, 2) as staging,
        ):
            piece = staging.take(device)
            target = unittest.mock.Mock(device=device)
            with staging.copying(piece) as copying:
                copying.copy(target, source)
                copying.copy(target, source)
            # The stream keeps the target's memory, whoever waits for the copies.
            copied = [unittest.mock.call.record_stream(stream), unittest.mock.call.copy_(source, non_blocking=True)]
            self.assertEqual(target.mock_calls, 2 * copied)
        marked = [("enter", stream), ("event", {"blocking": True}), ("record", stream), ("leave", stream)]
        self.assertEqual(
            self.told,
            # The mark of the piece, and the one behind all.
            [("wait", stream, self.current), ("enter", stream), ("leave", stream), *marked, *marked, "synchronize"],
        )


if __name__ == "__main__":
    unittest.main()
