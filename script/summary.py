"""Adds up the tests that script/test ran.

    summary.py RESULTS

RESULTS holds steps.tsv (name, exit status) with NAME.log for each, and the JSON logs of meson. A test
program that ends with a line "N passed, N failed, N skipped" counts as that many; everything else is
one test. Prints why tests were skipped, what failed with its output, and the sum as the last line."""

import glob
import json
import os
import re
import sys

COUNTS = re.compile(r"^(\d+) passed, (\d+) failed, (\d+) skipped$", re.MULTILINE)
SKIPPED = 77
TAIL = 8000


def outcomes(results):
    """Yields (name, exit status, output) of every step and every test."""
    with open(os.path.join(results, "steps.tsv"), encoding="utf-8") as steps:
        for line in steps:
            name, status = line.rstrip("\n").split("\t")
            with open(os.path.join(results, name + ".log"), encoding="utf-8", errors="replace") as log:
                yield name, int(status), log.read()
    for path in sorted(glob.glob(os.path.join(results, "*.json"))):
        with open(path, encoding="utf-8") as log:
            for line in log:
                test = json.loads(line)
                known = {"OK": 0, "SKIP": SKIPPED}.get(test["result"])
                ended = known if known is not None else test["returncode"] or 1
                output = "\n".join(filter(None, (test.get("stdout"), test.get("stderr"))))
                label = "{}: {}".format(os.path.basename(path)[: -len(".json")], test["name"])
                yield label, ended, output + ("" if test["result"] in ("OK", "SKIP") else "\n" + test["result"])


def count(status, output):
    """Passed, failed and skipped cases of one test. One that dies after its count has failed too."""
    found = COUNTS.findall(output)
    if found:
        passed, failed, skipped = map(int, found[-1])
        if status not in (0, SKIPPED) and failed == 0:
            failed = 1
        return passed, failed, skipped
    return int(status == 0), int(status not in (0, SKIPPED)), int(status == SKIPPED)


def skip_reasons(status, output):
    reasons = re.findall(r"^ *skipped: .*$", output, re.MULTILINE)
    if not reasons and status == SKIPPED:
        reasons = output.strip().splitlines()[-1:] or ["no reason given"]
    return reasons


def main(results):
    total = [0, 0, 0]
    failures = []
    for name, status, output in outcomes(results):
        counts = count(status, output)
        total = [a + b for a, b in zip(total, counts)]
        if counts[1]:
            failures.append((name, status, output))
        if counts[2]:
            for reason in skip_reasons(status, output):
                print(f"skipped in {name}: {reason.strip()}")
    for name, status, output in failures:
        print(f"\n---- FAILED: {name} (exit status {status}) ----\n{output[-TAIL:].strip()}")
    print("\n{} passed, {} failed, {} skipped".format(*total))
    return 1 if total[1] or not total[0] else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
