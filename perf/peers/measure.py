"""Client CPU per object of ringest from Python beside what others wrote, side by side.

nginx, as ../compare.py sets it up (one worker, core 0), serves one object of each size over TLS, and
`ringest bench compare` lets all clients read it on core 1, round after round; wrk.py and library.py
show what there is to reach. A figure is the CPU time of all threads of the client divided by its
objects, start and imports left out.

After that come the scenarios (scenarios.py): what the emulator is needed for. Tables, charts
and every figure are written to a folder (report.py), in which what was not measured again stays;
objects.json there is the result of `ringest bench compare`.

With --checkpoints it is state dicts that are saved to the emulator and loaded (checkpoints.py), instead.

`--quick` only shows that everything still works. Everything happens in a network with nothing but
loopback, so that no client asks a cloud's metadata address for credentials."""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from typing import Any

HERE = os.path.dirname(os.path.abspath(__file__))
PERF = os.path.dirname(HERE)
ROOT = os.path.dirname(PERF)
sys.path[:0] = [PERF, os.path.join(ROOT, "tests", "peers"), HERE]

import checkpoints  # noqa: E402
import common  # noqa: E402
import compare as server  # noqa: E402
import report  # noqa: E402
import runner  # noqa: E402
import scenarios  # noqa: E402

PINS = os.path.join(ROOT, "python", "ringest", "bench", "peers")
REQUIREMENTS, ALONE = (os.path.join(PINS, name) for name in ("requirements.txt", "alone.txt"))
# gcs-torch-dataflux's checkpoints do not import with the one that everything else here has.
OLD_GOOGLE = "google-cloud-storage==2.19.0"
FOLDER = os.path.join(ROOT, "build", "perf-peers")
RESULTS = os.path.join(PERF, "results")
INSIDE = "RINGEST_PERF_INSIDE"
SCENARIO_S = 60
CHECKPOINT_S = 180
# Loaders are for small objects; what they do with large ones is what the client below them does.
SIZES = {"get": ("4k", "100k", "3m"), "load": ("4k", "100k")}
REFERENCES = tuple(os.path.join(HERE, name) for name in ("wrk.py", "library.py"))
# More than any comparison takes.
COMPARISON_S = 7200
CLIENT_LIMIT_S = 60
# So begins what `ringest bench compare` says of a client that lacks a verb.
NO_WAY = "has no way to "
# Of each the ways that cost it least, and what its makers advise.
CLIENTS = (
    "ringest:get_many",
    "ringest:IterableDataset",
    "ringest:dataflux map-style",
    "obstore:uvloop",
    "obstore:threads",
    "opendal",
    "tensorstore",
    "gcsfs:uvloop",
    "google-cloud-storage",
    "s3dlio",
    "dataflux",
    "litdata",
)


def old_google(folder: str) -> str:
    return os.path.join(folder, "old-google")


def wanted() -> str:
    with open(REQUIREMENTS, encoding="utf-8") as all_but, open(ALONE, encoding="utf-8") as alone:
        return f"{sys.version}\n{OLD_GOOGLE}\n{alone.read()}\n{all_but.read()}"


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
        [*pip, "--no-deps", "-r", ALONE],
        [*pip, "--no-deps", "--target", old_google(folder), OLD_GOOGLE],
    ):
        if subprocess.run(command, stdout=subprocess.DEVNULL, check=False).returncode:
            common.die("the peers cannot be installed here")
    with open(stamp, "w", encoding="utf-8") as file:
        file.write(wanted())


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
    }


def run_python(
    script: str,
    arguments: list[str],
    ca: str,
    options: argparse.Namespace,
    *,
    path: str = "",
    keep_heap: bool = False,
    limit_s: int = SCENARIO_S,
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
        return {"error": common.last_words(done.stderr) or f"status {done.returncode}"}
    return json.loads(lines[-1])


def compare(verb: str, sizes: list[str], names: list[str], nginx: Any, options: argparse.Namespace) -> dict:
    """The result of `ringest bench compare`."""
    command = [options.python, "-B", "-m", "ringest.bench", "compare", f"gs://{server.BUCKET}/", "--existing"]
    command += ["--endpoint", nginx.url(True), "--ca", nginx.ca, "--objects", "1", "--limit", str(CLIENT_LIMIT_S)]
    command += ["--verbs", verb, "--sizes", ",".join(sizes), "--peers", ",".join(names)]
    command += ["--concurrency", ",".join(map(str, options.connections)), "--rounds", str(options.rounds)]
    command += ["--seconds", str(options.seconds), "--warm-up", str(options.warm_up)]
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "result.json")
        environment = {**os.environ, "PYTHONPATH": options.package, "PERF_PROGRAM": options.ringest}
        # That one of ours failed is in the result.
        done = subprocess.run([*command, "--result", path], env=environment, timeout=COMPARISON_S, check=False)
        if not os.path.exists(path):
            common.die(f"{' '.join(command)} ended with {done.returncode}")
        with open(path, encoding="utf-8") as file:
            document = json.load(file)
    return {**document, "rows": able(document["rows"])}


def able(rows: list[dict]) -> list[dict]:
    """Every client is asked for both verbs: that it has no way to do one of them is no failure."""
    return [row for row in rows if not (row["error"] or "").startswith(NO_WAY)]


def measure_all(options: argparse.Namespace) -> dict:
    """One result, of loaders and others."""
    both = None
    with server.Nginx() as nginx:
        for verb, known in SIZES.items():
            sizes = [key for key in options.sizes if key in known]
            names = [*(REFERENCES if verb == "get" and options.references else ()), *options.clients]
            if sizes and verb in options.verbs:
                found = compare(verb, sizes, names, nginx, options)
                if both is None:
                    both = found
                else:
                    both["rows"] += found["rows"]
                    both["versions"] |= found["versions"]
    return both or {"rows": [], "versions": {}}


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
    parser.add_argument("--package", default=built, help="the folder that has ringest")
    parser.add_argument("--ringest", default=common.PROGRAM, metavar="PROGRAM")
    parser.add_argument(
        "--python", metavar="PROGRAM", help="an interpreter that has the peers; default: one made in build/perf-peers"
    )
    parser.add_argument("--sizes", nargs="*", choices=server.SIZES, default=list(server.SIZES))
    parser.add_argument(
        "--clients",
        nargs="+",
        default=CLIENTS,
        metavar="NAME[:WAY]",
        help='as "ringest bench compare --peers" has them',
    )
    parser.add_argument("--verbs", nargs="+", choices=SIZES, default=list(SIZES))
    parser.add_argument(
        "--references", action=argparse.BooleanOptionalAction, default=True, help="wrk and ringest bench"
    )
    parser.add_argument("--scenarios", nargs="*", choices=scenarios.ALL, default=list(scenarios.ALL))
    parser.add_argument(
        "--checkpoints", nargs="*", choices=checkpoints.SHAPES, help="measure those instead; all shapes"
    )
    parser.add_argument("--connections", nargs="+", type=int, default=[16, 64])
    parser.add_argument("--seconds", type=float, default=1, help="of each measurement; 1")
    parser.add_argument("--warm-up", type=float, default=0.5, help="before each, in seconds; 0.5")
    parser.add_argument("--rounds", type=int, default=3, help="3")
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
        "options": {"seconds": options.seconds, "rounds": options.rounds},
    }
    if options.checkpoints:
        sys.path.append(options.package)
        from ringest.bench import machine

        told["versions"] = machine.versions(checkpoints.DISTRIBUTIONS)
        told["checkpoints"] = measure_checkpoints(options)
    else:
        document = measure_all(options)
        told |= {"document": document, "cells": report.cells(document), "versions": document["versions"]}
        told["scenarios"] = scenarios.measure_all(options, run_scenario)
    print(report.text(told))
    if options.results:
        report.write(told, options.results)
        common.say(f"written to {options.results}")
    return int(report.has_failed(told))


if __name__ == "__main__":
    sys.exit(main())
