"""Every number that a call is given: what it may not be is an error that names the argument, the value and the range."""

import contextlib
import fractions
import unittest

import ringest
import ringest.checkpoint
import support
from ringest import _core

URI = support.uri(1)
LARGE, SIZE = 2**63 - 1, 2**64 - 1
NO_NUMBERS = (True, False, 1.0, float("nan"), "1", b"1", [1], fractions.Fraction(1))


class Number:
    def __init__(self, value):
        self.value = value

    def __index__(self):
        return self.value


class Raising:
    def __index__(self):
        raise KeyError("mine")


class Numbers(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.stack = contextlib.ExitStack()
        cls.endpoint, cls.ca = cls.stack.enter_context(support.emulator())
        cls.client = cls.stack.enter_context(ringest.Client(cls.endpoint, cls.ca, threads=1))
        cls.objects = _core.Objects("data", support.entries())

    @classmethod
    def tearDownClass(cls):
        cls.stack.close()

    def arguments(self):
        """(name in messages, least, most, what is called with the number)."""
        yield from self.arguments_of_clients()
        yield from self.arguments_of_readers()
        yield from self.arguments_of_the_core()
        yield from self.arguments_of_datasets()

    def arguments_of_clients(self):
        client, core, into = self.client, _core.Client, bytearray(10)
        yield "offset", 0, LARGE, lambda n: client.get(URI, offset=n)
        yield "length", 0, LARGE, lambda n: client.get(URI, length=n)
        yield "generation", 0, LARGE, lambda n: client.get(URI, generation=n)
        yield "offset of a range", 0, LARGE, lambda n: client.get_ranges(URI, [(0, 1), (n, 1)])
        yield "length of a range", 0, LARGE, lambda n: client.get_ranges(URI, [(0, n)])
        yield "generation", 0, LARGE, lambda n: client.get_ranges(URI, [], generation=n)
        yield "gap", 0, LARGE, lambda n: client.get_ranges(URI, [], gap=n)
        yield "offset of a request", 0, LARGE, lambda n: client.get_into(URI, [(n, into)])
        yield "generation", 0, LARGE, lambda n: client.get_into(URI, [(0, into)], generation=n)
        yield "gap_max", 0, LARGE, lambda n: client.get_into(URI, [(0, into)], gap_max=n)
        yield "if_generation_match", 0, LARGE, lambda n: client.put("gs://mine/x", b"", if_generation_match=n)
        yield "generation", 0, LARGE, lambda n: client.stat(URI, generation=n)
        yield "generation", 0, LARGE, lambda n: client.delete("gs://mine/x", generation=n)
        yield "if_generation_match", 0, LARGE, lambda n: client.delete("gs://mine/x", if_generation_match=n)
        yield "generation", 0, LARGE, lambda n: client.copy(URI, "gs://mine/x", generation=n)
        yield "if_generation_match", 0, LARGE, lambda n: client.copy(URI, "gs://mine/x", if_generation_match=n)
        yield "generation", 0, LARGE, lambda n: client.update(URI, content_type="a/b", generation=n)
        yield "if_generation_match", 0, LARGE, lambda n: client.update(URI, content_type="a", if_generation_match=n)
        yield (
            "if_metageneration_match",
            1,
            LARGE,
            lambda n: client.update(URI, content_type="a", if_metageneration_match=n),
        )
        yield "if_generation_match", 0, LARGE, lambda n: client.compose(URI, [URI], if_generation_match=n)
        yield "generation", 0, LARGE, lambda n: client.compose(URI, [(URI, n)])
        yield "limit", 0, 2**32 - 1, lambda n: client.list_folder("gs://data/", limit=n)
        yield "batch", 1, 2**20, lambda n: client.get_many([URI], batch=n)
        yield "requests", 1, 65536, lambda n: client.put_many([], requests=n)
        yield "part_size", 0, None, lambda n: client.writer("gs://mine/x", part_size=n)
        yield "parts_in_flight", 0, 128, lambda n: client.writer("gs://mine/x", parts_in_flight=n)
        yield "size_hint", 0, 5 << 40, lambda n: client.writer("gs://mine/x", size_hint=n)
        yield "if_generation_match", 0, LARGE, lambda n: client.writer("gs://mine/x", if_generation_match=n)
        yield "generation", 0, LARGE, lambda n: _core.ObjectReader(client, URI, generation=n)
        yield "offset", 0, LARGE, lambda n: _core.ObjectReader(client, URI).read_at(n, into)
        yield "generation", 0, LARGE, lambda n: ringest.checkpoint.open(URI, client=client, generation=n)
        for name, most in (("threads", 256), ("connections", 65536), ("attempts", 1000)):
            yield name, 1, most, lambda n, name=name: core(**{name: n})
            yield name, 1, most, lambda n, name=name: ringest.Client(**{name: n})
        yield "capacity", 1, 65536, lambda n: _core.Queue(client, n)
        yield "ticket", 0, SIZE, lambda n: _core.Queue(client, 1).cancel(n)

    def arguments_of_readers(self):
        def reader(name, value):
            return _core.Reader(self.client, self.objects, **{name: value})

        for name, most in (("seed", SIZE), ("epoch", SIZE), ("remainder", 2), ("changed", 2)):
            yield name, 0, most, lambda n, name=name: reader(name, n)
        for name in ("rank", "world_size", "worker", "worker_count", "batch_size"):
            yield name, 0, 2**32 - 1, lambda n, name=name: reader(name, n)
        yield "requests", 0, 65536, lambda n: reader("window_requests", n)
        yield "prefetch", 0, LARGE, lambda n: reader("window_bytes", n)
        yield "coalesce", 0, LARGE, lambda n: reader("request_bytes", n)
        yield "index", 0, SIZE, lambda n: reader("indices", [n])
        yield "count", 1, 65536, lambda n: reader("seed", 1).take(n)
        yield "count", 1, 65536, lambda n: reader("seed", 1).take_data(n)
        yield "count", 1, SIZE, lambda n: reader("seed", 1).take_some(n)

    def arguments_of_the_core(self):
        client = self.client
        yield "'x': size", 0, LARGE, lambda n: _core.Objects("data", [("x", n, 0)])
        yield "'x': generation", 0, LARGE, lambda n: _core.Objects("data", [("x", 0, n)])
        yield "'x': size", 0, LARGE, lambda n: _core.TarIndex.scan(client, "data", [("x", n, 0)])
        yield "'x': generation", 0, LARGE, lambda n: _core.TarIndex.scan(client, "data", [("x", 0, n)])
        yield "at_once", 0, 4096, lambda n: _core.TarIndex.scan(client, "data", [], at_once=n)
        yield "crc", 0, 2**32 - 1, lambda n: _core.crc32c(b"", n)
        yield "first", 0, 2**32 - 1, lambda n: _core.crc32c_combine(n, 0, 0)
        yield "second", 0, 2**32 - 1, lambda n: _core.crc32c_combine(0, n, 0)
        yield "size", 0, SIZE, lambda n: _core.crc32c_combine(0, 0, n)

    def arguments_of_datasets(self):
        def dataset(name, value):
            return ringest.IterableDataset("gs://data/", client=self.client, manifest=self.objects, **{name: value})

        yield "seed", 0, SIZE, lambda n: dataset("seed", n)
        yield "requests", 0, 65536, lambda n: dataset("requests", n)
        yield "batch_size", 1, 65536, lambda n: dataset("batch_size", n)
        yield "prefetch", 0, LARGE, lambda n: dataset("prefetch", n)
        yield "epoch", 0, SIZE, lambda n: dataset("seed", 0).set_epoch(n)

    def test_what_is_out_of_range_is_named(self):
        for name, least, most, call in self.arguments():
            wrong = [least - 1, -(2**63), -(2**64), 2**64, 2**64 + 1, 10**30]
            wrong += [] if most is None else [most + 1]
            wrong += [2**63] if most is not None and most < 2**63 else []
            for number in wrong:
                with self.subTest(name=name, number=number), self.assertRaises(ValueError) as caught:
                    call(number)
                self.assertIn(f"{name} must be {least} to ", str(caught.exception))

    def test_what_is_no_number_is_named(self):
        texts = ("memory", "part_size", "prefetch", "coalesce")  # "1MiB" is one of these
        for name, _, _, call in self.arguments():
            for value in NO_NUMBERS:
                if isinstance(value, str) and name in texts:
                    continue
                with self.subTest(name=name, value=value), self.assertRaises(TypeError) as caught:
                    call(value)
                self.assertTrue(str(caught.exception).endswith(f"{name} must be a whole number, got {value!r}"))

    def test_what_raises_when_it_is_asked_raises(self):
        for name, _, _, call in self.arguments():
            with self.subTest(name), self.assertRaisesRegex(KeyError, "mine"):
                call(Raising())

    def test_the_ends_of_ranges_are_numbers(self):
        """They may be refused for what they mean, but not as numbers."""
        for name, least, most, call in self.arguments():
            for number in (least, Number(least), least if most is None else most):
                with self.subTest(name=name, number=number):
                    try:
                        call(number)
                    except (ValueError, OSError, MemoryError, EOFError) as error:
                        self.assertNotRegex(str(error), f"^{name} must be")

    def test_zero_and_none(self):
        client = self.client
        generation = client.put("gs://mine/zero", b"1", if_generation_match=None)
        with self.assertRaises(ringest.PreconditionError):
            client.put("gs://mine/zero", b"2", if_generation_match=0)  # there must be none
        self.assertEqual(client.get("gs://mine/zero", generation=0), b"1")  # the newest
        client.delete("gs://mine/zero", generation=generation, if_generation_match=generation)
        with self.assertRaises(ValueError):
            client.put("gs://mine/zero", b"3", if_generation_match=-1)
        with self.assertRaises(ringest.NotFoundError):
            client.stat("gs://mine/zero")
        with client.writer("gs://mine/zero", if_generation_match=0) as writer:
            writer.write(b"4")
        with (
            self.assertRaises(ringest.PreconditionError),
            client.writer("gs://mine/zero", if_generation_match=0) as writer,
        ):
            writer.write(b"5")

    def test_by_index(self):
        dataset = ringest.MapDataset("gs://data/", client=self.client, manifest=self.objects)
        for wrong in (support.COUNT, -support.COUNT - 1, 2**63, -(2**63), 2**64):
            with self.subTest(wrong), self.assertRaisesRegex(IndexError, str(wrong)):
                dataset[wrong]
        for wrong in (1.0, "1", None):
            with self.subTest(wrong), self.assertRaises(TypeError):
                dataset[wrong]


if __name__ == "__main__":
    unittest.main()
