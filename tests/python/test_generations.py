"""Older generations of an object, in a bucket that keeps them: all that reads can be asked for one, and what was opened
once stays of one."""

import io
import unittest

import safetensors.torch
import torch

import ringest
import support
from ringest import checkpoint
from ringest.fs import FileSystem
from ringest.safetensors import load_file, safe_open, save_file

URI = "gs://kept/object"


class Kept(unittest.TestCase):
    """A large object, replaced by a small one, and that deleted."""

    def setUp(self):
        self.endpoint, self.ca = self.enterContext(support.emulator())
        support.make_bucket(self.endpoint, self.ca, "kept", versioning={"enabled": True})
        self.client = self.enterContext(ringest.Client(self.endpoint, self.ca))

    def write(self, old, new):
        """The generation of the old one."""
        generation = self.client.put(URI, old)
        self.client.put(URI, new)
        return generation

    def each_state(self):
        """The newest one is smaller than the old one, larger, and gone."""
        yield "smaller"
        self.client.put(URI, bytes(300_000))
        yield "larger"
        self.client.delete(URI)
        with self.assertRaises(ringest.NotFoundError):
            self.client.stat(URI)
        yield "gone"

    def test_bytes(self):
        data = bytes(range(250)) * 400
        generation = self.write(data, b"new")
        fs = FileSystem(client=self.client, skip_instance_cache=True)
        for state in self.each_state():
            with self.subTest(state):
                self.assertEqual(self.client.stat(URI, generation=generation)["size"], len(data))
                self.assertEqual(bytes(self.client.get(URI, generation=generation)), data)
                ranges = [(99_990, 10), (0, 10)]
                found = self.client.get_ranges(URI, ranges, generation=generation)
                self.assertEqual([bytes(each) for each in found], [data[-10:], data[:10]])
                memory = bytearray(len(data))
                self.assertEqual(self.client.get_into(URI, [(0, memory)], generation=generation), generation)
                self.assertEqual(memory, data)
                for opened in (
                    checkpoint.open(URI, client=self.client, generation=generation),
                    fs.open(URI, "rb", generation=generation),
                ):
                    with opened as file:
                        self.assertEqual((file.size, file.generation), (len(data), generation))
                        self.assertEqual(file.read(), data)
                        file.seek(-5, io.SEEK_END)
                        self.assertEqual(file.read(), data[-5:])
                with self.assertRaisesRegex(ringest.NotFoundError, URI):
                    checkpoint.open(URI, client=self.client, generation=generation + 1)

    def test_what_was_opened_stays_of_its_generation(self):
        data = bytes(range(250)) * 40_000
        self.client.put(URI, data)
        with checkpoint.open(URI, client=self.client) as file, checkpoint.open(URI, client=self.client) as lazy:
            self.assertEqual(file.read(10), data[:10])
            self.client.put(URI, b"new")
            self.assertEqual(file.read(), data[10:])
            self.client.delete(URI)
            self.assertEqual(lazy.read(), data)

    def test_checkpoints(self):
        state = {"x": torch.randn(100_000), "y": torch.arange(10)}
        for modern in (True, False):
            file = io.BytesIO()
            torch.save(state, file, _use_new_zipfile_serialization=modern)
            generation = self.write(file.getvalue(), b"PK no checkpoint")
            for newest in self.each_state():
                with self.subTest(f"{modern} {newest}"):
                    loaded = checkpoint.load(URI, client=self.client, generation=generation)
                    self.assertTrue(all(torch.equal(loaded[key], state[key]) for key in state))
                    empty = checkpoint.load(URI, client=self.client, generation=generation, map_location="meta")
                    self.assertEqual(empty["x"].shape, state["x"].shape)

    def test_safetensors(self):
        state = {"x": torch.randn(100_000), "y": torch.arange(10)}
        generation = self.write(safetensors.torch.save(state), b"new")
        for newest in self.each_state():
            with self.subTest(newest):
                loaded = load_file(URI, client=self.client, generation=generation)
                self.assertTrue(all(torch.equal(loaded[key], state[key]) for key in state))
                with safe_open(URI, client=self.client, generation=generation) as file:
                    self.assertTrue(torch.equal(file.get_slice("x")[5:50], state["x"][5:50]))


class Replaced(unittest.TestCase):
    """Where old generations are not kept: what is replaced again and again is loaded all the same."""

    def test_whole_files(self):
        class Late(ringest.Client):
            """The object is replaced behind the first look at it."""

            left = 0

            def stat(self, uri, **options):
                facts = super().stat(uri, **options)
                if self.left:
                    self.left -= 1
                    replace()
                return facts

        with support.emulator(buckets=("kept",)) as place, ringest.Client(*place) as client, Late(*place) as late:
            for save, load in (checkpoint.save, checkpoint.load), (save_file, load_file):
                value = 0

                def replace():
                    nonlocal value
                    value += 1
                    save({"x": torch.full((100_000,), float(value))}, URI, client=client)

                replace()
                late.left = 2
                self.assertEqual(set(load(URI, client=late)["x"].tolist()), {3.0})
                late.left = 20
                with self.assertRaisesRegex(ringest.NotFoundError, URI):
                    load(URI, client=late)
                late.left = 0
                with self.assertRaises(ringest.NotFoundError):
                    load(URI, client=late, generation=1)


if __name__ == "__main__":
    unittest.main()
