"""What a new user gets wrong: each is refused where it is given, with the object, the cause and the remedy."""

import functools
import importlib
import io
import logging
import os
import pickle
import subprocess
import sys
import tarfile
import tempfile
import unittest
import unittest.mock
import warnings

import pyarrow
import pyarrow.parquet
import safetensors.torch
import torch
from torch.utils.data import DataLoader

import ringest
import ringest.dataset
import ringest.retention
import ringest.safetensors
import support


def run(script, *modules, env=None):
    """A process in which these modules are not installed; gives the last line that it said."""
    finder = (
        "import sys\n"
        "class Finder:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        f"        if name.partition('.')[0] in {modules!r}:\n"
        "            raise ModuleNotFoundError(f'No module named {name!r}', name=name)\n"
        "sys.meta_path.insert(0, Finder())\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", finder + script], capture_output=True, text=True, env={**os.environ, **(env or {})}
    )
    return done.stderr.strip().splitlines()[-1] if done.stderr else ""


class Calls:
    """A transform that is an object."""

    def __init__(self, *functions):
        self.functions = functions

    def __call__(self, item):
        return self.run(item)

    def run(self, item):
        return [function(item) for function in self.functions]


class Inputs(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.client = cls.enterClassContext(support.client(hedging=False))
        cls.folder = cls.enterClassContext(tempfile.TemporaryDirectory())

    def path(self, name):
        return os.path.join(self.folder, name)

    def check(self, kind, text, call, *arguments, **options):
        with self.subTest(text), self.assertRaises(kind) as raised:
            call(*arguments, **options)
        self.assertIn(text, str(raised.exception))

    def test_clients_and_objects(self):
        client, check = self.client, self.check
        check(
            ValueError,
            "endpoint must be https://HOST[:PORT], http://HOST[:PORT] or HOST:PORT, got 'ftp://x'",
            ringest.Client,
            "ftp://x",
        )
        check(TypeError, "hedging must be True or False, got 'off'", ringest.Client, hedging="off")
        check(ValueError, "'data/x' is not of the form gs://BUCKET/NAME", client.get, "data/x")
        check(
            TypeError, "gs://mine/a: data of type <class 'str'>: it must be bytes-like", client.put, "gs://mine/a", "x"
        )
        check(TypeError, "get_many takes a list of URIs, not one", client.get_many, "gs://data/x")
        check(TypeError, "offset must be a whole number, got '5'", client.get, support.uri(1), offset="5")
        check(ValueError, "in another bucket", client.compose, "gs://mine/a", ["gs://other/b"])
        check(FileNotFoundError, "gs://data/none", client.get, "gs://data/none")

    def test_lists_and_pairs(self):
        client, check, uri = self.client, self.check, "gs://mine/pairs"
        client.put(uri, b"12345")
        pair = f"{uri}: a range is (offset, length), not "
        for wrong in (5, (0,), (1, 2, 3)):
            check(TypeError, f"{pair}{wrong!r}", client.get_ranges, uri, [wrong])
        check(TypeError, f"{uri}: ranges must be a list of (offset, length), got 5", client.get_ranges, uri, 5)
        check(TypeError, f"'{uri}': offset of a range must be a whole number", client.get_ranges, uri, [("a", 1)])
        check(TypeError, f"{uri}: a request is (offset, buffer), not 5", client.get_into, uri, [5])
        check(TypeError, f"{uri}: requests must be a list of (offset, buffer), got 5", client.get_into, uri, 5)
        text = "the memory for offset 3 is of <class 'bytes'>; it must be writable"
        check(BufferError, text, client.get_into, uri, [(3, b"x")])
        check(TypeError, f"{uri}: sources must be a list of URIs, got 5", client.compose, uri, 5)
        check(TypeError, f"{uri}: a value of metadata must be a str, got 5", client.update, uri, metadata={"a": 5})
        check(TypeError, "an object is a URI or (uri, generation), not 5", client.delete, [5])
        check(TypeError, "delete takes a URI or a list of them, got 5", client.delete, 5)
        check(TypeError, f"'{uri}': generation must be a whole number", client.delete, [(uri, "z")])
        form = "put_many takes a list of (uri, data)"
        check(TypeError, f"{form}, got 5", client.put_many, 5)
        check(TypeError, f"{form}, got a dict: give its items()", client.put_many, {uri: b""})
        check(TypeError, f"{form}, and one item is '{uri}'", client.put_many, [uri])
        check(TypeError, f"{form}, and one item is of type int", client.put_many, [5])
        check(
            ExceptionGroup,
            f"2 objects could not be removed, the first: {uri}-1: no such object",
            client.delete,
            [f"{uri}-1", f"{uri}-2"],
        )

    def test_texts_that_are_none(self):
        client, check, uri = self.client, self.check, "gs://mine/text"
        check(TypeError, "content_type must be a str or None, got 5", client.put, uri, b"", content_type=5)
        check(TypeError, "content_type must be a str or None, got 5", client.writer, uri, content_type=5)
        check(TypeError, "content_type must be a str or None, got 5", client.compose, uri, [uri], content_type=5)
        check(ValueError, "content_type must have no null character", client.put, uri, b"", content_type="a\0b")
        for name in ("content_type", "content_encoding", "cache_control"):
            check(TypeError, f"{name} must be a str or None, got 5", client.update, uri, **{name: 5})
        for name in ("glob", "start_offset", "end_offset"):
            check(TypeError, f"{name} must be a str or None, got 5", client.list, "gs://mine/", **{name: 5})
        check(TypeError, "client must be a Client or None, got 5", ringest.stats, 5)
        check(ValueError, "proxy is 'foo'; expected http://[USER:PASSWORD@]HOST[:PORT]", ringest.Client, proxy="foo")

    def test_buckets_in_the_place_of_objects(self):
        client, check = self.client, self.check
        for call in (client.get, client.stat, client.writer, lambda uri: client.put(uri, b"")):
            check(ValueError, "'gs://mine/': a bucket; here an object is needed, gs://BUCKET/NAME", call, "gs://mine/")
            text = "'gs://mine' is not of the form gs://BUCKET/NAME: there is no / behind the bucket"
            check(ValueError, text, call, "gs://mine")
        check(ValueError, "'gs://ab/': Cloud Storage would refuse the name", client.list, "gs://ab/")

    def test_arguments_of_other_calls(self):
        client, check = self.client, self.check
        client.put("gs://mine/one", b"1")
        check(ValueError, "'gs://mine/': a bucket; here an", client.copy, "gs://mine/one", "gs://mine/")
        for name in ("glob", "start_offset", "end_offset"):
            check(TypeError, f"{name} must be a str or None, got 5", client.list, "gs://mine/", **{name: 5})
        retain = ringest.retention.retain
        check(ValueError, "keep_last must be at least 1, got 0", retain, "gs://mine/", keep_last=0)
        check(ValueError, "keep_every must be at least 0, got -1", retain, "gs://mine/", keep_last=1, keep_every=-1)
        save = ringest.safetensors.save_file
        check(TypeError, "'a' is of type int, and must be a tensor", save, {"a": 1}, "gs://mine/s")

    def test_public_classes_are_called_by_their_public_names(self):
        """In tracebacks, in pickles, and in what others print of a type."""
        # Ray is large, and only where script/soak puts it.
        names = [name for name in ringest._MODULES if name != "ray" or importlib.util.find_spec("ray")]
        for module in (importlib.import_module(f"ringest.{name}".rstrip(".")) for name in ["", *names]):
            for name in getattr(module, "__all__", []):
                thing = getattr(module, name)
                if isinstance(thing, type):
                    with self.subTest(f"{module.__name__}.{name}"):
                        self.assertNotIn("._", thing.__module__)
                        self.assertIs(pickle.loads(pickle.dumps(thing)), thing)

    def test_a_warning_is_seen_without_any_logging_set_up(self):
        said = run(
            "import ringest; ringest.Client(credentials='default')", env={"STORAGE_EMULATOR_HOST": "localhost:1"}
        )
        self.assertIn("credentials='default' is not used: STORAGE_EMULATOR_HOST is set", said)

    def test_datasets(self):
        check, client = self.check, self.client
        streamed, mapped = ringest.IterableDataset, ringest.MapDataset
        check(
            TypeError,
            "an index of objects must be a whole number, 0 to 499, got 'a'",
            lambda: mapped("gs://data/x-", client=client)["a"],
        )
        check(
            IndexError,
            "index 500 is out of range: there are 500 objects",
            lambda: mapped("gs://data/x-", client=client)[500],
        )
        check(TypeError, "shuffle must be True or False, got 'yes'", streamed, "gs://data/x-", shuffle="yes")
        check(TypeError, "ordered must be True or False, got 'no'", streamed, "gs://data/x-", ordered="no")
        check(TypeError, "folder_markers must be True or False, got None", mapped, "gs://data/x-", folder_markers=None)
        check(
            TypeError,
            "transform must be a function or None, got 'resize'",
            streamed,
            "gs://data/x-",
            transform="resize",
        )
        check(
            TypeError,
            "client must be a ringest.Client, or None for the process's own, got 'https://x'",
            streamed,
            "gs://data/x-",
            client="https://x",
        )
        check(TypeError, "manifest must be a file, a gs:// URI, names", mapped, "gs://data/x-", manifest=5)
        check(
            ValueError,
            "changed must be one of 'error', 'skip', 'newest', got ['skip']",
            streamed,
            "gs://data/x-",
            changed=["skip"],
        )
        check(TypeError, "is not a str of the form gs://BUCKET/PREFIX", streamed, ["gs://data/x-"])
        check(TypeError, "transform must be a function or None, got 5", ringest.TarMapDataset, "gs://data/x.tar", 5)
        for shuffle in (0, 1, True, False):
            streamed("gs://data/x-", shuffle=shuffle)
        self.assertEqual(len(mapped("gs://data/x-", client=client)[torch.tensor(3)]), support.SIZE)

    def test_states(self):
        def make():
            return ringest.IterableDataset("gs://data/x-", client=self.client, batch_size=10, shuffle=True)

        dataset = make()
        next(iter(dataset))
        good = dataset.state_dict()
        for state in (b"garbage", b"", good["state"][:-1], good["state"][:50] + b"x" + good["state"][51:]):
            self.check(ValueError, "the state is damaged", make().load_state_dict, {**good, "state": state})
        self.check(ValueError, "the base of a state is damaged", make().load_state_dict, {**good, "base": b"x"})
        for state in ({"epoch": -1, "state": None}, {"epoch": "0", "state": None}, {"epoch": 0}, 5, {}):
            self.check(ValueError, "is not a state that state_dict() gave", make().load_state_dict, state)
        # One that was refused changes nothing.
        self.assertRaises(ValueError, dataset.load_state_dict, {**good, "state": b"garbage"})
        self.assertEqual(dataset.state_dict(), good)
        other = make()
        other.load_state_dict(good)
        self.assertEqual(len(list(other)), support.COUNT // 10 - 1)

    def test_a_manifest_of_another_bucket(self):
        self.client.put("gs://other/x-1", b"1")
        theirs = self.client.list("gs://other/")
        theirs.save(self.path("other.manifest"))
        self.client.put("gs://other/manifest", memoryview(theirs))
        for kind in (ringest.IterableDataset, ringest.MapDataset):
            text = "the manifest is of gs://other/, and the dataset of gs://data/x-: give it to a dataset of its own"
            self.check(ValueError, text, kind, "gs://data/x-", client=self.client, manifest=theirs)
            for file in (self.path("other.manifest"), "gs://other/manifest"):
                text = f"manifest {file} is of gs://other/"
                self.check(ValueError, text, len, kind("gs://data/x-", client=self.client, manifest=file))
                self.assertEqual(len(kind("gs://other/", client=self.client, manifest=file)), 1)

    def test_functions_that_spawned_workers_cannot_get(self):
        for option, function in (
            ("transform", lambda item: 5),
            ("transform", functools.partial(lambda extra, item: 5, 1)),
            ("on_error", lambda item, error: ringest.SKIP),
        ):
            for kind in (ringest.IterableDataset, ringest.MapDataset):
                dataset = kind("gs://data/x-", client=self.client, **{option: function})
                loader = DataLoader(dataset, num_workers=1, multiprocessing_context="spawn")
                text = f"{option}= is <function"
                self.check(pickle.PicklingError, text, lambda loader=loader: next(iter(loader)))
        self.check(pickle.PicklingError, "Define it at the top level of a module", lambda: next(iter(loader)))
        # Also where an object that is called has them.
        for transform, text in (
            (Calls(len, [Calls(lambda item: 5)]), "transform= has <function"),
            (Calls(lambda item: 5).run, "transform= has <function"),
            (type("Hidden", (), {"__call__": lambda self, item: 5})(), "transform= has <class"),
        ):
            dataset = ringest.MapDataset("gs://data/x-", transform, self.client)
            loader = DataLoader(dataset, num_workers=1, multiprocessing_context="spawn")
            self.check(pickle.PicklingError, text, lambda loader=loader: next(iter(loader)))
        # Forked ones get all.
        dataset = ringest.MapDataset("gs://data/x-", lambda item: 5, self.client)
        self.assertEqual(next(iter(DataLoader(dataset, num_workers=1, multiprocessing_context="fork"))).tolist(), [5])

    def test_packages_that_are_not_installed(self):
        for module, needed, hidden in (
            ("ringest.dcp", "pip install 'ringest[torch]'", "torch"),
            ("ringest.safetensors", "pip install 'ringest[torch]'", "torch"),
            ("ringest.lightning", "pip install 'ringest[lightning]'", "lightning"),
            ("ringest.torchdata", "pip install 'ringest[torchdata]'", "torchdata"),
            ("ringest.fs", "pip install 'ringest[fs]'", "fsspec"),
            ("ringest.ray", "pip install 'ringest[ray]'", "ray"),
            ("ringest.webdataset", "pip install webdataset", "webdataset"),
        ):
            with self.subTest(module):
                said = run(f"import {module}", hidden)
                self.assertIn(f"{module} needs the package {hidden}, which is not installed: {needed}", said)
        self.assertIn("gather_state needs the package torch", run("import ringest; ringest.gather_state({})", "torch"))
        said = run("import ringest.checkpoint; ringest.checkpoint.load('gs://a/b')", "torch")
        self.assertIn("ringest.checkpoint.load needs the package torch", said)
        self.assertEqual(run("import ringest; ringest.IterableDataset('gs://data/x-')", "torch", "fsspec"), "")

    def test_help_does_not_need_what_is_not_installed(self):
        for hidden, gone in (("torch", "to_device"), ("pyarrow", "ParquetDataset")):
            with self.subTest(hidden):
                script = f"import pydoc, ringest; pydoc.render_doc(ringest); assert {gone!r} not in dir(ringest)"
                self.assertEqual(run(script, hidden), "")
                self.assertEqual(run(f"import ringest; assert {gone!r} in dir(ringest)"), "")

    def test_a_star_imports_what_is_there(self):
        """The rest is an error where it is asked for, which says what to install."""
        for hidden, gone, extra in (("torch", "to_device", "torch"), ("pyarrow", "ParquetDataset", "parquet")):
            with self.subTest(hidden):
                script = f"from ringest import *; assert 'Client' in globals() and {gone!r} not in globals()"
                self.assertEqual(run(script, hidden), "")
                for asked in (f"from ringest import {gone}", f"import ringest; ringest.{gone}"):
                    self.assertIn(f"pip install 'ringest[{extra}]'", run(asked, hidden))

    def test_only_what_is_public_is_shown(self):
        names = {}
        exec("from ringest import *", names)
        self.assertEqual(sorted(set(names) - {"__builtins__"}), sorted(ringest.__all__))
        shown = [name for name in dir(ringest) if not name.startswith("__")]
        self.assertEqual([name for name in shown if name.startswith("_")], [])
        self.assertLessEqual(set(ringest.__all__), set(shown))
        for name in ("importlib", "Any", "TYPE_CHECKING"):
            self.assertNotIn(name, shown)


def tar(count):
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as archive:
        for i in range(count):
            info = tarfile.TarInfo(f"{i}.bin")
            info.size = 600
            archive.addfile(info, io.BytesIO(bytes(600)))
    return out.getvalue()


class Integrations(unittest.TestCase):
    """Of each: no such object, no such bucket, another scheme, what is damaged, what is of another type, and a client that
    is closed. A message names the object, or the argument, and what is wrong with it."""

    @classmethod
    def setUpClass(cls):
        place = cls.enterClassContext(support.emulator())
        cls.client = cls.enterClassContext(ringest.Client(*place, hedging=False))
        cls.closed = ringest.Client(*place)
        cls.closed.close()
        table = io.BytesIO()
        pyarrow.parquet.write_table(pyarrow.table({"a": list(range(100)), "b": list(range(100))}), table)
        tensors = safetensors.torch.save({"w": torch.ones(10)})
        cls.client.put_many(
            [
                ("gs://mine/rows/1.parquet", table.getvalue()),
                ("gs://mine/cut.parquet", table.getvalue()[:-20]),
                ("gs://mine/good.tar", tar(5)),
                ("gs://mine/cut.tar", tar(5)[:1500]),
                ("gs://mine/zip.tar.gz", bytes(600)),
                ("gs://mine/good.safetensors", tensors),
                ("gs://mine/cut.safetensors", tensors[:-8]),
                ("gs://mine/bad", b"nonsense" * 200),
                ("gs://mine/bad.parquet", b"nonsense" * 200),
                ("gs://mine/bad.tar", b"nonsense" * 200),
                ("gs://mine/steps/.metadata", b"nonsense" * 200),
            ]
        )

    def check(self, rows):
        for call, kind, text in rows:
            with self.subTest(text), self.assertRaises(kind) as raised:
                call()
            self.assertIn(text, str(raised.exception))

    def missing(self, call, suffix=""):
        """What is the same of all that read an object: `call` by its URI."""
        none = f"gs://mine/none{suffix}"
        bucket = f"gs://no-such-bucket/none{suffix}"
        return [
            (lambda: call(none), FileNotFoundError, f"{none} at "),
            (lambda: call(bucket), FileNotFoundError, f"{bucket} at "),
            (lambda: call(bucket), FileNotFoundError, "The specified bucket does not exist"),
            (lambda: call(f"s3://mine/none{suffix}"), ValueError, f"'s3://mine/none{suffix}' is not of the form gs://"),
            (lambda: call(f"/tmp/none{suffix}"), ValueError, f"'/tmp/none{suffix}' is not of the form gs://"),
        ]

    def clients(self, call):
        """`call` by a client."""
        return [
            (lambda: call(self.closed), ValueError, "the client is closed; make another ringest.Client"),
            (lambda: call("default"), TypeError, "client must be a ringest.Client, or None for the process's own"),
        ]

    def test_parquet(self):
        def read(uri, client=self.client, batch_size=10, **options):
            return next(iter(ringest.ParquetDataset(uri, client=client, batch_size=batch_size, **options)))

        rows = "gs://mine/rows/"
        self.check(
            [
                *self.missing(read, ".parquet"),
                *self.clients(lambda client: read(rows, client)),
                (lambda: read("gs://mine/bad.parquet"), ValueError, "gs://mine/bad.parquet: it is not a Parquet file"),
                (
                    lambda: read("gs://mine/cut.parquet"),
                    ValueError,
                    "gs://mine/cut.parquet: it is not a Parquet file, or cut",
                ),
                (lambda: read(rows, columns=["z"]), ValueError, "rows/1.parquet: it has no column 'z'; it has a, b"),
                (lambda: read(rows, columns="a"), TypeError, "columns must be a list of names such as"),
                (lambda: read(rows, batch_size=0), ValueError, "batch_size must be 1 to 65536, got 0"),
                (
                    lambda: read("gs://mine/folder/"),
                    ValueError,
                    "no objects below gs://mine/folder/ whose names end in",
                ),
            ]
        )

    def test_tar_and_webdataset(self):
        import webdataset

        import ringest.webdataset

        def read(uri, client=self.client, **options):
            return next(iter(ringest.TarDataset(uri, client=client, **options)))

        def shards(uri, client=self.client):
            ringest.webdataset.register(client)
            return next(iter(webdataset.WebDataset(uri, shardshuffle=False)))

        self.addCleanup(ringest.webdataset.register, None)
        self.check(
            [
                *self.missing(read, ".tar"),
                *self.missing(shards, ".tar")[:3],
                *self.clients(lambda client: read("gs://mine/good.tar", client)),
                *self.clients(lambda client: shards("gs://mine/good.tar", client)),
                (
                    lambda: read("gs://mine/bad.tar"),
                    ValueError,
                    "gs://mine/bad.tar: at byte 0: it is not a tar archive",
                ),
                (lambda: read("gs://mine/cut.tar"), ValueError, "gs://mine/cut.tar: at byte 1500: it is cut off"),
                (
                    lambda: read("gs://mine/zip.tar.gz"),
                    ValueError,
                    "gs://mine/zip.tar.gz is compressed; only plain tar",
                ),
                (lambda: ringest.webdataset.gopen("gs://mine/x", "a"), ValueError, "gs://mine/x: mode must be 'rb' or"),
                (lambda: shards("gs://mine"), ValueError, "'gs://mine' is not of the form gs://BUCKET/NAME"),
            ]
        )

    def test_files_of_fsspec(self):
        from ringest.fs import GCSFileSystem

        files = GCSFileSystem(self.client)
        table = pyarrow.parquet.read_table
        self.check(
            [
                *self.missing(lambda uri: files.open(uri).read())[:3],
                *self.missing(files.cat)[:3],
                *self.clients(lambda client: GCSFileSystem(client).cat("gs://mine/bad")),
                (lambda: files.open("s3://mine/x"), ValueError, "s3://mine/x: this is not gs://BUCKET/OBJECT"),
                (lambda: files.cat("mine"), ValueError, "mine: this is not gs://BUCKET/OBJECT"),
                (lambda: files.ls(""), ValueError, "buckets are not listed; begin with the name of one"),
                (
                    lambda: files.open("gs://mine/bad", "ab"),
                    NotImplementedError,
                    'gs://mine/bad: mode is "rb", "wb" or',
                ),
                (
                    lambda: files.open("gs://mine/bad", cache_type="all of it"),
                    ValueError,
                    "cache_type is one of None, none",
                ),
                (lambda: files.pipe("gs://mine/new", "text"), TypeError, "gs://mine/new: data of type <class 'str'>"),
                (lambda: files.pipe("gs://no-such-bucket/a", b""), FileNotFoundError, "gs://no-such-bucket/a at "),
                (
                    lambda: files.cp_file("gs://mine/none", "gs://mine/a"),
                    FileNotFoundError,
                    "the source gs://mine/none",
                ),
                (
                    lambda: GCSFileSystem(hedgin=True),
                    TypeError,
                    "has no argument hedgin (also given as storage_options); did you mean hedging?",
                ),
                (
                    lambda: GCSFileSystem(xyz=1),
                    TypeError,
                    "GCSFileSystem has no argument xyz (also given as storage_options): it has adapting",
                ),
                (lambda: table("mine/none.parquet", filesystem=files), FileNotFoundError, "mine/none.parquet"),
                (
                    lambda: table("mine/bad.parquet", filesystem=files),
                    pyarrow.ArrowInvalid,
                    "'mine/bad.parquet': Parquet magic",
                ),
            ]
        )

    def test_safetensors(self):
        def load(uri, client=self.client, **options):
            return ringest.safetensors.load_file(uri, client=client, **options)

        def tensor(name):
            with ringest.safetensors.safe_open("gs://mine/good.safetensors", client=self.client) as file:
                return file.get_tensor(name)

        def save(tensors, uri="gs://mine/new.safetensors"):
            return ringest.safetensors.save_file(tensors, uri, client=self.client)

        damaged = ringest.safetensors.SafetensorError
        self.check(
            [
                *self.missing(load, ".safetensors"),
                *self.clients(lambda client: load("gs://mine/good.safetensors", client)),
                (
                    lambda: load("gs://mine/bad"),
                    damaged,
                    "gs://mine/bad: is damaged or not a safetensors file: its header",
                ),
                (lambda: load("gs://mine/cut.safetensors"), damaged, "gs://mine/cut.safetensors: is damaged or not a"),
                (lambda: tensor("z"), damaged, "gs://mine/good.safetensors: has no tensor z"),
                (lambda: load("gs://mine/good.safetensors", device="gpu"), RuntimeError, "device string: gpu"),
                (lambda: save([torch.ones(1)]), TypeError, "tensors by name are needed, a dict, not list"),
                (
                    lambda: save({"a": torch.ones(1)}, "gs://no-such-bucket/a"),
                    FileNotFoundError,
                    "gs://no-such-bucket/a",
                ),
                (
                    lambda: save({"a": torch.ones(1)}, "model.safetensors"),
                    ValueError,
                    "'model.safetensors' is not of the form",
                ),
            ]
        )

    def test_checkpoints(self):
        from ringest import checkpoint

        def load(uri, client=self.client):
            return checkpoint.load(uri, client=client)

        def save(uri, client=self.client):
            return checkpoint.save({"a": 1}, uri, client=client)

        self.check(
            [
                *self.missing(load),
                *self.missing(save)[3:],
                *self.clients(lambda client: load("gs://mine/bad", client)),
                *self.clients(lambda client: save("gs://mine/new", client)),
                (
                    lambda: load("gs://mine/bad"),
                    checkpoint.CheckpointError,
                    "cannot be loaded: it is no file of torch.save",
                ),
                (lambda: save("gs://no-such-bucket/a"), FileNotFoundError, "gs://no-such-bucket/a at "),
            ]
        )

    def test_distributed_checkpoints(self):
        import torch.distributed.checkpoint as dcp

        from ringest.dcp import StorageReader, StorageWriter

        # It warns of each load and save that no ranks take part in, and prints what it raises.
        self.enterContext(warnings.catch_warnings(action="ignore"))
        logging.disable(logging.CRITICAL)
        self.addCleanup(logging.disable, logging.NOTSET)

        def load(uri, client=self.client, **state):
            dcp.load(state or {"w": torch.ones(4)}, storage_reader=StorageReader(uri, client=client))

        def save(uri, client=self.client):
            dcp.save({"w": torch.ones(4)}, storage_writer=StorageWriter(uri, client=client))

        save("gs://mine/saved")
        raised = dcp.api.CheckpointException
        is_none = "is not the URI of a checkpoint: gs://bucket/prefix"
        self.check(
            [
                (lambda: load("gs://mine/none"), raised, "ringest.NotFoundError: get gs://mine/none/.metadata at "),
                (lambda: load("gs://mine/steps"), raised, "gs://mine/steps/.metadata: cannot be read as metadata of a"),
                (lambda: load("gs://mine/saved", v=torch.ones(4)), raised, "Missing key in checkpoint state_dict: v"),
                (lambda: load("gs://mine/saved", w=torch.ones(5)), raised, "Size mismatch between saved"),
                (lambda: load("gs://mine/saved", self.closed), raised, "the client is closed; make another"),
                (lambda: load("gs://mine/saved", "x"), TypeError, "client must be a ringest.Client"),
                (lambda: load("/tmp/saved"), ValueError, f"'/tmp/saved' {is_none}"),
                (lambda: save("s3://mine/saved"), ValueError, f"'s3://mine/saved' {is_none}"),
                (lambda: save(5), TypeError, "uri must be a str or a path, gs://bucket/prefix, got 5"),
                (lambda: save("gs://no-such-bucket/a"), raised, "ringest.NotFoundError: upload gs://no-such-bucket/a/"),
                (lambda: save("gs://mine/saved", "x"), TypeError, "client must be a ringest.Client"),
            ]
        )

    @unittest.skipUnless(importlib.util.find_spec("lightning"), "no lightning")
    def test_lightning(self):
        from ringest.checkpoint import CheckpointError
        from ringest.lightning import CheckpointIO

        def load(uri, client=self.client):
            return CheckpointIO(client).load_checkpoint(uri)

        def save(uri, **options):
            return CheckpointIO(self.client).save_checkpoint({"a": 1}, uri, **options)

        self.check(
            [
                *self.missing(load)[:3],
                *self.clients(lambda client: load("gs://mine/bad", client)),
                (lambda: load("gs://mine/bad"), CheckpointError, "gs://mine/bad (generation "),
                (lambda: save("gs://no-such-bucket/a"), FileNotFoundError, "gs://no-such-bucket/a at "),
                (lambda: save("gs://mine/a", storage_options={"a": 1}), TypeError, "storage_options"),
            ]
        )

    @unittest.skipUnless(importlib.util.find_spec("torchdata"), "no torchdata")
    def test_torchdata(self):
        from ringest.torchdata import DatasetNode

        mapped = ringest.MapDataset("gs://data/x-", client=self.client)
        wanted = "dataset must be a ringest.IterableDataset, TarDataset or ParquetDataset, got "
        self.check([(lambda: DatasetNode("x"), TypeError, wanted), (lambda: DatasetNode(mapped), TypeError, wanted)])

    def test_dataflux(self):
        from ringest import dataflux

        def read(bucket_name="data", config=None, index=0, **options):
            config = config or dataflux.Config(prefix="x-")
            options.setdefault("storage_client", self.client)
            return dataflux.DataFluxMapStyleDataset("p", bucket_name, config, **options)[index]

        closed = "the client is closed; make another ringest.Client"
        self.check(
            [
                (lambda: read("no-such-bucket"), FileNotFoundError, "list gs://no-such-bucket/x- at "),
                (lambda: read("gs://data"), ValueError, "bucket_name must be the name of a bucket, without gs://, got"),
                (
                    lambda: read(config="x-"),
                    TypeError,
                    "config must be a Config, or None for the default one, got 'x-'",
                ),
                (lambda: read(index=500), IndexError, "gs://data/x-: there are 500 objects, no index of [500]"),
                (lambda: read(data_format_fn="x"), TypeError, "data_format_fn must be a function, got 'x'"),
                (
                    lambda: read(storage_client="x"),
                    TypeError,
                    "storage_client is 'x', which is neither a ringest.Client",
                ),
                (lambda: read(storage_client=self.closed), ValueError, closed),
            ]
        )

    def test_metrics_and_traces(self):
        import ringest.opentelemetry
        import ringest.prometheus
        import ringest.tensorboard

        otel = ringest.opentelemetry
        given = "client must be a "
        self.check(
            [
                (lambda: ringest.prometheus.Collector("x"), TypeError, given),
                (
                    lambda: ringest.tensorboard.Scalars("runs/1"),
                    TypeError,
                    "writer must have add_scalar, as tensorboard's",
                ),
                (
                    lambda: ringest.tensorboard.Scalars(unittest.mock.Mock(), dataset="x"),
                    TypeError,
                    "dataset must be one of ringest, which has explain",
                ),
                (lambda: otel.observe("x"), TypeError, given),
                (
                    lambda: otel.observe(None, "x"),
                    TypeError,
                    "meter_provider must be one of OpenTelemetry's, or None, got 'x'",
                ),
                (
                    lambda: otel.spans("x"),
                    TypeError,
                    "tracer_provider must be one of OpenTelemetry's, or None, got 'x'",
                ),
                (lambda: otel.Durations("x"), TypeError, "exporter must be a MetricExporter of OpenTelemetry, got 'x'"),
            ]
        )


class Prefixes(unittest.TestCase):
    def setUp(self):
        self.client = self.enterContext(support.client(hedging=False))
        ringest._source._said.clear()

    def put(self, *names):
        self.client.put_many((f"gs://mine/{name}", b"x" * (not name.endswith("/"))) for name in names)

    def logged(self, call):
        with self.assertLogs("ringest", logging.INFO) as logged:
            call()
        return [record.getMessage() for record in logged.records if record.levelno >= logging.INFO], [
            record.getMessage() for record in logged.records if record.levelno >= logging.WARNING
        ]

    def test_a_prefix_is_literal_and_says_so_once(self):
        self.put("data/1", "data/2", "database/1", "data.txt")
        dataset = ringest.MapDataset("gs://mine/data", client=self.client)
        lines, warnings = self.logged(lambda: len(dataset))
        self.assertEqual(len(dataset), 4)
        self.assertIn("gs://mine/data: 4 objects of 4 B", lines)
        self.assertEqual(len(warnings), 1)
        self.assertIn(
            "2 of 4 objects are not in gs://mine/data/, such as gs://mine/data.txt; end it in '/'", warnings[0]
        )
        _, warnings = self.logged(lambda: len(ringest.IterableDataset("gs://mine/data", client=self.client)))
        self.assertEqual(warnings, [])

    def test_a_prefix_that_is_meant_so_is_no_warning(self):
        self.put("data-1", "data-2", "other/1", "alone/1")
        for prefix, count in (("data-", 2), ("dat", 2), ("other/", 1), ("", 4), ("alone", 1)):
            with self.subTest(prefix):
                dataset = ringest.MapDataset(f"gs://mine/{prefix}", client=self.client)
                _, warnings = self.logged(lambda dataset=dataset: len(dataset))
                self.assertEqual((len(dataset), warnings), (count, []))

    def test_a_dataset_tells_how_much_it_found(self):
        dataset = ringest.IterableDataset("gs://data/x-", client=self.client)
        self.assertEqual(repr(dataset), "<IterableDataset 'gs://data/x-', no list yet>")
        len(dataset)
        self.assertEqual(repr(dataset), "<IterableDataset 'gs://data/x-', 500 objects of 976.6 KiB>")
        self.assertEqual(dataset._source.found.size, 500 * support.SIZE)
        named = ringest.MapDataset("gs://data/x-", client=self.client, manifest=["a"])
        len(named)
        self.assertEqual(repr(named), "<MapDataset 'gs://data/x-', 1 object>")

    def test_folder_markers_are_left_out_unless_asked_for(self):
        self.put("a/", "a/1", "a/b/", "a/b/2")
        for kind in (ringest.IterableDataset, ringest.MapDataset):
            dataset = kind("gs://mine/a/", client=self.client)
            self.assertEqual([name for name, _, _ in dataset.objects], ["a/1", "a/b/2"])
            dataset = kind("gs://mine/a/", client=self.client, folder_markers=True)
            self.assertEqual([name for name, _, _ in dataset.objects], ["a/", "a/1", "a/b/", "a/b/2"])

    def test_a_list_that_was_given_is_taken_as_it_is(self):
        """A state says which list it is of: what a manifest names does not change behind its back."""
        self.put("a/", "a/1", "a/b/", "a/b/2", "a/b/3")
        listed = self.client.list("gs://mine/a/")

        def make(**options):
            return ringest.IterableDataset("gs://mine/a/", client=self.client, **options)

        made = []
        _, warnings = self.logged(lambda: made.append(make(manifest=listed)))
        self.assertEqual(len(warnings), 1)
        self.assertIn("the manifest of gs://mine/a/ has 2 folder markers", warnings[0])
        self.assertIn("folder_markers=False", warnings[0])
        self.assertEqual(len(made[0]), 5)
        _, warnings = self.logged(lambda: len(make(manifest=listed, folder_markers=True)))
        self.assertEqual(warnings, [])
        # A state of the list with markers is refused by one without: it never means other samples.
        iterator = iter(made[0])
        next(iterator)
        state = made[0].state_dict()
        without = make()
        without.load_state_dict(state)
        with self.assertRaisesRegex(ValueError, "5 objects"):
            next(iter(without))
        again = make(folder_markers=True)
        again.load_state_dict(state)
        self.assertEqual(len(list(again)), 4)


if __name__ == "__main__":
    unittest.main()
