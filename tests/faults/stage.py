"""Where an operation of the table is tried: an emulator of its own with a bucket, what is in it that is
somebody else's, and what is found there afterwards."""

import contextlib
import json
import os
import pathlib
import re
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.join(HERE, "..", "python"), os.path.join(HERE, "..", "support")]

import ringest  # noqa: E402
from rules import ask  # noqa: E402
from support import PROGRAM, emulator  # noqa: E402, F401  (for the tests)

# Beside what operations write, and like it.
FOREIGN = {
    "run/targe": b"theirs",
    "run/target2": b"theirs",
    "run/target/below": b"theirs",
    "run/last.ckpt": b"theirs",
    ".ringest-parts/00112233445566778899aabbccddeeff/00000": b"theirs",
}
# Somebody is at it at the same time.
FOREIGN_UPLOAD = "run/target"

PARTS = re.compile(r"\.ringest-parts/[0-9a-f]{32}/\d{5}")
SHARDS = re.compile(r"run/ckpt/__\d+_\d+\..*\.distcp")
# What a process that is killed may leave beside a file that it makes.
PARTIAL_FILES = re.compile(r"\..*\.ringest-part|\..*\.[0-9a-f]{8}|.*\.\d+-\d+\.tmp")


class Stage:
    """One try. `client` is for the operation, which may close it; `observer` looks what came of it."""

    def __init__(self, place, observer, number):
        self.place = place
        self.observer = observer
        self.bucket = f"stage-{number}"
        self._folder = tempfile.TemporaryDirectory()
        self.folder = pathlib.Path(self._folder.name)
        settings = {"name": self.bucket, "versioning": {"enabled": True}}
        ask(place, "POST", "/storage/v1/b", json.dumps(settings))
        self.put(FOREIGN)
        ask(place, "POST", f"/{self.bucket}/{FOREIGN_UPLOAD}?uploads", b"")
        self.foreign_versions = {name: found for name, found in self.versions().items() if name in FOREIGN}
        self.foreign_uploads = self.uploads()

    def close(self):
        self._folder.cleanup()

    def uri(self, name):
        return f"gs://{self.bucket}/{name}"

    @contextlib.contextmanager
    def client(self):
        with ringest.Client(*self.place) as client:
            yield client

    def put(self, objects):
        for name, data in objects.items():
            self.observer.put(self.uri(name), data)

    def objects(self):
        """Name -> bytes of what is not foreign."""
        names = [name for name, _, _ in self.observer.list(self.uri(""))]
        return {name: bytes(self.observer.get(self.uri(name))) for name in names if name not in FOREIGN}

    def versions(self):
        """Name -> generations, of those that are there no more, too."""
        query = "versions=true&fields=items(name,generation)"
        found = {}
        for item in json.loads(ask(self.place, "GET", f"/storage/v1/b/{self.bucket}/o?{query}")).get("items", []):
            found.setdefault(item["name"], []).append(int(item["generation"]))
        return found

    def uploads(self):
        return {(name, upload) for name, upload, _ in self.observer.list_uploads(self.uri(""))}

    def new_uploads(self):
        return self.uploads() - self.foreign_uploads

    def parts_of(self, name, upload):
        return ask(self.place, "GET", f"/{self.bucket}/{name}?uploadId={upload}").count(b"<Part>")

    def files(self):
        """Path below the folder -> bytes."""
        paths = (path for path in self.folder.rglob("*") if path.is_file())
        return {str(path.relative_to(self.folder)): path.read_bytes() for path in paths}

    def check_foreign(self):
        versions = self.versions()
        for name, before in self.foreign_versions.items():
            assert versions.get(name) == before, f"{name} is somebody else's and was touched"
            assert bytes(self.observer.get(self.uri(name))) == FOREIGN[name], f"{name} is somebody else's"
        gone = self.foreign_uploads - self.uploads()
        assert not gone, f"an upload of somebody else's was ended: {gone}"
