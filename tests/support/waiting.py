"""Waiting for what is to come, in one place: a test that sleeps instead is slow on a good day, and wrong on a bad
one. Where a server can tell (`Rule.wait` in rules.py), that is better than asking again and again.

Needs nothing but the standard library."""

import time

# Sanitizers and busy machines stretch everything.
PATIENCE_S = 100
INTERVAL_S = 0.005


def until(condition, what="the condition", seconds=PATIENCE_S):
    """Asks `condition` again and again until it holds, and gives what it gave."""
    deadline = time.monotonic() + seconds
    while not (holds := condition()):
        if time.monotonic() > deadline:
            raise AssertionError(f"{what} did not come about in {seconds} s")
        time.sleep(INTERVAL_S)
    return holds


def until_it_sleeps(native_id, process="self"):
    """Until that thread of the process waits in the kernel."""

    def sleeps():
        with open(f"/proc/{process}/task/{native_id}/stat") as stat:
            # The state is behind the name, which may have blanks and parentheses (proc(5)).
            return stat.read().rpartition(")")[2].split()[0] == "S"

    until(sleeps, f"thread {native_id} asleep")
