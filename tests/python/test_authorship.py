"""Who wrote what is there: of two contenders that write the same, one has it, whatever answers are lost."""

import asyncio
import logging
import pathlib
import tempfile
import threading
import unittest

import ringest
import ringest.fs
from support import Rule, emulator

BUCKET = "gs://locks"


def put(client, uri):
    return client.put(uri, b"", if_generation_match=0)


def put_large(client, uri):
    return client.put(uri, bytes(9 << 20), if_generation_match=0)


def put_path(client, uri):
    with tempfile.NamedTemporaryFile() as file:
        return client.put(uri, pathlib.Path(file.name), if_generation_match=0)


def compose(client, uri):
    return client.compose(uri, [f"{BUCKET}/source"], if_generation_match=0)


def awrite(client, uri):
    async def run():
        async with client.awriter(uri, if_generation_match=0) as writer:
            await writer.write(b"x")

    return asyncio.run(run())


def aput(client, uri):
    async def run():
        return await client.aput(uri, b"", if_generation_match=0)

    return asyncio.run(run())


def write(client, uri):
    with client.writer(uri, if_generation_match=0) as writer:
        writer.write(b"x")
    return writer.finish()["generation"]


def save_file(client, uri):
    with ringest.checkpoint.open(uri, "wb", client=client, if_generation_match=0) as file:
        file.write(b"x")
    return file.result["generation"]


def pipe(client, uri):
    ringest.fs.FileSystem(client=client, skip_instance_cache=True).pipe_file(uri, b"", mode="create")


def open_xb(client, uri):
    with ringest.fs.FileSystem(client=client, skip_instance_cache=True).open(uri, "xb") as file:
        file.write(b"x")


# Each gets the lock or raises one of these.
WAYS = [put, put_large, put_path, compose, aput, write, awrite, save_file, pipe, open_xb]
TAKEN = (ringest.PreconditionError, FileExistsError)
# The request that takes the lock; for what is joined out of parts, the last one.
STRIKES = {way: {"method": "storage.objects.compose"} for way in (put_large, compose)}


class Authorship(unittest.TestCase):
    def setUp(self):
        self.place = self.enterContext(emulator())
        self.client = self.enterContext(ringest.Client(*self.place))
        self.other = self.enterContext(ringest.Client(*self.place))
        self.client.put(f"{BUCKET}/source", b"")

    def strike(self, way=None, **members):
        return Rule(self.place, **STRIKES.get(way, {"writes": True}), **members)

    def test_whoever_is_first_has_it(self):
        for way in WAYS:
            with self.subTest(way.__name__):
                uri = f"{BUCKET}/first-{way.__name__}"
                with self.strike(way, answer="failed") as rule:
                    way(self.client, uri)
                self.assertEqual(rule.end()["struck"], 1)
                with self.assertRaises(TAKEN):
                    way(self.other, uri)

    def test_whoever_is_second_does_not(self):
        for way in WAYS:
            with self.subTest(way.__name__):
                uri = f"{BUCKET}/second-{way.__name__}"
                raised = []

                def contend():
                    try:
                        way(self.client, uri)
                    except TAKEN as error:
                        raised.append(error)

                # The first contender's request is lost on its way, and by then the second has it.
                with self.strike(way, effect="none", answer="held") as rule:
                    thread = threading.Thread(target=contend)
                    thread.start()
                    rule.wait()
                    way(self.other, uri)
                thread.join()
                self.assertEqual(len(raised), 1)

    def test_what_is_sent_twice_is_still_ours(self):
        for way in WAYS:
            with self.subTest(way.__name__):
                with self.strike(way, effect="twice"):
                    way(self.client, f"{BUCKET}/twice-{way.__name__}")

    def test_who_does_not_care_is_told(self):
        self.client.put(f"{BUCKET}/source", b"x")
        with self.assertLogs("ringest", logging.INFO) as logs, self.strike(answer="failed"):
            generation = self.client.put(f"{BUCKET}/a", b"x", if_generation_match=0, exclusive=False)
        self.assertEqual(self.client.stat(f"{BUCKET}/a")["generation"], generation)
        self.assertIn(f"{BUCKET}/a", logs.output[0])
        self.assertIn("somebody else", logs.output[0])
        with self.strike(answer="failed"):
            writer = self.client.writer(f"{BUCKET}/b", if_generation_match=0, exclusive=False)
            self.assertIs(writer.finish()["found_done"], True)
        self.assertIs(self.client.writer(f"{BUCKET}/c", if_generation_match=0).finish()["found_done"], False)
        with self.strike(answer="failed"):
            copied = self.client.copy(f"{BUCKET}/source", f"{BUCKET}/d", if_generation_match=0)
        self.assertIs(copied["found_done"], True)

    def test_a_removal_that_may_be_somebody_elses(self):
        for exclusive in (False, True):
            uri = f"{BUCKET}/removed-{exclusive}"
            generation = self.client.put(uri, b"x")
            with self.strike(answer="failed"):
                if exclusive:
                    with self.assertRaises(ringest.NotFoundError):
                        self.client.delete(uri, generation=generation, exclusive=True)
                else:
                    self.client.delete(uri, generation=generation)
        generation = self.client.put(uri, b"x")
        self.client.delete(uri, generation=generation, exclusive=True)
        with self.assertRaisesRegex(ValueError, "of one object"):
            self.client.delete([uri], exclusive=True)


if __name__ == "__main__":
    unittest.main()
