#!/usr/bin/env python3
"""Rows of Parquet files at the emulator, in batches of 512: ringest.ParquetDataset beside pyarrow's datasets, on ringest.fs,
on gcsfs and on Arrow's own client, and beside a stream of Hugging Face's datasets.

Rows are clients, each in a process of its own, in turns. Files are as large as those of FineWeb's row groups: a text of 3 KB,
an id and two numbers in a row, 1,000 rows in a row group. Columns are two of the four, or all. Printed are rows and MB of
columns a second, CPU seconds per million rows, and the ratio of our rate to each; the median of several repeats. Arrow's own
client speaks plain HTTP to the emulator, because it cannot be given a certificate of one's own; the others speak TLS.
"""

import argparse
import importlib
import io
import json
import os
import statistics
import subprocess
import sys
import time

import common

BATCH = 512
ROWS = ("ringest", "pyarrow, ringest.fs", "pyarrow, gcsfs", "pyarrow, own client", "datasets")


def make_files(files, rows):
    import numpy
    import pyarrow
    import pyarrow.parquet

    source = numpy.random.default_rng(1)
    words = ["".join(chr(97 + c) for c in source.integers(0, 26, 7)) for _ in range(5000)]
    made = []
    for _ in range(files):
        texts = [" ".join(words[w] for w in source.integers(0, 5000, 380)) for _ in range(rows)]
        columns = {"text": texts, "id": range(rows), "score": source.random(rows), "other": source.random(rows)}
        out = io.BytesIO()
        pyarrow.parquet.write_table(pyarrow.table(columns), out, row_group_size=1000, compression="snappy")
        made.append(out.getvalue())
    return made


def put_files(endpoint, ca, files):
    import ringest

    with ringest.Client(endpoint, ca, credentials="anonymous") as client:
        for i, data in enumerate(files):
            client.put(f"gs://data/rows/{i:03}.parquet", data)


def dataset_of(row, endpoint, ca):
    import pyarrow.dataset

    if row == "pyarrow, gcsfs":
        import gcsfs

        return pyarrow.dataset.dataset(
            "data/rows", filesystem=gcsfs.GCSFileSystem(endpoint_url=endpoint, token="anon"), format="parquet"
        )
    if row == "pyarrow, own client":
        from pyarrow.fs import GcsFileSystem

        place = endpoint.split("://")[1]
        files = GcsFileSystem(anonymous=True, scheme="http", endpoint_override=place)
        return pyarrow.dataset.dataset("data/rows", filesystem=files, format="parquet")
    from ringest import fs

    files = fs.GCSFileSystem(endpoint=endpoint, ca=ca, credentials="anonymous")
    return pyarrow.dataset.dataset("data/rows", filesystem=files, format="parquet")


def batches(row, endpoint, ca, columns):
    import ringest

    if row == "ringest":
        client = ringest.Client(endpoint, ca, credentials="anonymous")
        return ringest.ParquetDataset("gs://data/rows/", columns=columns, batch_size=BATCH, client=client)
    if row == "datasets":
        import datasets

        from ringest import fs

        fs.register(ringest.Client(endpoint, ca, credentials="anonymous"))
        options = {"split": "train", "streaming": True, "columns": columns}
        stream = datasets.load_dataset("parquet", data_files="gs://data/rows/*.parquet", **options)
        return (batch for batch in stream.with_format("arrow").iter(BATCH))
    return dataset_of(row, endpoint, ca).to_batches(columns=columns, batch_size=BATCH)


def client(arguments):
    """One row: prints what it measured as JSON."""
    columns = arguments.columns.split(",") if arguments.columns else None
    # Imports take seconds, and are no part of it.
    needed = {"ringest": "ringest.parquet", "datasets": "datasets", "pyarrow, gcsfs": "gcsfs"}
    for name in ("pyarrow.dataset", "ringest.fs", needed.get(arguments.client_row, "pyarrow.fs")):
        importlib.import_module(name)
    started, cpu = time.monotonic(), time.process_time()
    rows = size = 0
    for batch in batches(arguments.client_row, arguments.endpoint, arguments.ca, columns):
        rows += batch.num_rows
        size += batch.nbytes
    seconds, cpu = time.monotonic() - started, time.process_time() - cpu
    print(json.dumps({"rows": rows, "bytes": size, "seconds": seconds, "cpu": cpu}), flush=True)
    os._exit(0)  # threads of Arrow may still hold what is Python's


def run_row(arguments, name, columns, emulator):
    command = [arguments.python, os.path.abspath(__file__), "--client", name]
    command += ["--endpoint", emulator.endpoint, "--ca", emulator.ca or "", "--columns", columns]
    cores = sorted(os.sched_getaffinity(0))
    command = common.pinned(",".join(map(str, cores[1:])), command)
    others = {"SSL_CERT_FILE": emulator.ca or "", "GCSFS_EXPERIMENTAL_ZB_HNS_SUPPORT": "false"}
    env = {**common.environment(), "PYTHONPATH": arguments.package, **others}
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=False, timeout=arguments.timeout)
    if done.returncode:
        common.die(f"{name}: {done.stderr.strip()}")
    return json.loads(done.stdout)


def report(columns, found):
    print(f"columns: {columns or 'all'}")
    ours = None
    for name, all_found in found.items():
        rate = statistics.median(each["rows"] / each["seconds"] for each in all_found)
        size = statistics.median(each["bytes"] / each["seconds"] for each in all_found)
        cpu = statistics.median(each["cpu"] / each["rows"] for each in all_found)
        ours = ours or rate
        print(f"{name:20} {rate:9,.0f} rows/s {size / 1e6:8,.0f} MB/s {cpu * 1e6:7.1f} CPU s/M rows {ours / rate:6.2f}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", default=common.PROGRAM, help="ringest, which has the emulator")
    parser.add_argument(
        "--python", default=sys.executable, help="an interpreter that has pyarrow, and what the rows need"
    )
    parser.add_argument("--package", default="", help="where the package ringest is, if not installed: BUILD/python")
    parser.add_argument("--rows", nargs="*", default=[ROWS[0], ROWS[1]], choices=ROWS)
    parser.add_argument("--files", type=int, default=8)
    parser.add_argument("--rows-of-file", type=int, default=4000)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--timeout", type=int, default=300)
    parser.add_argument("--client", dest="client_row", choices=ROWS, help=argparse.SUPPRESS)
    parser.add_argument("--endpoint", help=argparse.SUPPRESS)
    parser.add_argument("--ca", help=argparse.SUPPRESS)
    parser.add_argument("--columns", default="", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.client_row:
        client(arguments)
        return
    sys.path[:0] = [arguments.package] if arguments.package else []
    files = make_files(arguments.files, arguments.rows_of_file)
    with common.Emulator(arguments.program) as secure, common.Emulator(arguments.program, "--plain") as plain:
        for emulator in (secure, plain) if ROWS[3] in arguments.rows else (secure,):
            put_files(emulator.endpoint, emulator.ca, files)
        for columns in ("id,score", ""):
            found = {name: [] for name in arguments.rows}
            for _ in range(arguments.repeats):
                for name in arguments.rows:
                    common.touch_memory()
                    found[name].append(run_row(arguments, name, columns, plain if name == ROWS[3] else secure))
            report(columns, found)


if __name__ == "__main__":
    main()
