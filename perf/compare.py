"""Compares the CPU time per GET of ringest with wrk's and with the floor (floor.c), side by side.

nginx (one worker, core 0) serves one object of each size; the clients take turns on core 1, with 64
connections, round after round, so that what disturbs one disturbs all. Every figure is user and
system time of the client divided by its requests, and a ratio is the median of the rounds' ratios.
Start and handshakes are left out: ringest and the floor count from when their connections are open,
and from wrk is taken off what it uses up at a location that never answers.
ringest delivers whole bodies in leased memory with CRC32C checked; wrk and the plain floor throw them
away; "floor with CRC32C" computes that too, as the TLS floor always does.

With --emulator the server is what is compared: the CPU time per GET of `ringest emulate` and of nginx
under the same load from wrk."""

import argparse
import base64
import json
import os
import re
import socket
import statistics
import subprocess
import tempfile
import time

import common

KIB, MIB = 1 << 10, 1 << 20
SIZES = {"4k": 4 * KIB, "100k": 100 * KIB, "3m": 3 * MIB}
# name, object, TLS, the ratio to wrk that ringest must reach
CELLS = (
    ("4 KiB TLS", "4k", True, 0.70),
    ("100 KiB TLS", "100k", True, 0.52),
    ("3 MiB TLS", "3m", True, 0.43),
    ("100 KiB plain", "100k", False, 0.64),
    ("4 KiB plain", "4k", False, 0.85),
)
CLIENTS = ("wrk", "floor", "floor+crc", "uring", "epoll")
LABELS = {
    "wrk": "wrk",
    "floor": "floor",
    "floor+crc": "floor with CRC32C",
    "uring": "ringest io_uring",
    "epoll": "ringest epoll",
}
# io_uring may be the dearer one by this much.
URING_GOAL = 1.03
BUCKET = "bench"
GENERATION = 1700000000000000
NEVER = "/never"
# Each for twice as long as the one before, as long as nothing comes.
WRK_TRIES = 5
SERVER_CORE, CLIENT_CORE = 0, 1


def crc32c(data):
    table = []
    for index in range(256):
        value = index
        for _ in range(8):
            value = value >> 1 ^ (0x82F63B78 if value & 1 else 0)
        table.append(value)
    crc = 0xFFFFFFFF
    for byte in data:
        crc = crc >> 8 ^ table[(crc ^ byte) & 0xFF]
    return crc ^ 0xFFFFFFFF


def crc32c_text(data):
    return base64.b64encode(crc32c(data).to_bytes(4, "big")).decode()


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def object_path(name):
    return f"/storage/v1/b/{BUCKET}/o/{name}?alt=media"


def aliases(name):
    """And the name that `ringest bench compare` has for the first object of a size."""
    return name, name + "-00000000"


def object_paths(name):
    """Where clients ask for an object: ours, Google's own, and those of the XML API."""
    for each in aliases(name):
        path = f"/storage/v1/b/{BUCKET}/o/{each}"
        yield from (path, "/download" + path, f"/{BUCKET}/{each}")


NGINX_CONF = """
daemon off;
worker_processes 1;
{user}
pid {folder}/nginx.pid;
error_log {folder}/error.log;
events {{ worker_connections 4096; }}
http {{
    access_log off;
    sendfile on;
    keepalive_requests 1000000000;
    keepalive_timeout 600s;
    open_file_cache max=100 inactive=600s;
    default_type application/octet-stream;
    client_body_temp_path {folder}/temp;
    proxy_temp_path {folder}/temp;
    fastcgi_temp_path {folder}/temp;
    uwsgi_temp_path {folder}/temp;
    scgi_temp_path {folder}/temp;
    ssl_protocols TLSv1.3;
    ssl_conf_command Ciphersuites TLS_AES_128_GCM_SHA256;
    ssl_certificate {folder}/leaf.pem;
    ssl_certificate_key {folder}/leaf.key;
    server {{
        listen 127.0.0.1:{plain_port};
        listen 127.0.0.1:{tls_port} ssl;
        root {folder};
        location = /storage/v1/b/{bucket}/o {{
            default_type application/json;
            try_files /list/$arg_prefix.json =404;
        }}
        location = {never} {{ proxy_pass http://127.0.0.1:{silent_port}; }}
{locations}
    }}
}}
"""
# As Cloud Storage does, so that ringest has something to check the body against.
LOCATION = """        location = {path} {{
            alias {folder}/{name};
            add_header x-goog-generation {generation};
            add_header x-goog-stored-content-length {size};
            add_header x-goog-hash crc32c={crc};
        }}"""


def make_certificates(folder):
    """An authority of its own and a leaf for this machine."""

    def openssl(*arguments):
        common.run(["openssl", *arguments])

    curve = ["-algorithm", "EC", "-pkeyopt", "ec_paramgen_curve:P-256"]
    for name in ("ca", "leaf"):
        openssl("genpkey", *curve, "-out", f"{folder}/{name}.key")
    with open(f"{folder}/leaf.cnf", "w", encoding="ascii") as config:
        config.write("subjectAltName=DNS:localhost,IP:127.0.0.1\nextendedKeyUsage=serverAuth\n")
    openssl("req", "-x509", "-new", "-key", f"{folder}/ca.key", "-days", "2", "-out",
            f"{folder}/ca.pem", "-subj", "/CN=benchmark CA")  # fmt: skip
    openssl("req", "-new", "-key", f"{folder}/leaf.key", "-out", f"{folder}/leaf.csr", "-subj",
            "/CN=localhost")  # fmt: skip
    openssl("x509", "-req", "-in", f"{folder}/leaf.csr", "-CA", f"{folder}/ca.pem", "-CAkey",
            f"{folder}/ca.key", "-CAcreateserial", "-days", "2", "-out", f"{folder}/leaf.pem",
            "-extfile", f"{folder}/leaf.cnf")  # fmt: skip


class Nginx:
    """nginx with the objects, while the `with` lasts."""

    def __init__(self):
        self.folder_owner = tempfile.TemporaryDirectory(prefix="ringest-compare-")
        self.folder = self.folder_owner.name
        self.plain_port, self.tls_port = free_port(), free_port()
        self.ca = f"{self.folder}/ca.pem"
        # Accepts connections, because the kernel does, and says nothing.
        self.silent = socket.create_server(("127.0.0.1", 0), backlog=4096)

    def write_object(self, name, size):
        data = os.urandom(size)
        crc = crc32c_text(data)
        with open(f"{self.folder}/{name}", "wb") as file:
            file.write(data)
        for each in aliases(name):
            item = {
                "kind": "storage#object",
                "name": each,
                "bucket": BUCKET,
                "generation": str(GENERATION),
                "size": str(size),
                "crc32c": crc,
                "updated": "2023-11-14T22:13:20.000Z",
            }
            with open(f"{self.folder}/list/{each}.json", "w", encoding="ascii") as listing:
                json.dump({"kind": "storage#objects", "items": [item]}, listing)
        return "\n".join(
            LOCATION.format(path=path, name=name, folder=self.folder, generation=GENERATION, size=size, crc=crc)
            for path in object_paths(name)
        )

    def __enter__(self):
        os.mkdir(f"{self.folder}/list")
        make_certificates(self.folder)
        locations = [self.write_object(name, size) for name, size in SIZES.items()]
        conf = NGINX_CONF.format(
            user="user root;" if os.geteuid() == 0 else "",
            folder=self.folder,
            plain_port=self.plain_port,
            tls_port=self.tls_port,
            silent_port=self.silent.getsockname()[1],
            bucket=BUCKET,
            never=NEVER,
            locations="\n".join(locations),
        )
        with open(f"{self.folder}/nginx.conf", "w", encoding="utf-8") as file:
            file.write(conf)
        command = ["nginx", "-c", f"{self.folder}/nginx.conf", "-e", f"{self.folder}/error.log"]
        self.process = subprocess.Popen(common.pinned(SERVER_CORE, command))
        self.wait_ready()
        return self

    def wait_ready(self):
        deadline = time.monotonic() + common.START_TIMEOUT_S
        while time.monotonic() < deadline and self.process.poll() is None:
            try:
                socket.create_connection(("127.0.0.1", self.tls_port), 1).close()
                return
            except OSError:
                time.sleep(0.02)
        with open(f"{self.folder}/error.log", encoding="utf-8") as log:
            common.die(f"nginx did not start: {log.read()}")

    def __exit__(self, *_):
        common.end(self.process)
        self.silent.close()
        self.folder_owner.cleanup()

    def port(self, tls):
        return self.tls_port if tls else self.plain_port

    def url(self, tls):
        return f"{'https' if tls else 'http'}://127.0.0.1:{self.port(tls)}"

    def worker_pid(self):
        return common.children(self.process.pid)[0]


def run_wrk(url, seconds, options):
    """Requests, bytes read, and CPU seconds of a whole run of wrk."""
    command = ["wrk", "-t1", f"-c{options.connections}", f"-d{seconds}s", url]
    process = subprocess.Popen(common.pinned(CLIENT_CORE, command), stdout=subprocess.PIPE, text=True)
    output = process.stdout.read()
    process.stdout.close()
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    found = re.search(r"(\d+) requests in .*?, ([\d.]+)([KMGT]?)B read", output)
    if process.returncode or not found or re.search("Non-2xx|connect [1-9]|read [1-9]|write [1-9]", output):
        common.die(f"{' '.join(command)}\n{output}")
    read = float(found[2]) * 1024 ** " KMGT".index(found[3] or " ")
    return int(found[1]), read, usage.ru_utime + usage.ru_stime


def time_wrk(nginx, name, tls, options):
    seconds = max(1, round(options.seconds))
    for _ in range(WRK_TRIES):
        requests, read, cpu = run_wrk(nginx.url(tls) + object_path(name), seconds, options)
        if SIZES[name] >= MIB:
            # What had arrived of an answer when the time was over counts for its part.
            requests = read / SIZES[name]
        if requests > 0:
            return {
                "requests": requests,
                "cpu_us_per_request": (cpu - options.wrk_start_s[tls]) * 1e6 / requests,
                "requests_per_s": requests / seconds,
            }
        # Other work can take the processors for longer than that.
        common.say(f"wrk had no answer within {seconds} s; once more, for longer")
        seconds *= 2
    common.die(f"wrk had no answer within {seconds // 2} s: the machine does too much else")


def time_wrk_start(nginx, tls, options):
    """CPU seconds that wrk needs to start and to open its connections: the median of a few runs."""
    runs = [run_wrk(nginx.url(tls) + NEVER, 1, options)[2] for _ in range(1 if options.quick else 3)]
    return statistics.median(runs)


def run_floor(nginx, name, tls, crc, options):
    command = [options.floor, "--json", "--connections", str(options.connections)]
    command += ["--seconds", str(options.seconds)] + ["--tls"] * tls + ["--crc"] * crc
    command += ["127.0.0.1", str(nginx.port(tls)), object_path(name)]
    return json.loads(common.run(common.pinned(CLIENT_CORE, command)))


def run_client(client, nginx, name, tls, options):
    common.touch_memory()
    if client == "wrk":
        return time_wrk(nginx, name, tls, options)
    if client in ("floor", "floor+crc"):
        return run_floor(nginx, name, tls, client == "floor+crc", options)
    arguments = ["--endpoint", nginx.url(tls)] + (["--ca", nginx.ca] if tls else [])
    arguments += ["--seconds", str(options.seconds), "--concurrency", str(options.connections)]
    return common.bench(options.ringest, f"gs://{BUCKET}/{name}", *arguments, backend=client, core=CLIENT_CORE)


def median_ratio(results, client, other):
    pairs = zip(results[client], results[other])
    return statistics.median(a["cpu_us_per_request"] / b["cpu_us_per_request"] for a, b in pairs)


def measure_cells(nginx, options):
    """{cell: {client: [result of each round]}}"""
    cells = {cell[0]: {client: [] for client in options.clients} for cell in options.cells}
    for number in range(options.rounds):
        for cell, name, tls, _ in options.cells:
            turn = number % len(options.clients)
            for client in options.clients[turn:] + options.clients[:turn]:
                result = run_client(client, nginx, name, tls, options)
                cells[cell][client].append(result)
                common.say(
                    f"round {number + 1}/{options.rounds}, {cell}, {LABELS[client]}: "
                    f"{result['cpu_us_per_request']:.2f} us"
                )
    return cells


def measure_cipher(options):
    """What each side's AES-128-GCM does with records of 16 KiB, in GB/s."""
    seconds = 1 if options.quick else 2
    floor = json.loads(common.run(
        common.pinned(CLIENT_CORE, [options.floor, "--cipher", "--json", "--seconds", str(seconds)])
    ))  # fmt: skip
    command = ["openssl", "speed", "-seconds", "1", "-bytes", "16384", "-evp", "aes-128-gcm"]
    found = re.search(r"^AES-128-GCM\s+([\d.]+)k", common.run(common.pinned(CLIENT_CORE, command)), re.M)
    return {
        "openssl_seal_gb_per_s": float(found[1]) / 1e6 if found else None,
        **{"boringssl_" + key: value for key, value in floor.items()},
    }


def row(label, values):
    print(f"{label:<22}" + "".join(f"{value:>16}" for value in values))


def print_cells(cells, options):
    """The table: microseconds, and behind them the ratio to wrk."""

    def figure(cell, client):
        us = statistics.median(r["cpu_us_per_request"] for r in cells[cell][client])
        text = f"{us:,.1f}" if us < 1000 else f"{us:,.0f}"
        if client == "wrk" or "wrk" not in options.clients:
            return text + " " * 6
        return f"{text}  {median_ratio(cells[cell], client, 'wrk'):.2f}"

    def ratios(client, other):
        return [f"{median_ratio(cells[cell[0]], client, other):.2f}" for cell in options.cells]

    print(f"\nClient CPU per GET in us, and its ratio to wrk's; {options.connections} connections,")
    print(f"median of {options.rounds} rounds of {options.seconds:g} s\n")
    row("", [cell[0] for cell in options.cells])
    for client in options.clients:
        row(LABELS[client], [figure(cell[0], client) for cell in options.cells])
    row("goal, ratio to wrk", [f"{cell[3]:.2f}" for cell in options.cells])
    if {"uring", "floor+crc"} <= set(options.clients):
        row("io_uring / with CRC32C", ratios("uring", "floor+crc"))
    if {"uring", "epoll"} <= set(options.clients):
        row("io_uring / epoll", ratios("uring", "epoll"))
        row("goal", [f"{URING_GOAL:.2f}"] * len(options.cells))


def print_machine(machine, cipher):
    print(f"\n{machine['cpu']}, {machine['cores']} cores, Linux {machine['kernel']}")
    print(f"{machine['nginx']}; {machine['wrk']}; {machine['openssl']}")
    if cipher:
        print(
            "wrk and nginx use the distribution's OpenSSL, ringest and the floor BoringSSL, whose cipher\n"
            "speeds differ: AES-128-GCM over 16 KiB is sealed at "
            f"{cipher['openssl_seal_gb_per_s'] or 0:.1f} GB/s by that OpenSSL, and by BoringSSL\n"
            f"sealed at {cipher['boringssl_seal_gb_per_s']:.1f} and opened at "
            f"{cipher['boringssl_open_gb_per_s']:.1f} GB/s, on this core."
        )


def describe_machine():
    return {
        **common.machine(),
        "nginx": common.version(["nginx", "-v"]),
        "openssl": common.version(["openssl", "version"]),
        "wrk": common.version(["wrk", "-v"]).split(" Copyright")[0],
    }


def plot_cells(cells, options):
    try:
        import matplotlib
    except ImportError:
        common.die("--plot needs matplotlib, which script/bench installs; the other figures are above")
    matplotlib.use("Agg")
    from matplotlib import pyplot

    clients = [client for client in options.clients if client != "wrk"]
    figure, axes = pyplot.subplots(figsize=(9, 4))
    width = 0.8 / len(clients)
    for index, client in enumerate(clients):
        heights = [median_ratio(cells[cell[0]], client, "wrk") for cell in options.cells]
        places = [x + (index - (len(clients) - 1) / 2) * width for x in range(len(options.cells))]
        bars = axes.bar(places, heights, width, label=LABELS[client])
        axes.bar_label(bars, fmt="%.2f", fontsize=7)
    for x, cell in enumerate(options.cells):
        axes.hlines(cell[3], x - 0.45, x + 0.45, colors="black", linestyles="dashed",
                    label="goal" if x == 0 else None)  # fmt: skip
    axes.axhline(1, color="grey", linewidth=0.8)
    axes.set_xticks(range(len(options.cells)), [cell[0] for cell in options.cells])
    axes.set_ylabel("client CPU per GET, wrk = 1")
    axes.legend(fontsize=8)
    figure.tight_layout()
    figure.savefig(options.plot, dpi=150)


def compare_clients(options):
    with Nginx() as nginx:
        options.wrk_start_s = {tls: time_wrk_start(nginx, tls, options) for tls in (True, False)}
        cells = measure_cells(nginx, options)
    result = {"machine": describe_machine(), "cells": cells, "cipher": measure_cipher(options)}
    result["wrk_start_cpu_s"] = {"tls": options.wrk_start_s[True], "plain": options.wrk_start_s[False]}
    result["goals"] = {cell[0]: cell[3] for cell in options.cells}
    if "wrk" in options.clients:
        result["ratios_to_wrk"] = {
            cell: {client: median_ratio(results, client, "wrk") for client in options.clients}
            for cell, results in cells.items()
        }
    print_cells(cells, options)
    print_machine(result["machine"], result["cipher"])
    if options.plot:
        plot_cells(cells, options)
    return result


def server_cpu_us(pid, url, options):
    """Of a whole run, the server's part of the handshakes included."""
    before = common.cpu_seconds(pid)
    requests = run_wrk(url, max(1, round(options.seconds)), options)[0]
    return (common.cpu_seconds(pid) - before) * 1e6 / requests


def compare_servers(options):
    """CPU per GET of the emulator beside nginx's, both with one thread on core 0."""
    cells = [cell for cell in options.cells if cell[2]]
    us = {cell[0]: {"nginx": [], "emulator": []} for cell in cells}
    synthetic = [part for name, size in SIZES.items()
                 for part in ("--synthetic", f"{BUCKET}/{name}-:4:{size}")]  # fmt: skip
    with Nginx() as nginx, common.Emulator(options.ringest, "--threads", "1", *synthetic, core=SERVER_CORE) as emulator:
        for number in range(options.rounds):
            for cell, name, _, _ in cells:
                servers = {
                    "nginx": (nginx.worker_pid(), nginx.url(True) + object_path(name)),
                    "emulator": (emulator.pid, emulator.url() + object_path(name + "-00000000")),
                }
                for server in sorted(servers, reverse=number % 2 == 0):
                    us[cell][server].append(server_cpu_us(*servers[server], options))
    print(f"\nServer CPU per GET in us under wrk, median of {options.rounds} rounds\n")
    row("", [cell[0] for cell in cells])
    for server in ("nginx", "emulator"):
        row(server, [f"{statistics.median(us[cell[0]][server]):,.1f}" for cell in cells])
    ratios = {
        cell: statistics.median(e / n for e, n in zip(both["emulator"], both["nginx"])) for cell, both in us.items()
    }
    row("emulator / nginx", [f"{ratios[cell[0]]:.2f}" for cell in cells])
    row("goal", ["1.00" if cell[1] == "100k" else "" for cell in cells])
    machine = describe_machine()
    print_machine(machine, None)
    return {"machine": machine, "server_cpu_us": us, "ratios": ratios}


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n", maxsplit=1)[0])
    parser.add_argument("--ringest", default=common.PROGRAM, metavar="PROGRAM")
    parser.add_argument("--floor", default=f"{common.ROOT}/build/release/perf/floor", metavar="PROGRAM")
    parser.add_argument("--clients", default=",".join(CLIENTS), help="some of " + ",".join(CLIENTS))
    parser.add_argument("--cells", default="", metavar="TEXT", help="only those with this in their name")
    parser.add_argument("--connections", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=5, help="5")
    parser.add_argument("--seconds", type=float, default=1, help="of each run; 1")
    parser.add_argument("--quick", action="store_true", help="one round of 0.3 s: does it run at all")
    parser.add_argument("--json", metavar="FILE", help="write every figure there")
    parser.add_argument("--plot", metavar="FILE.png", help="draw the ratios; needs matplotlib")
    parser.add_argument("--emulator", action="store_true", help="compare the servers instead")
    options = parser.parse_args()
    options.clients = options.clients.split(",")
    if not set(options.clients) <= set(CLIENTS):
        parser.error(f"--clients knows {', '.join(CLIENTS)}")
    options.cells = [cell for cell in CELLS if options.cells in cell[0]]
    if not options.cells:
        parser.error(f"--cells knows {', '.join(cell[0] for cell in CELLS)}")
    if options.quick:
        options.rounds, options.seconds = 1, 0.3
    if options.plot and "wrk" not in options.clients:
        parser.error("--plot draws ratios to wrk")
    return options


def main():
    options = parse_arguments()
    common.need("nginx", "wrk", "openssl", "taskset")
    programs = [options.floor] if not options.emulator else []
    if options.emulator or {"uring", "epoll"} & set(options.clients):
        programs.append(options.ringest)
    for program in programs:
        if not os.access(program, os.X_OK):
            common.die(f"{program} is not there; script/build makes it")
    result = compare_servers(options) if options.emulator else compare_clients(options)
    if options.json:
        with open(options.json, "w", encoding="utf-8") as file:
            json.dump(result, file, indent=1)


if __name__ == "__main__":
    main()
