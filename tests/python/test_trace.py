"""Traces of requests: their form, what is in them, and that they fit beside the profiler's."""

import json
import os
import tempfile
import threading
import unittest

import torch

import ringest
from support import COUNT, Rule, client, emulator

OPENING = {"connect", "tls"}


class Traced(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.place = cls.enterClassContext(emulator("--latency-ms", "5"))

    def setUp(self):
        self.path = os.path.join(self.enterContext(tempfile.TemporaryDirectory()), "trace.json")

    def read(self):
        with open(self.path, encoding="utf-8") as file:
            document = json.load(file)
        for event in document["traceEvents"]:
            self.assertIn(event["ph"], "XMbe")
            self.assertEqual(event["pid"], os.getpid())
            self.assertIsInstance(event["tid"], int)
            self.assertIsInstance(event["ts"], int | float)
            self.assertTrue(event["name"])
            self.assertEqual("dur" in event, event["ph"] == "X")
        return document

    def events(self, *phases):
        return [event for event in self.read()["traceEvents"] if event["ph"] in phases]

    def test_each_request_is_there_with_its_parts(self):
        uris = [f"gs://data/x-{i:08}" for i in range(COUNT)]
        with ringest.Client(*self.place, hedging=False, connections=8) as one:
            with ringest.trace(self.path) as traced:
                for items in one.get_many(uris):
                    del items
        self.assertEqual(traced.dropped, 0)
        begun = [event for event in self.events("b") if event["name"] == "get"]
        self.assertEqual(sorted(event["args"]["object"] for event in begun), [uri[5:] for uri in uris])
        self.assertEqual({event["args"]["status"] for event in begun}, {"OK"})
        slices = self.events("X")
        for part in ("get: first_byte", "get: body"):
            found = [event["args"]["request"] for event in slices if event["name"] == part]
            self.assertEqual(sorted(found), sorted(event["id"] for event in begun))
        connections = {event["tid"] for event in slices}
        named = {event["tid"] for event in self.events("M") if event["name"] == "thread_name"}
        self.assertEqual(connections, named)
        self.assertTrue(1 <= len(connections) <= 8)
        self.assertEqual({event["name"] for event in slices} & OPENING, OPENING)

    def test_slices_of_a_connection_follow_each_other(self):
        with ringest.Client(*self.place, hedging=False, connections=2) as one, ringest.trace(self.path):
            for items in one.get_many([f"gs://data/x-{i:08}" for i in range(50)]):
                del items
        ends = {}
        for event in sorted(self.events("X"), key=lambda event: event["ts"]):
            self.assertGreaterEqual(event["dur"], 0)
            self.assertGreaterEqual(event["ts"], ends.get(event["tid"], 0) - 0.001)
            ends[event["tid"]] = event["ts"] + event["dur"]
        begun, ended = ({(e["id"], e["name"]) for e in self.events(phase)} for phase in "be")
        self.assertEqual(begun, ended)

    def test_what_failed_says_so(self):
        with emulator() as place, ringest.Client(*place, hedging=False, backoff_min=0.001) as one:
            with ringest.trace(self.path), Rule(place, times=1, effect="none", answer="failed", status=429):
                one.get("gs://data/x-00000000")
                one.put("gs://bucket/new", b"x")
                with self.assertRaises(ringest.NotFoundError):
                    one.get("gs://data/none")
        ended = {e["args"]["object"]: e["args"] for e in self.events("b") if "status" in e["args"]}
        self.assertEqual(ended["data/x-00000000"]["attempts"], 2)
        self.assertEqual(ended["data/none"]["status"], "NOT_FOUND")
        self.assertEqual(ended["bucket/new"]["status"], "OK")
        self.assertIn("throttled", {event["name"] for event in self.events("b")})

    def test_memory_is_bounded(self):
        with client() as one, self.assertLogs("ringest", level="WARNING") as told:
            with ringest.trace(self.path, memory=64 * 128) as traced:
                for items in one.get_many([f"gs://data/x-{i:08}" for i in range(COUNT)]):
                    del items
        self.assertGreater(traced.dropped, COUNT)
        self.assertEqual(self.read()["otherData"]["dropped"], traced.dropped)
        self.assertIn(f"lacks {traced.dropped} events", told.output[-1])

    def test_long_names_are_cut_between_characters(self):
        names = [prefix + letter * 25 + end for prefix in ("x", "xy") for letter in "ä日😀" for end in ("", '"\\')]
        names = [name * 4 for name in names]
        with ringest.Client(*self.place, hedging=False) as one, ringest.trace(self.path):
            for name in names:
                with self.assertRaises(ringest.NotFoundError):
                    one.get(f"gs://data/{name}")
        found = [event["args"]["object"] for event in self.events("b") if "status" in event["args"]]
        self.assertEqual(len(found), len(names))
        for shown, name in zip(found, names):
            self.assertTrue(name.endswith(shown))
            self.assertGreaterEqual(len(shown.encode()), 68)

    def test_a_path_that_cannot_be_written_is_told_before_the_block(self):
        for _ in range(2):  # and no trace is left behind
            with self.assertRaises(FileNotFoundError), ringest.trace(self.path + "/none"):
                self.fail("the block runs")

    def test_a_child_leaves_the_trace_to_its_parent(self):
        with ringest.Client(*self.place, hedging=False) as one:
            with ringest.trace(self.path) as traced:
                one.get("gs://data/x-00000000")
                child = os.fork()
                if child == 0:
                    with ringest.trace(self.path + ".child"):
                        traced.__exit__(None, None, None)
                    os._exit(0)
                self.assertEqual(os.waitpid(child, 0)[1], 0)
                self.assertEqual(os.path.getsize(self.path), 0)
                one.get("gs://data/x-00000001")
        found = {event["args"]["object"] for event in self.events("b") if "status" in event["args"]}
        self.assertEqual(found, {"data/x-00000000", "data/x-00000001"})

    def test_one_at_a_time(self):
        with ringest.trace(self.path):
            with self.assertRaisesRegex(Exception, "there is a trace already"):
                with ringest.trace(self.path + ".other"):
                    pass
        with self.assertRaises(ValueError):
            ringest.trace(self.path, memory=1)

    def test_the_profiler_has_the_same_clock_and_shows_waits(self):
        theirs = self.path + ".torch"
        with ringest.Client(*self.place, hedging=False) as one:
            dataset = ringest.IterableDataset("gs://data/x-0000000", client=one, batch_size=5, requests=5)
            steps = sum(1 for _ in dataset)
            with ringest.trace(self.path), torch.profiler.profile() as profiler:
                for batch in dataset:
                    del batch
            profiler.export_chrome_trace(theirs)
            for batch in dataset:  # nothing is told of a step when it does not run
                del batch
        with open(theirs, encoding="utf-8") as file:
            document = json.load(file)
        self.assertEqual(document["baseTimeNanoseconds"], self.read()["baseTimeNanoseconds"])
        name = "enumerate(DataLoader)#ringest.IterableDataset.__next__"
        outer = [event for event in document["traceEvents"] if event["name"] == name]
        self.assertEqual(len(outer), steps + 1)  # the last one ends the iteration
        inner = [event for event in self.events("X") if event["name"] == "ringest: wait for samples"]
        self.assertTrue(inner)
        clocks_us = 100_000  # the profiler reckons with a counter of the CPU, and machines pause
        for event in inner:
            self.assertEqual(event["tid"], threading.get_native_id())
            end = event["ts"] + event["dur"]
            self.assertTrue(
                any(o["ts"] - clocks_us <= event["ts"] and end <= o["ts"] + o["dur"] + clocks_us for o in outer),
                (event, outer),
            )


if __name__ == "__main__":
    unittest.main()
