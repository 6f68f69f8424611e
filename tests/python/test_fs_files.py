"""Files of ringest.fs that are written: they appear when they are closed, and never half."""

import bz2
import contextlib
import gc
import gzip
import io
import os
import subprocess
import sys
import unittest
import warnings

import fsspec

import ringest.fs
import support

COMPRESSIONS = ("gzip", "bz2", "xz", "zip")


class Case(unittest.TestCase):
    def setUp(self):
        self.client = self.enterContext(support.client())
        self.fs = ringest.fs.FileSystem(client=self.client)
        ringest.fs.register(self.client)
        self.enterContext(warnings.catch_warnings())
        warnings.simplefilter("error")

    def content(self, path):
        return self.fs.cat_file(path) if self.fs.exists(path) else None

    @contextlib.contextmanager
    def forgotten(self, *paths):
        """Files that are collected without being closed: nothing appears, and that is said."""
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            yield
            gc.collect()
        self.assertEqual(len(said), len(paths), [str(one.message) for one in said])
        for path, one in zip(sorted(paths), sorted(said, key=lambda one: str(one.message)), strict=True):
            self.assertIs(one.category, RuntimeWarning)
            self.assertIn(f"gs://{path}: the file was not closed", str(one.message))
            self.assertIsNone(self.content(path))


class Published(Case):
    def test_every_layer_is_closed_with_the_file(self):
        for name in COMPRESSIONS:
            for mode, data in (("wb", b"some"), ("w", "some"), ("x", "some"), ("xb", b"some")):
                path = f"here/{name}-{mode}"
                with self.subTest(path):
                    with self.fs.open(path, mode, compression=name) as file:
                        file.write(data)
                        self.assertFalse(self.fs.exists(path))
                    with self.fs.open(path, "r", compression=name) as file:
                        self.assertEqual(file.read(), "some")
                    with self.fs.open(path, "rb", compression=name) as file:
                        self.assertEqual((file.read(2), file.read()), (b"so", b"me"))
        file = self.fs.open("here/closed.gz", "wt", compression="infer", encoding="utf-16")
        file.write("grün\nblau\n")
        file.close()
        self.assertEqual(gzip.decompress(self.content("here/closed.gz")).decode("utf-16"), "grün\nblau\n")
        with self.fs.open("here/closed.gz", "rt", compression="infer", encoding="utf-16") as file:
            self.assertEqual(list(file), ["grün\n", "blau\n"])

    def test_layers_of_others(self):
        for path, options in (("here/a", {}), ("here/b.gz", {"compression": "infer"})):
            with fsspec.open(f"gs://{path}", "w", **options) as file:
                file.write("some")
            with fsspec.open(f"gs://{path}", "r", **options) as file:
                self.assertEqual(file.read(), "some")
        with self.fs.open("here/c", "wb") as file, bz2.open(file, "wb") as packed:
            packed.write(b"some")
        self.assertEqual(bz2.decompress(self.content("here/c")), b"some")
        with io.TextIOWrapper(io.BufferedWriter(self.fs.open("here/d", "wb"))) as file:
            file.write("some")
        self.assertEqual(self.content("here/d"), b"some")

    def test_closing_is_publishing_wherever_that_is(self):
        # An exception that was there before, one that has been handled, and one that leaves another `with`.
        try:
            raise KeyError
        except KeyError:
            with self.fs.open("here/handler", "w") as file:
                file.write("some")
        file = self.fs.open("here/later", "wb")
        try:
            file.write(b"some")
            raise KeyError
        except KeyError:
            file.close()

        class Owner:
            def __init__(self, fs):
                self.file = fs.open("here/owned", "w")
                self.file.write("some")

            def __enter__(self):
                return self

            def __exit__(self, *exception):
                self.file.close()

        with self.assertRaises(KeyError), Owner(self.fs):
            raise KeyError
        for name in ("handler", "later", "owned"):
            self.assertEqual(self.content(f"here/{name}"), b"some", name)

    def test_a_file_says_what_it_is(self):
        with self.fs.open("here/a", "wb") as file:
            self.assertEqual((file.mode, file.tell(), file.readable(), file.writable()), ("wb", 0, False, True))
            file.write(b"some")
        with self.fs.open("here/a") as file:
            self.assertEqual((file.mode, file.size), ("rb", 4))

    def test_hints_of_other_filesystems_are_taken(self):
        with self.fs.open("here/a", "wb", block_size=1 << 20, consistency="md5", content_type="text/x") as file:
            file.write(b"some")
        self.assertEqual(self.fs.info("here/a")["contentType"], "text/x")
        with self.fs.open("here/a", "rb", cache_type="readahead", fill_cache=True, block_size=5) as file:
            self.assertEqual(file.read(), b"some")
        for mode in ("rb", "wb"):
            with self.assertRaises((TypeError, ValueError)):
                self.fs.open("here/a", mode, acl="private")


class Left(Case):
    """By an exception: nothing appears, and what was there stays."""

    def left(self, path, opened, data):
        self.fs.pipe_file(path, b"before")
        with self.subTest(path):
            with self.assertRaises(KeyError), opened as file:
                file.write(data)
                file.flush()
                raise KeyError
            gc.collect()
            self.assertEqual(self.content(path), b"before")

    def test_binary_text_and_compressed(self):
        for mode, data in (("wb", b"some"), ("w", "some")):
            self.left(f"here/{mode}", self.fs.open(f"here/{mode}", mode), data)
            for name in COMPRESSIONS:
                path = f"here/{mode}-{name}"
                self.left(path, self.fs.open(path, mode, compression=name), data)

    def test_layers_of_others(self):
        def wrapped(path, *layers):
            file = self.fs.open(path, "wb")
            for layer in layers:
                file = layer(file)
            return file

        self.left("here/text", wrapped("here/text", io.TextIOWrapper), "some")
        self.left("here/buffer", wrapped("here/buffer", io.BufferedWriter), b"some")
        self.left("here/both", wrapped("here/both", io.BufferedWriter, io.TextIOWrapper), "some")
        with self.assertRaises(KeyError):
            self.parquet_writer("here/parquet")
        self.assertIsNone(self.content("here/parquet"))
        self.left("here/closing", wrapped("here/closing", contextlib.closing), b"some")
        for mode, data in (("wb", b"some"), ("w", "some")):
            for options in ({}, {"compression": "gzip"}, {"compression": "xz"}, {"compression": "zip"}):
                path = f"here/open-{mode}-{'-'.join(options.values())}"
                self.left(path, fsspec.open(f"gs://{path}", mode, **options), data)
        with self.assertRaises(KeyError), contextlib.ExitStack() as stack:
            stack.enter_context(self.fs.open("here/stack", "w")).write("some")
            stack.enter_context(fsspec.open("gs://here/open-stack", "w")).write("some")
            raise KeyError
        self.assertEqual((self.content("here/stack"), self.content("here/open-stack")), (None, None))

    def parquet_writer(self, path):
        """As pyarrow's does it: its own `with`, whose end closes the file."""
        source = """
class ParquetWriter:
    def __init__(self, file): self.file = file
    def __enter__(self): return self
    def __exit__(self, *_): self.close()
    def close(self): self.file.close()
"""
        module = {"__name__": "pyarrow.parquet.core"}
        exec(source, module)
        with module["ParquetWriter"](self.fs.open(path, "wb")) as writer:
            writer.file.write(b"some")
            raise KeyError

    def test_a_layer_that_cannot_be_made_leaves_nothing(self):
        with self.assertRaises(LookupError):
            self.fs.open("here/a", "w", encoding="none")
        with self.assertRaises(ValueError):
            self.fs.open("here/a", "wb", compression="none")
        with self.assertRaises(ValueError):
            self.fs.open("here/a", "wb", encoding="utf-8")
        gc.collect()
        self.assertIsNone(self.content("here/a"))

    def test_a_generator_that_is_closed(self):
        def writing(path, opening):
            with opening as file:
                file.write("some")
                yield

        for path, opening in (
            ("here/text", self.fs.open("here/text", "w")),
            ("here/gzip", self.fs.open("here/gzip", "w", compression="gzip")),
            ("here/open", fsspec.open("gs://here/open", "w")),
        ):
            generator = writing(path, opening)
            next(generator)
            generator.close()
            self.assertIsNone(self.content(path), path)

    def test_text_that_cannot_be_encoded(self):
        with self.assertRaises(UnicodeEncodeError), self.fs.open("here/a", "w", encoding="ascii") as file:
            file.write("some")
            file.write("grün")
        self.assertIsNone(self.content("here/a"))


class Forgotten(Case):
    def test_files_that_nobody_closes(self):
        with self.forgotten("here/a", "here/b", "here/c", "here/d"):
            self.fs.open("here/a", "wb").write(b"some")
            self.fs.open("here/b", "w").write("some")
            self.fs.open("here/c", "w", compression="gzip").write("some")
            io.TextIOWrapper(self.fs.open("here/d", "wb")).write("some")

    def test_in_a_cycle_and_in_a_frame_that_an_exception_leaves(self):
        with self.forgotten("here/a", "here/b"):
            holder = [self.fs.open("here/a", "w")]
            holder.append(holder)
            del holder

            def writes():
                file = self.fs.open("here/b", "w")
                file.write("some")
                raise KeyError

            try:
                writes()
            except KeyError:
                pass

    def test_of_fsspec_open(self):
        with self.forgotten("here/a"):
            opened = fsspec.open("gs://here/a", "w")
            opened.open().write("some")
            del opened

    def test_the_end_of_the_interpreter(self):
        with support.emulator() as (endpoint, ca):
            code = (
                "import ringest.fs\n"
                f"fs = ringest.fs.FileSystem(endpoint={endpoint!r}, ca={ca!r})\n"
                "kept = [fs.open('here/a', 'wb'), fs.open('here/b', 'w'), fs.open('here/c', 'w', compression='gzip')]\n"
                "for file in kept:\n"
                "    file.write(b'some' if file.mode == 'wb' else 'some')\n"
                "left = fs.open('here/d', 'w')\n"
                "left.write('some')\n"
            )
            done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=os.environ)
            self.assertEqual(done.returncode, 0, done.stderr)
            with ringest.Client(endpoint, ca) as made:
                fs = ringest.fs.FileSystem(client=made)
                for name in "abcd":
                    self.assertFalse(fs.exists(f"here/{name}"), name)


class Created(Case):
    def test_what_is_there_is_not_even_opened(self):
        self.fs.pipe_file("here/a", b"before")
        for mode in ("x", "xb"):
            with self.assertRaisesRegex(FileExistsError, "gs://here/a"):
                self.fs.open("here/a", mode)
            with self.assertRaises(FileExistsError):
                self.fs.open("here/a", mode, compression="gzip")

    def test_what_comes_meanwhile_is_seen_when_it_is_closed(self):
        file = self.fs.open("here/a", "x")
        file.write("some")
        self.fs.pipe_file("here/a", b"before")
        with self.assertRaisesRegex(FileExistsError, "gs://here/a"):
            file.close()
        self.assertEqual(self.content("here/a"), b"before")

    def test_an_answer_that_is_lost_is_not_somebody_elses(self):
        place = self.client._settings["endpoint"], self.client._settings["ca"]
        made = (
            lambda: self.fs.pipe_file("here/a", b"same", mode="create"),
            lambda: self.fs.open("here/a", "xb").close(),
        )
        for create in made:
            for fault in ("lost", "failed"):
                with (
                    self.subTest(fault),
                    support.Rule(place, bucket="here", writes=True, nth=1, **support.FAULTS[fault]),
                ):
                    create()
                data = self.content("here/a")
                # The same bytes of somebody else.
                self.fs.pipe_file("here/a", data)
                with self.assertRaises(FileExistsError):
                    create()
                self.fs.rm("here/a")

    def test_a_folder_of_that_name_is_not_in_the_way(self):
        self.fs.pipe_file("here/a/b", b"below")
        with self.fs.open("here/a", "xb") as file:
            file.write(b"some")
        self.assertEqual((self.content("here/a"), self.content("here/a/b")), (b"some", b"below"))

    def test_a_generation_to_replace_contradicts(self):
        with self.assertRaisesRegex(ValueError, "replaces no generation"):
            self.fs.open("here/a", "xb", if_generation_match=7)


class Transactions(Case):
    def test_files_appear_together(self):
        self.fs.pipe_file("here/before", b"")
        with self.fs.transaction:
            with self.fs.open("here/a", "wb") as file:
                file.write(b"some")
            with self.fs.open("here/b", "w", compression="gzip") as file:
                file.write("some")
            with self.fs.open("here/c", "x") as file:
                file.write("some")
            self.assertEqual(self.fs.find("here"), ["here/before"])
        self.assertEqual(self.fs.find("here"), ["here/a", "here/b", "here/before", "here/c"])
        self.assertEqual(gzip.decompress(self.content("here/b")), b"some")

    def test_files_that_nobody_closed_are_whole(self):
        with self.fs.transaction:
            for name, options in (
                ("a", {"mode": "w"}),
                ("b", {"mode": "wb"}),
                ("c", {"mode": "w", "compression": "gzip"}),
            ):
                file = self.fs.open(f"here/{name}", **options)
                file.write("some" if "b" not in options["mode"] else b"some")
            del file
        self.assertEqual((self.content("here/a"), self.content("here/b")), (b"some", b"some"))
        self.assertEqual(gzip.decompress(self.content("here/c")), b"some")

    def test_an_exception_in_a_layer_of_others_discards_the_file(self):
        with self.fs.transaction:
            with (
                self.assertRaises(KeyError),
                contextlib.closing(io.TextIOWrapper(self.fs.open("here/a", "wb"))) as file,
            ):
                file.write("some")
                raise KeyError
        self.assertIsNone(self.content("here/a"))

    def test_an_exception_discards_them(self):
        with self.assertRaises(KeyError), self.fs.transaction:
            with self.fs.open("here/a", "w") as file:
                file.write("some")
            raise KeyError
        with self.fs.transaction:
            with self.assertRaises(KeyError), self.fs.open("here/b", "w") as file:
                file.write("some")
                raise KeyError
        self.assertIsNone(self.content("here/a"))
        self.assertIsNone(self.content("here/b"))

    def test_one_that_fails_ends(self):
        """What could not be published takes those behind it along, and nothing that is written afterwards."""
        with self.assertRaises(FileExistsError), self.fs.transaction:
            for name, mode in (("a", "wb"), ("b", "xb"), ("c", "wb")):
                with self.fs.open(f"here/{name}", mode) as file:
                    file.write(b"some")
            self.fs.pipe_file("here/b", b"other")
        self.assertEqual((self.content("here/a"), self.content("here/b")), (b"some", b"other"))
        self.assertIsNone(self.content("here/c"))
        with self.fs.open("here/d", "wb") as file:
            file.write(b"later")
        self.assertEqual(self.content("here/d"), b"later")


if __name__ == "__main__":
    unittest.main()
