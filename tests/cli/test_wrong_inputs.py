"""Wrong inputs, and what is said about each: the object, the cause, and what to do. Whole lines, so that a
change of words is seen."""

import os
import pathlib
import subprocess
import tempfile
import unittest

from support import DONE, FAILED, PROGRAM, USAGE, ServedCase, closed_port, environment, refuse_uring, ringest

HINT = "; see `ringest {0} --help`"


class WrongInputs(ServedCase):
    emulator_arguments = ("--synthetic", "made/o:5:10KiB")

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.server.put("mine", "folder/object", b"x")
        cls.server.put("mine", "object", b"123456789")

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        os.chdir(self.folder)
        self.addCleanup(os.chdir, "/")
        (self.folder / "file").write_bytes(b"x")
        (self.folder / "dir").mkdir()
        (self.folder / "dir/f").write_bytes(b"x")

    def check(self, command, status, text, **options):
        """`text` is the whole message without "ringest: COMMAND: "; the server's address is AT in it."""
        words = command.split()
        done = self.ringest(*words, **options)
        hint = HINT.format(words[0]) if status == USAGE else ""
        said = done.stderr.replace(self.server.endpoint, "AT")
        self.assertEqual((done.returncode, said), (status, f"ringest: {words[0]}: {text}{hint}\n"), command)

    def test_a_guess_is_one_sentence_and_the_hint_another(self):
        for words, text in (
            (("ls", "--recrusive"), "ls: there is no option --recrusive; did you mean --recursive? See `ringest ls "),
            (
                ("ls", "gs://mine", "--option", "stal_timeout=3"),
                'ls: --option: there is no option "stal_timeout" of the client; did you mean stall_timeout? See `ringest ls ',
            ),
            (("copy",), 'there is no command "copy"; did you mean cp? See `ringest '),
            (("-m", "cp"), 'the command comes first, and its options behind it, got "-m"; see `ringest '),
        ):
            done = ringest(*words)
            self.assertEqual((done.returncode, done.stderr), (USAGE, f"ringest: {text}--help`\n"))

    def test_a_wrong_variable_is_one_line(self):
        for name, rule in (("BACKEND", "one of auto, uring, epoll"), ("THREADS", "1 to 256")):
            text = f'RINGEST_{name} must be {rule}, got "odd"'
            self.check("ls gs://mine", USAGE, text, env=environment(**{f"RINGEST_{name}": "odd"}))

    def test_metadata_that_cannot_be_sent(self):
        """The name of the object is not blamed for them."""
        for option, text in (
            ("--custom-metadata=ä=b", 'keys of --custom-metadata have letters, digits, "-", "_" and ".", got "ä"'),
            ("--custom-metadata=a/b=c", 'keys of --custom-metadata have letters, digits, "-", "_" and ".", got "a/b"'),
            ("--custom-metadata=a=" + 9000 * "x", "--custom-metadata has at most 8192 bytes, got 9002"),
        ):
            self.check(f"cp file gs://mine/x {option}", USAGE, text)
        for option in ("--cache-control= a", "--content-type=a ", "--custom-metadata=k= a"):
            done = self.ringest("cp", "file", "gs://mine/x", option)
            self.fails(done, USAGE, "must not begin or end with a space", option.split("=")[0])

    def test_n_of_rsync(self):
        """With --delete it would remove what others say of it that it only shows."""
        text = (
            "-n is --dry-run of rsync and gsutil, and --no-clobber of gcloud; write --dry-run, or copy with `cp -r -n`"
        )
        self.check("rsync -r -n --delete dir gs://mine/folder", USAGE, text)
        self.assertEqual(self.ok(self.ringest("cat", "gs://mine/folder/object")), b"x")

    def test_versions_are_no_names(self):
        """As others write them, and `ls -a` shows them."""
        name = self.ok(self.ringest("ls", "-a", "gs://mine/object")).decode().strip()
        self.assertRegex(name, r"#\d{10,}$")
        for command in (("cat", name), ("stat", name), ("rm", name), ("cp", name, "x"), ("cp", name, "gs://mine/x")):
            self.fails(self.ringest(*command), FAILED, '"#" and what follows is taken for a part of the name')
        self.ok(self.ringest("stat", "gs://mine/object"))

    def test_a_bucket_that_cannot_be(self):
        text = 'gs://MINE/x: not a valid name: UTF-8 of at most 1024 bytes without line breaks, and not "." or ".."; buckets '
        self.check("cp file gs://MINE/x", FAILED, text + 'have small letters, digits, "-", "_" and "."')

    def test_wildcards_that_match_nothing(self):
        for command in ("rm", "cat", "ls", "stat"):
            text = 'nothing in gs://mine is matched by "none*"; --literal takes it as a name'
            self.check(f"{command} gs://mine/none*", FAILED, text)

    def test_output_that_cannot_be_written(self):
        for words in (("help",), ("--version",), ("ls", "--help"), ("rm", "-r", "--dry-run", "gs://mine")):
            with open("/dev/full", "wb") as full:
                place = self.server.place if words[0] == "rm" else ()
                done = ringest(*words, *place, stdout=full)
            self.assertEqual(done.returncode, FAILED, words)
            self.assertIn("standard output: No space left on device", done.stderr)

    def test_closed_descriptors_are_given_to_nothing_else(self):
        """Messages would be written into files and connections."""
        for close, errors in ((1, b"ringest: cat: standard output: Bad file descriptor\n"), (2, b"")):
            done = subprocess.run(
                [PROGRAM, "cat", "gs://mine/object", *self.server.place],
                env=environment(),
                capture_output=True,
                preexec_fn=lambda close=close: os.close(close),
            )
            self.assertEqual((done.returncode, done.stderr), (FAILED if close == 1 else DONE, errors))

    def test_a_reader_that_is_gone_is_not_talked_about(self):
        self.server.put("deep", "o", b"x")
        for words in (("rm", "-r", "--dry-run", "gs://deep"), ("doctor",)):
            reader, writer = os.pipe()
            os.close(reader)
            done = self.ringest(*words, stdout=writer)
            os.close(writer)
            self.assertEqual(done.returncode, FAILED, words)
            self.assertNotIn("standard output", done.stderr)
            self.assertNotIn("would be removed", done.stderr)

    def test_command_lines(self):
        for command, text in (
            ("ls mine", 'needs gs://BUCKET/NAME, got "mine"'),
            ("ls s3://mine/", 'needs gs://BUCKET/NAME, got "s3://mine/"'),
            ("ls gs://ab/", 'the name of a bucket has 3 to 222 characters, got "gs://ab/"'),
            (
                "ls",
                "needs a bucket to list, gs://BUCKET/PREFIX; `gcloud storage ls` shows which buckets a project has",
            ),
            (
                "ls gs://",
                "needs a bucket to list, gs://BUCKET/PREFIX; `gcloud storage ls` shows which buckets a project has",
            ),
            ("ls --limit 5 gs://mine", "there is no option --limit"),
            (
                "ls gs://mine --option odd=3",
                '--option: there is no option "odd" of the client; `man ringest` lists them',
            ),
            (
                "rm --if-generation-match x gs://mine/o",
                '--if-generation-match must be a whole number of at least 0, got "x"',
            ),
            (
                "cache prune dir --to x",
                '--to must be a size of at least 0 B (such as 100000, 100K or 64MiB), got "x"',
            ),
            ("cat gs://mine", 'needs an object, gs://BUCKET/OBJECT, got the bucket "gs://mine"'),
            (
                "cat gs://mine/object --range 5-2",
                '--range must be A-B or A- with A <= B, both included, got "5-2"',
            ),
            ("stat", "needs an object, gs://BUCKET/OBJECT"),
            ("cp file", "needs a source and a destination"),
            ("cp file other", 'the source or the destination must be gs://BUCKET/NAME, got "file" and "other"'),
            (
                "cp - gs://mine/",
                'the destination of standard input must be an object, gs://BUCKET/OBJECT, got "gs://mine/"',
            ),
            (
                "cp file gs://mine/x --method fast",
                '--method must be auto, single, resumable, multipart or compose, got "fast"',
            ),
            (
                "cp file gs://mine/x --part-size 1K",
                '--part-size must be a size from 5.0 MiB to 5.0 GiB (such as 100000, 100K or 64MiB), got "1K"',
            ),
            (
                "cp gs://mine/object x --content-type text/x",
                '--content-type is for objects that are written; "x" is a file',
            ),
            ("rm gs://mine", 'needs an object, got the bucket "gs://mine"; -r removes everything in it'),
            (
                "rm gs://mine --unfinished --older-than 5x",
                '--older-than must be a number with s, m, h or d (such as 12h), got "5x"',
            ),
            (
                "bench del gs://mine/",
                'the operation must be get, put, list, run, presets, compare or report, got "del"',
            ),
            ("bench get gs://mine/ --keep", "--keep is for put: get writes nothing"),
            ("bench get gs://mine/ --object-size 1M", "--object-size is for put: get takes objects as they are"),
            ("bench get gs://mine/ --count 0", '--count must be a number from 1 to 1000000000, got "0"'),
            ("ls gs://mine --threads x", '--threads must be a number from 1 to 256, got "x"'),
            ("ckpt prune gs://mine/", "prune needs --keep-last N"),
            ("doctor now", 'unexpected argument "now"'),
        ):
            with self.subTest(command):
                self.check(command, USAGE, text)

    def test_what_is_not_there(self):
        for command, text in (
            ("ls gs://mine/zz", 'nothing in gs://mine begins with "zz"'),
            ("rm -r gs://mine/zz", "gs://mine/zz: no such object, and nothing below it"),
            ("cp -r gs://mine/zz dir", "gs://mine/zz: no such object, and nothing below it"),
            ("cp gs://mine/folder/ dir", "gs://mine/folder/: is a folder; copy it with -r"),
            ("cp gs://mine dir", "gs://mine: is a bucket; copy it with -r"),
            ("cp dir gs://mine/", "dir: is a folder; copy it with -r"),
            ("cp absent gs://mine/", "absent: No such file or directory"),
            (
                "cp /dev/null gs://mine/",
                "/dev/null: not a regular file; read it as standard input: `cp - ... </dev/null`",
            ),
            (
                "cp gs://mine/object /dev/null",
                "/dev/null: not a regular file; write to it as standard output: `cp ... - >/dev/null`",
            ),
            ("tar index gs://mine/ index", "gs://mine/: no object whose name ends in .tar"),
            (
                "rm gs://mine/absent",
                "gs://mine/absent: no such object or bucket (HTTP 404): No such object: mine/absent",
            ),
            ("rm gs://mine/folder", "gs://mine/folder: no such object, but a folder; -r removes what is in it"),
            ("rm gs://mine/folder/", "gs://mine/folder/: no such object, but a folder; -r removes what is in it"),
            (
                "cat gs://mine/folder",
                "gs://mine/folder: no such object, but a folder; `ringest ls gs://mine/folder/` lists it",
            ),
            (
                "stat gs://mine/folder/",
                "gs://mine/folder/: no such object, but a folder; `ringest ls gs://mine/folder/` lists it",
            ),
            (
                "stat gs://mine/absent",
                "stat gs://mine/absent at AT: no such object or bucket (HTTP 404): No such object: mine/absent",
            ),
            ("cp gs://mine/folder dir", "gs://mine/folder: is a folder; copy it with -r"),
        ):
            with self.subTest(command):
                self.check(command, FAILED, text)

    def test_what_is_named_twice_is_removed_once(self):
        def removed(*words):
            for name in ("a/1", "a/b/2", "ab"):
                self.server.put("twice", name, b"x")
            done = self.ringest("rm", *words)
            self.assertEqual((done.returncode, done.stderr), (DONE, ""), words)
            return int(done.summary.split()[0])

        for places, count in (
            (("a", "a"), 2),
            (("a/", "a"), 2),
            (("a", "a/b", "a/b/2"), 2),
            (("a/b", "a/1", "a/b", "ab"), 3),
            (("a", ""), 3),
            (("", ""), 3),
        ):
            self.assertEqual(removed("-r", *(f"gs://twice/{place}" for place in places)), count, places)
        self.assertEqual(removed("gs://twice/ab", "gs://twice/ab", "gs://twice/a/1"), 2)

    def test_a_dry_run_of_standard_input_is_counted(self):
        done = self.ringest("cp", "--dry-run", "-", "gs://mine/x")
        self.assertEqual(
            (done.stdout, done.summary),
            (b"would copy - to gs://mine/x\n", "dry run: 1 would be copied (0 B), 0 skipped, 0 failed\n"),
        )

    def test_no_ring(self):
        done = self.ringest("ls", "gs://mine", env=environment(RINGEST_BACKEND="uring"), preexec_fn=refuse_uring)
        self.fails(
            done, FAILED, "ls: RINGEST_BACKEND is uring, and io_uring is forbidden here", "unset it, and epoll is"
        )
        done = ringest("emulate", env=environment(RINGEST_BACKEND="uring"), preexec_fn=refuse_uring)
        self.fails(done, FAILED, "emulate: cannot start", "io_uring is forbidden here; unset RINGEST_BACKEND")

    def test_servers(self):
        port = closed_port()
        done = ringest("ls", "gs://mine/", "--endpoint", f"http://127.0.0.1:{port}")
        self.fails(done, FAILED, f"http://127.0.0.1:{port}", "Connection refused")
        done = ringest("ls", "gs://mine/", "--endpoint", self.server.endpoint, "--ca", "absent.pem")
        self.fails(done, FAILED, "absent.pem", "No such file")


if __name__ == "__main__":
    unittest.main()
