"""Ranks that load one safetensors file together: each byte comes once from the bucket; all of them have the whole, or none
has anything."""

import os
import signal
import unittest

import torch
import torch.distributed as dist

import ranks
import ringest
import support
from ringest import _together, _together_object, safetensors

URI = "gs://new/model.safetensors"
KIB = 1 << 10


def state(seed=1):
    torch.manual_seed(seed)
    made = {f"layer{i}": torch.randn(300, 500 + i) for i in range(12)}
    made |= {"bfloat16": torch.randn(40, 50).bfloat16(), "empty": torch.zeros(0, 3), "one": torch.tensor(7)}
    return made | {f"small{i}": torch.full((3,), i, dtype=torch.uint8) for i in range(50)}


def check(loaded, good):
    assert list(loaded.keys()) == list(good.keys())
    assert all(torch.equal(loaded[name], each) for name, each in good.items())


def small_rounds():
    _together.SET_BYTES, _together.PIECE_BYTES_MIN, _together.PIECE_BYTES_MAX = 1024 * KIB, 64 * KIB, 256 * KIB


def load(rank, place, is_small=True, uri=URI, **options):
    """Bytes that this rank received."""
    if is_small:
        small_rounds()
    with ringest.Client(*place, hedging=False) as client:
        alone = safetensors.load_file(uri, client=client)
        before = client.stats()["recv_bytes"]
        check(safetensors.load_file(uri, client=client, process_group=dist.group.WORLD, **options), alone)
        return client.stats()["recv_bytes"] - before


def on_hosts(rank, place, hosts):
    _together._job._host = _together._job._machine = lambda: f"host {rank % hosts}"
    return load(rank, place)


def to_a_device(rank, place):
    """Each to one of its own; how much memory of the CPU was taken meanwhile is told by what was not yet sent there."""
    small_rounds()
    waiting, most = [], []
    empty, to = safetensors._File.empty, torch.Tensor.to

    def noted(file, name):
        made = empty(file, name)
        waiting.append(made.nbytes)
        most.append(sum(waiting))
        return made

    def sent(tensor, *arguments, **options):
        if waiting:
            waiting.pop()
        return to(tensor, *arguments, **options)

    safetensors._File.empty, torch.Tensor.to = noted, sent
    with ringest.Client(*place, hedging=False) as client:
        kinds = ("meta", "cpu")
        loaded = safetensors.load_file(URI, kinds[rank], client=client, process_group=dist.group.WORLD)
    assert {each.device.type for each in loaded.values()} == {kinds[rank]}
    return max(most)


def error_of(place, uri=URI, **options):
    try:
        with ringest.Client(*place, hedging=False, attempts=1) as client:
            safetensors.load_file(uri, client=client, process_group=dist.group.WORLD, **options)
    except Exception as error:
        return type(error).__name__, str(error)
    raise AssertionError("it has loaded")


def opened(rank, place, hosts=1):
    """Reads in several ways. Bytes that this rank received, and those that the ranks want, for each of them."""
    small_rounds()
    _together._job._host = _together._job._machine = lambda: f"host {rank % hosts}"
    good, count = state(), dist.get_world_size()
    steps = []
    with ringest.Client(*place, hedging=False) as client:

        def step(unique):
            steps.append((client.stats()["recv_bytes"] - sum(each for each, _ in steps), unique))

        with safetensors.safe_open(URI, client=client, process_group=dist.group.WORLD) as file:
            assert file.keys() == sorted(good) and file.metadata() is None
            step(min(safetensors.HEADER_SIZE_GUESS, client.stat(URI)["size"]))
            name = f"layer{rank // 2}"
            assert torch.equal(file.get_tensor(name), good[name])
            step(sum(good[f"layer{i}"].nbytes for i in range((count + 1) // 2)))
            loaded = file.get_tensors()
            assert loaded.keys() == good.keys() and all(torch.equal(loaded[name], good[name]) for name in good)
            step(sum(each.nbytes for each in good.values()))
            # Rows that overlap those of the next rank, and columns, which nobody reads alone.
            rows, part = good["layer2"], 300 // count
            index = slice(rank * part, (rank + 1) * part + 20)
            assert torch.equal(file.get_slice("layer2")[index], rows[index])
            step(rows.nbytes)
            assert torch.equal(file.get_slice("layer3")[:, rank::count], good["layer3"][:, rank::count])
            step(good["layer3"].nbytes)
            # What no other rank wants; all of a file beside one tensor of it; next to nothing, and nothing.
            index = slice(rank * part, (rank + 1) * part), 3
            assert torch.equal(file.get_slice("layer4")[index], good["layer4"][index])
            step(good["layer4"].nbytes)
            found = file.get_tensors()["layer5"] if rank == 0 else file.get_tensor("layer5")
            assert torch.equal(found, good["layer5"])
            step(sum(each.nbytes for each in good.values()))
            for name in ("one", "empty", "bfloat16"):
                assert torch.equal(file.get_tensor(name), good[name])
            assert file.get_slice("one")[...] == 7
            step(8192)
    return steps


def opened_small(rank, place, uri):
    with ringest.Client(*place, hedging=False) as client:
        before = client.stats()["requests"]
        with safetensors.safe_open(uri, "pt", "meta", client=client, process_group=dist.group.WORLD) as file:
            assert file.get_tensor("a").is_meta and file.get_tensors().keys() == {"a", "b"}
        with safetensors.safe_open(uri, client=client, process_group=dist.group.WORLD) as file:
            assert torch.equal(file.get_slice("a")[1:, ::2], torch.arange(12).reshape(3, 4)[1:, ::2])
            told = told_by(lambda: file.get_tensor("none" if rank else "a"))
        return told, client.stats()["requests"] - before


def told_by(call):
    try:
        call()
    except Exception as error:
        return type(error).__name__, str(error)
    return None


def with_calls_that_fail(rank, place):
    """What one rank gets wrong, and whether the file can be read then."""
    good = state()
    with (
        ringest.Client(*place, hedging=False, attempts=1) as client,
        safetensors.safe_open(URI, client=client, process_group=dist.group.WORLD) as file,
    ):
        told = [
            told_by(lambda: file.get_tensor("none" if rank == 1 else "layer0")),
            told_by(lambda: file.get_slice("none" if rank == 1 else "layer0")[:5]),
            told_by(lambda: file.get_slice("layer0")[400 if rank == 1 else 5]),
        ]
        compare = safetensors._File._told
        if rank == 1:
            safetensors._File._told = lambda *arguments, **options: compare(*arguments, **options) ^ 1
        told.append(told_by(file.get_tensors))
        assert torch.equal(file.get_tensor("layer1"), good["layer1"])
        return told


def that_leave(rank, place, how):
    """Rank 1 goes while the others read."""
    told = []
    with ringest.Client(*place, hedging=False) as client:
        try:
            with safetensors.safe_open(URI, client=client, process_group=dist.group.WORLD) as file:
                part = file.get_slice("layer0")
                assert torch.equal(file.get_tensor("layer1"), state()["layer1"])
                if rank == 1 and how == "fails":
                    raise KeyError("mine")
                if rank == 1 and how == "is killed":
                    os.kill(os.getpid(), signal.SIGKILL)
                if rank == 1:
                    file.close()
                    told.append(told_by(lambda: file.get_tensor("layer0")))
                    told.append(told_by(lambda: part[:5]))
                    return told
                told.append(told_by(lambda: part[:5]))
                told.append(told_by(lambda: file.get_tensor("layer0")))
        except KeyError as error:
            told.append(str(error))
        finally:
            if how != "is killed":
                # The group is as it was.
                dist.barrier()
    return told


def killed_while_it_reads(rank, place, number):
    small_rounds()
    with (
        ringest.Client(*place, hedging=False, attempts=1) as client,
        safetensors.safe_open(URI, client=client, process_group=dist.group.WORLD) as file,
    ):
        if rank == 1:
            ranks.before_meeting(number, lambda: os.kill(os.getpid(), signal.SIGKILL))
        return told_by(file.get_tensors)


# What two ranks ask for.
LITTLE = {
    "little": ("bfloat16", "small1"),
    "not much": ("layer2", "layer2"),
    "not much again": ("layer3", "layer3"),
    "little and much": ("one", "layer3"),
    "much": ("layer4", "layer5"),
    "not much, once more": ("layer6", "layer6"),
    "other than before": ("layer7", "layer8"),
}


def little(rank, place):
    """Exchanges, and bytes that came, of such calls, and what is not there."""
    good, found = state(), []
    with (
        ringest.Client(*place, hedging=False) as client,
        safetensors.safe_open(URI, client=client, process_group=dist.group.WORLD) as file,
    ):
        for names in LITTLE.values():
            before = client.stats()["recv_bytes"]
            count, got = ranks.exchanges_of(lambda name=names[rank]: file.get_tensor(name))
            assert torch.equal(got, good[names[rank]])
            found.append((count, client.stats()["recv_bytes"] - before))
        told = told_by(lambda: file.get_tensor("none" if rank else "one"))
        assert torch.equal(file.get_tensor("one"), good["one"])
    return found, told


def much(rank, place):
    """Exchanges of calls for all of a file, which is read in one round."""
    _together.NEAR_S, good, found = 0, state(), []
    with (
        ringest.Client(*place, hedging=False) as client,
        safetensors.safe_open(URI, client=client, process_group=dist.group.WORLD) as file,
    ):
        for _ in range(3):
            count, got = ranks.exchanges_of(file.get_tensors)
            assert got.keys() == good.keys() and all(torch.equal(got[name], good[name]) for name in good)
            found.append(count)
        # One rank wants something else.
        count, got = ranks.exchanges_of(lambda: file.get_tensor("layer3") if rank else file.get_tensors()["layer3"])
        assert torch.equal(got, good["layer3"])
    return found, count


def killed_while_little_is_read(rank, place):
    with (
        ringest.Client(*place, hedging=False) as client,
        safetensors.safe_open(URI, client=client, process_group=dist.group.WORLD) as file,
    ):
        if rank == 1:
            safetensors._File.empty = lambda *arguments: os.kill(os.getpid(), signal.SIGKILL)
        return told_by(lambda: file.get_tensor("one"))


def damaged(given):
    told, came = given
    return told, came[:-1] + b"x" if came else came


def with_bytes_that_change_on_the_way(rank, place, calls):
    give = _together.Team.tell_given
    with (
        ringest.Client(*place, hedging=False) as client,
        safetensors.safe_open(URI, client=client, process_group=dist.group.WORLD) as file,
    ):
        for _ in range(calls):
            file.get_tensor("layer1")
        if rank == 1:
            _together.Team.tell_given = lambda *arguments: damaged(give(*arguments))
        told = told_by(lambda: file.get_tensor("layer2"))
        _together.Team.tell_given = give
        assert torch.equal(file.get_tensor("layer2"), state()["layer2"])
    return told


def opened_and_replaced(rank, place, uri, calls):
    with (
        ringest.Client(*place, hedging=False) as client,
        safetensors.safe_open(uri, client=client, process_group=dist.group.WORLD) as file,
    ):
        # From the second call on, the first rank reads ahead.
        for _ in range(calls):
            file.get_tensor("layer1")
        if rank == 0:
            safetensors.save_file(state(2), uri, client=client)
        dist.barrier()
        return told_by(lambda: file.get_tensor("layer0"))


def opened_with_wrong_arguments(rank, place, wrong):
    told = []
    with ringest.Client(*place, hedging=False) as client:
        for options in wrong:
            options = {"client": client, "process_group": dist.group.WORLD} | (options if rank == 1 else {})
            told.append(told_by(lambda options=options: safetensors.safe_open(options.pop("uri", URI), **options)))
    return told


def with_an_error_at(rank, place, number):
    def fail():
        raise MemoryError("no memory for this rank")

    small_rounds()
    if rank == 1:
        ranks.before_meeting(number, fail)
    return error_of(place)


def with_a_device_that_fails(rank, place):
    small_rounds()
    if rank == 1:
        safetensors._File.empty = lambda *arguments: torch.empty(-1)
    return error_of(place)


def with_a_killed_rank(rank, place, number):
    small_rounds()
    if rank == 1:
        ranks.before_meeting(number, lambda: os.kill(os.getpid(), signal.SIGKILL))
    return error_of(place)


def with_a_wrong_checksum(rank, place):
    stat = _together_object.TogetherObject.stat

    def wrong(self, *arguments, **options):
        facts = stat(self, *arguments, **options)
        return {**facts, "crc32c": facts["crc32c"] ^ 1}

    _together_object.TogetherObject.stat = wrong
    return error_of(place)


def with_a_replaced_file(rank, place, number, uri):
    def replace():
        with ringest.Client(*place) as client:
            safetensors.save_file(state(2), uri, client=client)

    small_rounds()
    if rank == 1:
        ranks.before_meeting(number, replace)
    with ringest.Client(*place, hedging=False) as client:
        return float(safetensors.load_file(uri, client=client, process_group=dist.group.WORLD)["layer0"][0, 0])


def of_other_files(rank, place):
    return [error_of(place, f"gs://new/{name}") for name in ("none", "text")]


def with_other_arguments(rank, place):
    return error_of(place, verify=rank == 0)


def with_a_wrong_argument(rank, place, name, value):
    arguments = {"uri": URI} | ({name: value} if rank == 1 else {})
    with ringest.Client(*place, hedging=False) as client:
        try:
            safetensors.load_file(**arguments, client=client, process_group=dist.group.WORLD)
        except Exception as error:
            told = str(error)
        # Nobody goes before all have raised: a rank that is gone would end the others too.
        dist.barrier()
        return told


class Loads(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.place = cls.enterClassContext(support.emulator())
        with ringest.Client(*cls.place) as client:
            safetensors.save_file(state(), URI, client=client)
            cls.size = client.stat(URI)["size"]
            client.put("gs://new/text", b"x" * 300)

    def assert_once(self, received):
        self.assertLessEqual(sum(received), 1.02 * self.size)

    def test_each_byte_comes_once(self):
        for count in (1, 2, 4):
            for is_small in (False, True):
                with self.subTest(count, is_small=is_small):
                    self.assert_once(ranks.run(count, load, self.place, is_small))

    def test_ranks_of_several_hosts(self):
        for count, hosts in ((2, 2), (4, 2)):
            with self.subTest(count=count, hosts=hosts):
                self.assert_once(ranks.run(count, on_hosts, self.place, hosts))

    def test_small_and_empty_files(self):
        for number, given in enumerate(({}, {"a": torch.ones(3)}, {"a": torch.empty(0)})):
            uri = f"gs://new/small{number}.safetensors"
            with ringest.Client(*self.place) as client:
                safetensors.save_file(given, uri, client=client)
            ranks.run(2, load, self.place, True, uri)

    def test_headers_longer_than_the_first_read(self):
        uri = "gs://new/long.safetensors"
        with ringest.Client(*self.place) as client:
            safetensors.save_file(state(), uri, {"notes": "x" * (600 * KIB)}, client=client)
        ranks.run(2, load, self.place, True, uri)

    def test_tensors_go_to_their_device_one_by_one(self):
        for most in ranks.run(2, to_a_device, self.place):
            self.assertLess(most, self.size / 6)

    def test_an_error_of_one_rank_is_one_of_all(self):
        for number in (2, 7, 10):
            with self.subTest(number=number):
                told = ranks.run(3, with_an_error_at, self.place, number)
                self.assertEqual(told, [("MemoryError", "no memory for this rank")] * 3)

    def test_what_one_rank_has_no_memory_for_none_gets(self):
        kinds = {kind for kind, _ in ranks.run(2, with_a_device_that_fails, self.place)}
        self.assertEqual(len(kinds & {"RuntimeError", "GroupError"}), len(kinds))

    def test_a_killed_rank_is_missed(self):
        for number in (2, 5, 10):
            with self.subTest(number=number):
                told = ranks.run(3, with_a_killed_rank, self.place, number, killed=(1,))
                for kind, text in (told[0], told[2]):
                    self.assertEqual(kind, "GroupError")
                    self.assertIn(URI, text)

    def test_a_file_that_is_replaced_is_not_mixed(self):
        good = [float(state(seed)["layer0"][0, 0]) for seed in (1, 2)]
        uri = "gs://new/replaced.safetensors"
        for number in (3, 7, 10):
            with self.subTest(number=number), ringest.Client(*self.place) as client:
                safetensors.save_file(state(), uri, client=client)
                found = ranks.run(3, with_a_replaced_file, self.place, number, uri)
                self.assertEqual(len(set(found)), 1)
                self.assertIn(found[0], good)

    def test_what_came_is_compared(self):
        for kind, text in ranks.run(2, with_a_wrong_checksum, self.place):
            self.assertEqual(kind, "ChecksumError")
            self.assertIn(URI, text)

    def test_what_is_no_file_is_told_to_all(self):
        for missing, text in ranks.run(2, of_other_files, self.place):
            self.assertEqual(missing[0], "NotFoundError")
            self.assertEqual(text[0], "SafetensorError")

    def test_a_wrong_argument_of_one_rank_is_told_to_all(self):
        for name, value, want in (("device", "nothing", "device type"), ("uri", None, "expected str")):
            for text in ranks.run(2, with_a_wrong_argument, self.place, name, value):
                self.assertIn(want, text)
                self.assertNotIn("was lost", text)

    def test_ranks_that_ask_for_different_things(self):
        for kind, text in ranks.run(2, with_other_arguments, self.place):
            self.assertEqual(kind, "ValueError")
            self.assertIn("different things", text)

    def test_an_open_file_gives_each_byte_once(self):
        for count, hosts in ((1, 1), (3, 1), (4, 2)):
            with self.subTest(count=count, hosts=hosts):
                for number, step in enumerate(zip(*ranks.run(count, opened, self.place, hosts), strict=True)):
                    unique = step[0][1]
                    self.assertLessEqual(sum(got for got, _ in step), 1.02 * unique + 16 * KIB * count, number)

    def test_an_open_file_that_is_small(self):
        uri = "gs://new/opened.safetensors"
        with ringest.Client(*self.place) as client:
            safetensors.save_file({"a": torch.arange(12).reshape(3, 4), "b": torch.ones(2)}, uri, client=client)
        for told, _ in ranks.run(2, opened_small, self.place, uri):
            self.assertEqual(told, ("SafetensorError", f"{uri}: has no tensor none"))

    def test_calls_that_fail_do_so_for_all(self):
        for name, part, index, compared in ranks.run(3, with_calls_that_fail, self.place):
            self.assertEqual(name, ("SafetensorError", f"{URI}: has no tensor none"))
            self.assertEqual(part, name)
            self.assertIn("400 is beyond", index[1])
            self.assertEqual(compared[0], "ChecksumError")

    def test_a_rank_that_leaves_an_open_file_ends_it(self):
        for how, cause in (("closes", "rank 1 has closed it"), ("fails", "rank 1 has failed")):
            with self.subTest(how):
                first, second, third = ranks.run(3, that_leave, self.place, how)
                self.assertEqual(second, [("ValueError", "the file is closed")] * 2 if how == "closes" else ["'mine'"])
                for told in (*first, *third):
                    self.assertEqual(told[0], "GroupError")
                    self.assertIn(f"{URI}: {cause}", told[1])

    def test_a_rank_that_is_killed_ends_an_open_file(self):
        first, _, third = ranks.run(3, that_leave, self.place, "is killed", killed=(1,))
        found = [*first, *third]
        for number in (1, 4, 7):
            found += ranks.run(2, killed_while_it_reads, self.place, number, killed=(1,))[:1]
        for kind, text in found:
            self.assertEqual(kind, "GroupError")
            self.assertIn(f"{URI}: another rank of the process group was lost", text)

    def test_who_wants_little_waits_for_one_exchange(self):
        (first, first_told), (second, second_told) = ranks.run(2, little, self.place)
        counts = dict(zip(LITTLE, [count for count, _ in first], strict=True))
        self.assertEqual(counts["little"], 1)
        self.assertLessEqual(counts["not much"], 5)
        # The first rank has read it before the others say that they want it, too.
        self.assertEqual(counts["not much again"], 2)
        self.assertGreater(counts["much"], counts["not much"])
        # Each byte of a tensor that both want comes once.
        for number, name in ((1, "layer2"), (2, "layer3"), (5, "layer6")):
            both = first[number][1] + second[number][1]
            self.assertLessEqual(both, 1.02 * state()[name].nbytes + 16 * KIB)
        self.assertEqual(first_told, ("SafetensorError", f"{URI}: has no tensor none"))
        self.assertEqual(second_told, first_told)

    def test_what_all_want_takes_few_exchanges(self):
        for (first, *others), different in ranks.run(2, much, self.place):
            # With the memory that was made for the first call.
            self.assertEqual(others, [3, 3])
            self.assertEqual(first, 8)
            self.assertEqual(different, 6)

    def test_a_rank_that_is_killed_while_little_is_read_is_missed(self):
        first, _, third = ranks.run(3, killed_while_little_is_read, self.place, killed=(1,))
        self.assertEqual(first[0], "GroupError")
        self.assertEqual(third[0], "GroupError")

    def test_what_is_given_on_is_compared(self):
        for calls in (0, 3):
            for kind, text in ranks.run(2, with_bytes_that_change_on_the_way, self.place, calls):
                self.assertEqual(kind, "ChecksumError")
                self.assertIn("other than it had read them", text)

    def test_an_open_file_that_is_replaced_is_missing(self):
        uri = "gs://new/replaced.safetensors"
        for calls in (0, 2):
            with ringest.Client(*self.place) as client:
                safetensors.save_file(state(), uri, client=client)
            for kind, text in ranks.run(2, opened_and_replaced, self.place, uri, calls):
                self.assertEqual(kind, "NotFoundError")
                self.assertIn(uri, text)

    def test_what_is_wrong_with_the_opening_of_one_rank_is_told_to_all(self):
        wrong = (
            ({"framework": "numpy"}, "framework must be 'pt'"),
            ({"device": "nothing"}, "device type"),
            ({"generation": 5}, "different things"),
            ({"uri": "gs://new/text"}, "different things"),
        )
        for told in ranks.run(2, opened_with_wrong_arguments, self.place, [options for options, _ in wrong]):
            for (_, text), (_, want) in zip(told, wrong, strict=True):
                self.assertIn(want, text)


if __name__ == "__main__":
    unittest.main()
