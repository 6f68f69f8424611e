"""What 10,000 idle TLS connections in one event loop cost: resident memory of each, and what a steady
load on 64 other connections notices (idle_connections.c), on both backends."""

import argparse
import json
import resource
import sys

import common

MEMORY_GOAL_KIB = 32
SLOWDOWN_GOAL = 1.10
# Beside the connections: the load's, and what a process has open anyway.
SPARE_FILES = 256
OBJECT_SIZE = 4096


def raise_file_limit(count):
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < count:
        common.die(f"{count} open files are needed and {hard} allowed (ulimit -n)")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, count), hard))


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--ringest", default=common.PROGRAM, metavar="PROGRAM")
    parser.add_argument(
        "--program", default=f"{common.ROOT}/build/release/perf/idle_connections", metavar="PROGRAM"
    )
    parser.add_argument("--count", type=int, default=10000)
    parser.add_argument("--seconds", type=float, default=3, help="of each of the three loads; 3")
    parser.add_argument("--quick", action="store_true", help="50 connections, no goals")
    options = parser.parse_args()
    if options.quick:
        options.count, options.seconds = 50, 0.2
    raise_file_limit(options.count + SPARE_FILES)
    missed = False
    for backend in common.BACKENDS:
        with common.Emulator(
            options.ringest, "--threads", "1", "--synthetic", f"bench/load-:1:{OBJECT_SIZE}"
        ) as emulator:
            command = [options.program, emulator.endpoint, emulator.ca, "bench", "load-00000000"]
            command += [str(options.count), str(options.seconds)]
            result = json.loads(common.run(common.pinned(1, command), backend))
        kept = result["open_at_end"] >= options.count
        good = (
            kept
            and result["kib_per_connection"] <= MEMORY_GOAL_KIB
            and result["slowdown"] <= SLOWDOWN_GOAL
        )
        missed |= not (good or options.quick)
        print(
            f"{result['backend']}: {options.count} idle connections opened in {result['opening_s']:.1f} s, "
            f"{result['kib_per_connection']:.1f} KiB each (goal {MEMORY_GOAL_KIB}); a load on 64 others "
            f"takes {result['before']['cpu_us_per_request']:.2f} us of CPU per request before, "
            f"{result['beside']['cpu_us_per_request']:.2f} beside them and "
            f"{result['after']['cpu_us_per_request']:.2f} after: x{result['slowdown']:.3f} "
            f"(goal {SLOWDOWN_GOAL:.2f})" + ("" if kept else "; SOME WERE CLOSED")
        )
    sys.exit(missed)


if __name__ == "__main__":
    main()
