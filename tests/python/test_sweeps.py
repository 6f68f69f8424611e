"""That a sweep meets each request of what it is about, and that its faults are what they are called."""

import unittest

import ringest
from support import FAULTS, Rule, emulator, kill_each, strike_each


class Sweeps(unittest.TestCase):
    def setUp(self):
        self.place = self.enterContext(emulator(buckets=["bucket", *(f"sweep-{n}" for n in range(1, 20))]))

    def put_two(self, n):
        with ringest.Client(*self.place) as made:
            for name in "ab":
                made.put(f"gs://sweep-{n}/{name}", name.encode())

    def names(self, bucket):
        with ringest.Client(*self.place) as made:
            try:
                return [name for name, _, _ in made.list(f"gs://{bucket}/")]
            except ringest.NotFoundError:
                return []

    def test_a_process_is_killed_before_each_request(self):
        seen = []

        def check(n, request):
            seen.append((self.names(f"sweep-{n}"), request is None))

        self.assertEqual(kill_each(self.place, self.put_two, check, writes=True), 2)
        self.assertEqual(seen, [([], False), (["a"], False), (["a", "b"], True)])

    def test_a_run_that_fails_by_itself_is_told(self):
        def run(n):
            raise SystemExit(3)

        with self.assertRaisesRegex(AssertionError, "ended with 1"):
            kill_each(self.place, run, lambda n, request: None)

    def test_each_request_meets_each_fault(self):
        for fault in FAULTS:
            with self.subTest(fault):
                outcomes = []

                def check(n, outcome, request):
                    outcomes.append(request and request.split()[0])

                self.assertEqual(strike_each(self.place, self.put_two, check, fault, writes=True), 2)
                self.assertEqual(outcomes, ["POST", "POST", None])

    def test_what_is_done_later_is_done_when_the_rule_ends(self):
        with ringest.Client(*self.place, attempts=1) as made, Rule(self.place, effect="later", answer="failed") as rule:
            with self.assertRaises(ringest.UnavailableError):
                made.put("gs://bucket/a", b"late")
            with self.assertRaises(ringest.NotFoundError):
                made.get("gs://bucket/a")
            rule.end()
            self.assertEqual(bytes(made.get("gs://bucket/a")), b"late")
