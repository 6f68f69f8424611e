"""ringest.fs beside gcsfs, at the same emulator: what each says to the same call, and where that differs on purpose.

docs/FSSPEC.md has the reasons."""

import os
import pathlib
import tempfile

from peer import Peer

FILES = {
    "run/a": b"first",
    "run/b": b"second one",
    "run/deep/c": b"third",
    "run/deep/er/d": b"",
    "odd [1]?": b"odd",
    "top": b"t",
}


def then_find(call):
    """What is there afterwards."""

    def calls(fs, bucket, local):
        call(fs, bucket, local)
        return fs.find(bucket)

    return calls


def kinds(entries):
    return [(entry["name"], entry["type"], entry["size"]) for entry in entries]


def walked(tree):
    return [(top, sorted(folders), sorted(files)) for top, folders, files in tree]


LOOKING = {
    "ls": lambda fs, b, _: fs.ls(b, detail=False),
    "ls of a folder": lambda fs, b, _: kinds(fs.ls(f"gs://{b}/run/", detail=True)),
    "ls of an object": lambda fs, b, _: fs.ls(f"{b}/run/a", detail=False),
    "ls of nothing": lambda fs, b, _: fs.ls(f"{b}/none"),
    "info": lambda fs, b, _: [
        fs.info(f"{b}/run/a")[name] for name in ("name", "size", "type", "contentType", "md5Hash", "storageClass")
    ],
    "info of a folder": lambda fs, b, _: kinds([fs.info(f"{b}/run"), fs.info(f"{b}/run/")]),
    "info of nothing": lambda fs, b, _: fs.info(f"{b}/none"),
    "exists": lambda fs, b, _: [fs.exists(b + end) for end in ("", "/run", "/run/a", "/none", "/ru")],
    "isdir": lambda fs, b, _: [fs.isdir(b + end) for end in ("", "/run", "/run/a", "/none")],
    "isfile": lambda fs, b, _: [fs.isfile(b + end) for end in ("", "/run", "/run/a", "/none")],
    "find": lambda fs, b, _: fs.find(b),
    "find with folders": lambda fs, b, _: fs.find(b, withdirs=True),
    "find with folders in one": lambda fs, b, _: fs.find(f"{b}/run", withdirs=True),
    "find to a depth": lambda fs, b, _: fs.find(b, maxdepth=1),
    "find of an object": lambda fs, b, _: fs.find(f"{b}/run/a"),
    "find of nothing": lambda fs, b, _: fs.find(f"{b}/none"),
    "find by prefix": lambda fs, b, _: fs.find(f"{b}/run", prefix="d"),
    "glob": lambda fs, b, _: [fs.glob(b + end) for end in ("/*", "/run/*/c", "/run/[ab]", "/**/d", "/z*")],
    "glob of all": lambda fs, b, _: fs.glob(f"{b}/**"),
    "glob of folders": lambda fs, b, _: fs.glob(f"{b}/*/"),
    "walk": lambda fs, b, _: [walked(fs.walk(b, topdown=down)) for down in (True, False)],
    "walk to a depth": lambda fs, b, _: walked(fs.walk(b, maxdepth=1)),
    "du": lambda fs, b, _: (fs.du(b), fs.du(f"{b}/run", total=False), fs.du(f"{b}/run", total=False, withdirs=True)),
    "size": lambda fs, b, _: (fs.size(f"{b}/run/b"), fs.sizes([f"{b}/run/a"]), fs.size(f"{b}/run")),
    "expand_path": lambda fs, b, _: fs.expand_path(f"{b}/run", recursive=True),
    "tree": lambda fs, b, _: fs.tree(b),
    "times": lambda fs, b, _: [type(ask(f"{b}/run/a")).__name__ for ask in (fs.created, fs.modified)],
    "paths": lambda fs, b, _: (fs.unstrip_protocol(f"{b}/x"), fs._strip_protocol(f"gs://{b}/x")),
}
READING = {
    "cat": lambda fs, b, _: fs.cat(f"{b}/run/a"),
    "cat of many": lambda fs, b, _: (fs.cat([f"{b}/run/a", f"{b}/run/b"]), fs.cat([f"{b}/run/a"])),
    "cat of a folder": lambda fs, b, _: fs.cat(f"{b}/run", recursive=True),
    "cat of nothing": lambda fs, b, _: fs.cat(f"{b}/none"),
    "cat without what is missing": lambda fs, b, _: fs.cat([f"{b}/run/a", f"{b}/none"], on_error="omit"),
    "slices": lambda fs, b, _: [
        fs.cat_file(f"{b}/run/b", *bounds) for bounds in ((0, 3), (2, None), (-3, None), (None, -2), (1, -1), (5, 30))
    ],
    "a slice behind the end": lambda fs, b, _: fs.cat_file(f"{b}/run/b", 20, 30),
    "cat_ranges": lambda fs, b, _: fs.cat_ranges([f"{b}/run/b"] * 2, [0, 2], [2, 4]),
    "ends": lambda fs, b, _: (fs.head(f"{b}/run/b", 3), fs.tail(f"{b}/run/b", 3), fs.read_block(f"{b}/run/b", 0, 4)),
    "open": lambda fs, b, _: (list(fs.open(f"{b}/run/b", "rb")), fs.open(f"{b}/run/b", "r").read()),
    "open of nothing": lambda fs, b, _: fs.open(f"{b}/none", "rb"),
    "odd names": lambda fs, b, _: fs.cat_file(f"{b}/odd [1]?"),
    "a mapper": lambda fs, b, _: fs.get_mapper(f"{b}/run")["b"],
    "a mapper of nothing": lambda fs, b, _: fs.get_mapper(f"{b}/run")["z"],
    "get": lambda fs, b, local: (fs.get(f"{b}/run/a", f"{local}/got"), pathlib.Path(local, "got").read_bytes())[1],
    "url": lambda fs, b, _: fs.url(f"{b}/run/a"),
    "url of an odd name": lambda fs, b, _: fs.url(f"{b}/odd [1]?"),
    "caches": lambda fs, b, _: [
        fs.open(f"{b}/run/b", cache_type=kind).read() for kind in ("readahead", "bytes", "blockcache", "all", "none")
    ],
    "a cache that there is not": lambda fs, b, _: fs.open(f"{b}/run/b", cache_type="none such"),
    "open of a folder": lambda fs, b, _: fs.open(f"{b}/run", "rb"),
    "get of nothing": lambda fs, b, local: fs.get(f"{b}/none", f"{local}/nothing"),
}
WRITING = {
    "pipe": then_find(lambda fs, b, _: fs.pipe({f"{b}/p1": b"1", f"{b}/p2": b"2"})),
    "pipe to create": lambda fs, b, _: fs.pipe_file(f"{b}/run/a", b"x", mode="create"),
    "open to create": lambda fs, b, _: fs.open(f"{b}/run/a", "xb").close(),
    "text": lambda fs, b, _: (fs.write_text(f"{b}/w", "grün", encoding="utf-8"), fs.cat(f"{b}/w"))[1],
    "touch": lambda fs, b, _: (fs.touch(f"{b}/t"), fs.size(f"{b}/t"))[1],
    "touch what is there": lambda fs, b, _: fs.touch(f"{b}/run/a", truncate=False),
    "attributes": lambda fs, b, _: (
        fs.setxattrs(f"{b}/run/a", key="value", content_type="text/x"),
        fs.getxattr(f"{b}/run/a", "key"),
        fs.info(f"{b}/run/a")["contentType"],
    ),
    "merge": lambda fs, b, _: (fs.merge(f"{b}/both", [f"{b}/run/a", f"{b}/top"]), fs.cat(f"{b}/both")),
    "put": then_find(lambda fs, b, local: fs.put(f"{local}/f", f"{b}/run/")),
    "put of a folder": then_find(lambda fs, b, local: fs.put(f"{local}/d", f"{b}/up", recursive=True)),
    "put to create": lambda fs, b, local: fs.put_file(f"{local}/f", f"{b}/run/a", mode="create"),
    "put of a type": lambda fs, b, local: (fs.put_file(f"{local}/f", f"{b}/h"), fs.info(f"{b}/h")["contentType"])[1],
    "mkdir": then_find(lambda fs, b, _: (fs.mkdir(f"{b}/made"), fs.makedirs(f"{b}/made/up", exist_ok=True))),
    "rmdir of what is not empty": then_find(lambda fs, b, _: fs.rmdir(f"{b}/run")),
}
MOVING = {
    "copy": then_find(lambda fs, b, _: fs.copy(f"{b}/run/a", f"{b}/copied")),
    "copy into a folder": then_find(lambda fs, b, _: fs.copy(f"{b}/run/a", f"{b}/run/deep/")),
    "copy of a folder": then_find(lambda fs, b, _: fs.copy(f"{b}/run", f"{b}/twin", recursive=True)),
    "copy of a folder into one": then_find(lambda fs, b, _: fs.copy(f"{b}/run", f"{b}/run/deep", recursive=True)),
    "copy of a list": then_find(lambda fs, b, _: fs.copy([f"{b}/run/a", f"{b}/run/b"], f"{b}/list/")),
    "copy of a glob": then_find(lambda fs, b, _: fs.copy(f"{b}/run/*", f"{b}/glob/")),
    "copy of nothing": lambda fs, b, _: fs.copy(f"{b}/none", f"{b}/x"),
    "mv": then_find(lambda fs, b, _: fs.mv(f"{b}/run/a", f"{b}/moved")),
    "mv of a folder": then_find(lambda fs, b, _: fs.mv(f"{b}/run", f"{b}/moved", recursive=True)),
    "mv of a folder as if it were none": then_find(lambda fs, b, _: fs.mv(f"{b}/run", f"{b}/moved")),
    "mv of nothing": lambda fs, b, _: fs.mv(f"{b}/none", f"{b}/x"),
    "rename": then_find(lambda fs, b, _: fs.rename(f"{b}/run/a", f"{b}/moved")),
    "rm": then_find(lambda fs, b, _: fs.rm(f"{b}/run/a")),
    "rm of a list": then_find(lambda fs, b, _: fs.rm([f"{b}/run/a", f"{b}/top"])),
    "rm of a folder": then_find(lambda fs, b, _: fs.rm(f"{b}/run", recursive=True)),
    "rm to a depth": then_find(lambda fs, b, _: fs.rm(f"{b}/run", recursive=True, maxdepth=1)),
    "rm of a glob": then_find(lambda fs, b, _: fs.rm(f"{b}/run/[ab]")),
    "rm of a folder as if it were none": then_find(lambda fs, b, _: fs.rm(f"{b}/run")),
    "rm of nothing": lambda fs, b, _: fs.rm(f"{b}/none"),
    "rm of something and nothing": then_find(lambda fs, b, _: fs.rm([f"{b}/none", f"{b}/top"])),
    "rm_file of nothing": lambda fs, b, _: fs.rm_file(f"{b}/none"),
}

# Where they differ on purpose.
DIFFERENT = {
    "find with folders": "fsspec has the path itself among them, gcsfs not that of a bucket",
    "glob of all": "as above",
    "glob of folders": "gcsfs finds none",
    "cat of a folder": "gcsfs reads folders as objects, and fails",
    "a slice behind the end": "gcsfs raises an error",
    "a cache that there is not": "fsspec raises a KeyError that says no more",
    "open of a folder": "gcsfs opens it, as a file of no bytes",
    "touch what is there": "gcsfs raises an error",
    "mv of a folder as if it were none": "gcsfs does nothing, and does not say so",
    "rm of something and nothing": "gcsfs does not say that something was not there",
}


def outcome(call, fs, bucket, local):
    """The result, or the built-in exception that it is."""
    try:
        result = call(fs, bucket, local)
    except Exception as error:
        built_in = next((kind for kind in type(error).__mro__ if kind.__module__ == "builtins"), Exception)
        result = f"raises {built_in.__name__}"
    return repr(result).replace(bucket, "BUCKET")


class Beside(Peer):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        os.environ["GCSFS_EXPERIMENTAL_ZB_HNS_SUPPORT"] = "false"
        import gcsfs

        import ringest.fs

        cls.both = (
            gcsfs.GCSFileSystem(project="project", token="anon", endpoint_url=cls.endpoint, use_listings_cache=False),
            ringest.fs.FileSystem(endpoint=cls.endpoint, ca=cls.emulator.ca),
        )

    def compare(self, calls):
        for number, (name, call) in enumerate(calls.items()):
            outcomes = []
            for fs in self.both:
                bucket = f"{self.bucket_name}-{number}-{len(outcomes)}"
                self.both[0].mkdir(bucket)
                self.both[1].pipe({f"{bucket}/{path}": data for path, data in FILES.items()})
                with tempfile.TemporaryDirectory() as local:
                    os.makedirs(f"{local}/d/e")
                    for path in ("f", "d/x", "d/e/y"):
                        with open(f"{local}/{path}", "wb") as file:
                            file.write(path.encode())
                    outcomes.append(outcome(call, fs, bucket, local))
            with self.subTest(name):
                if name in DIFFERENT:
                    self.assertNotEqual(*outcomes)
                else:
                    self.assertEqual(*outcomes)

    def test_looking(self):
        self.compare(LOOKING)

    def test_reading(self):
        self.compare(READING)

    def test_writing(self):
        self.compare(WRITING)

    def test_copying_moving_and_removing(self):
        self.compare(MOVING)
