"""What 10,000 idle TLS connections in one event loop cost: resident memory of each, and what a steady
load on 64 other connections notices (idle_connections.c), on both backends."""

import argparse
import json
import resource
import statistics
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


def run_once(options, backend):
    with common.Emulator(options.ringest, "--threads", "1", "--synthetic", f"bench/load-:1:{OBJECT_SIZE}") as emulator:
        command = [options.program, emulator.endpoint, emulator.ca, "bench", "load-00000000"]
        command += [str(options.count), str(options.seconds)]
        return json.loads(common.run(common.pinned(1, command), backend))


def report(backend, results, options):
    """Prints the medians of a backend's rounds; True: they are as good as they should be."""

    def median(*keys):
        values = []
        for result in results:
            for key in keys:
                result = result[key]
            values.append(result)
        return statistics.median(values)

    kept = all(result["open_at_end"] >= options.count for result in results)
    print(
        f"{backend}: {options.count} idle connections opened in {median('opening_s'):.1f} s, "
        f"{median('kib_per_connection'):.1f} KiB each (goal {MEMORY_GOAL_KIB}); a load on 64 others "
        f"takes {median('before', 'cpu_us_per_request'):.2f} us of CPU per request before, "
        f"{median('beside', 'cpu_us_per_request'):.2f} beside them and "
        f"{median('after', 'cpu_us_per_request'):.2f} after: x{median('slowdown'):.3f} "
        f"(goal {SLOWDOWN_GOAL:.2f}; rounds: "
        + ", ".join(f"{result['slowdown']:.2f}" for result in results)
        + ")"
        + ("" if kept else "; SOME WERE CLOSED")
    )
    return kept and median("kib_per_connection") <= MEMORY_GOAL_KIB and median("slowdown") <= SLOWDOWN_GOAL


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--ringest", default=common.PROGRAM, metavar="PROGRAM")
    parser.add_argument("--program", default=f"{common.ROOT}/build/release/perf/idle_connections", metavar="PROGRAM")
    parser.add_argument("--count", type=int, default=10000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=2, help="of each of the three loads; 2")
    parser.add_argument("--quick", action="store_true", help="one round of 50 connections, no goals")
    options = parser.parse_args()
    if options.quick:
        options.count, options.seconds, options.rounds = 50, 0.2, 1
    raise_file_limit(options.count + SPARE_FILES)
    results = {backend: [] for backend in common.BACKENDS}
    for number in range(options.rounds):
        for backend, of_backend in results.items():
            of_backend.append(run_once(options, backend))
            common.say(f"round {number + 1}/{options.rounds}, {backend}: x{of_backend[-1]['slowdown']:.2f}")
    good = [report(backend, of_backend, options) for backend, of_backend in results.items()]
    sys.exit(not (all(good) or options.quick))


if __name__ == "__main__":
    main()
