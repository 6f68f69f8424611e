"""What the model-based tests share: how many examples Hypothesis runs, and from which seed.

RINGEST_EXAMPLES says how many, a hundred without it; script/soak runs more. RINGEST_TEST_SEED is the seed, the
same in every run without it. A failure prints the smallest example that Hypothesis found."""

import os
import sys

import hypothesis
import hypothesis.stateful

# Where support.py is.
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "python"))

EXAMPLES = int(os.environ.get("RINGEST_EXAMPLES") or 100)
SEED = int(os.environ.get("RINGEST_TEST_SEED") or 1)


def _settings(**options):
    """No deadline, because a busy machine is slow."""
    checks = list(hypothesis.HealthCheck)
    return hypothesis.settings(deadline=None, database=None, print_blob=False, suppress_health_check=checks, **options)


def checked(examples=EXAMPLES):
    """A decorator for a property: settings and seed."""
    settings = _settings(max_examples=examples)
    return lambda test: hypothesis.seed(SEED)(settings(test))


def run_machine(machine, examples=EXAMPLES, steps=50):
    """Runs a rule-based state machine of Hypothesis as one test."""
    settings = _settings(max_examples=examples, stateful_step_count=steps)
    hypothesis.stateful.run_state_machine_as_test(hypothesis.seed(SEED)(machine), settings=settings)
