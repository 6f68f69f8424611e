"""Every option that a command's --help names is in its man page and in the completion of each shell, and
the other way round."""

import os
import pathlib
import re
import shutil
import subprocess
import tempfile
import unittest

from support import PROGRAM, Case, Emulator, Terminal, environment, ringest

ROOT = pathlib.Path(os.environ["RINGEST_TESTS"]).parent
COMMANDS = re.findall(r"^  (\w+) ", ringest("--help").stdout.decode(), re.MULTILINE)
COMMON = {
    "--endpoint",
    "--ca",
    "--credentials",
    "--proxy",
    "--threads",
    "--memory",
    "--numa",
    "--option",
    "--log",
    "--log-file",
    "--quiet",
}


def helped(command):
    """The long options in --help, without what the text says about others."""
    text = ringest(command, "--help").stdout.decode()
    return set(re.findall(r"^  (?:-\w, )?(--[\w-]+)", text, re.MULTILINE))


def own_options(command):
    """Those that are not common, or have another meaning there."""
    return helped(command) - {"emulate": set(), "signurl": COMMON - {"--option"}}.get(command, COMMON)


def short_options(command):
    """Those that are not common."""
    text = ringest(command, "--help").stdout.decode()
    found = dict(re.findall(r"^  -(\w), --([\w-]+)", text, re.MULTILINE))
    return {letter: option for letter, option in found.items() if "--" + option not in COMMON}


def manual(name):
    text = (ROOT / "docs/man" / (name + ".1")).read_text()
    return set(re.findall(r"^\.It .*?Fl (?:\w , )?(-[\w-]+)", text, re.MULTILINE)), text


def completed(command, line):
    """What bash offers behind the words of a line."""
    words = " ".join(f"'{word}'" for word in line)
    script = f"""
        . '{ROOT}/cli/completion/ringest.bash'
        COMP_WORDS=(ringest {command} {words}); COMP_CWORD={len(line) + 1}
        _ringest
        printf '%s\\n' "${{COMPREPLY[@]}}" """
    return set(subprocess.run(["bash", "-c", script], capture_output=True, check=True, text=True).stdout.split())


ZSHRC = """
PS1='READY>' PROMPT_EOL_MARK= HISTFILE=
fpath=('{ROOT}/cli/completion' $fpath)
autoload -Uz compinit && compinit -D -u
compadd() {{
    local -a offered
    builtin compadd -O offered "$@"
    ((${{#offered}})) && print -rl -- $offered >>'{folder}/found'
    builtin compadd "$@"
}}
complete_and_tell() {{
    zle complete-word
    print -rl -- "$BUFFER" "" >>'{folder}/found'
    BUFFER=
    print -n TOLD >&2
}}
zle -N complete_and_tell && bindkey '^I' complete_and_tell
"""
FISH = """
source '{ROOT}/cli/completion/ringest.fish'
function timeout
    command $argv[2..]
end
complete -C $argv[1] | string replace -r '\\t.*' '' || true
"""


class Docs(Case):
    def put_odd_names(self, server):
        for name in ("run/1", "run/2", "run*", "read me", "$(exit)", "bell\x07", "d/a=1/x", "d/a=2", "d/b:c@e"):
            server.put("bucket", name, b"x")

    def test_there_are_commands(self):
        self.assertIn("cp", COMMANDS)
        self.assertGreaterEqual(len(COMMANDS), 9)
        for command in COMMANDS:
            self.assertGreater(len(helped(command)), 2, command)

    def test_each_manual_page_has_the_options(self):
        common = {"-" + option for option in manual("ringest")[0]}
        self.assertEqual(common & COMMON, COMMON)
        for command in COMMANDS:
            with self.subTest(command):
                found, text = manual("ringest-" + command)
                own = own_options(command)
                self.assertEqual({"-" + option for option in found}, own)
                for option in own:
                    self.assertIn("Fl -" + option[2:], text.split(".Sh DESCRIPTION")[0], "synopsis")
                for letter, option in short_options(command).items():
                    self.assertIn(f".It Fl {letter} , -{option}", text)

    def test_the_main_manual_page_names_the_commands(self):
        text = manual("ringest")[1]
        for command in COMMANDS:
            self.assertIn(f".It Xr ringest-{command} 1\n", text)

    @unittest.skipUnless(shutil.which("bash"), "no bash")
    def test_bash(self):
        self.assertEqual(completed("''", []), set(COMMANDS) | {"--help", "--version"})
        for command in COMMANDS:
            with self.subTest(command):
                self.assertEqual(completed(command, ["--"]), helped(command) | {"--help"})
        self.assertEqual(completed("cp", ["--method", "re"]), {"resumable"})

    @unittest.skipUnless(shutil.which("bash"), "no bash")
    def test_objects_in_bash(self):
        """By the program itself; nothing is offered where there is no server."""
        with Emulator("--plain") as server, tempfile.TemporaryDirectory() as folder:
            self.put_odd_names(server)
            tool = pathlib.Path(folder, "ringest")
            tool.symlink_to(PROGRAM)
            for typed, offered in (
                ("gs://bucket/", ["d/", "run/", r"\$\(exit\)", r"read\ me", r"run\*"]),
                (r"gs://bucket/read\ m", [r"read\ me"]),
                ("gs://bucket/run/", ["run/1", "run/2"]),
                (r"gs://bucket/run\*", [r"run\*"]),
                ("gs://bucket/d/a=", ["d/a=1/", "d/a=2"]),
                ("gs://bucket/d/a=1", ["d/a=1/"]),
                ("gs://bucket/d/b:c@", ["d/b:c@e"]),
                ("gs://bucket/none", []),
                ("gs://other/", []),
            ):
                # As it is where bash does not cut words, and as it cuts them; what it cuts off is not offered.
                for words in ([typed], re.findall("[:=@]|[^:=@]+", typed)):
                    last = words[-1] if words[-1] not in ":=@" else ""
                    before = len(typed) - len(last)
                    wanted = [("gs://bucket/" + name)[before:] for name in offered]
                    line = " ".join(f"'{word}'" for word in words)
                    script = f"""
                        . '{ROOT}/cli/completion/ringest.bash'
                        timeout() {{ shift; "$@"; }}
                        COMP_WORDS=('{tool}' cat {line}); COMP_CWORD={len(words) + 1}
                        _ringest
                        printf '%s\\n' "${{COMPREPLY[@]}}" """
                    done = subprocess.run(
                        ["bash", "-c", script],
                        capture_output=True,
                        check=True,
                        text=True,
                        env=environment(STORAGE_EMULATOR_HOST=server.endpoint),
                    )
                    self.assertEqual([line for line in done.stdout.splitlines() if line], wanted, words)
                    self.assertEqual(done.stderr, "")

    def offered_by_zsh(self, server, folder, lines):
        """What zsh offers when TAB is pressed behind each line, and what then stands there."""
        pathlib.Path(folder, ".zshrc").write_text(ZSHRC.format(ROOT=ROOT, folder=folder))
        terminal = Terminal()
        shell = subprocess.Popen(
            ["zsh", "-i"],
            stdin=terminal.far,
            stdout=terminal.far,
            stderr=terminal.far,
            start_new_session=True,
            env=environment(ZDOTDIR=folder, STORAGE_EMULATOR_HOST=server.endpoint, TERM="dumb"),
        )
        terminal.read_until(b"READY>", 1)
        for line in lines:
            # What is typed ahead is lost where zsh rings the bell.
            terminal.write((line + "\t").encode())
            terminal.read_until(b"TOLD", 1)
        terminal.write(b"exit\n")
        terminal.read()
        self.assertEqual(shell.wait(), 0)
        found = pathlib.Path(folder, "found").read_text().split("\n\n")[:-1]
        return [(sorted(offered), line) for *offered, line in (each.split("\n") for each in found)]

    @unittest.skipUnless(shutil.which("zsh"), "no zsh")
    def test_objects_in_zsh(self):
        """In a terminal, as users have it."""
        with Emulator("--plain") as server, tempfile.TemporaryDirectory() as folder:
            self.put_odd_names(server)
            pathlib.Path(folder, "ringest").symlink_to(PROGRAM)
            tool = f"{folder}/ringest"
            rows = (
                (f"{tool} cat gs://bucket/", ["$(exit)", "d/", "read me", "run*", "run/"], None),
                (rf"{tool} cat gs://bucket/read\ m", ["read me"], rf"{tool} cat gs://bucket/read\ me "),
                (f"{tool} cp /etc/hosts gs://bucket/run/", ["1", "2"], None),
                (f"{tool} rm gs://bucket/d/b:", ["b:c@e"], f"{tool} rm gs://bucket/d/b:c@e "),
                (f"{tool} du gs://bucket/d/a=1", ["a=1/"], f"{tool} du gs://bucket/d/a=1/"),
                (f"{tool} ckpt ls gs://bucket/none", [], f"{tool} ckpt ls gs://bucket/none"),
                (f"{tool} cat gs://other/", [], f"{tool} cat gs://other/"),
            )
            found = self.offered_by_zsh(server, folder, [typed for typed, _, _ in rows])
            for (typed, offered, completed_to), (names, line) in zip(rows, found, strict=True):
                self.assertEqual((typed, names), (typed, offered))
                self.assertEqual(line, completed_to or typed)

    @unittest.skipUnless(shutil.which("fish"), "no fish")
    def test_objects_in_fish(self):
        with Emulator("--plain") as server, tempfile.TemporaryDirectory() as folder:
            self.put_odd_names(server)
            pathlib.Path(folder, "ringest").symlink_to(PROGRAM)
            for typed, offered in (
                ("cat gs://bucket/", ["$(exit)", "d/", "read me", "run*", "run/"]),
                (r"cat gs://bucket/read\ m", ["read me"]),
                ("cp /etc/hosts gs://bucket/run/", ["run/1", "run/2"]),
                ("rm gs://bucket/d/b:", ["d/b:c@e"]),
                ("du gs://bucket/d/a=", ["d/a=1/", "d/a=2"]),
                ("ckpt ls gs://bucket/none", []),
                ("cat gs://other/", []),
            ):
                with self.subTest(typed):
                    done = subprocess.run(
                        ["fish", "--no-config", "-c", FISH.format(ROOT=ROOT), f"ringest {typed}"],
                        capture_output=True,
                        text=True,
                        env=environment(
                            HOME=folder,
                            STORAGE_EMULATOR_HOST=server.endpoint,
                            PATH=f"{folder}:{os.environ['PATH']}",
                        ),
                    )
                    self.assertEqual((done.returncode, done.stderr), (0, ""))
                    wanted = sorted("gs://bucket/" + name for name in offered)
                    self.assertEqual(sorted(done.stdout.splitlines()), wanted)

    def test_zsh(self):
        text = (ROOT / "cli/completion/_ringest").read_text()
        common = set(re.findall(r"(--[\w-]+)", text.split("common=(")[1].split("\n    )")[0]))
        self.assertEqual(common, COMMON | {"--help"})
        for command in COMMANDS:
            with self.subTest(command):
                block = text.split(f"\n    {command})\n")[1].split(";;")[0]
                found = set(re.findall(r"(--[\w-]+)['\[}]", block)) | (common if "$common" in block else set())
                self.assertEqual(found, helped(command) | {"--help"})
                self.assertIn(f"'{command}:", text)
                for letter, option in short_options(command).items():
                    self.assertIn(f"{{-{letter},--{option}}}", block)

    def test_fish(self):
        text = (ROOT / "cli/completion/ringest.fish").read_text()
        for command in COMMANDS:
            with self.subTest(command):
                lines = re.findall(rf"seen_subcommand_from {command}'(.*)", text)
                found = {"--" + option for line in lines for option in re.findall(r" -l ([\w-]+)", line)}
                self.assertEqual(found, helped(command) | {"--help"})
                self.assertIn(f"-a {command} ", text)
                for letter, option in short_options(command).items():
                    self.assertTrue(any(f" -s {letter} -l {option}" in line for line in lines))


if __name__ == "__main__":
    unittest.main()
