"""What a Client is made with: every option of the library can be given, and is refused where it is wrong."""

import math
import os
import pickle
import re
import unittest
from pathlib import Path

import ringest
import support
from ringest import _core

ROOT = Path(__file__).resolve().parents[2]
# Of the library, what is no setting of a Client: the size is the extension's, lines go to `logging`, and which worker of
# a loader this is the loader says.
OTHERS = {"struct_size", "log_level", "worker", "workers"}


def options_of(header, name):
    """The fields of a struct of options."""
    text = re.sub(r"/\*.*?\*/", "", (ROOT / "include/ringest" / header).read_text(), flags=re.DOTALL)
    body = re.search(rf"struct {name} \{{(.*?)\n\}};", text, re.DOTALL)[1]
    return {field for line in body.split(";") for field in re.findall(r"(\w+)\s*(?:,|$)", line.strip())}


class Settings(unittest.TestCase):
    def test_every_option_of_the_library_can_be_given(self):
        table = (ROOT / "runtime/option.c").read_text()
        rows = table[table.index("rows[] = {") : table.index("static_assert")]
        given = set(re.findall(r"IN_(?:CLIENT|RUNTIME)\((\w+)\)", rows))
        given |= set(re.findall(r'(?:TEXT|SECONDS)\("\w+", (\w+)\)', rows))
        wanted = options_of("gcs.h", "rg_client_options") | options_of("runtime.h", "rg_runtime_options")
        self.assertGreater(len(wanted), 35)
        self.assertEqual(given, wanted - OTHERS)
        names = set(re.findall(r'^    (?:\{|TEXT\(|SECONDS\()"(\w+)", ', rows, re.MULTILINE))
        self.assertEqual(len(names), len(given))
        settings = set(ringest.Client("http://localhost:1")._settings) | {"token"}
        self.assertEqual(names, settings - {"memory_timeout"})

    def test_the_environment_gives_what_is_not_given(self):
        with support.emulator() as (endpoint, ca):
            os.environ.update(RINGEST_CA=str(ca), RINGEST_ATTEMPTS="1", RINGEST_MEMORY="64M", RINGEST_HEDGING="0")
            try:
                with ringest.Client(endpoint) as made:
                    self.assertEqual(len(made.get(support.uri(1))), support.SIZE)
                    self.assertEqual((made.stats()["memory_max"], made.memory), (64 << 20, 64 << 20))
                with ringest.Client(endpoint, memory="32M") as made:
                    self.assertEqual(len(made.get(support.uri(1))), support.SIZE)
                    self.assertEqual((made.stats()["memory_max"], made.memory), (32 << 20, 32 << 20))
                self.assertRaises(FileNotFoundError, ringest.Client(endpoint, "nowhere.pem").get, support.uri(1))
            finally:
                for name in ("CA", "ATTEMPTS", "MEMORY", "HEDGING"):
                    del os.environ[f"RINGEST_{name}"]

    def test_a_wrong_variable_is_named(self):
        for name, value in (("STALL_TIMEOUT", "soon"), ("ATTEMPTS", "0"), ("RAMP", "google"), ("THREADS", "many")):
            with self.subTest(name):
                os.environ[f"RINGEST_{name}"] = value
                try:
                    self.refused(ValueError, f"RINGEST_{name} must be ", endpoint="http://localhost:1")
                finally:
                    del os.environ[f"RINGEST_{name}"]

    def test_they_reach_the_library(self):
        with support.emulator() as (endpoint, ca):
            with support.faults(endpoint, ca, {"storage.objects.get": ["return-503"]}) as left:
                header = os.environ.pop("RINGEST_HEADERS")
                try:
                    name, _, value = header.partition(": ")
                    one = ringest.Client(endpoint, Path(ca), headers={name: value}, attempts=1, backend="epoll")
                    with one:
                        self.assertRaises(ringest.UnavailableError, one.get, support.uri(1))
                        self.assertEqual(one.stats()["backend"], "epoll")
                finally:
                    os.environ["RINGEST_HEADERS"] = header
                self.assertTrue(left()["completed"])
            port = endpoint.rpartition(":")[2]
            elsewhere = f"https://localhost:{int(port) % 65535 + 1}"
            with ringest.Client(elsewhere, ca, connect_to=f"localhost:{port}", stall_timeout=math.inf) as made:
                self.assertEqual(len(made.get(support.uri(1))), support.SIZE)
            with ringest.Client(endpoint, ca, proxy="http://localhost:1", attempts=1) as made:
                self.assertRaises(ringest.UnavailableError, made.get, support.uri(1))

    def test_credentials_that_an_emulator_does_not_get_are_told_of_once(self):
        before = os.environ.get("STORAGE_EMULATOR_HOST")
        os.environ["STORAGE_EMULATOR_HOST"] = "localhost:1"
        try:
            with self.assertLogs("ringest", "WARNING") as told:
                for credentials in (Path("mine.json"), "mine.json", "anonymous", None):
                    ringest.Client(credentials=credentials).close()
                ringest.Client("http://localhost:1", credentials="other.json").close()
        finally:
            del os.environ["STORAGE_EMULATOR_HOST"]
            if before is not None:
                os.environ["STORAGE_EMULATOR_HOST"] = before
        self.assertEqual(len(told.records), 1, told.output)
        self.assertIn("credentials='mine.json' is not used: STORAGE_EMULATOR_HOST is set", told.output[0])

    def test_they_are_pickled_but_for_the_token(self):
        options = {"hedging": False, "headers": {"x-a": "b"}, "connect_timeout": 5.5, "ca": Path("ca.pem")}
        headers = dict(options["headers"])
        made = ringest.Client("http://localhost:1", token="secret", **{**options, "headers": headers})
        headers["x-a"] = "changed"
        data = pickle.dumps(made)
        self.assertNotIn(b"secret", data)
        self.assertEqual(pickle.loads(data)._settings, made._settings)
        self.assertEqual({name: made._settings[name] for name in options}, options)

    def refused(self, kind, text, **options):
        with self.subTest(options), self.assertRaises(kind) as raised:
            ringest.Client(**options)
        self.assertIn(text, str(raised.exception))

    def test_what_is_wrong_is_refused_at_once(self):
        self.refused(ValueError, "or HOST:PORT, got 'ftp://x'", endpoint="ftp://x")
        self.refused(ValueError, "HOST:PORT, got 'https://host/storage/v1'", endpoint="https://host/storage/v1")
        self.refused(ValueError, "HOST:PORT, got ''", endpoint="")
        self.refused(ValueError, 'backend must be one of auto, uring, epoll, got "kqueue"', backend="kqueue")
        self.refused(ValueError, "numa must be one of auto, compact, spread, none, got 5", numa=5)
        self.refused(
            ValueError, "local_rank is 2, not below local_world_size, which is 2", local_rank=2, local_world_size=2
        )
        self.refused(ValueError, "local_rank is 1, not below local_world_size, which is 0", local_rank=1)
        self.refused(TypeError, "hedging must be True or False, got 'no'", hedging="no")
        self.refused(TypeError, "proxy must be a str or None, got 5", proxy=5)
        for headers in (5, "a: b", [("a", "b")], {"a": 5}, {5: "a"}):
            self.refused(TypeError, "headers must be a dict of str", headers=headers)
        self.refused(TypeError, "user_agent must be a str or None, got 5", user_agent=5)
        for file in ("ca", "credentials", "client_cert", "client_key"):
            self.refused(TypeError, f"{file} must be a path or None, got 5", **{file: 5})
        self.refused(ValueError, "headers has 'a'", headers={"a": "b\nc: d"})
        self.refused(ValueError, "headers has 'a b'", headers={"a b": "c"})
        self.refused(ValueError, "client_cert and client_key belong together", client_cert="x")
        self.refused(ValueError, "hedges_per_1000 must be 1 to 1000, got 1001", hedges_per_1000=1001)
        self.refused(ValueError, "backoff_min is 2 s, above backoff_max, which is 1 s", backoff_min=2, backoff_max=1)
        self.refused(ValueError, "backoff_min is 31 s, above backoff_max, which is 30 s by default", backoff_min=31)
        self.refused(
            ValueError, "backoff_max is 0.05 s, below backoff_min, which is 0.1 s by default", backoff_max=0.05
        )
        for nothing in ("attempts", "connections", "requests", "threads", "hedges_per_1000", "job_processes"):
            self.refused(ValueError, f"{nothing} must be 1 to ", **{nothing: 0})
        self.refused(ValueError, 'attempts must be 1 to 1000, got "-1"', attempts=-1)
        self.refused(TypeError, "attempts must be a whole number, got 1.5", attempts=1.5)
        self.refused(TypeError, "attempts must be a whole number, got True", attempts=True)
        self.refused(ValueError, 'ramp must be one of none, gcs, got "google"', ramp="google")
        self.refused(ValueError, "memory must be at least 8 MiB, such as 100000000 or 64MiB, got 0", memory=0)
        self.refused(ValueError, "memory must be at least 8 MiB, such as 100000000 or 64MiB, got 4", memory=4)
        self.refused(ValueError, "connect_timeout must be a number of seconds above 0", connect_timeout=-1)
        self.refused(ValueError, "connect_timeout must be a number of seconds above 0", connect_timeout=0)
        self.refused(ValueError, "connect_timeout must be 1e-09 to 1e+09 seconds, or", connect_timeout=1e-10)
        self.refused(ValueError, "connect_timeout must be 1e-09 to 1e+09 seconds, or", connect_timeout=2e9)
        self.refused(ValueError, "connect_timeout must be at most 1e+09 seconds, or", connect_timeout=10**400)
        self.refused(ValueError, "memory_timeout must be at most 1e+09 seconds, or", memory_timeout=10**5000)
        self.refused(ValueError, "idle_timeout must be a number of seconds above 0", idle_timeout=math.nan)
        self.refused(ValueError, "memory_timeout must be 0 to 1e+09 seconds", memory_timeout=-1)
        self.refused(TypeError, "stall_timeout must be a number of seconds, got '5'", stall_timeout="5")
        self.refused(ValueError, "hedge_size must be a size such as 64MiB, got 'much'", hedge_size="much")

    def test_secrets_are_not_repeated(self):
        for options in ({"endpoint": "ftp://me:secret@host"}, {"token": "secret\0"}):
            with self.subTest(options), self.assertRaises(ValueError) as raised:
                ringest.Client(**options)
            self.assertNotIn("secret", str(raised.exception))

    def test_the_extension_knows_no_others(self):
        with self.assertRaisesRegex(TypeError, "a Client has no setting 'colour'"):
            _core.Client(colour="red")
        with self.assertRaisesRegex(TypeError, "given by keyword"):
            _core.Client("http://localhost:1")


if __name__ == "__main__":
    unittest.main()
