"""What our program has to be able to do with any server of Cloud Storage's protocol, as a class that
the tests of each server inherit."""

import contextlib
import json
import os
import socket
import ssl
import subprocess
import tempfile
import urllib.error
import urllib.parse
import urllib.request

from support import FAILED, PATIENCE_S, WITH_PARENT, Case, Emulator, environment, ringest, scatter, until

NAMES = ("with space", "per%20cent%", "ha#sh?query=1&b", "uni/ä€😀", "+plus+", "semi;colon:@=!$'()*")
SMALL = scatter(1000)
# More than one request of cat asks for.
LARGE = scatter((9 << 20) + 12345, seed=2)


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as taken:
        return taken.getsockname()[1]


def certificates(folder):
    """Fills the folder with ca.pem, cert.pem and key.pem for localhost."""
    with Emulator("--tls-dir", folder):
        return folder


class Server:
    """Another's server, as a process that listens at 127.0.0.1:port and is ended with the block."""

    def __init__(self, command, port):
        self.command, self.port = command, port

    def __enter__(self):
        self.log = tempfile.TemporaryFile()
        self.process = subprocess.Popen(
            [*WITH_PARENT, *self.command],
            env=environment(),
            stdin=subprocess.DEVNULL,
            stdout=self.log,
            stderr=self.log,
        )
        try:
            until(lambda: self.listens() or self.process.poll() is not None, "a server that listens")
        except AssertionError:
            self.__exit__()
            raise
        if self.process.poll() is not None:
            self.__exit__()
            raise AssertionError("it did not start")
        return self

    def listens(self):
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self.port), 1):
            return True
        return False

    def __exit__(self, *_):
        self.process.kill()
        self.process.wait()
        self.log.close()


def knows(command):
    return ringest(command, "--help").returncode == 0


class ServerCase(Case):
    """`place` are the arguments that send a command to the server, `ca` what it trusts."""

    endpoint, ca = None, None
    sizes = {"empty": b"", "small": SMALL, "large": LARGE}
    concurrency: tuple[str, ...] = ()  # arguments of bench
    verify: tuple[str, ...] = ("--verify",)

    @property
    def place(self):
        return ["--endpoint", self.endpoint] + (["--ca", self.ca] if self.ca else [])

    def ringest(self, command, *arguments, **options):
        return ringest(command, *arguments, *self.place, **options)

    @classmethod
    def request(cls, method, path, data=None, headers=()):
        """By other means than ours: the status and the body."""
        tls = ssl.create_default_context(cafile=cls.ca) if cls.ca else None
        request = urllib.request.Request(cls.endpoint + path, data=data, method=method, headers=dict(headers))
        try:
            with urllib.request.urlopen(request, context=tls, timeout=PATIENCE_S) as answer:
                return answer.status, answer.read()
        except urllib.error.HTTPError as error:
            return error.code, error.read()

    @classmethod
    def make_bucket(cls, name):
        cls.request(
            "POST", "/storage/v1/b?project=p", json.dumps({"name": name}).encode(), {"Content-Type": "application/json"}
        )

    @classmethod
    def store(cls, bucket, name, data):
        query = urllib.parse.urlencode({"uploadType": "media", "name": name})
        status, body = cls.request(
            "POST", f"/upload/storage/v1/b/{bucket}/o?{query}", data, {"Content-Type": "text/plain"}
        )
        assert status == 200, body
        return json.loads(body)

    @classmethod
    def load(cls, bucket, name):
        return cls.request("GET", f"/storage/v1/b/{bucket}/o/{urllib.parse.quote(name, safe='')}?alt=media")

    @classmethod
    def fill(cls):
        cls.make_bucket("bucket")
        for name in NAMES:
            cls.store("bucket", "names/" + name, name.encode())
        for name, data in cls.sizes.items():
            cls.store("bucket", "sizes/" + name, data)

    def listed(self, *arguments):
        return json.loads(self.ok(self.ringest("ls", *arguments, "--json")))


class Common:
    """The cases."""

    def test_ls(self):
        self.assertEqual(
            self.ok(self.ringest("ls", "gs://bucket/")).decode(), "gs://bucket/names/\ngs://bucket/sizes/\n"
        )
        listed = self.listed("gs://bucket/names/", "--recursive")
        self.assertEqual(
            [item["name"] for item in listed["objects"]], sorted(("names/" + name for name in NAMES), key=str.encode)
        )
        sizes = {item["name"]: item["size"] for item in self.listed("gs://bucket/sizes/")["objects"]}
        self.assertEqual(sizes, {"sizes/" + name: len(data) for name, data in self.sizes.items()})

    def test_ls_of_nothing(self):
        self.assertEqual(self.listed("gs://bucket/nothing", "--recursive")["objects"], [])

    def test_cat(self):
        for name in NAMES:
            with self.subTest(name):
                self.assertEqual(self.ok(self.ringest("cat", "gs://bucket/names/" + name)), name.encode())
        for name, data in self.sizes.items():
            with self.subTest(name):
                self.assertTrue(self.ok(self.ringest("cat", "gs://bucket/sizes/" + name)) == data)

    def test_cat_of_ranges(self):
        for name, data in (("small", SMALL), ("large", LARGE)):
            for first, last in ((0, 0), (1, 9), (len(data) - 1, len(data) - 1), (len(data) - 10, len(data) + 10)):
                with self.subTest((name, first, last)):
                    done = self.ringest("cat", "gs://bucket/sizes/" + name, f"--range={first}-{last}")
                    self.assertTrue(self.ok(done) == data[first : last + 1])

    def test_what_is_not_there(self):
        self.fails(self.ringest("cat", "gs://bucket/nothing"), FAILED, "gs://bucket/nothing", "404")

    def test_bench_get(self):
        count = str(20 * len(self.sizes))
        done = self.ringest(
            "bench", "get", "gs://bucket/sizes/", "--count", count, "--json", *self.concurrency, *self.verify
        )
        figures = json.loads(self.ok(done))
        self.assertEqual((figures["requests"], figures["errors"]), (int(count), 0))
        self.assertEqual(figures["bytes"], 20 * sum(map(len, self.sizes.values())))

    def test_bench_put_and_list(self):
        self.make_bucket("target")
        arguments = ("gs://target/put-", "--count", "20", "--object-size", "100000", "--json")
        done = self.ringest("bench", "put", "--keep", *arguments, *self.concurrency)
        figures = json.loads(self.ok(done))
        self.assertEqual((figures["requests"], figures["errors"], figures["bytes"]), (20, 0, 2000000))
        listed = self.listed("gs://target/put-", "--recursive")
        self.assertEqual([item["size"] for item in listed["objects"]], [100000] * 20)
        name = listed["objects"][7]["name"]
        self.assertTrue(self.ok(self.ringest("cat", "gs://target/" + name)) == self.load("target", name)[1])
        done = self.ringest("bench", "list", "gs://target/put-", "--json", *self.concurrency)
        self.assertEqual(json.loads(self.ok(done))["names"], 20)

    def test_cp_up_and_down(self):
        if not knows("cp"):
            self.skipTest("the program has no cp")
        self.make_bucket("copies")
        with tempfile.TemporaryDirectory() as folder:
            for name, data in self.sizes.items():
                # The large one would go in parts by the XML API, which neither server has.
                path = os.path.join(folder, name)
                with open(path, "wb") as file:
                    file.write(data)
                with self.subTest(name):
                    self.ok(self.ringest("cp", path, "gs://copies/" + name))
                    self.assertTrue(self.load("copies", name)[1] == data)
                    self.ok(self.ringest("cp", "gs://copies/" + name, path + "-back"))
                    with open(path + "-back", "rb") as file:
                        self.assertTrue(file.read() == data)

    def test_stat(self):
        if not knows("stat"):
            self.skipTest("the program has no stat")
        self.make_bucket("told")
        stored = self.store("told", "a b", SMALL)
        told = json.loads(self.ok(self.ringest("stat", "gs://told/a b", "--json")))
        self.assertEqual(
            (told["name"], told["size"], str(told["generation"])), ("a b", len(SMALL), str(stored["generation"]))
        )
        self.fails(self.ringest("stat", "gs://told/a c"), FAILED, "404")

    def test_rm(self):
        if not knows("rm"):
            self.skipTest("the program has no rm")
        self.make_bucket("removed")
        self.store("removed", "a b", SMALL)
        self.store("removed", "c", SMALL)
        self.ok(self.ringest("rm", "gs://removed/a b", "gs://removed/c"))
        self.assertEqual(self.load("removed", "a b")[0], 404)
        self.assertEqual(self.load("removed", "c")[0], 404)

    def test_rm_of_a_tree(self):
        self.make_bucket("trees")
        for name in ("a", "b/c", "b/d"):
            self.store("trees", name, SMALL)
        report = json.loads(self.ok(self.ringest("rm", "-r", "gs://trees/b", "--json")))
        self.assertEqual(report, {"found": 2, "removed": 2, "failed": 0})
        self.assertEqual([item["name"] for item in self.listed("gs://trees/", "--recursive")["objects"]], ["a"])
