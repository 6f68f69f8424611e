"""Writers and readers of ringest.dcp that are used again: by a process checkpointer, by several threads, as
copies, and for another place. Nothing of one save or load is left for the next."""

import contextlib
import copy
import os
import pickle
import signal
import threading
import traceback
import unittest
import warnings

import torch
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.state_dict_saver import AsyncCheckpointerType

import ranks
import ringest
import support
from ringest._dcp_place import Place
from ringest._dcp_reader import _Load, _Planned
from ringest.dcp import CheckpointError, StorageReader, StorageWriter

# Without a process group torch warns that there is none.
warnings.filterwarnings("ignore", category=UserWarning, module="torch")
RUN = "gs://new/run"
STUCK = "gs://new/stuck"
SMALL, LARGE = 1024, 4 << 20  # elements of each rank: 4 KiB, and 16 MiB, which are parts


def load(uri, client, *keys):
    metadata = StorageReader(uri, client=client).read_metadata()
    state = {key: torch.zeros(metadata.state_dict_metadata[key].size) for key in keys}
    dcp.load(state, storage_reader=StorageReader(uri, client=client), no_dist=True)
    return state


def is_there(client, uri):
    try:
        client.stat(uri)
    except ringest.NotFoundError:
        return False
    return True


def data_names(client, uri):
    return [name.rsplit("/", 1)[1] for name, _, _ in client.list(uri + "/__")]


class Writer(StorageWriter):
    """Comes to the commit of the last save, tells so, and stays there."""

    stays_in = 0

    def finish(self, metadata, results):
        self.stays_in -= 1
        if self.stays_in == 0:
            self._given_client.put(STUCK, b"")
            signal.pause()
        super().finish(metadata, results)


def save_by_a_process(rank, place):
    with ringest.Client(*place) as client:
        for size, last in (SMALL, 3), (LARGE, 2):
            writer = Writer(f"{RUN}/{size}", client=client)
            for step in range(1, last + 1):
                # The process has a copy of the writer, made for this save.
                writer.stays_in = 1 if (size, step) == (LARGE, last) else 0
                dcp.async_save(
                    {f"{rank}": torch.full((size,), float(step))},
                    storage_writer=writer,
                    async_checkpointer_type=AsyncCheckpointerType.PROCESS,
                ).result()
                torch.distributed.barrier()


class HeldBack(unittest.TestCase):
    """A byte a second: only what is beside training, and only until the next one."""

    def test_until_the_next_one_is_staged(self):
        with support.emulator() as place, ringest.Client(*place, hedging=False) as client:
            writer = StorageWriter(RUN, client=client, pace=1)
            dcp.save({"x": torch.full((LARGE,), 1.0)}, storage_writer=writer, no_dist=True)

            def save(step):
                state = {"x": torch.full((LARGE,), float(step))}
                return dcp.async_save(state, storage_writer=writer, checkpoint_id=f"{RUN}/{step}", no_dist=True)

            first = save(2)
            copied = pickle.loads(pickle.dumps(writer))
            self.assertEqual((copied._pace, copied._stager < 0), (1, True))
            self.assertFalse(first.done())
            second = save(3)
            first.result(support.PATIENCE_S)
            self.assertFalse(second.done())
            writer._paces.hurry_for_good()
            second.result(support.PATIENCE_S)
            for uri, value in (RUN, 1.0), (f"{RUN}/2", 2.0), (f"{RUN}/3", 3.0):
                self.assertEqual(set(load(uri, client, "x")["x"].tolist()), {value})
            with self.assertRaises(ValueError):
                StorageWriter(RUN, client=client, pace=0)


class Processes(unittest.TestCase):
    def test_a_process_checkpointer_that_is_killed_before_the_commit(self):
        """Three saves of a small checkpoint, and two of a large one, by one writer each. All processes are killed
        before the last commit: the checkpoint before it is whole."""
        with support.emulator() as place, ringest.Client(*place) as client:
            pid = os.fork()
            if pid == 0:
                try:
                    os.setsid()
                    ranks.run(2, save_by_a_process, place)
                except BaseException:
                    traceback.print_exc()
                finally:
                    os._exit(1)
            ended = 0

            def is_stuck_or_ended():
                nonlocal ended
                ended, _ = os.waitpid(pid, os.WNOHANG)
                return ended or is_there(client, STUCK)

            try:
                support.until(is_stuck_or_ended, "a save that is stuck", ranks.PATIENCE_S)
            finally:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(pid, signal.SIGKILL)
                if not ended:
                    os.waitpid(pid, 0)
            self.assertEqual(ended, 0, "a save failed")
            for size, step in (SMALL, 3), (LARGE, 1):
                for loaded in load(f"{RUN}/{size}", client, "0", "1").values():
                    self.assertEqual(set(loaded.tolist()), {float(step)})
            self.assertEqual(len(data_names(client, f"{RUN}/{SMALL}")), 2)
            self.assertEqual(len(data_names(client, f"{RUN}/{LARGE}")), 4)


class Meeting(StorageWriter):
    """Saves that go on when all have come to a certain point."""

    def meet_at(self, barrier):
        self.barrier = barrier
        return self

    def write_data(self, plan, planner):
        self.barrier.wait(ranks.PATIENCE_S)
        return super().write_data(plan, planner)

    def finish(self, metadata, results):
        self.barrier.wait(ranks.PATIENCE_S)
        super().finish(metadata, results)


class Threads(unittest.TestCase):
    def test_saves_to_two_places_at_once(self):
        with support.client() as client:
            writer = Meeting(f"{RUN}/first", client=client).meet_at(threading.Barrier(2))
            values = {f"{RUN}/{value}": float(value) for value in (1, 2)}
            saves = [
                dcp.async_save({"x": torch.full((10,), value)}, checkpoint_id=uri, storage_writer=writer)
                for uri, value in values.items()
            ]
            for each in saves:
                each.result()
            for uri, value in values.items():
                self.assertEqual(float(load(uri, client, "x")["x"].sum()), 10 * value)
                self.assertEqual(len(data_names(client, uri)), 1)

    def test_loads_from_two_places_at_once(self):
        met = threading.Barrier(2)

        class Reader(StorageReader):
            def read_data(self, plan, planner):
                met.wait(ranks.PATIENCE_S)
                return super().read_data(plan, planner)

        with support.client() as client:
            states = {f"{RUN}/{value}": {"x": torch.full((10,), float(value))} for value in (1, 2)}
            for uri, state in states.items():
                dcp.save(state, storage_writer=StorageWriter(uri, client=client))
            reader = Reader(f"{RUN}/first", client=client)
            loaded = {uri: {"x": torch.zeros(10)} for uri in states}
            threads = [
                threading.Thread(
                    target=dcp.load, args=(state,), kwargs={"checkpoint_id": uri, "storage_reader": reader}
                )
                for uri, state in loaded.items()
            ]
            for each in threads:
                each.start()
            for each in threads:
                each.join()
            for uri, state in states.items():
                self.assertEqual(loaded[uri]["x"].tolist(), state["x"].tolist())

    def test_memory_that_a_save_still_reads_is_not_staged_into(self):
        with support.client() as client:
            writer = Meeting(f"{RUN}/first", client=client, cache_staged_state_dict=True)
            met = writer.meet_at(threading.Barrier(2)).barrier
            state = {"x": torch.full((10,), 1.0), "inner": {"y": torch.full((10,), 1.0)}}
            first = dcp.async_save(state, checkpoint_id=f"{RUN}/1", storage_writer=writer)
            state["x"].fill_(2.0)
            state["inner"]["y"].fill_(2.0)
            second = dcp.async_save(state, checkpoint_id=f"{RUN}/2", storage_writer=writer)
            first.result()
            second.result()
            self.assertFalse(met.broken)
            for value in (1, 2):
                found = load(f"{RUN}/{value}", client, "x", "inner.y")
                self.assertEqual({float(each.sum()) for each in found.values()}, {10.0 * value})

    def test_calls_from_several_threads(self):
        """Of programs that make torch's calls themselves."""
        with support.client() as client:
            writer = StorageWriter(f"{RUN}/1", client=client)
            with self.assertRaisesRegex(RuntimeError, "set_up_storage_writer"):
                writer.write_data(dcp.SavePlan([]), dcp.DefaultSavePlanner())
            writer.set_up_storage_writer(True, rank=0, use_collectives=True)
            done = []
            thread = threading.Thread(
                target=lambda: done.append(writer.write_data(dcp.SavePlan([]), dcp.DefaultSavePlanner()))
            )
            thread.start()
            thread.join()
            self.assertEqual(done[0].value(), [])


class Copies(unittest.TestCase):
    def test_each_save_has_names_of_its_own(self):
        with support.client() as client:
            writer = StorageWriter(RUN, client=client)
            seen = set()
            for make in (
                lambda: writer,
                lambda: writer,
                lambda: copy.copy(writer),
                lambda: copy.deepcopy(writer),
                lambda: pickle.loads(pickle.dumps(writer)),
                lambda: pickle.loads(pickle.dumps(writer)),
            ):
                dcp.save({"x": torch.ones(3)}, storage_writer=make())
                (name,) = data_names(client, RUN)
                self.assertNotIn(name, seen)
                seen.add(name)

    def test_forks_of_a_writer_and_a_reader(self):
        with support.emulator() as place, ringest.Client(*place) as client:
            writer, reader = StorageWriter(RUN, client=client), StorageReader(RUN, client=client)
            dcp.save({"x": torch.zeros(10)}, storage_writer=writer)
            names = set(data_names(client, RUN))
            for value in (1.0, 2.0):
                pid = os.fork()
                if pid == 0:
                    status = 1
                    try:
                        dcp.save({"x": torch.full((10,), value)}, storage_writer=writer)
                        state = {"x": torch.zeros(10)}
                        dcp.load(state, storage_reader=reader)
                        status = 0 if state["x"].sum() == 10 * value else 2
                    except BaseException:
                        traceback.print_exc()
                    finally:
                        os._exit(status)
                self.assertEqual(os.waitpid(pid, 0)[1], 0)
                self.assertFalse(names & set(data_names(client, RUN)))
                names |= set(data_names(client, RUN))
            self.assertEqual(float(load(RUN, client, "x")["x"].sum()), 20.0)

    def test_the_memory_of_a_staged_copy_is_not_pickled(self):
        with support.client() as client:
            writer = StorageWriter(RUN, client=client, cache_staged_state_dict=True)
            staged = writer.stage({"x": torch.ones(1 << 20)})
            self.assertLess(len(pickle.dumps(writer)), 10_000)
            self.assertEqual(float(staged["x"].sum()), 1 << 20)

    def test_a_save_that_has_ended_early_hurries_no_other(self):
        with support.client() as client:
            writer = StorageWriter(RUN, client=client, pace=1)
            with self.assertRaises(TypeError):
                writer.stage({"x": threading.Lock()})
            for _ in range(2):  # which are let go of before they are saved
                writer.stage({"x": torch.ones(3)})
            first = writer.stage({"x": torch.ones(3)})
            with writer._paces.one() as each:
                self.assertFalse(each._hurry.is_set())
                second = writer.stage(first)
                self.assertTrue(each._hurry.is_set())
            del first, second

    def test_what_a_load_has_failed_of_is_not_told_by_the_next(self):
        with support.client() as client:
            reader = StorageReader(RUN, client=client)
            client.put(RUN + "/.metadata", b"nonsense")
            for wanted in ("damaged", "no such object"):
                with self.assertRaises(dcp.CheckpointException) as caught:
                    dcp.load({"x": torch.zeros(3)}, storage_reader=reader)
                self.assertIn(wanted, str(caught.exception.failures[0][0]))
                client.delete(RUN + "/.metadata") if wanted == "damaged" else None
            dcp.save({"x": torch.ones(3)}, storage_writer=StorageWriter(RUN, client=client))
            state = {"x": torch.zeros(3)}
            dcp.load(state, storage_reader=reader)
            self.assertEqual(float(state["x"].sum()), 3)


def save_together(client, value, **options):
    dcp.save({"x": torch.full((10,), value)}, storage_writer=StorageWriter(RUN, client=client, **options))


def save_alone(client, value):
    state = {"x": torch.full((10,), value)}
    dcp.save(state, storage_writer=StorageWriter(RUN, client=client), use_collectives=False)


class Alone(StorageReader):
    """Of what a rank saved alone, though there is metadata of all ranks."""

    def read_metadata(self, *args, **kwargs):
        return super().read_metadata(rank=0)


class Kinds(unittest.TestCase):
    """Saves of all ranks together, and of ranks alone (use_collectives=False), in one place."""

    def values(self, client):
        """Of both kinds; None where there is none."""
        found = []
        for kind in StorageReader, Alone:
            state = {"x": torch.zeros(10)}
            try:
                dcp.load(state, storage_reader=kind(RUN, client=client))
            except dcp.CheckpointException as error:
                self.assertIsInstance(error.failures[0][0], ringest.NotFoundError)
                found.append(None)
            else:
                found.append(float(state["x"][0]))
        return found

    def test_neither_removes_what_the_other_needs(self):
        with support.client() as client:
            save_together(client, 1.0)
            with self.assertLogs("ringest", "WARNING") as logged:
                save_alone(client, 2.0)
            self.assertIn("use_collectives=False", logged.output[0])
            self.assertEqual(self.values(client), [1.0, 2.0])
            save_together(client, 3.0)
            self.assertEqual(self.values(client), [3.0, 2.0])
            save_alone(client, 4.0)
            self.assertEqual(self.values(client), [3.0, 4.0])
            # And each removes what it has replaced.
            self.assertEqual(len(data_names(client, RUN)), 3)

    def test_a_save_that_is_under_way_is_not_harmed_by_one_of_the_other_kind(self):
        class Slow(StorageWriter):
            def finish(self, metadata, results):
                meanwhile(client, 1.0)
                super().finish(metadata, results)

        for is_alone, meanwhile in (False, save_alone), (True, save_together):
            with self.subTest(is_alone), support.client() as client:
                # So that there is something to be removed.
                meanwhile(client, 0.0)
                dcp.save(
                    {"x": torch.full((10,), 2.0)},
                    storage_writer=Slow(RUN, client=client),
                    use_collectives=not is_alone,
                )
                self.assertEqual(self.values(client), [1.0, 2.0] if is_alone else [2.0, 1.0])

    def test_names_of_older_versions_and_of_torch(self):
        """Which do not tell the kind: they stay as long as metadata names them."""
        old = {"together": "__0_0.distcp", "alone": "__1_0.0123456789abcdef.distcp"}
        with support.client() as client:
            for name in old.values():
                client.put(f"{RUN}/{name}", b"data")
            client.put(f"{RUN}/.metadata", b"\x8c\x0d" + old["together"].encode() + b"\x94")
            client.put(f"{RUN}/__1.metadata", b"\x8c\x1d" + old["alone"].encode() + b"\x94")
            client.put(f"{RUN}/__7_0.distcp", b"of torch, and nobody knows whose")
            save_alone(client, 1.0)
            self.assertLess(set(old.values()), set(data_names(client, RUN)))
            save_together(client, 1.0)
            left = set(data_names(client, RUN))
            self.assertNotIn(old["together"], left)
            self.assertLess({old["alone"], "__7_0.distcp"}, left)

    def test_data_that_is_gone_before_the_commit(self):
        class Unlucky(StorageWriter):
            def finish(self, metadata, results):
                for name in data_names(client, RUN):
                    client.delete(f"{RUN}/{name}")
                super().finish(metadata, results)

        with support.client() as client, self.assertRaises(dcp.CheckpointException) as caught:
            dcp.save({"x": torch.ones(3)}, storage_writer=Unlucky(RUN, client=client))
        error = caught.exception.failures[0][0]
        self.assertIsInstance(error, CheckpointError)
        self.assertRegex(str(error), "__0_0.*was deleted, by somebody else")

    def test_metadata_that_cannot_be_read_is_not_passed_over(self):
        """What a rank saved alone may be older."""
        with support.client() as client:
            save_alone(client, 1.0)
            client.put(f"{RUN}/.metadata", b"nonsense")
            with self.assertRaises(dcp.CheckpointException) as caught:
                dcp.load({"x": torch.zeros(10)}, storage_reader=StorageReader(RUN, client=client))
            self.assertIn("/.metadata: cannot be read", str(caught.exception.failures[0][0]))

    def test_ranks_that_found_metadata_of_both_kinds(self):
        reader = StorageReader(RUN)

        def plan(name):
            return dcp.LoadPlan([], storage_data=_Planned(f"{RUN}/{name}", 1, 0, False))

        plans = [plan("__0.metadata"), plan("__1.metadata")]
        reader._loads.begin(_Load(Place(RUN, None)))
        self.assertEqual(reader.prepare_global_plan(plans), plans)
        plans.append(plan(".metadata"))
        with self.assertRaisesRegex(CheckpointError, "load it again"):
            reader.prepare_global_plan(plans)


if __name__ == "__main__":
    unittest.main()
