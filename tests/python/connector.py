"""Runs connector_script.py with the connector and with ringest.dataflux against one emulator, and
connector_checkpoint.py with both, and prints the results as JSON. To be run in a network of its own, by test_connector.py:

    connector.py VENV"""

import gzip
import json
import os
import subprocess
import sys
import urllib.parse
import urllib.request

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(os.path.dirname(HERE), "peers"))

import runner  # noqa: E402

PACKAGES = ("dataflux_pytorch", "ringest.dataflux")
# Only one that hangs is ended, before the test itself is.
SCRIPT_S = 500
OBJECTS = {
    "small/a b": b"1",
    "small/ha#sh?x&y=%41": b"22",
    "small/folder/": b"",
    "small/folder/uni\N{SNOWMAN}": b"333",
    "dataflux-composed-objects/left": b"4",
    "gzip/plain.gz": gzip.compress(b"plain"),
}


def put(endpoint, name, data, **query):
    query = urllib.parse.urlencode({"uploadType": "media", "name": name, **query})
    request = urllib.request.Request(f"{endpoint}/upload/storage/v1/b/data/o?{query}", data, method="POST")
    urllib.request.urlopen(request).close()


def run(python, endpoint, script, *arguments, path=()):
    environment = {
        **os.environ,
        "STORAGE_EMULATOR_HOST": endpoint,
        "GOOGLE_CLOUD_PROJECT": "project",
        "NO_PROXY": "*",
        "PYTHONPATH": os.pathsep.join([*path, os.environ["PYTHONPATH"]]),
    }
    command = [python, os.path.join(HERE, script), *arguments]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=SCRIPT_S)
    if done.returncode != 0:
        raise RuntimeError(f"{script} {arguments}: {done.stderr}")
    return json.loads(done.stdout)


def main(folder):
    import support

    runner.raise_loopback()
    python = os.path.join(folder, "bin", "python")
    with support.emulator("--plain") as (endpoint, _):
        for name, data in OBJECTS.items():
            put(endpoint, name, data)
        put(endpoint, "gzip/named", gzip.compress(b"named"), contentEncoding="gzip")
        seen = {package: run(python, endpoint, "connector_script.py", package) for package in PACKAGES}
        # Its checkpoints work with an older google-cloud-storage alone.
        older = [os.path.join(folder, "older")]
        seen["checkpoints"] = run(python, endpoint, "connector_checkpoint.py", *PACKAGES, path=older)
        print(json.dumps(seen))


if __name__ == "__main__":
    main(sys.argv[1])
