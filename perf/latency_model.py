"""How close 1,000 requests in flight come to the rate that Little's law allows (requests in flight
over mean latency) when the server answers late, on both backends, with one event loop.

The emulator's first-byte latency is log-normal with the given median and 99th percentile, so its mean
is median * exp(sigma^2 / 2), where sigma = ln(p99 / median) / 2.3263."""

import argparse
import math
import statistics
import sys

import common

GOAL = 0.9
SIGMAS_OF_P99 = statistics.NormalDist().inv_cdf(0.99)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n", maxsplit=1)[0])
    parser.add_argument("--ringest", default=common.PROGRAM, metavar="PROGRAM")
    parser.add_argument("--latency-ms", default="30:120", metavar="P50:P99")
    parser.add_argument("--concurrency", type=int, default=1000)
    parser.add_argument("--object-size", type=int, default=4096)
    parser.add_argument("--seconds", type=float, default=15)
    parser.add_argument("--quick", action="store_true", help="0.5 s, 50 in flight, no goal")
    options = parser.parse_args()
    if options.quick:
        options.concurrency, options.seconds = 50, 0.5
    p50, p99 = map(float, options.latency_ms.split(":"))
    mean_ms = p50 * math.exp((math.log(p99 / p50) / SIGMAS_OF_P99) ** 2 / 2)
    allowed = options.concurrency / mean_ms * 1000
    synthetic = f"bench/late-:{options.concurrency}:{options.object_size}"
    missed, machine = False, common.machine()
    for backend in common.BACKENDS:
        with common.Emulator(
            options.ringest, "--threads", "1", "--latency-ms", options.latency_ms, "--synthetic", synthetic
        ) as emulator:
            result = common.bench(
                options.ringest, "gs://bench/late-", *emulator.options(), "--seconds",
                str(options.seconds), "--concurrency", str(options.concurrency), backend=backend,
            )  # fmt: skip
        share = result["requests_per_s"] / allowed
        missed |= share < GOAL and not options.quick
        print(
            f"{backend}: {result['requests_per_s']:,.0f} requests/s of {allowed:,.0f} that "
            f"{options.concurrency} in flight at a mean of {mean_ms:.1f} ms allow: {share:.3f} "
            f"(goal {GOAL}); p50 {result['p50_ms']:.1f} ms, p99 {result['p99_ms']:.1f} ms"
        )
    if missed and machine["load"] > machine["cores"]:
        print(
            f"not judged: the machine has other work, a load of {machine['load']:.0f} on {machine['cores']} processors"
        )
        sys.exit(common.SKIPPED)
    sys.exit(missed)


if __name__ == "__main__":
    main()
