"""Tar shards: the same samples as tarfile and webdataset find, in any order, resumed exactly, with
shards that are changed, empty, missing or broken."""

import gzip
import io
import operator
import os
import pickle
import random
import subprocess
import tarfile
import tempfile
import unittest

import ringest
import support
from ringest.tar import expand_braces, make_index

try:
    import torch
except ImportError:
    torch = None

try:
    import webdataset

    import ringest.webdataset
except ImportError:
    webdataset = None

BUCKET = "gs://shards"


def tar_of(members, format=tarfile.GNU_FORMAT):
    """A tar archive of (name, bytes)."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=format) as archive:
        for name, data in members:
            info = tarfile.TarInfo(name)
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))
    return out.getvalue()


def shard_of(number, count=20, size=1000):
    """Samples with a picture, a class and, each third, a text."""
    source = random.Random(number)
    members = []
    for i in range(count):
        key = f"s{number}/{i:06d}"
        members.append((f"{key}.jpg", source.randbytes(source.randrange(size))))
        members.append((f"{key}.cls", b"%d" % (number * 1000 + i)))
        if i % 3 == 0:
            members.append((f"{key}.Caption.TXT", b"text of %d" % i))
    return members


def by_tarfile(data):
    """What a shard holds, by Python's own reader and WebDataset's rule for names."""
    samples = []
    with tarfile.open(fileobj=io.BytesIO(data)) as archive:
        for info in archive:
            folder, _, base = info.name.rpartition("/")
            stem, dot, extension = base.partition(".")
            if not info.isreg() or not dot:
                continue
            key = f"{folder}/{stem}" if folder else stem
            if not samples or samples[-1]["__key__"] != key:
                samples.append({"__key__": key})
            samples[-1][extension.lower()] = archive.extractfile(info).read()
    return samples


def plain(sample, url=False):
    """A sample with bytes in it."""
    return {
        name: value if isinstance(value, str) else bytes(value)
        for name, value in sample.items()
        if url or name != "__url__"
    }


def plain_of_file(sample):
    """A sample that webdataset read from a file, without what it says of that."""
    return {name: value for name, value in plain(sample).items() if name != "__local_path__"}


# Which spawned workers can import.
key_of = operator.itemgetter("__key__")


def by_key(samples):
    return sorted(map(plain, samples), key=key_of)


class Braces(unittest.TestCase):
    def test_they_expand_as_in_a_shell(self):
        for pattern in (
            "a-{000..003}.tar",
            "{a,b}/{0..2}",
            "{3..1}",
            "{08..11}",
            "{-1..1}",
            "{a..e..2}",
            "x{,y}z",
            "{a,{1..2},c}",
            "{a}",
            "{{1..2}}",
            "plain",
        ):
            shell = subprocess.run(
                ["bash", "-c", f"printf '%s\\n' {pattern}"], capture_output=True, text=True, check=True
            )
            self.assertEqual(expand_braces(pattern), shell.stdout.splitlines(), pattern)
        self.assertEqual(expand_braces("a{b"), ["a{b"])


class Tar(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.context = support.client(hedging=False)
        cls.client = cls.context.__enter__()

    @classmethod
    def tearDownClass(cls):
        cls.context.__exit__(None, None, None)
        cls.folder.cleanup()

    def put(self, name, data):
        self.client.put(f"{BUCKET}/{name}", data)
        return f"{BUCKET}/{name}"

    def put_shards(self, prefix, numbers, **options):
        """The archives, and the pattern of their URIs."""
        shards = [tar_of(shard_of(number, **options)) for number in numbers]
        for number, data in zip(numbers, shards):
            self.put(f"{prefix}-{number:04d}.tar", data)
        return shards, f"{BUCKET}/{prefix}-{{{numbers[0]:04d}..{numbers[-1]:04d}}}.tar"

    def dataset(self, uri, **options):
        return ringest.TarDataset(uri, client=self.client, **options)


class Shards(Tar):
    def test_samples_are_those_of_tarfile(self):
        shards, uri = self.put_shards("plain", range(3))
        expected = [sample for data in shards for sample in by_tarfile(data)]
        dataset = self.dataset(uri)
        self.assertEqual([plain(sample) for sample in dataset], expected)
        self.assertEqual(len(dataset), len(expected))
        self.assertEqual([plain(dataset[i]) for i in range(len(expected))], expected)
        self.assertEqual(plain(dataset[-1]), expected[-1])
        self.assertEqual({s["__url__"] for s in dataset}, {f"{BUCKET}/plain-{i:04d}.tar" for i in range(3)})
        self.assertEqual([shard.count for shard in dataset.shards], [20, 20, 20])
        with self.assertRaisesRegex(IndexError, "index 60 is out of range: there are 60 samples"):
            dataset[60]

    def test_every_format_of_tarfile(self):
        long = "/".join(["folder" * 10] * 5)
        for name, format in (("ustar", tarfile.USTAR_FORMAT), ("gnu", tarfile.GNU_FORMAT), ("pax", tarfile.PAX_FORMAT)):
            members = [("a.txt", b"1"), ("b/" * 60 + "deep.bin", b"22"), ("empty.a", b""), ("empty.b", b"")]
            if name != "ustar":
                members += [(f"{long}/é.x", b"333"), (f"{long}/é.y", b""), ("z" * 300 + ".t", b"4" * 600)]
            data = tar_of(members, format)
            with self.subTest(format=name):
                self.assertEqual([plain(s) for s in self.dataset(self.put(f"{name}.tar", data))], by_tarfile(data))

    def test_archives_of_gnu_tar(self):
        with tempfile.TemporaryDirectory() as folder:
            for name in ("x.jpg", "x.cls", "sub/y.jpg", "sub/" + "long" * 40 + ".jpg", "d/" * 60 + "z.jpg", "big.bin"):
                path = os.path.join(folder, name)
                os.makedirs(os.path.dirname(path), exist_ok=True)
                with open(path, "wb") as file:
                    file.write(random.Random(name).randbytes(200_000 if name == "big.bin" else 700))
            os.link(os.path.join(folder, "x.jpg"), os.path.join(folder, "hard.jpg"))
            os.symlink("x.jpg", os.path.join(folder, "soft.jpg"))
            for format in ("v7", "oldgnu", "gnu", "ustar", "posix"):
                # Names of more than 100 bytes came later, and in ustar only with folders.
                skip = ["--exclude=*longlong*"] if format in ("v7", "ustar") else []
                skip += ["--exclude=./d"] if format == "v7" else []
                command = ["tar", f"--format={format}", "--sort=name", *skip, "-C", folder, "-cf", "-", "."]
                data = subprocess.run(command, check=True, capture_output=True).stdout
                with self.subTest(format=format):
                    samples = [plain(s) for s in self.dataset(self.put(f"tool-{format}.tar", data))]
                    self.assertEqual(samples, by_tarfile(data))
                    self.assertGreaterEqual(len(samples), 3)

    def test_random_archives(self):
        source = random.Random(support.SEED)
        for round in range(12):
            members = []
            for i in range(source.randrange(1, 120)):
                key = "/".join(source.choice(["a", "bb", "c-c"]) for _ in range(source.randrange(3)))
                key = f"{key}/{i}" if key else f"{i}"
                for extension in source.sample(["jpg", "cls", "seg.png", "JSON", ""], source.randrange(1, 5)):
                    size = source.choice([0, 1, 511, 512, 513, 5000, source.randrange(150_000)])
                    members.append((f"{key}.{extension}", source.randbytes(size)))
                if i % 10 == 0:
                    members.append((f"no-dot-{i}", b"x" * 100))
            format = source.choice([tarfile.GNU_FORMAT, tarfile.PAX_FORMAT, tarfile.USTAR_FORMAT])
            data = tar_of(members, format)
            with self.subTest(seed=support.SEED, round=round):
                dataset = self.dataset(self.put("random.tar", data))
                self.assertEqual([plain(s) for s in dataset], by_tarfile(data))

    def test_large_members_are_not_read_for_the_index(self):
        members = [
            (f"{i}.{extension}", bytes(size)) for i in range(20) for extension, size in (("bin", 1 << 20), ("cls", 3))
        ]
        uri = self.put("large.tar", tar_of(members))
        before = self.client.stats()["recv_bytes"]
        index = make_index(uri, client=self.client)
        self.assertEqual(len(index), 20)
        self.assertLess(self.client.stats()["recv_bytes"] - before, 1 << 20)

    def test_small_members_take_few_requests(self):
        uri = self.put("small.tar", tar_of([(f"{i:05d}.txt", b"x" * 100) for i in range(5000)]))
        before = self.client.stats()["requests"]
        self.assertEqual(len(make_index(uri, client=self.client)), 5000)
        self.assertLess(self.client.stats()["requests"] - before, 20)

    def test_a_prefix_means_the_shards_below_it(self):
        shards, _ = self.put_shards("below/it", range(2))
        self.put("below/it.json", b"{}")
        self.assertEqual(
            by_key(self.dataset(f"{BUCKET}/below/")), by_key(s for data in shards for s in by_tarfile(data))
        )
        with self.assertRaisesRegex(ValueError, r"no objects below gs://shards/nothing.* in \.tar"):
            len(self.dataset(f"{BUCKET}/nothing-"))

    def test_an_empty_shard_has_no_samples(self):
        shards, _ = self.put_shards("some", range(2))
        empty = self.put("empty.tar", tar_of([]))
        uris = [empty, f"{BUCKET}/some-0000.tar", empty, f"{BUCKET}/some-0001.tar", empty]
        dataset = self.dataset(uris)
        self.assertEqual([plain(s) for s in dataset], [s for data in shards for s in by_tarfile(data)])
        self.assertEqual([shard.count for shard in dataset.shards], [0, 20, 0, 20, 0])
        with self.assertRaisesRegex(ValueError, "no samples"):
            list(self.dataset(empty))

    def test_what_is_wrong_with_a_shard_is_said(self):
        whole = tar_of(shard_of(7))
        broken = bytearray(whole)
        # The header behind the first member's data.
        with tarfile.open(fileobj=io.BytesIO(whole)) as tar:
            second = 512 + (tar.next().size + 511) // 512 * 512
        broken[second + 5] ^= 1
        for name, data, text in (
            ("cut-in-data", whole[: second - 100], f'at byte {second - 100}: it is cut off: "s7/000000.jpg" would end'),
            ("cut-in-header", whole[: second + 100], f"at byte {second + 100}: it is cut off: a header is incomplete"),
            ("cut-between", whole[:second], f"at byte {second}: it is cut off: the end mark"),
            ("no-bytes", b"", "at byte 0: it is empty"),
            ("flipped", bytes(broken), f"at byte {second}: the header's checksum is wrong"),
            ("text", b"hello, world\n" * 100, "at byte 0: it is not a tar archive"),
            ("gzip", gzip.compress(whole), "at byte 0: it is compressed with gzip"),
            ("twice", tar_of([("a.jpg", b"1"), ("a.cls", b"2"), ("a.JPG", b"3")]), 'sample "a" has "jpg" twice'),
            ("many", tar_of([(f"a.{i}", b"") for i in range(65)]), "more than 64 members"),
        ):
            with self.subTest(name):
                self.put(f"bad-{name}.tar", data)
                with self.assertRaises(ValueError) as raised:
                    len(self.dataset(f"{BUCKET}/bad-{name}.tar"))
                self.assertIn(f"gs://shards/bad-{name}.tar: ", str(raised.exception))
                self.assertIn(text, str(raised.exception))

    def test_a_sparse_file_is_refused(self):
        with tempfile.TemporaryDirectory() as folder:
            with open(os.path.join(folder, "hole.bin"), "wb") as file:
                file.truncate(1 << 20)
                file.seek(1 << 19)
                file.write(b"x")
            for format in ("gnu", "posix"):
                command = ["tar", "--sparse", f"--format={format}", "-C", folder, "-cf", "-", "hole.bin"]
                data = subprocess.run(command, check=True, capture_output=True).stdout
                with self.subTest(format=format), self.assertRaisesRegex(ValueError, "sparse file"):
                    len(self.dataset(self.put("sparse.tar", data)))

    def test_names_that_cannot_be(self):
        self.put_shards("here", range(1))
        with self.assertRaises(ringest.NotFoundError) as raised:
            len(self.dataset(f"{BUCKET}/here-{{0000..0003}}.tar"))
        self.assertRegex(str(raised.exception), "gs://shards/here-000[123].tar")
        with self.assertRaisesRegex(ValueError, "compressed"):
            len(self.dataset(f"{BUCKET}/a.tar.gz"))
        with self.assertRaisesRegex(ValueError, "one bucket"):
            len(self.dataset(["gs://shards/a.tar", "gs://others/a.tar"]))
        with self.assertRaisesRegex(ValueError, "not of the form gs://"):
            self.dataset("file.tar")
        with self.assertRaisesRegex(ValueError, "newest"):
            self.dataset(f"{BUCKET}/a.tar", changed="newest")

    def test_a_transform_that_raises_names_the_sample(self):
        _, uri = self.put_shards("transform", range(1))
        with self.assertRaisesRegex(RuntimeError, r"'s0/000000' of gs://shards/transform-0000.tar raised KeyError"):
            next(iter(self.dataset(uri, transform=lambda sample: sample["png"])))

    def test_samples_that_cannot_be_had_are_left_out_or_replaced(self):
        _, uri = self.put_shards("on-error", range(1))

        def transform(sample):
            if sample["__key__"] in ("s0/000003", "s0/000007"):
                raise KeyError("mine")
            return sample["__key__"]

        keys = [f"s0/{i:06d}" for i in range(20)]
        left = [key for key in keys if key not in (keys[3], keys[7])]
        for batch_size in (None, 6):
            dataset = self.dataset(uri, transform=transform, on_error="skip", batch_size=batch_size)
            with self.assertLogs("ringest", "WARNING") as logs:
                got = list(dataset)
            self.assertEqual(sum(got, []) if batch_size else got, left)
            self.assertEqual(dataset.skipped, 2)
            self.assertRegex(logs.output[1], "s0/000007' of gs://shards/on-error-0000.tar")
        dataset = self.dataset(uri, transform=transform, on_error=lambda item, error: item.data["__key__"].upper())
        self.assertEqual(list(dataset)[3], "S0/000003")
        self.assertEqual(dataset[7], "S0/000007")
        by_index = ringest.TarMapDataset(uri, transform, self.client, on_error="skip")
        with self.assertLogs("ringest", "WARNING"), self.assertRaisesRegex(ringest.TransformError, keys[3]):
            self.assertEqual(by_index.__getitems__([2, 3, 4]), [keys[2], keys[4]])
            by_index[3]
        self.assertEqual(by_index.skipped, 2)

    def test_nothing_stays_leased(self):
        _, uri = self.put_shards("leases", range(2))
        dataset = self.dataset(uri)
        jpg = next(iter(dataset))["jpg"]
        self.assertEqual(bytes(jpg), by_tarfile(tar_of(shard_of(0)))[0]["jpg"])
        del jpg
        list(dataset)
        dataset[3]
        self.assertEqual(self.client.stats()["leased_bytes"], 0)


class Index(Tar):
    def path(self):
        return os.path.join(self.folder.name, f"{self.id()}.index")

    def test_it_is_kept_and_only_what_changed_is_scanned_again(self):
        path = self.path()
        shards, uri = self.put_shards("kept", range(4))
        first = make_index(uri, index=path, client=self.client)
        before = self.client.stats()["requests"]
        self.assertEqual(make_index(uri, index=path, client=self.client).data(), first.data())
        self.assertEqual(self.client.stats()["requests"] - before, 4)
        inode = os.stat(path).st_ino
        shards[2] = tar_of(shard_of(9, count=33))
        self.put("kept-0002.tar", shards[2])
        seen = []
        dataset = self.dataset(uri, index=path)
        self.assertEqual([plain(s) for s in dataset], [s for data in shards for s in by_tarfile(data)])
        self.assertNotEqual(os.stat(path).st_ino, inode)
        ringest.TarIndex.scan(
            self.client,
            "shards",
            [(f"kept-{i:04d}.tar", 0, 0) for i in range(4)],
            known=ringest.TarIndex(path),
            progress=lambda done, read: seen.append((done, read)),
        )
        self.assertEqual(seen[-1], (4, 0))

    def test_a_listing_saves_asking_for_generations(self):
        path = self.path()
        self.put_shards("listed/x", range(3))
        make_index(f"{BUCKET}/listed/", index=path, client=self.client)
        before = self.client.stats()["requests"]
        make_index(f"{BUCKET}/listed/", index=path, client=self.client)
        self.assertEqual(self.client.stats()["requests"] - before, 1)

    def test_a_damaged_file_is_made_anew(self):
        path = self.path()
        _, uri = self.put_shards("damage", range(2))
        data = make_index(uri, index=path, client=self.client).data()
        with open(path, "r+b") as file:
            file.seek(len(data) // 2)
            file.write(b"\xff\xff")
        with self.assertRaisesRegex(ValueError, "at byte .*CRC32C"):
            ringest.TarIndex(path)
        with self.assertLogs("ringest", "WARNING"):
            self.assertEqual(make_index(uri, index=path, client=self.client).data(), data)
        self.assertEqual(ringest.TarIndex(path).data(), data)

    def test_it_pickles(self):
        _, uri = self.put_shards("pickle", range(2))
        index = make_index(uri, client=self.client)
        again = pickle.loads(pickle.dumps(index))
        self.assertEqual(again.data(), index.data())
        self.assertEqual(again.sample(25), index.sample(25))

    def test_a_shard_that_changed_since_follows_the_policy(self):
        shards, uri = self.put_shards("changed", range(3))
        index = make_index(uri, client=self.client)
        self.put("changed-0001.tar", tar_of(shard_of(5)))
        with self.assertRaisesRegex(ringest.NotFoundError, "gs://shards/changed-0001.tar"):
            list(self.dataset(index))
        expected = by_tarfile(shards[0]) + by_tarfile(shards[2])
        self.assertEqual([plain(s) for s in self.dataset(index, changed="skip")], expected)
        with self.assertRaises(ringest.NotFoundError):
            self.dataset(index)[25]


class Stream(Tar):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.shards, cls.uri = cls.put_shards(cls, "stream", range(5))
        cls.all = [s for data in cls.shards for s in by_tarfile(data)]
        cls.found = make_index(cls.uri, client=cls.client)

    @classmethod
    def put(cls, name, data):
        cls.client.put(f"{BUCKET}/{name}", data)

    def make(self, **options):
        return self.dataset(self.found, transform=key_of, **options)

    def test_a_shuffle_is_over_and_in_shards(self):
        keys = list(self.make(shuffle=True, seed=1))
        self.assertEqual(sorted(keys), sorted(map(key_of, self.all)))
        # Not shard by shard: the first samples are of several.
        self.assertGreater(len({key.split("/")[0] for key in keys[:20]}), 2)
        self.assertNotEqual(keys, list(self.make(shuffle=True, seed=2)))
        self.assertEqual(keys, list(self.make(shuffle=True, seed=1)))
        epoch = self.make(shuffle=True, seed=1)
        epoch.set_epoch(1)
        self.assertNotEqual(keys, list(epoch))

    def test_batches_without_a_transform_are_samples_too(self):
        batches = list(self.dataset(self.found, batch_size=7))
        self.assertEqual([key_of(sample) for batch in batches for sample in batch], list(map(key_of, self.all)))

    def test_unordered_gives_each_once(self):
        self.assertEqual(sorted(self.make(ordered=False, shuffle=True)), sorted(map(key_of, self.all)))

    def test_ranks_share_the_samples(self):
        seen = []
        for rank in range(3):
            seen += self.make(rank=rank, world_size=3, shuffle=True)
        self.assertEqual(sorted(seen), sorted(map(key_of, self.all)))

    def test_it_goes_on_exactly(self):
        whole = list(self.make(shuffle=True, seed=3))
        for stop in (0, 1, 50, 99):
            dataset = self.make(shuffle=True, seed=3)
            samples = iter(dataset)
            begin = [next(samples) for _ in range(stop)]
            state = pickle.loads(pickle.dumps(dataset.state_dict()))
            samples.close()
            other = self.make(shuffle=True, seed=3)
            other.load_state_dict(state)
            self.assertEqual(begin + list(other), whole)

    def test_a_state_of_other_shards_is_refused(self):
        dataset = self.make()
        samples = iter(dataset)
        next(samples)
        state = dataset.state_dict()
        other = self.dataset([f"{BUCKET}/stream-{i:04d}.tar" for i in (0, 1, 2, 4, 3)])
        other.load_state_dict(state)
        with self.assertRaisesRegex(ValueError, "other objects"):
            next(iter(other))

    def requests(self, dataset):
        before = self.client.stats()["requests"]
        self.assertEqual(len(list(dataset)), len(self.all))
        return self.client.stats()["requests"] - before

    def test_samples_in_order_share_requests(self):
        self.assertEqual(self.requests(self.dataset(self.found)), 5)
        self.assertEqual(self.requests(self.dataset(self.found, coalesce=1)), len(self.all))
        # As many as an order has in which few neighbours follow each other.
        self.assertGreater(self.requests(self.dataset(self.found, shuffle=True)), len(self.all) * 3 // 4)
        with self.assertRaisesRegex(ValueError, "coalesce must be a size.*got 'much'"):
            self.dataset(self.found, coalesce="much")

    def test_what_is_kept_of_a_request_stays_as_it_is(self):
        kept = [sample["jpg"] for i, sample in enumerate(self.dataset(self.found)) if i % 7 == 3]
        leased = self.client.stats()["leased_bytes"]
        self.assertGreater(leased, 0)
        self.assertEqual(list(map(bytes, kept)), [sample["jpg"] for sample in self.all[3::7]])
        del kept[1:]
        self.assertLess(0, self.client.stats()["leased_bytes"])
        self.assertLess(self.client.stats()["leased_bytes"], leased)
        kept.clear()
        self.assertEqual(self.client.stats()["leased_bytes"], 0)

    def test_it_goes_on_exactly_in_order(self):
        for stop in (0, 1, 19, 20, 21, 99, 100):
            dataset = self.make()
            samples = iter(dataset)
            begin = [next(samples) for _ in range(stop)]
            other = self.make(members=["cls"])
            other.load_state_dict(dataset.state_dict())
            samples.close()
            self.assertEqual(begin + list(other), list(map(key_of, self.all)))

    def test_only_members_that_are_wanted(self):
        names = ("jpg", "caption.txt")
        expected = [{name: sample[name] for name in ("__key__", *names) if name in sample} for sample in self.all]
        for options in ({}, {"batch_size": 7}, {"coalesce": 1}, {"ordered": False, "shuffle": True}):
            samples = list(self.dataset(self.found, members=names, transform=plain, **options))
            samples = sum(samples, []) if "batch_size" in options else samples
            with self.subTest(**options):
                self.assertEqual(sorted(samples, key=key_of), sorted(expected, key=key_of))
        by_index = ringest.TarMapDataset(self.found, plain, self.client, members=names)
        self.assertEqual(by_index.__getitems__([5, 99, 6, 7, -1]), [expected[i] for i in (5, 99, 6, 7, 99)])
        self.assertEqual(self.dataset(self.found, members=names, transform=plain)[3], expected[3])
        nothing = self.dataset(self.found, members=("no",), transform=plain)
        before = self.client.stats()["requests"]
        self.assertEqual(list(nothing), [{"__key__": sample["__key__"]} for sample in self.all])
        self.assertEqual(self.client.stats()["requests"], before)

    def test_large_members_that_are_not_wanted_are_not_read(self):
        source = random.Random(3)
        members = []
        for i in range(12):
            for extension, size in (("cls", 2), ("mp4", 300_000), ("json", i * 100), ("wav", 40_000), ("txt", 9)):
                members.append((f"{i:02d}.{extension}", source.randbytes(size)))
        data = tar_of(members)
        self.put("video.tar", data)
        names = ["txt", "cls", "json"]
        expected = [{name: sample[name] for name in ("__key__", *names)} for sample in by_tarfile(data)]
        found = make_index(f"{BUCKET}/video.tar", client=self.client)
        before = self.client.stats()["recv_bytes"]
        self.assertEqual(list(self.dataset(found, members=names, transform=plain)), expected)
        map_style = ringest.TarMapDataset(found, plain, self.client, members=names)
        self.assertEqual(map_style.__getitems__([11, 0, 3]), [expected[i] for i in (11, 0, 3)])
        self.assertLess(self.client.stats()["recv_bytes"] - before, len(data) // 20)
        self.assertEqual(self.client.stats()["leased_bytes"], 0)

    def test_members_that_make_no_sense(self):
        for members, text in (
            ("jpg", "sequence of extensions"),
            ([], "use None for all"),
            (["x" * 256], "255 bytes"),
            ([1], "sequence of"),
        ):
            with self.subTest(members), self.assertRaisesRegex(ValueError, text):
                list(self.dataset(self.found, members=members))
        with self.assertRaisesRegex(ValueError, "at most 64"):
            list(self.dataset(self.found, members=list(map(str, range(65)))))

    def test_batches_by_index_share_requests(self):
        dataset = ringest.TarMapDataset(self.found, plain, self.client)
        before = self.client.stats()["requests"]
        self.assertEqual(dataset.__getitems__(range(10, 18)), [plain(sample) for sample in self.all[10:18]])
        self.assertEqual(self.client.stats()["requests"] - before, 1)
        self.assertEqual(dataset.__getitems__([]), [])

    @unittest.skipIf(torch is None, "torch is not installed")
    def test_workers_do_not_scan_again(self):
        for number in range(2):
            self.put(f"once-{number:04d}.tar", self.shards[number])
        dataset = self.dataset(f"{BUCKET}/once-{{0000..0001}}.tar", transform=key_of, changed="skip")
        self.assertGreater(len(dataset), 0)
        # A scan would now fail, and samples are skipped.
        for number in range(2):
            self.client.delete(f"{BUCKET}/once-{number:04d}.tar")
        for context in ("fork", "spawn"):
            loader = torch.utils.data.DataLoader(dataset, batch_size=4, num_workers=2, multiprocessing_context=context)
            self.assertEqual(list(loader), [])

    @unittest.skipIf(torch is None, "torch is not installed")
    def test_workers(self):
        for workers, context in ((0, None), (2, "fork"), (2, "spawn")):
            dataset = self.make(shuffle=True, batch_size=8)
            whole = sum(dataset, [])
            loader = torch.utils.data.DataLoader(
                dataset, batch_size=None, num_workers=workers, multiprocessing_context=context
            )
            with self.subTest(workers=workers, context=context):
                self.assertEqual(sum(loader, []), whole)
                self.assertEqual(sorted(whole), sorted(map(key_of, self.all)))

    @unittest.skipIf(torch is None, "torch is not installed")
    def test_a_map_dataset_under_a_sampler(self):
        dataset = ringest.TarMapDataset(self.found, plain, self.client)
        loader = torch.utils.data.DataLoader(dataset, batch_size=16, shuffle=True, num_workers=2, collate_fn=list)
        self.assertEqual(by_key(sum(loader, [])), by_key(self.all))
        self.assertEqual([dataset[i] for i in (0, -1)], [plain(self.all[0]), plain(self.all[-1])])

    @unittest.skipIf(webdataset is None, "webdataset is not installed")
    def test_webdataset_reads_the_same_through_us(self):
        ringest.webdataset.register(self.client)
        try:
            theirs = list(webdataset.WebDataset(self.uri, shardshuffle=False))
            again = list(webdataset.WebDataset(self.uri.replace("gs://", "gcs://"), shardshuffle=False))
        finally:
            ringest.webdataset.register()
        self.assertEqual([plain(s, url=True) for s in theirs], [plain(s, url=True) for s in self.dataset(self.found)])
        self.assertEqual([plain(s) for s in again], [plain(s) for s in theirs])

    @unittest.skipIf(webdataset is None, "webdataset is not installed")
    def test_odd_names_are_what_webdataset_makes_of_them(self):
        names = [
            "a.b/c.jpg",
            "d/.hidden",
            "x",
            "a.b/c",
            "__meta__",
            "__x__/a.txt",
            "_y_.z",
            "a..b",
            ".c",
            "d/e.",
            "F.A.b",
        ]
        self.put("odd.tar", tar_of([(name, name.encode()) for name in names]))
        ringest.webdataset.register(self.client)
        try:
            theirs = list(webdataset.WebDataset(f"{BUCKET}/odd.tar", shardshuffle=False))
        finally:
            ringest.webdataset.register()
        self.assertEqual([plain(s) for s in self.dataset(f"{BUCKET}/odd.tar")], [plain(s) for s in theirs])
        self.assertGreater(len(theirs), 4)

    @unittest.skipIf(webdataset is None, "webdataset is not installed")
    def test_a_stream_is_the_object(self):
        data = random.Random(1).randbytes(20_000_000)
        ringest.webdataset.register(self.client)
        self.addCleanup(ringest.webdataset.register)
        uri = f"{BUCKET}/bytes"
        for expected in (data, b""):
            self.put("bytes", expected)
            with ringest.webdataset.gopen(uri) as file:
                self.assertEqual(file.read(10), expected[:10])
                self.assertEqual(file.read(), expected[10:])
                self.assertEqual(file.read(), b"")
        with self.assertRaises(ringest.NotFoundError):
            ringest.webdataset.gopen(f"{BUCKET}/absent")
        self.put("bytes", data)
        file = ringest.webdataset.gopen(uri)
        file.read(1)
        file.close()
        self.assertEqual(self.client.stats()["leased_bytes"], 0)
        with self.assertRaisesRegex(ValueError, "mode must be 'rb' or 'wb', got 'ab'"):
            ringest.webdataset.gopen(f"{BUCKET}/bytes", "ab")

    @unittest.skipIf(webdataset is None, "webdataset is not installed")
    def test_webdataset_writes_through_us(self):
        uri = f"{BUCKET}/written.tar"
        ringest.webdataset.register(self.client)
        try:
            with webdataset.TarWriter(uri) as writer:
                for i in range(50):
                    writer.write({"__key__": f"{i:03d}", "bin": bytes(i * 1000), "cls": i})
        finally:
            ringest.webdataset.register()
        samples = list(self.dataset(uri, transform=plain))
        self.assertEqual(
            [(s["__key__"], len(s["bin"]), s["cls"]) for s in samples],
            [(f"{i:03d}", i * 1000, b"%d" % i) for i in range(50)],
        )

    @unittest.skipIf(webdataset is None, "webdataset is not installed")
    def test_shards_of_webdatasets_own_writer(self):
        source = random.Random(4)
        with tempfile.TemporaryDirectory() as folder:
            with webdataset.ShardWriter(f"{folder}/%02d.tar", maxcount=9, verbose=0) as writer:
                for i in range(30):
                    key = f"{'é' * 60}/{i:03d}" if i % 2 else f"{i:03d}"
                    writer.write(
                        {"__key__": key, "npy.bin": source.randbytes(i * 40), "json": {"i": i}, "txt": f"text {i}"}
                    )
            names = sorted(os.listdir(folder))
            self.assertEqual(len(names), 4)
            for name in names:
                with open(f"{folder}/{name}", "rb") as file:
                    self.put(f"writer/{name}", file.read())
            theirs = list(webdataset.WebDataset([f"{folder}/{name}" for name in names], shardshuffle=False))
        self.assertEqual([plain(s) for s in self.dataset(f"{BUCKET}/writer/")], [plain_of_file(s) for s in theirs])
        texts = self.dataset(f"{BUCKET}/writer/", members=["txt"], transform=lambda sample: bytes(sample["txt"]))
        self.assertEqual(list(texts), [b"text %d" % i for i in range(30)])


if __name__ == "__main__":
    unittest.main()
