"""The log on standard error: by --log and by RINGEST_LOG."""

import pathlib
import re
import tempfile
import unittest

from support import DONE, FAILED, USAGE, Rule, ServedCase, environment

OBJECT = "gs://made/p00000000"
LINE = re.compile(r"\d{4}-\d\d-\d\dT[\d:.]+Z ringest (error|warn|info|debug) [a-z]+/[a-z_/0-9]+ \[\d+\] .+")


class Log(ServedCase):
    emulator_arguments = ("--synthetic", "made/p:10:1KiB")

    def log(self, done):
        """The lines of a run that succeeded; each is one of the log."""
        self.assertEqual(done.returncode, DONE, done.stderr)
        for line in done.stderr.splitlines():
            self.assertRegex(line, LINE)
        return done.stderr

    def test_nothing_is_logged_unless_asked(self):
        done = self.ringest("cat", OBJECT)
        self.assertEqual((done.returncode, done.stderr), (DONE, ""))

    def test_info_is_sparse_and_says_what_is_used(self):
        lines = self.log(self.ringest("cat", OBJECT, "--log", "info"))
        self.assertLess(lines.count("\n"), 6)
        self.assertIn("event loops by ", lines)
        self.assertIn(f"client of {self.server.endpoint}", lines)
        self.assertIn("credentials: anonymous", lines)
        self.assertRegex(lines, r"localhost: connection 0 to 127\.0\.0\.1 opened in .* ms: TLSv1\.3, TLS_\w+")

    def test_debug_follows_the_request(self):
        lines = self.log(self.ringest("cat", OBJECT, env=environment(RINGEST_LOG="debug")))
        for change in ("queued -> pool", "pool -> out", "out -> done"):
            self.assertIn(f"get {OBJECT}: {change}", lines)
        self.assertIn("connection 0 closed after ", lines)

    def test_retries_tell_their_cause(self):
        with Rule((self.server.endpoint, self.server.ca), times=1, effect="none", answer="failed", status=429):
            lines = self.log(self.ringest("cat", OBJECT, "--log=info"))
        self.assertRegex(lines, rf"get {OBJECT}: attempt 1 of 8 failed, the next in \d\.\d+ s: .*\(HTTP 429\)")
        self.assertIn("gs://made: reads of loop 0 are slowed down", lines)
        self.assertIn(f"get {OBJECT}: done after 2 attempts", lines)

    def test_a_listing_says_how_much_it_found(self):
        lines = self.log(self.ringest("ls", "gs://made/p", "--recursive", "--log", "info"))
        self.assertIn("list gs://made/p: 10 names in 1 pages", lines)

    def test_a_wrong_level_names_the_right_ones(self):
        words = ("verbose", "error, warn, info or debug")
        self.fails(self.ringest("cat", OBJECT, "--log", "verbose"), USAGE, "--log", *words)
        self.fails(self.ringest("cat", OBJECT, env=environment(RINGEST_LOG="verbose")), USAGE, "RINGEST_LOG", *words)

    def test_the_option_beats_the_environment(self):
        done = self.ringest("cat", OBJECT, "--log", "error", env=environment(RINGEST_LOG="nonsense"))
        self.assertEqual((done.returncode, done.stderr), (DONE, ""))

    def test_a_file(self):
        """Appended to it, with what is said on standard error, where errors stay."""
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder, "log")
            self.ok(self.ringest("cat", OBJECT, "--log-file", path))
            first = path.read_text()
            self.assertIn("info gcs/request/client [", first)
            self.assertNotIn(" debug ", first)
            self.fails(
                self.ringest("cat", "gs://made/none", "--log-file", path, "--log=debug"), FAILED, "gs://made/none"
            )
            both = path.read_text()
            self.assertTrue(both.startswith(first))
            self.assertIn(" debug ", both)
            self.assertRegex(both, r" said cat \[\d+\] .*gs://made/none")
            for line in both.splitlines():
                self.assertRegex(line.replace(" said cat ", " error cli/cat "), LINE)
            self.fails(self.ringest("cat", OBJECT, "--log-file", folder), USAGE, "--log-file", "Is a directory")

    def test_no_token_is_shown(self):
        headers = environment(RINGEST_HEADERS="Authorization: Bearer hidden", RINGEST_LOG="debug")
        done = self.ringest("cat", OBJECT, env=headers)
        self.assertNotIn("hidden", done.stderr)
        self.assertIn(done.returncode, (DONE, FAILED))


if __name__ == "__main__":
    unittest.main()
