"""Lists of objects: as they are made, saved, pickled, and shared with other processes."""

import hashlib
import multiprocessing
import os
import pickle
import resource
import tempfile
import unittest

import ringest
import support

# What lies in memory that other processes map.
MANY = 30000


def entries(count):
    return [(f"some/folder/x-{i:08d}", i, i * 1000) for i in range(count)]


def mapped(fd):
    """How much of the memory or file of a descriptor this process has mapped, in KiB, and its share of that."""
    inode, sizes, shares = os.fstat(fd).st_ino, 0, 0
    with open("/proc/self/smaps", encoding="utf-8") as file:
        is_it = False
        for line in file:
            fields = line.split()
            if "-" in fields[0] and len(fields) >= 5:
                is_it = fields[4] == str(inode)
            elif is_it and fields[0] == "Rss:":
                sizes += int(fields[1])
            elif is_it and fields[0] == "Pss:":
                shares += int(fields[1])
    return sizes, shares


def child(objects, pipe, go_on):
    """Says what it has got, once the parent says so."""
    go_on.recv()
    pipe.send((objects.digest, objects[len(objects) - 1], objects.fd, mapped(objects.fd) if objects.fd >= 0 else None))


def told_by_children(kind, objects, count=1):
    """What children said who all had the list at the same time."""
    context = multiprocessing.get_context(kind)
    pipes = [(context.Pipe(duplex=False), context.Pipe(duplex=False)) for _ in range(count)]
    processes = [context.Process(target=child, args=(objects, told[1], go_on[0])) for told, go_on in pipes]
    for process in processes:
        process.start()
    for _, go_on in pipes:
        go_on[1].send(None)
    told = [told[0].recv() for told, _ in pipes]
    for process in processes:
        process.join()
        assert process.exitcode == 0
    return told


class Objects(unittest.TestCase):
    def test_a_list_keeps_its_order(self):
        given = [("b", 1, 1), ("a", 2, 2), ("ä/ö", 0, 0), ("a", 2, 2)]
        objects = ringest.Objects("bucket", given)
        self.assertEqual((objects.bucket, list(objects), len(objects)), ("bucket", given, 4))
        self.assertEqual([objects[i] for i in (3, 0, 2)], [given[i] for i in (3, 0, 2)])
        with self.assertRaises(IndexError):
            objects[4]
        self.assertEqual(list(ringest.Objects("bucket", [])), [])

    def test_what_is_no_list(self):
        for wrong, text in (
            (("bucket", [("", 0, 0)]), "no object"),
            (("bucket", [("x" * 1025, 0, 0)]), "no object"),
            (("bucket", [("x", 0, -1)]), "^'x': generation must be 0 to 2"),
            (("bucket", [("x", -1, 0)]), "'x': size must be 0 to .* got -1"),
            (("bucket", [("x", 1 << 64, 0)]), "'x': size must be"),
            (("bucket", [("x", 0, 1 << 63)]), "'x': generation must be"),
            (("bucket", [("x\0y", 0, 0)]), "NUL"),
            (("B", []), "'B' is no name of a bucket"),
        ):
            with self.subTest(wrong), self.assertRaisesRegex(ValueError, text):
                ringest.Objects(*wrong)
        for wrong in ((), ("bucket",), ("bucket", (("x", 0, 0),)), ("bucket", ["x"]), ("bucket", [("x", "y", 0)])):
            with self.subTest(wrong), self.assertRaises(TypeError):
                ringest.Objects(*wrong)
        for wrong in (b"", b"text", bytes(ringest.Objects("bucket", entries(100)))[:-1]):
            with self.subTest(wrong), self.assertRaisesRegex(ValueError, "at byte"):
                ringest.Objects(data=wrong)
        with self.assertRaises(OSError):
            ringest.Objects(fd=1 << 30)

    def test_a_list_that_is_emptied_while_it_is_taken(self):
        given = [(f"x{i}" * 100, 0, 0) for i in range(1000)]

        class Wrong:
            def __index__(self):
                given.clear()
                return 1

        given[1] = ("y" * 1000, Wrong(), 0)
        self.assertEqual(len(ringest.Objects("bucket", given)), 2)

    def test_it_is_saved_as_a_manifest(self):
        with support.client() as client, tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "x.manifest")
            objects = client.list("gs://data/x-")
            objects.save(path)
            saved = ringest.Objects(manifest=path)
            self.assertEqual((list(saved), saved.digest), (list(objects), objects.digest))
            with open(path, "rb") as file:
                self.assertEqual(hashlib.sha256(file.read()).hexdigest(), objects.digest)
            ringest.Objects("data", [("b", 1, 1), ("a", 2, 2)]).save(path)
            self.assertEqual(list(ringest.Objects(manifest=path)), [("a", 2, 2), ("b", 1, 1)])
            with self.assertRaisesRegex(ValueError, "b is there twice"):
                ringest.Objects("data", [("b", 1, 1), ("b", 1, 1)]).save(path)
            with self.assertRaisesRegex(OSError, "nowhere"):
                objects.save("/nowhere/x")
            ringest.Objects(manifest=path).save(path)
            self.assertEqual((len(ringest.Objects(manifest=path)), os.listdir(folder)), (2, ["x.manifest"]))
            with open(path, "r+b") as file:
                file.seek(-9, os.SEEK_END)
                file.write(b"?")
            with self.assertRaisesRegex(ValueError, path):
                ringest.Objects(manifest=path)

    def test_its_bytes_are_a_manifest(self):
        with support.client() as client:
            objects = client.list("gs://data/x-")
            client.put("gs://mine/x.manifest", objects)
            again = ringest.Objects(data=client.get("gs://mine/x.manifest"))
            self.assertEqual((list(again), again.digest), (list(objects), objects.digest))
            self.assertEqual(bytes(again), bytes(memoryview(objects)))
            self.assertTrue(memoryview(objects).readonly)

    def test_digests_tell_lists_apart(self):
        given = entries(200)
        lists = [given, given[:-1], given[::-1], [*given[:99], ("x", 1, 1), *given[100:]]]
        lists += [
            [*given[:99], (given[99][0], 99, 7), *given[100:]],
            [*given[:99], (given[99][0], 98, 99000), *given[100:]],
        ]
        digests = {ringest.Objects("bucket", one).digest for one in lists}
        self.assertEqual(len(digests), len(lists))
        self.assertNotIn(ringest.Objects("other", given).digest, digests)
        self.assertEqual(ringest.Objects("bucket", given).digest, ringest.Objects("bucket", list(given)).digest)

    def test_pickled_it_is_itself(self):
        for count in (0, 3, MANY):
            objects = ringest.Objects("bucket", entries(count))
            again = pickle.loads(pickle.dumps(objects))
            self.assertEqual((again.digest, list(again)), (objects.digest, list(objects)))
            self.assertEqual(objects.fd >= 0, count == MANY)

    def test_other_processes_map_it(self):
        objects = ringest.Objects("bucket", entries(MANY))
        size = len(memoryview(objects)) // 1024
        for kind in ("fork", "spawn", "forkserver"):
            with self.subTest(kind):
                told = told_by_children(kind, objects, 2)
                for digest, last, _, (resident, share) in told:
                    self.assertEqual((digest, last), (objects.digest, objects[MANY - 1]))
                    # All of it was looked at, and there are three who have it.
                    self.assertGreaterEqual(resident, size)
                    self.assertLess(share, resident * 0.6)

    def test_small_ones_travel_as_their_bytes(self):
        small = ringest.Objects("bucket", entries(10))
        self.assertEqual(told_by_children("spawn", small), [(small.digest, small[9], -1, None)])

    def test_a_digest_that_is_known_is_not_made_again(self):
        objects = ringest.Objects("bucket", entries(MANY))
        self.assertIsNone(objects._digest)
        self.assertEqual(objects.digest, objects._digest)
        with self.assertRaises(TypeError):
            objects._digest = None
        self.assertEqual(told_by_children("spawn", objects)[0][0], objects.digest)

    def test_a_file_that_is_replaced_is_not_what_others_get(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "x.manifest")
            ringest.Objects("bucket", entries(10)).save(path)
            objects = ringest.Objects(manifest=path)
            ringest.Objects("bucket", entries(20)).save(path)
            ((digest, last, _, _),) = told_by_children("spawn", objects)
            self.assertEqual((digest, last), (objects.digest, entries(10)[9]))

    def test_nobody_changes_it(self):
        objects = ringest.Objects("bucket", entries(MANY))
        for mode in ("r+b", "wb"):
            with self.assertRaises(OSError), open(f"/proc/self/fd/{objects.fd}", mode) as file:
                file.write(b"x")
        with self.assertRaises(OSError):
            os.truncate(objects.fd, 0)
        with self.assertRaises(TypeError):
            memoryview(objects)[0] = 0
        self.assertEqual(len(objects), MANY)

    def test_without_descriptors_it_is_memory_of_this_process(self):
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        given = entries(MANY)
        resource.setrlimit(resource.RLIMIT_NOFILE, (0, hard))
        try:
            objects = ringest.Objects("bucket", given)
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        self.assertEqual((objects.fd, list(objects)), (-1, given))
        again = pickle.loads(pickle.dumps(objects))
        self.assertEqual(again.digest, objects.digest)

    def test_listings_with_and_without_folder_markers(self):
        with support.client() as client:
            client.put_many(
                [("gs://mine/a/", b""), ("gs://mine/a/b", b""), ("gs://mine/a/c/", b"x"), ("gs://mine/d/", b"")]
            )
            everything = ["a/", "a/b", "a/c/", "d/"]
            self.assertEqual([name for name, _, _ in client.list("gs://mine/")], everything)
            self.assertEqual([name for name, _, _ in client.list("gs://mine/", folder_markers=False)], ["a/b", "a/c/"])

    def test_a_listing_of_nothing(self):
        with support.client() as client:
            self.assertEqual(list(client.list("gs://data/nothing")), [])


if __name__ == "__main__":
    unittest.main()
