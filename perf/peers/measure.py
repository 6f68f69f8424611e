"""Client CPU per object of ringest from Python beside what others wrote, side by side.

nginx, as ../compare.py sets it up (one worker, core 0), serves one object of each size over TLS;
clients.py reads it on core 1, each client in a process of its own, round after round. A figure is
the CPU time of all threads of the client divided by its objects, start and imports left out. The
first round tries each number of connections, the others the one that was best for that client. Every second
round goes the other way round. A client's figure is the median of its rounds, and every round is kept.
ringest checks CRC32C of every object; the others are told not to, or do not. wrk, which throws the
bytes away, and `ringest bench get`, which is the library without Python, show what there is to reach.

After that come the scenarios (scenarios.py): what the emulator is needed for. Tables, charts
and every figure are written to a folder (report.py), in which what was not measured again stays.

With --checkpoints it is state dicts that are saved to the emulator and loaded (checkpoints.py), instead.

`--quick` only shows that everything still works. Everything happens in a network with nothing but
loopback, so that no client asks a cloud's metadata address for credentials."""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from typing import Any

HERE = os.path.dirname(os.path.abspath(__file__))
PERF = os.path.dirname(HERE)
ROOT = os.path.dirname(PERF)
sys.path[:0] = [PERF, os.path.join(ROOT, "tests", "peers"), HERE]

import checkpoints  # noqa: E402
import clients  # noqa: E402
import common  # noqa: E402
import compare as server  # noqa: E402
import report  # noqa: E402
import runner  # noqa: E402
import scenarios  # noqa: E402

REQUIREMENTS = os.path.join(HERE, "requirements.txt")
# Without their dependencies, of which datasets need only what is in that file.
ALONE = ("gcs-torch-dataflux==1.4.0", "litdata==0.2.76")
# gcs-torch-dataflux's checkpoints do not import with the one that everything else here has.
OLD_GOOGLE = "google-cloud-storage==2.19.0"
FOLDER = os.path.join(ROOT, "build", "perf-peers")
RESULTS = os.path.join(PERF, "results")
INSIDE = "RINGEST_PERF_INSIDE"
CLIENT_S = 60
CHECKPOINT_S = 180
# Loaders are for small objects; what they do with large ones is what the client below them does.
SIZES = {"get": ("4k", "100k", "3m"), "loader": ("4k", "100k"), "reference": ("4k", "100k", "3m")}
WRK, BENCH = "wrk", "ringest bench get"
REFERENCES = (WRK, BENCH)


def old_google(folder: str) -> str:
    return os.path.join(folder, "old-google")


def wanted() -> str:
    with open(REQUIREMENTS, encoding="utf-8") as file:
        return f"{sys.version}\n{ALONE}\n{OLD_GOOGLE}\n{file.read()}"


def install(folder: str) -> None:
    """A virtual environment with the peers, made afresh where it is another one than wanted."""
    stamp = os.path.join(folder, "stamp")
    if os.path.exists(stamp):
        with open(stamp, encoding="utf-8") as file:
            if file.read() == wanted():
                return
    common.say(f"installing the peers into {folder}")
    pip = [os.path.join(folder, "bin", "python"), "-m", "pip", "-qq", "install"]
    for command in (
        [sys.executable, "-m", "venv", "--clear", folder],
        [*pip, "-r", REQUIREMENTS],
        [*pip, "--no-deps", *ALONE],
        [*pip, "--no-deps", "--target", old_google(folder), OLD_GOOGLE],
    ):
        if subprocess.run(command, stdout=subprocess.DEVNULL, check=False).returncode:
            common.die("the peers cannot be installed here")
    with open(stamp, "w", encoding="utf-8") as file:
        file.write(wanted())


def versions(python: str) -> dict[str, str]:
    names = ("gcs-torch-dataflux", "gcsfs", "google-cloud-storage", "litdata", "obstore", "opendal",
             "tensorstore", "torch", "uvloop")  # fmt: skip
    script = """if True:
        import importlib.metadata, json, sys
        found = {d.name: d.version for d in importlib.metadata.distributions()}
        print(json.dumps({name: found[name] for name in sys.argv[1:] if name in found}))
    """
    return json.loads(common.run([python, "-c", script, *names]))


def environment(options: argparse.Namespace, ca: str, home: str, path: str) -> dict[str, str]:
    """Nothing that would send a client elsewhere, nor tell it who we are."""
    foreign = ("service_account", "http_proxy", "https_proxy", "all_proxy")
    kept = {k: v for k, v in common.environment().items() if k.lower() not in foreign}
    return {
        **kept,
        "PYTHONPATH": os.pathsep.join(filter(None, (options.package, path))),
        "HOME": home,
        "NO_PROXY": "*",
        "SSL_CERT_FILE": ca,
        "REQUESTS_CA_BUNDLE": ca,
        # gcsfs: no calls by gRPC, and no stat before each get.
        "GCSFS_EXPERIMENTAL_ZB_HNS_SUPPORT": "false",
        "DEFAULT_GCSFS_CONCURRENCY": "1",
        "RINGEST_PERF_WARM_UP_S": str(options.warm_up),
    }


def run_python(
    script: str,
    arguments: list[str],
    ca: str,
    options: argparse.Namespace,
    *,
    path: str = "",
    keep_heap: bool = False,
    limit_s: int = CLIENT_S,
) -> dict:
    """What a script of this folder prints, run with the peers on the client's core; or {"error"}."""
    # A client that hangs is a result, too.
    command = ["timeout", str(limit_s), options.python]
    command += ["-B", os.path.join(HERE, script), *arguments]
    common.touch_memory()
    with tempfile.TemporaryDirectory() as home:
        done = subprocess.run(
            common.pinned(server.CLIENT_CORE, command),
            env=environment(options, ca, home, path) | (common.KEPT_HEAP if keep_heap else {}),
            cwd=home,
            capture_output=True,
            text=True,
            check=False,
        )
    lines = done.stdout.strip().splitlines()
    if done.returncode == 124:
        return {"error": f"nothing came within {limit_s} s"}
    if done.returncode or not lines:
        return {"error": (done.stderr.strip().splitlines() or [f"status {done.returncode}"])[-1]}
    return json.loads(lines[-1])


def measure_peer(name: str, key: str, connections: int, nginx: Any, options: Any) -> dict:
    told = run_python(
        "clients.py",
        [name, nginx.url(True), nginx.ca, key, str(server.SIZES[key]), str(connections),
         str(options.seconds)],
        nginx.ca,
        options,
    )  # fmt: skip
    if "error" in told or not told["objects"]:
        return {"error": told.get("error", "no object came")}
    return {
        "cpu_us_per_object": told["cpu_seconds"] / told["objects"] * 1e6,
        "objects_per_s": told["objects"] / told["seconds"],
        "rss_mb": told["rss_mb"],
    }


def measure_reference(name: str, key: str, connections: int, nginx: Any, options: Any) -> dict:
    """What is no Python: as ../compare.py runs it."""
    # Neither has a warm-up of its own.
    seconds = options.warm_up + options.seconds
    kept = argparse.Namespace(**{**vars(options), "connections": connections, "seconds": seconds})
    backend = "wrk" if name == WRK else os.environ.get("RINGEST_BACKEND", "uring")
    result = server.run_client(backend, nginx, key, True, kept)
    return {
        "cpu_us_per_object": result["cpu_us_per_request"],
        "objects_per_s": result["requests_per_s"],
    }


def measure(name: str, *rest: Any) -> dict:
    return (measure_reference if name in REFERENCES else measure_peer)(name, *rest)


def kind_of(name: str) -> str:
    return "reference" if name in REFERENCES else clients.CLIENTS[name].kind


def connections_of(name: str, options: argparse.Namespace) -> list[int]:
    own = None if name in REFERENCES else clients.CLIENTS[name].connections
    return list(own or options.connections)


def best(results: list[dict]) -> dict:
    good = [result for result in results if "error" not in result]
    return min(good, key=lambda result: result["cpu_us_per_object"]) if good else results[0]


def summary(results: list[dict]) -> dict:
    """Of a client's rounds at its best number of connections: the median of each figure, and what each object
    cost in each round."""
    chosen = best(results)
    if "error" in chosen:
        return chosen
    rounds = [result for result in results if result["connections"] == chosen["connections"] and "error" not in result]
    medians = {name: statistics.median(result[name] for result in rounds) for name in chosen}
    costs = [round(result["cpu_us_per_object"], 3) for result in rounds]
    return {**medians, "connections": chosen["connections"], "rounds_cpu_us": costs}


def measure_all(options: argparse.Namespace) -> dict[str, dict[str, dict]]:
    """{size: {client: summary of its rounds}}"""
    cells = [(key, name) for key in options.sizes for name in options.clients if key in SIZES[kind_of(name)]]
    found: dict[tuple[str, str], list[dict]] = {cell: [] for cell in cells}
    with server.Nginx() as nginx:
        start = argparse.Namespace(connections=max(options.connections), quick=options.quick)
        options.wrk_start_s = {True: server.time_wrk_start(nginx, True, start)}
        for number in range(options.rounds):
            if number:
                # The other way round every second time, so that no client is always next to the same.
                cells = [cell for cell in reversed(cells) if "error" not in best(found[cell])]
            trials = [
                (key, name, connections)
                for key, name in cells
                for connections in (
                    [best(found[key, name])["connections"]] if number else connections_of(name, options)
                )
            ]
            for done, (key, name, connections) in enumerate(trials, 1):
                result = measure(name, key, connections, nginx, options)
                found[key, name].append({**result, "connections": connections})
                figure = result.get("error") or f"{result['cpu_us_per_object']:,.1f} us"
                common.say(
                    f"round {number + 1}/{options.rounds} [{done}/{len(trials)}] {key}, {name}, "
                    f"{connections} connections: {figure}"
                )
    return {
        key: {name: summary(found[key, name]) for name in options.clients if (key, name) in found}
        for key in options.sizes
    }


def measure_checkpoint(name: str, shape: str, options: argparse.Namespace) -> dict[str, dict]:
    """On an emulator of its own, whose memory goes back after it."""
    with common.Emulator(options.ringest, "--threads", "1") as emulator:
        return run_python(
            "checkpoints.py",
            [name, emulator.url(), emulator.ca, shape],
            emulator.ca,
            options,
            path=old_google(FOLDER) if name in checkpoints.NEEDS_OLD_GOOGLE else "",
            keep_heap=True,
            limit_s=CHECKPOINT_S,
        )


def measure_checkpoints(options: argparse.Namespace) -> dict[str, dict[str, dict]]:
    """{shape: {name: {"save": ..., "load": ...}}}, of the rounds the best of each figure."""
    found: dict[str, dict[str, dict]] = {}
    for number in range(options.rounds):
        for shape in options.checkpoints:
            row = found.setdefault(shape, {})
            for name in checkpoints.CHECKPOINTS:
                result = measure_checkpoint(name, shape, options)
                row[name] = checkpoints.merge(row.get(name), result)
                common.say(f"round {number + 1}/{options.rounds} {shape}, {name}: {result}")
    return found


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    built = os.path.join(ROOT, "build/root/lib/python")
    names = [*REFERENCES, *clients.CLIENTS]
    parser.add_argument("--package", default=built, help="the folder that has ringest")
    parser.add_argument("--ringest", default=common.PROGRAM, metavar="PROGRAM")
    parser.add_argument(
        "--python", metavar="PROGRAM", help="an interpreter that has the peers; default: one made in build/perf-peers"
    )
    parser.add_argument("--sizes", nargs="*", choices=server.SIZES, default=list(server.SIZES))
    parser.add_argument("--clients", nargs="+", choices=names, default=names)
    parser.add_argument("--scenarios", nargs="*", choices=scenarios.ALL, default=list(scenarios.ALL))
    parser.add_argument(
        "--checkpoints", nargs="*", choices=checkpoints.SHAPES, help="measure those instead; all shapes"
    )
    parser.add_argument("--connections", nargs="+", type=int, default=[16, 64])
    parser.add_argument("--seconds", type=float, default=1, help="of each measurement; 1")
    parser.add_argument("--warm-up", type=float, default=1.2, help="before each, in seconds; 1.2")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--results", metavar="FOLDER", help="for tables and charts; perf/results")
    parser.add_argument("--quick", action="store_true", help="one short round of the smallest size")
    options = parser.parse_args()
    if options.checkpoints == []:
        options.checkpoints = list(checkpoints.SHAPES)
    if options.quick:
        options.sizes, options.connections, options.rounds = ["4k"], [16], 1
        options.seconds = options.warm_up = 0.3
    if options.results is None and not options.quick:
        options.results = RESULTS
    if not os.path.isdir(os.path.join(options.package, "ringest")):
        common.die("there is no ringest for Python: script/build makes it, or give --package")
    options.package, options.ringest = map(os.path.abspath, (options.package, options.ringest))
    options.install = options.python is None
    options.python = os.path.abspath(options.python or os.path.join(FOLDER, "bin", "python"))
    return options


def main() -> int:
    options = parse()
    common.need("nginx", "openssl", "wrk", "taskset")
    if INSIDE not in os.environ:
        if options.install:
            install(FOLDER)
        isolated = runner.unshare()
        if isolated is None:
            print("needs a network namespace, which cannot be made here")
            return common.SKIPPED
        os.environ[INSIDE] = "1"
        os.execvp(isolated[0], [*isolated, options.python, "-B", *sys.argv])
    runner.raise_loopback()

    def run_scenario(arguments: list[str], ca: str) -> dict:
        return run_python("scenarios.py", arguments, ca, options)

    told: dict[str, Any] = {
        "machine": server.describe_machine(),
        "versions": versions(options.python),
        "options": {"seconds": options.seconds, "rounds": options.rounds},
    }
    if options.checkpoints:
        told["checkpoints"] = measure_checkpoints(options)
    else:
        told["cells"] = measure_all(options)
        told["scenarios"] = scenarios.measure_all(options, run_scenario)
    print(report.text(told))
    if options.results:
        report.write(told, options.results)
        common.say(f"written to {options.results}")
    return int(report.has_failed(told))


if __name__ == "__main__":
    sys.exit(main())
