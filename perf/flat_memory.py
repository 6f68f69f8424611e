"""Is the memory of a long run flat? Looks at the peak of resident memory of `ringest bench get` after
the first seconds and at the end, on both backends."""

import argparse
import json
import os
import subprocess
import sys
import time

import common

# Of the peak after the first seconds.
GROWTH_GOAL = 1.05
# The budget of leased bodies where none is given (rg_runtime_options), and room for the rest: code,
# receive buffers, connections, the latencies that the bench keeps.
BUDGET_MB = min(1 << 30, os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / 4) / 1e6
BESIDE_BUDGET_MB = 64


def measure(options, emulator, backend):
    """Peak memory in MB after options.after seconds, and the result of the whole run."""
    command = [options.ringest, "bench", "get", "gs://bench/flat-", "--threads", "1", "--json"]
    command += ["--seconds", str(options.seconds), "--concurrency", str(options.concurrency)]
    process = subprocess.Popen(
        common.pinned(1, command + emulator.options()),
        env=common.environment(backend),
        stdout=subprocess.PIPE,
        text=True,
    )
    time.sleep(options.after)
    early_mb = common.memory_mb(process.pid, "VmHWM")
    output, _ = process.communicate()
    if process.returncode or not early_mb:
        common.die(f"{' '.join(command)} ended with {process.returncode}: {output}")
    return early_mb, json.loads(output)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--ringest", default=common.PROGRAM, metavar="PROGRAM")
    parser.add_argument("--seconds", type=float, default=120)
    parser.add_argument("--after", type=float, default=10, help="first look after so many seconds; 10")
    parser.add_argument("--concurrency", type=int, default=256)
    parser.add_argument("--quick", action="store_true", help="1 s, no goal")
    options = parser.parse_args()
    if options.quick:
        options.seconds, options.after, options.concurrency = 1, 0.5, 16
    missed = False
    for backend in common.BACKENDS:
        with common.Emulator(options.ringest, "--threads", "1", "--synthetic", "bench/flat-:1000:1048576") as emulator:
            early_mb, result = measure(options, emulator, backend)
        growth = result["rss_max_mb"] / early_mb
        bound_mb = BUDGET_MB + BESIDE_BUDGET_MB
        good = growth <= GROWTH_GOAL and result["rss_max_mb"] <= bound_mb
        missed |= not (good or options.quick)
        print(
            f"{backend}: at most {early_mb:.1f} MB in the first {options.after:g} s and "
            f"{result['rss_max_mb']:.1f} MB in {result['seconds']:.0f} s and {result['requests']:,} "
            f"requests: x{growth:.3f} (goal {GROWTH_GOAL}, and at most {bound_mb:.0f} MB)"
        )
    sys.exit(missed)


if __name__ == "__main__":
    main()
