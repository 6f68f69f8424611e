"""What the program says about itself, and of wrong usage."""

import unittest

from support import USAGE, Case, environment, ringest

CONNECTION = (
    "--endpoint",
    "--ca",
    "--credentials",
    "--threads",
    "--memory",
    "--numa",
    "--option",
    "--log",
    "--log-file",
    "--quiet",
    "--help",
)
OPTIONS = {
    "ls": CONNECTION
    + ("--long", "--recursive", "--versions", "--glob", "--json", "--hex", "--human-readable", "--literal"),
    "stat": CONNECTION + ("--json", "--hex", "--literal"),
    "du": CONNECTION + ("--summarize", "--human-readable", "--total", "--versions", "--literal", "--json"),
    "hash": CONNECTION + ("--hex", "--literal", "--json"),
    "cp": CONNECTION
    + ("--recursive", "--no-clobber", "--dry-run", "--if-generation-match", "--content-type", "--method")
    + (
        "--part-size",
        "--concurrency",
        "--follow-symlinks",
        "--cache-control",
        "--content-encoding",
        "--custom-metadata",
        "--storage-class",
        "--include",
        "--exclude",
        "--literal",
        "--json",
    ),
    "mv": CONNECTION
    + ("--no-clobber", "--dry-run", "--content-type", "--storage-class", "--concurrency")
    + ("--include", "--exclude", "--literal", "--json"),
    "rsync": CONNECTION
    + ("--recursive", "--delete", "--dry-run", "--content-type", "--storage-class", "--concurrency")
    + ("--follow-symlinks",)
    + ("--include", "--exclude", "--json"),
    "signurl": ("--duration", "--method", "--content-type", "--credentials", "--endpoint"),
    "rm": CONNECTION + ("--recursive", "--dry-run", "--if-generation-match", "--literal", "--json"),
    "manifest": CONNECTION + ("--long", "--json"),
    "tar": CONNECTION + ("--long", "--json"),
    "cache": CONNECTION + ("--manifest", "--concurrency", "--remove", "--to", "--json"),
    "ckpt": CONNECTION + ("--json",),
    "cat": CONNECTION + ("--range", "--literal"),
    "bench": CONNECTION
    + ("--concurrency", "--count", "--seconds", "--warm-up", "--rate", "--arrival", "--ramp", "--interval")
    + ("--processes", "--rounds", "--object-size", "--keep", "--verify", "--json", "--result"),
    "emulate": (
        "--listen",
        "--root",
        "--synthetic",
        "--bucket",
        "--strict-buckets",
        "--plain",
        "--tls-dir",
        "--latency-ms",
        "--conn-mbps",
        "--rate-limit",
        "--threads",
        "--help",
    ),
    "doctor": CONNECTION + ("--bucket", "--online", "--json"),
    "top": ("--interval", "--once", "--json"),
    "explain": ("--steps", "--seconds", "--interval", "--once", "--json"),
}
PLACE = ("--endpoint", "http://127.0.0.1:9")


class Usage(Case):
    def test_help_of_each_command_names_its_options(self):
        for command, options in OPTIONS.items():
            with self.subTest(command):
                text = self.ok(ringest(command, "--help")).decode()
                self.assertIn(f"Usage: ringest {command} ", text)
                for option in options:
                    if option != "--help":
                        self.assertIn(option, text)
                self.assertLessEqual(max(map(len, text.splitlines())), 100)

    def test_help_names_each_command(self):
        for arguments in (["--help"], ["-h"], ["help"]):
            text = self.ok(ringest(*arguments)).decode()
            for command in OPTIONS:
                self.assertIn(f"  {command} ", text)

    def test_help_of_a_command_in_each_way(self):
        for command in OPTIONS:
            text = self.ok(ringest(command, "--help"))
            self.assertEqual(self.ok(ringest("help", command)), text)
            if command != "ls":
                self.assertEqual(self.ok(ringest(command, "-h")), text)
        self.fails(ringest("help", "fetch"), USAGE, '"fetch"')

    def test_what_was_meant(self):
        for typed, meant in (
            (("lss",), "did you mean ls?"),
            (("docter",), "did you mean doctor?"),
            (("sync", "a", "b"), "did you mean rsync?"),
            (("move",), "did you mean mv?"),
            (("cp", "--recusrive"), "did you mean --recursive?"),
            (("cp", "--content=text/plain"), ""),
            (("ls", "--jsn=1"), "--jsn; did you mean --json?"),
            (("emulate", "--latency"), ""),
            (("storage", "ls", "gs://bucket"), 'no command "storage"; did you mean `ringest ls`? See `ringest '),
            (("gsutil", "copy"), 'no command "gsutil"; did you mean `ringest cp`?'),
            (("gsutil", "-m", "cp"), 'no command "gsutil"; its commands are `ringest ls` and so on'),
            (("storage",), 'no command "storage"; its commands'),
            (("rsync", "-d", "a", "gs://bucket"), "no option -d; did you mean --delete? See `ringest rsync --help`"),
            (("rsync", "-rd", "a", "gs://bucket"), "no option -d; did you mean --delete?"),
            (("ls", "-L", "gs://bucket/o"), "no option -L; did you mean `ringest stat`"),
            (("ls", "--full", "gs://bucket/o"), "no option --full; did you mean `ringest stat`"),
            (("stat", "--format=json"), "no option --format; did you mean --json?"),
            (("cp", "-m", "a", "gs://bucket"), "no option -m; many requests are always made at once"),
            (("cat", "-r", "0-5", "gs://bucket/o"), "no option -r; did you mean --range?"),
            (("du", "--billing-project", "p"), "did you mean --option user_project=PROJECT?"),
        ):
            with self.subTest(typed):
                self.fails(ringest(*typed), USAGE, meant)

    def test_version(self):
        self.assertRegex(self.ok(ringest("--version")).decode(), r"^ringest \d+\.\d+\.\d+\n$")

    def test_no_command_shows_the_usage(self):
        done = ringest()
        self.assertEqual((done.returncode, done.stdout), (USAGE, b""))
        self.assertIn("Usage: ringest COMMAND", done.stderr)

    def test_unknown_command(self):
        self.fails(ringest("fetch"), USAGE, '"fetch"')

    def test_unknown_option(self):
        for command in OPTIONS:
            with self.subTest(command):
                done = ringest(command, "--no-such-option")
                self.assertEqual(done.stdout, b"")
                self.fails(done, USAGE, f"ringest: {command}: there is no option --no-such-option")
        self.fails(ringest("ls", "-lx", "gs://bucket/"), USAGE, "there is no option -x")

    def test_option_without_its_value(self):
        self.fails(ringest("cat", "gs://bucket/name", "--endpoint"), USAGE, "--endpoint needs a value")

    def test_value_of_an_option_without_one(self):
        self.fails(ringest("ls", "gs://bucket/", "--json=x"), USAGE, '"--json=x"', "no value")

    def test_missing_arguments(self):
        for arguments in (["ls"], ["cat"], ["bench"], ["bench", "get"], ["bench", "get", "gs://b/p", "x"]):
            with self.subTest(arguments):
                self.fails(ringest(*arguments), USAGE)

    def test_too_many_arguments(self):
        for arguments in (["emulate", "x"], ["doctor", "x"], ["manifest", "show", "a", "b"]):
            with self.subTest(arguments):
                self.fails(ringest(*arguments), USAGE)

    def test_bad_places(self):
        for uri in ("bucket/name", "s3://bucket/name", "gs://", "gs://a/b", "gs:///name", "GS://bucket/x", ""):
            for command in ("ls", "cat"):
                with self.subTest((command, uri)):
                    self.fails(ringest(command, uri, *PLACE), USAGE, uri)

    def test_too_long_names(self):
        self.fails(ringest("cat", "gs://bucket/" + 1025 * "n", *PLACE), USAGE, "1024")
        self.fails(ringest("ls", "gs://" + 300 * "b" + "/", *PLACE), USAGE, "222")

    def test_cat_of_a_bucket(self):
        for uri in ("gs://bucket", "gs://bucket/"):
            self.fails(ringest("cat", uri, *PLACE), USAGE, uri)

    def test_bad_numbers(self):
        bad = {
            "--concurrency": ("0", "-1", "x", "", "1e3", "99999999999999999999", " 5"),
            "--count": ("0", "-1", "1.5"),
            "--seconds": ("0", "-1", "x", "nan", "inf", ""),
            "--object-size": ("-1", "x", "10Q", "99999T", "1KiBx", ""),
            "--threads": ("0", "257", "x"),
        }
        for option, values in bad.items():
            for value in values:
                with self.subTest((option, value)):
                    done = ringest("bench", "put", "gs://bucket/p", f"{option}={value}", *PLACE)
                    self.fails(done, USAGE, option, f'"{value}"')

    def test_sizes_are_told_as_sizes(self):
        for size in ("1", "6G"):
            done = ringest("cp", "file", "gs://bucket/o", f"--part-size={size}", *PLACE)
            self.fails(done, USAGE, "--part-size", f'"{size}"', "5.0 MiB", "5.0 GiB")

    def test_a_content_type_that_no_field_can_have(self):
        done = ringest("cp", "file", "gs://bucket/o", "--content-type=text/x\nX-Other: y", *PLACE)
        self.fails(done, USAGE, "--content-type", "text/x?X-Other")

    def test_bad_ranges(self):
        for text in ("", "5", "-5", "9-3", "a-b", "1-2-3", "1-2x", "0x1-5", "99999999999999999999-"):
            with self.subTest(text):
                self.fails(ringest("cat", "gs://bucket/o", f"--range={text}", *PLACE), USAGE, "--range")

    def test_bad_bench_operation(self):
        self.fails(ringest("bench", "delete", "gs://bucket/p", *PLACE), USAGE, '"delete"')

    def test_count_and_seconds_exclude_each_other(self):
        done = ringest("bench", "get", "gs://bucket/p", "--count=1", "--seconds=1", *PLACE)
        self.fails(done, USAGE, "--count", "--seconds")

    def test_bad_endpoint(self):
        for text in ("ftp://host", "https://", "https://host:99999", "http://user:secret@host", "http://ho st"):
            with self.subTest(text):
                done = ringest("ls", "gs://bucket/", "--endpoint", text)
                self.fails(done, 1, "endpoint")
                self.assertNotIn("secret", done.stderr)

    def test_options_by_name(self):
        for text, words in (
            ("colour=red", ('no option "colour"',)),
            ("attempts", ("--option needs NAME=VALUE", '"attempts"')),
            ("=5", ("--option needs NAME=VALUE",)),
            ("attempts=0", ("attempts must be 1 to 1000, got 0",)),
            ("stall_timeout=soon", ("stall_timeout must be a number of seconds", '"soon"')),
        ):
            with self.subTest(text):
                self.fails(ringest("cat", "gs://bucket/o", "--option", text, *PLACE), USAGE, *words)
        done = ringest("cat", "gs://bucket/o", *PLACE, env=environment(RINGEST_RAMP="google"))
        self.fails(done, USAGE, 'RINGEST_RAMP must be one of none, gcs, got "google"')
        # One attempt, where eight would take seconds; the named option comes first, and --option before the environment.
        done = ringest(
            *("cat", "gs://bucket/o", *PLACE, "--option=attempts=1", "--option=endpoint=http://127.0.0.1:2"),
            env=environment(RINGEST_ATTEMPTS="1000", RINGEST_BACKOFF_MIN="100", RINGEST_BACKOFF_MAX="1000"),
        )
        self.fails(done, 1, "127.0.0.1:9")


if __name__ == "__main__":
    unittest.main()
