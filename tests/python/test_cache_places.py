"""A cache in bad places: a disk that is full, read-only, or gone; a folder of NFS that several hosts share, one of which
dies; processes that do not agree about its size; files of another version; objects that are no longer what they were.
Every epoch has every byte right, and each trouble is said once."""

import json
import os
import pathlib
import signal
import struct
import subprocess
import sys
import tempfile
import unittest
from unittest import mock

import ringest
import support
from cache_host import digest_of
from rules import Forked, Rule, ask

ISOLATED = ["unshare", "--user", "--map-root-user", "--mount"]
HOST = pathlib.Path(__file__).with_name("cache_host.py")
# More than a small disk has, by 500 small objects and 40 of nearly a block.
LARGE = "large/l-:40:900000"


class Told:
    """A process of cache_host.py."""

    def __init__(self, place, folder, isolated=False, **environment):
        command = [*(ISOLATED if isolated else []), sys.executable, str(HOST), *place, str(folder)]
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
        self.process = subprocess.Popen(command, env=os.environ | environment, **pipes)

    def __call__(self, *line):
        print(*line, file=self.process.stdin, flush=True)
        answer = self.process.stdout.readline()
        assert answer, f"{line}: the process has ended"
        return json.loads(answer)

    def kill(self):
        self.process.send_signal(signal.SIGKILL)

    def end(self):
        self.process.stdin.close()
        self.process.stdout.close()
        return self.process.wait()


class Placed(unittest.TestCase):
    def setUp(self):
        self.place = self.enterContext(support.emulator("--synthetic", LARGE))
        self.folder = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory())) / "kept"
        self.folder.mkdir(mode=0o700)
        with ringest.Client(*self.place) as client:
            self.right = {prefix: digest_of(prefix, client) for prefix in ("gs://data/", "gs://large/")}

    def host(self, **options):
        host = Told(self.place, self.folder, **options)
        self.addCleanup(host.end)
        return host

    def check(self, host, prefix):
        answer = host("read", prefix)
        self.assertEqual(answer["digest"], self.right[prefix])
        self.assertEqual(len(answer["warned"]), len(set(answer["warned"])))
        return answer


@unittest.skipIf(subprocess.run([*ISOLATED, "true"], capture_output=True).returncode, "no namespace can be had")
class Disks(Placed):
    def test_one_that_is_full(self):
        host = self.host(isolated=True)
        host("mount", "size=24m,mode=0700")
        host("open", "64MiB")
        host("fill")
        for _ in range(2):
            self.check(host, "gs://large/")
            answer = self.check(host, "gs://data/")
        self.assertTrue(all(str(self.folder) in line for line in answer["warned"]))

    def test_one_that_vanishes(self):
        host = self.host(isolated=True)
        host("mount", "size=64m,mode=0700")
        host("open", "48MiB")
        self.check(host, "gs://large/")
        host("unmount")
        for _ in range(2):
            self.check(host, "gs://large/")
            self.check(host, "gs://data/")

    def test_one_that_is_read_only(self):
        host = self.host(isolated=True)
        host("mount", "size=64m,mode=0700,ro")
        host("open", "48MiB")
        for _ in range(2):
            answer = self.check(host, "gs://large/")
        self.assertEqual((answer["cache_hits"], len(answer["warned"])), (0, 1))
        self.assertIn(str(self.folder), answer["warned"][0])


class SharedFolder(Placed):
    """Each host has an index of its own."""

    def nfs(self):
        preload = " ".join(filter(None, [os.environ.get("LD_PRELOAD"), os.environ["RINGEST_NFS_STAND_IN"]]))
        # Only the calls of the C library are as on NFS, and not what the kernel does by itself.
        return self.host(LD_PRELOAD=preload, RINGEST_NFS_FOLDER=str(self.folder), RINGEST_BACKEND="epoll")

    def test_one_host_downloads_and_another_reads(self):
        first = self.nfs()
        first("open", "64MiB")
        self.assertEqual(self.check(first, "gs://large/")["cache_hits"], 0)
        first("close")
        second = self.nfs()
        second("open", "64MiB")
        support.until(lambda: self.check(second, "gs://large/")["cache_misses"] == 0, "what the other has written")
        self.assertEqual(self.check(second, "gs://large/")["cache_bad"], 0)

    def test_files_that_another_host_removes(self):
        host = self.nfs()
        host("open", "64MiB")
        support.until(lambda: self.check(host, "gs://large/")["cache_hits"] > 0, "something is kept")
        for path in self.folder.iterdir():
            path.unlink()
        answers = [self.check(host, "gs://large/") for _ in range(2)]
        self.assertEqual([answer["cache_bad"] for answer in answers], [0, 0])

    def test_a_host_that_dies_holds_nothing(self):
        first = self.nfs()
        first("open", "64MiB")
        self.check(first, "gs://large/")
        first.kill()
        second = self.nfs()
        second("open", "64MiB")
        support.until(lambda: self.check(second, "gs://large/")["cache_misses"] == 0, "a cache of its own")


class Disagreement(Placed):
    def test_processes_with_other_sizes(self):
        hosts = [self.host(), self.host()]
        for host, size in zip(hosts, ("16MiB", "64MiB"), strict=True):
            host("open", size)
        for _ in range(3):
            for host in hosts:
                self.check(host, "gs://large/")
        for host in hosts:
            host("close")
        size = sum(path.stat().st_size for path in self.folder.iterdir())
        self.assertLessEqual(size, (64 + 16) << 20)

    def test_files_of_another_version(self):
        first = self.host()
        first("open", "64MiB")
        self.check(first, "gs://data/")
        first("close")
        names = set(self.folder.iterdir())
        for path in names:
            data = bytearray(path.read_bytes())
            (version,) = struct.unpack_from("<I", data, 8)
            struct.pack_into("<I", data, 8, version + 1)
            struct.pack_into("<I", data, 60, crc32c(data[:60]))
            path.write_bytes(data)
        second = self.host()
        second("open", "64MiB")
        self.assertEqual(self.check(second, "gs://data/")["cache_hits"], 0)
        support.until(lambda: self.check(second, "gs://data/")["cache_misses"] == 0, "a part of its own")
        self.assertLessEqual(names, set(self.folder.iterdir()))


def crc32c(data):
    value = 0xFFFFFFFF
    for byte in data:
        value ^= byte
        for _ in range(8):
            value = value >> 1 ^ (0x82F63B78 if value & 1 else 0)
    return value ^ 0xFFFFFFFF


class ObjectsThatAreOthersNow(Placed):
    URI = "gs://again/object"

    def read_twice(self, client, data):
        for _ in range(2):
            self.assertEqual(bytes(client.get(self.URI)), data)
            seen = list(ringest.IterableDataset("gs://again/", transform=lambda item: bytes(item.data), client=client))
            self.assertEqual(seen, [data])

    def test_a_bucket_that_is_made_again(self):
        with ringest.Client(*self.place, hedging=False, cache=str(self.folder), cache_size="16MiB") as client:
            for content in (b"one", b"two", b"six"):
                support.make_bucket(*self.place, "again")
                client.put(self.URI, content * 1000)
                self.read_twice(client, content * 1000)
                client.delete(self.URI)
                ask(self.place, "DELETE", "/storage/v1/b/again")
                with self.assertRaises(ringest.NotFoundError):
                    client.get(self.URI)

    def test_metadata_that_changes(self):
        """The bytes are the same as long as the generation is."""
        with ringest.Client(*self.place, hedging=False, cache=str(self.folder), cache_size="16MiB") as client:
            uri = "gs://bucket/object"
            generation = client.put(uri, b"data" * 1000)
            self.assertEqual(bytes(client.get(uri, generation=generation)), b"data" * 1000)
            client.update(uri, metadata={"key": "value"})
            self.assertEqual(bytes(client.get(uri, generation=generation)), b"data" * 1000)
            self.assertEqual(bytes(client.get(uri)), b"data" * 1000)


class Processes(Placed):
    def test_eight_that_know_their_generations_ask_for_nothing(self):
        """Hits of a listed data set need no request at all."""
        with ringest.Client(*self.place) as client:
            listed = client.list("gs://data/")
        manifest = self.folder.parent / "manifest"
        listed.save(manifest)
        share = self.enterContext(tempfile.TemporaryDirectory(dir="/dev/shm"))
        # One index for all of them.
        self.enterContext(mock.patch.dict(os.environ, {"RINGEST_SHARING": "1", "RINGEST_SHARE": share}))

        def read():
            with ringest.Client(*self.place, hedging=False, cache=str(self.folder), cache_size="64MiB") as client:
                dataset = ringest.IterableDataset("gs://data/", client=client, manifest=manifest, shuffle=True)
                for _ in range(2):
                    assert {len(data) for data in dataset} == {support.SIZE}

        def ask_for_nothing():
            with Rule(self.place, target="/o/") as rule:
                readers = [Forked(read) for _ in range(8)]
                self.assertEqual([reader.wait() for reader in readers], [0] * 8)
            return rule.end()["seen"] == 0

        self.assertEqual(Forked(read).wait(), 0)
        support.until(ask_for_nothing, "no disk that is as slow as to be left alone")


if __name__ == "__main__":
    unittest.main()
