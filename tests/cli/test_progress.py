"""What is seen while a command works and when it ends: the line on a terminal, the summary, and neither
with -q."""

import pathlib
import re
import subprocess
import tempfile
import unittest

from support import DONE, PATIENCE_S, PROGRAM, ServedCase, Terminal, environment

LINE = re.compile(
    r"(?:\[(?P<bar>#* *)\] )?(?P<done>\d+)(?:/(?P<total>\d+)\+?)?(?: [a-z]+)?"
    r"(?:, [\d.]+ \w+ of (?P<bytes>[\d.]+ \w+)\+?)?(?:, [\d.]+(?: \w+)?/s)?(?:, (?:[\d:]+(?: left)?|finishing))?"
)


class Progress(ServedCase):
    emulator_arguments = ("--synthetic", "made/o:400:100KiB", "--latency-ms", "20")
    buckets = ("bench", "sums", "ups")

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def see(self, columns, *arguments):
        """The lines that were drawn, and what is left on the terminal at the end."""
        terminal = Terminal(columns)
        done = subprocess.run(
            [PROGRAM, *map(str, arguments), *self.server.place],
            env=environment(TERM="xterm"),
            stdout=subprocess.PIPE,
            stderr=terminal.far,
            timeout=PATIENCE_S,
        )
        drawn = terminal.read()
        self.assertEqual(done.returncode, DONE, drawn)
        *lines, end = drawn.split("\r\x1b[K") if arguments[0] != "-q" else [drawn]
        pieces = [piece.split("\x1b")[0] for line in lines for piece in line.split("\r") if piece.split("\x1b")[0]]
        return pieces, end

    def check_lines(self, lines, columns):
        self.assertNotEqual(lines, [])
        for line in lines:
            self.assertLess(len(line), columns, line)
            found = LINE.fullmatch(line)
            self.assertTrue(found, line)
            if found["bar"] and int(found["done"]) < int(found["total"] or 0):
                self.assertIn(" ", found["bar"], "a full bar before the end")

    def test_lines_fit_terminals_of_80_and_of_200_columns(self):
        for columns in (80, 200):
            lines, end = self.see(columns, "cp", "-r", "--concurrency=8", "gs://made", self.folder / str(columns))
            self.check_lines(lines, columns)
            self.assertRegex(end, r"^400 copied, 0 skipped, 0 failed; 39\.1 MiB in [\d.]+ s, .*/s\r\n$")
            lines, _ = self.see(columns, "cp", "-r", self.folder / str(columns), "gs://ups/", "--concurrency=8")
            self.check_lines(lines, columns)
            lines, end = self.see(columns, "rm", "-r", "gs://ups/")
            self.check_lines(lines, columns)
            self.assertRegex(end, r"^400 removed, 0 failed in [\d.]+ s\r\n$")

    def test_benchmarks_show_what_they_do(self):
        for arguments in (
            ("get", "gs://made/", "--count=400", "--concurrency=8"),
            ("get", "gs://made/", "--seconds=0.5"),
            ("put", "gs://bench/", "--count=100", "--concurrency=8"),
            ("list", "gs://made/"),
        ):
            with self.subTest(arguments):
                lines, end = self.see(80, "bench", *arguments)
                self.check_lines([line for line in lines if not line.endswith("objects listed")], 80)
                self.assertEqual(end, "")

    def test_lines_of_the_log_do_not_mix_with_the_progress(self):
        terminal = Terminal(80)
        program = subprocess.Popen(
            [PROGRAM, "cp", "-r", "--log=debug", "--concurrency=8", "gs://made", self.folder, *self.server.place],
            env=environment(TERM="xterm"),
            stdout=subprocess.DEVNULL,
            stderr=terminal.far,
        )
        seen = terminal.read()
        self.assertEqual(program.wait(PATIENCE_S), DONE, seen)
        self.assertIn(" files", seen)
        for line in seen.split("\r\n"):
            if " ringest debug " in line:
                self.assertRegex(line.split("\r")[-1], r"^(\x1b\[K)?\d{4}-\d\d-\d\dT")

    def test_quiet_is_quiet(self):
        for arguments in (
            ("cp", "-rq", "gs://made", self.folder / "d"),
            ("rm", "-q", "-r", "gs://made-not-here/", "--dry-run"),
            ("bench", "get", "gs://made/", "--quiet"),
        ):
            if "gs://made-not-here/" in arguments:
                self.server.put("made-not-here", "o", b"x")
            lines, end = self.see(80, *arguments)
            self.assertEqual((lines, end), ([], ""), arguments)

    def test_a_summary_off_a_terminal(self):
        path = self.folder / "f"
        path.write_bytes(b"12345")
        for arguments, summary in (
            (("cp", path, "gs://sums/a"), r"1 copied, 0 skipped, 0 failed; 5 B in [\d.]+ s, .*/s"),
            (("cp", path, "gs://sums/a"), r"0 copied, 1 skipped, 0 failed in [\d.]+ s"),
            (("cp", "--dry-run", path, "gs://sums/b"), r"dry run: 1 would be copied \(5 B\), 0 skipped, 0 failed"),
            (("manifest", "save", "gs://sums/", self.folder / "m"), rf"1 object saved to {self.folder}/m"),
            (("rm", "-r", "--dry-run", "gs://sums/"), r"dry run: 1 would be removed"),
            (("rm", "gs://sums/a"), r"1 removed, 0 failed in [\d.]+ s"),
        ):
            done = self.ringest(*map(str, arguments))
            self.ok(done)
            self.assertRegex(done.summary, f"^{summary}\n$")
            if arguments[0] == "rm":
                self.server.put("sums", "a", b"12345")
            self.assertEqual(self.ok(self.ringest(*map(str, arguments), "-q")), done.stdout)
            self.assertEqual(self.ringest(*map(str, arguments), "-q").summary, "")


if __name__ == "__main__":
    unittest.main()
