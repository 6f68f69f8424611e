"""Why a step took long: each cause alone, by what the emulator, the loop or the transform does."""

import asyncio
import contextlib
import json
import os
import threading
import time
import unittest

import ringest
from support import Rule, emulator, until

STEPS = 5
# Connections for all that is read ahead, so that nothing waits for one.
ENOUGH = {"connections": 8, "hedging": False}
# A machine may stop this process wherever it is: then the next epoch has to show the cause.
EPOCHS_MAX = 20


def read(dataset):
    for batch in dataset:
        del batch


class Explained(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.quick = cls.enterClassContext(emulator())
        cls.late = cls.enterClassContext(emulator("--latency-ms", "60"))

    @contextlib.contextmanager
    def dataset(self, place, client=ENOUGH, **options):
        with ringest.Client(*place, **client) as one:
            options = {"batch_size": 2, "requests": 4, **options}
            made = ringest.IterableDataset("gs://data/x-0000000", client=one, **options)
            read(made)  # connections are open now
            yield made

    def check_once(self, found, cause, option):
        self.assertEqual(found.steps, STEPS)
        self.assertGreaterEqual(found.attributed, 0.95)
        self.assertGreater(found.parts[cause], 0.5 * found.wait, found)
        self.assertAlmostEqual(sum(found.parts.values()), found.wait, delta=0.05 * found.wait)
        self.assertAlmostEqual(found.consumer + found.wait, found.seconds)
        self.assertIn(option, found.advice)

    def check(self, dataset, cause, option, run=read):
        """The cause has most of the wait, all of which is known, and the advice names the option."""
        for left in reversed(range(EPOCHS_MAX)):
            run(dataset)
            try:
                self.check_once(dataset.explain(), cause, option)
                return
            except AssertionError:
                if left == 0:
                    raise

    def test_latency(self):
        with self.dataset(self.late) as dataset:
            self.check(dataset, "first_byte", "requests= (now 4)")

    def test_a_window_of_few_bytes(self):
        with self.dataset(self.late, prefetch=4000) as dataset:
            self.check(dataset, "first_byte", "prefetch= (now 4000 bytes)")

    def test_slow_bodies(self):
        with emulator("--conn-mbps", "0.2") as place, self.dataset(place) as dataset:
            self.check(dataset, "body", "requests= (now 4)")

    def test_few_connections(self):
        client = {"connections": 2, "hedging": False}
        with self.dataset(self.late, client, requests=100) as dataset:
            self.check(dataset, "queue", "Client(connections=)")

    def test_throttling(self):
        with emulator("--rate-limit", "50") as place, self.dataset(place, requests=100) as dataset:
            self.check(dataset, "throttled", "Client(reads_per_s=)")

    def test_slow_transforms(self):
        with self.dataset(self.quick, transform=lambda item: time.sleep(0.01)) as dataset:
            self.check(dataset, "decode", "num_workers=")

    def test_event_loops_that_wait(self):
        async def read_all(dataset):
            async for batch in dataset:
                del batch

        with self.dataset(self.late) as dataset:
            self.check(dataset, "first_byte", "requests= (now 4)", lambda over: asyncio.run(read_all(over)))

    def test_a_slow_loop(self):
        with self.dataset(self.quick) as dataset:
            for batch in dataset:
                time.sleep(0.02)
                del batch
            found = dataset.explain()
            # Before the first of these there was no batch to be busy with.
            self.assertGreaterEqual(found.consumer, (STEPS - 1) * 0.02)

    def test_it_is_for_people_and_programs(self):
        with self.dataset(self.late) as dataset:
            found = dataset.explain()
            self.assertEqual(json.loads(json.dumps(found.to_dict()))["parts"], found.parts)
            text = str(found)
            self.assertTrue(text.startswith("5 steps of "))
            self.assertTrue(text.endswith(found.advice))
            self.assertEqual(text, f"{found.text}\n{found.advice}")
            self.assertNotIn("text", found.to_dict())
            self.assertIn("first_byte", text)

    def test_a_step_that_does_not_end_is_explained_while_it_lasts(self):
        held = {"bucket": "data", "target": "alt=media", "times": 100_000, "effect": "none", "answer": "held"}
        with self.dataset(self.quick) as dataset, Rule(self.quick, **held):
            values = iter(dataset)
            seen = []

            def look():
                # Loops that share nothing have no reason to wake up meanwhile.
                seen.append(until(lambda: (found := self.explained(dataset)) and found.wait > 0.5 and found))
                values.close()

            watch = threading.Thread(target=look)
            watch.start()
            with self.assertRaises(ValueError):
                next(values)
            watch.join()
        (found,) = seen
        self.assertEqual(found.steps, 0)
        self.assertGreater(found.parts["first_byte"], 0.5 * found.wait)
        self.assertTrue(found.text.startswith("a step of "))

    def explained(self, dataset):
        """Once nearly all of it is known, which a busy machine may be late with."""
        try:
            found = dataset.explain()
        except RuntimeError:
            return None
        return found if found.attributed >= 0.95 else None

    def test_a_child_has_made_no_step(self):
        with self.dataset(self.quick) as dataset:
            self.assertEqual(dataset.explain().steps, STEPS)
            child = os.fork()
            if child == 0:
                with contextlib.suppress(BaseException):
                    try:
                        dataset.explain()
                    except RuntimeError:
                        os._exit(0)
                os._exit(1)
            self.assertEqual(os.waitpid(child, 0)[1], 0)

    def test_only_the_last_steps(self):
        with self.dataset(self.quick) as dataset:
            values = iter(dataset)
            with self.assertRaisesRegex(RuntimeError, "no step to explain"):
                dataset.explain()
            for _ in range(4):
                next(values)
            self.assertEqual([dataset.explain(n).steps for n in (1, 3, 1000)], [1, 3, 4])
            with self.assertRaises(ValueError):
                dataset.explain(0)


if __name__ == "__main__":
    unittest.main()
