"""`ringest doctor`: what it finds here, and what it says when something is in the way."""

import json
import platform
import resource
import socket
import tempfile
import unittest

from support import DONE, FAILED, ServedCase, closed_port, environment, refuse_uring, ringest


def checks(done):
    return {check["name"]: check for check in json.loads(done.stdout)["checks"]}


class Doctor(ServedCase):
    emulator_arguments = ("--synthetic", "made/p:1:10")

    def doctor(self, *arguments, **options):
        return self.ringest("doctor", "--json", *arguments, **options)

    def test_all_is_well(self):
        done = self.doctor()
        self.ok(done)
        self.assertTrue(json.loads(done.stdout)["ok"])
        found = checks(done)
        self.assertIn(platform.release(), found["kernel"]["fact"])
        for name in ("open files", "locked memory", "memory", "huge pages", "io_uring", "backend", "CPUs"):
            self.assertIn(found[name]["mark"], ("ok", "warn"), name)
        for name in ("event loops", "trust store", "endpoint"):
            self.assertEqual(found[name]["mark"], "ok", found[name])
        self.assertIn(self.server.endpoint, found["endpoint"]["fact"])

    def test_each_line_has_a_mark(self):
        lines = self.ok(self.ringest("doctor")).decode().splitlines()
        for line in lines[:-2]:
            self.assertRegex(line, r"^(ok  |skip|warn|FAIL)  \S|^ +-> \S")
        self.assertEqual(lines[-2], "")
        self.assertIn("all checks passed", lines[-1])

    def test_advice_for_what_is_wrong_and_only_for_that(self):
        for check in checks(self.doctor("--bucket", "no-such-bucket")).values():
            self.assertEqual(check["advice"] is not None, check["mark"] in ("warn", "FAIL"), check)

    def test_nothing_is_tried_without_being_asked(self):
        done = ringest("doctor", "--json")
        self.assertEqual(done.returncode, DONE)
        self.assertEqual(checks(done)["endpoint"]["mark"], "skip")
        self.assertIn("--online", checks(done)["endpoint"]["fact"])

    def test_the_proxy_is_named_without_its_credentials(self):
        self.assertEqual(checks(self.doctor())["proxy"]["fact"], "none")
        env = environment(HTTPS_PROXY="http://user:hidden@proxy.example:3128")
        done = ringest("doctor", "--json", env=env)
        self.assertEqual(checks(done)["proxy"]["fact"], "http://proxy.example:3128")
        self.assertIn("HTTPS_PROXY", checks(done))
        self.assertNotIn(b"hidden", done.stdout)
        done = ringest("doctor", "--json", "--proxy", "", env=env)
        self.assertEqual(checks(done)["proxy"]["fact"], "none, as --proxy says")
        self.assertNotIn(b"hidden", done.stdout)

    def test_a_proxy_that_is_not_there(self):
        port = closed_port()
        place = f"http://user:hidden@127.0.0.1:{port}"
        done = self.doctor("--proxy", place)
        found = checks(done)
        self.assertEqual(found["proxy"]["fact"], f"http://127.0.0.1:{port}, as --proxy says")
        self.assertEqual((done.returncode, found["endpoint"]["mark"]), (FAILED, "FAIL"))
        self.assertIn(f"the proxy http://127.0.0.1:{port}", found["endpoint"]["fact"])
        self.assertNotIn(b"hidden", done.stdout)
        for command in ("cat", "stat"):
            done = self.ringest(command, "gs://made/p00000000", "--proxy", place)
            self.fails(done, FAILED, f"the proxy http://127.0.0.1:{port}")
            self.assertNotIn("hidden", done.stderr)

    def test_a_proxy_that_is_malformed(self):
        for arguments, env, origin in (
            (("--proxy", "socks5://user:hidden@h:1"), environment(), "--proxy"),
            ((), environment(HTTPS_PROXY="socks5://user:hidden@h:1"), "environment"),
        ):
            done = ringest("doctor", "--json", *arguments, env=env)
            found = checks(done)
            self.assertEqual((done.returncode, found["proxy"]["mark"]), (FAILED, "FAIL"), found)
            self.assertIn("is not valid", found["proxy"]["fact"])
            self.assertIn(origin, found["proxy"]["advice"])
            self.assertEqual(found["trust store"]["mark"], "ok")
            self.assertNotIn(b"hidden", done.stdout)

    def test_credentials_of_a_file(self):
        with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
            user = {"type": "authorized_user", "client_id": "i", "client_secret": "hidden", "account": "a@b.example"}
            json.dump(user | {"refresh_token": "hidden"}, file)
            file.flush()
            env = environment(GOOGLE_APPLICATION_CREDENTIALS=file.name)
            done = ringest("doctor", "--json", env=env)
            found = checks(done)["credentials"]
            self.assertEqual((done.returncode, found["mark"]), (DONE, "ok"), found)
            self.assertIn(f"user a@b.example from {file.name}", found["fact"])
            self.assertNotIn(b"hidden", done.stdout)
            # An endpoint of the user's own gets none of it.
            self.assertIn("anonymous", checks(self.doctor(env=env))["credentials"]["fact"])

    def test_credentials_that_an_emulator_does_not_get(self):
        """Whoever names credentials hears that they are not used."""
        env = environment(STORAGE_EMULATOR_HOST=self.server.endpoint, SSL_CERT_FILE=self.server.ca)
        done = ringest("doctor", "--json", "--credentials", "/any/key.json", env=env)
        found = checks(done)["credentials"]
        self.assertEqual((done.returncode, found["mark"]), (DONE, "warn"))
        self.assertIn("/any/key.json is not used: STORAGE_EMULATOR_HOST is set", found["fact"])
        self.assertIn("--endpoint", found["advice"])
        done = ringest("ls", "gs://made/", "--credentials", "/any/key.json", env=env)
        self.fails(done, DONE, "note: --credentials /any/key.json is not used", "--endpoint")
        for arguments in (["--credentials", "anonymous"], ["-q", "--credentials", "/any/key.json"], []):
            self.ok(ringest("ls", "gs://made/", *arguments, env=env))

    def test_credentials_that_are_malformed(self):
        with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
            file.write('{"type": "authorized_user"}')
            file.flush()
            for arguments, env in (
                ((), environment(GOOGLE_APPLICATION_CREDENTIALS=file.name)),
                (("--credentials", file.name), environment()),
            ):
                done = ringest("doctor", "--json", *arguments, env=env)
                found = checks(done)["credentials"]
                self.assertEqual((done.returncode, found["mark"]), (FAILED, "FAIL"), found)
                self.assertIn(f'{file.name}: field "client_id" is missing', found["fact"])
                self.assertIn("--credentials", found["advice"])
                self.assertEqual(checks(done)["trust store"]["mark"], "ok")
            refused = self.ringest("cat", "--credentials", file.name, "gs://made/p00000000")
            self.assertEqual(refused.returncode, FAILED)
            self.assertEqual(refused.stderr.count("\n"), 1)
            self.assertIn('field "client_id" is missing', refused.stderr)

    def test_a_bucket(self):
        done = self.doctor("--bucket", "made")
        self.assertIn("gs://made", checks(done)["endpoint"]["fact"])
        self.assertEqual(done.returncode, DONE)

    def test_what_may_be_done_with_a_bucket(self):
        for bucket in ("made", "gs://made"):
            found = checks(self.doctor("--bucket", bucket))
            self.assertEqual(found["permissions"]["mark"], "ok")
            for word in ("read", "list", "create", "remove", "gs://made"):
                self.assertIn(word, found["permissions"]["fact"])

    def test_credentials(self):
        self.assertIn("anonymous", checks(self.doctor())["credentials"]["fact"])
        done = self.doctor("--credentials", "/nonexistent/key.json")
        self.assertEqual((done.returncode, checks(done)["credentials"]["mark"]), (FAILED, "FAIL"))
        self.assertIn("/nonexistent/key.json", checks(done)["credentials"]["fact"])
        env = environment(GOOGLE_APPLICATION_CREDENTIALS="/nonexistent/key.json")
        found = checks(ringest("doctor", "--json", env=env))
        self.assertEqual((found["credentials"]["mark"], found["trust store"]["mark"]), ("FAIL", "ok"))

    def test_a_missing_bucket(self):
        done = self.doctor("--bucket", "no-such-bucket")
        self.assertEqual((done.returncode, checks(done)["endpoint"]["mark"]), (FAILED, "FAIL"))
        self.assertIn("no-such-bucket", checks(done)["endpoint"]["fact"])

    def test_a_bucket_that_cannot_exist(self):
        done = self.doctor("--bucket", "UPPER")
        self.assertEqual((done.returncode, checks(done)["endpoint"]["mark"]), (FAILED, "FAIL"))

    def test_the_endpoint_from_the_environment(self):
        env = environment(STORAGE_EMULATOR_HOST=self.server.endpoint, SSL_CERT_FILE=self.server.ca)
        found = checks(ringest("doctor", "--json", env=env))
        self.assertEqual(found["endpoint"]["mark"], "ok")
        self.assertEqual(found["STORAGE_EMULATOR_HOST"]["fact"], self.server.endpoint)
        self.assertEqual(found["SSL_CERT_FILE"]["fact"], self.server.ca)

    def endpoint_of(self, *arguments):
        done = ringest("doctor", "--json", *arguments)
        self.assertEqual(done.returncode, FAILED)
        found = checks(done)["endpoint"]
        self.assertEqual(found["mark"], "FAIL")
        self.assertTrue(found["advice"])
        return found["fact"]

    def test_a_closed_port(self):
        self.assertIn("refused", self.endpoint_of("--endpoint", f"http://127.0.0.1:{closed_port()}"))

    def test_an_unknown_issuer(self):
        self.assertIn("certificate", self.endpoint_of("--endpoint", self.server.endpoint))

    def test_a_server_that_says_nothing(self):
        with socket.create_server(("127.0.0.1", 0)) as silent:
            port = silent.getsockname()[1]
            self.assertIn("127.0.0.1", self.endpoint_of("--endpoint", f"http://127.0.0.1:{port}"))

    def test_a_bucket_with_a_prefix(self):
        found = checks(self.doctor("--bucket", "gs://bucket/prefix"))["endpoint"]
        self.assertEqual((found["mark"], found["fact"]), ("FAIL", '"bucket/prefix" is no name of a bucket'))
        self.assertIn("without a prefix", found["advice"])

    def test_a_bad_endpoint(self):
        self.endpoint_of("--endpoint", "ftp://host")

    def test_a_trust_store_that_is_not_there(self):
        done = ringest("doctor", "--json", env=environment(SSL_CERT_FILE="/nonexistent/ca.pem"))
        self.assertEqual(done.returncode, FAILED)
        self.assertEqual(checks(done)["trust store"]["mark"], "FAIL")
        self.assertIn("/nonexistent/ca.pem", checks(done)["trust store"]["fact"])

    def test_variables_that_make_no_sense(self):
        names = ("BACKEND", "THREADS", "LOG", "STALL_TIMEOUT", "TOKEN", "SHARING")
        for name in [f"RINGEST_{name}" for name in names]:
            with self.subTest(name):
                done = self.doctor(env=environment(**{name: "nonsense"}))
                self.assertEqual(checks(done)[name]["mark"], "FAIL")
                self.assertEqual(done.returncode, FAILED)

    def test_headers_are_not_shown(self):
        done = self.doctor(env=environment(RINGEST_HEADERS="X-Secret: hidden"))
        self.assertIn("RINGEST_HEADERS", checks(done))
        self.assertNotIn(b"hidden", done.stdout)

    def test_threads(self):
        found = checks(self.doctor(env=environment(RINGEST_THREADS="2")))
        self.assertTrue(found["event loops"]["fact"].startswith("2"))
        found = checks(self.doctor("--threads", "3"))
        self.assertTrue(found["event loops"]["fact"].startswith("3"))

    def test_the_place_of_a_rank(self):
        found = checks(self.doctor(env=environment(LOCAL_RANK="1", LOCAL_WORLD_SIZE="2")))
        self.assertEqual(found["local rank"]["fact"], "1 of 2, as LOCAL_RANK says")
        self.assertRegex(found["loops on"]["fact"], "CPU")
        self.assertIn("share", found["CPUs"]["fact"])
        alone = checks(self.doctor())
        self.assertEqual(alone["local rank"]["fact"], "0 of 1: no launcher, such as torchrun or srun, says which")
        self.assertIn("all that this process may use", alone["CPUs"]["fact"])

    def test_why_there_is_no_rank(self):
        """What a launcher has set, or the program, is not said to be missing."""
        for set_, options, said in (
            ({"LOCAL_RANK": "1"}, (), "0 of 1: LOCAL_RANK is set, but not LOCAL_WORLD_SIZE"),
            ({"LOCAL_RANK": "2", "LOCAL_WORLD_SIZE": "2"}, (),
             "0 of 1: LOCAL_RANK and LOCAL_WORLD_SIZE do not go together, and are left aside"),
            ({"SLURM_LOCALID": "0", "SLURM_NTASKS_PER_NODE": "2"}, (),
             "0 of 1: SLURM_LOCALID is set, but not SLURM_STEP_NUM_TASKS"),
            ({"OMPI_COMM_WORLD_LOCAL_SIZE": "2"}, (),
             "0 of 1: OMPI_COMM_WORLD_LOCAL_SIZE is set, but not OMPI_COMM_WORLD_LOCAL_RANK"),
            ({}, ("--option", "local_world_size=1"), "0 of 1, as the program says"),
        ):  # fmt: skip
            with self.subTest(said):
                found = checks(self.doctor(*options, env=environment(**set_)))
                self.assertEqual(found["local rank"]["fact"], said)

    def test_a_place_that_cannot_be(self):
        done = self.doctor(env=environment(RINGEST_LOCAL_RANK="2", RINGEST_LOCAL_WORLD_SIZE="2"))
        self.assertEqual(done.returncode, FAILED)
        self.assertEqual(checks(done)["RINGEST_LOCAL_RANK"]["fact"], "2")
        self.assertIn("RINGEST_LOCAL_RANK=2 with RINGEST_LOCAL_WORLD_SIZE=2", done.stderr)
        self.assertEqual(checks(done)["event loops"]["mark"], "FAIL")

    def test_uring_that_is_forbidden(self):
        done = self.doctor(env=environment(RINGEST_BACKEND=None), preexec_fn=refuse_uring)
        found = checks(done)
        self.assertEqual((done.returncode, found["io_uring"]["mark"]), (DONE, "warn"))
        self.assertIn("forbidden", found["io_uring"]["fact"])
        self.assertIn("seccomp", found["io_uring"]["advice"])
        self.assertEqual(found["backend"]["fact"], "epoll")

    def test_uring_that_is_forbidden_but_demanded(self):
        done = self.doctor(env=environment(RINGEST_BACKEND="uring"), preexec_fn=refuse_uring)
        found = checks(done)
        self.assertEqual((done.returncode, found["io_uring"]["mark"]), (FAILED, "FAIL"))
        self.assertIn("RINGEST_BACKEND", found["io_uring"]["advice"])

    def test_epoll_that_was_asked_for(self):
        found = checks(self.doctor(env=environment(RINGEST_BACKEND="epoll")))
        self.assertTrue(found["backend"]["fact"].startswith("epoll"))

    def test_few_file_descriptors(self):
        done = self.doctor(preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (50, 50)))
        found = checks(done)["open files"]
        self.assertEqual((done.returncode, found["mark"]), (DONE, "warn"))
        self.assertEqual(found["fact"], "50, the most allowed")
        self.assertIn("ulimit -n", found["advice"])

    def test_file_descriptors_that_could_be_more(self):
        done = self.doctor(preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (50, 60)))
        self.assertEqual(checks(done)["open files"]["fact"], "50, could be raised to 60")

    def test_too_few_file_descriptors_to_start(self):
        done = self.doctor(preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (4, 4)))
        self.assertEqual(done.returncode, FAILED)
        self.assertFalse(json.loads(done.stdout)["ok"])

    def test_no_locked_memory(self):
        done = self.doctor(preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_MEMLOCK, (0, 0)))
        self.assertEqual(done.returncode, DONE)
        self.assertIn("0 B", checks(done)["locked memory"]["fact"])


if __name__ == "__main__":
    unittest.main()
