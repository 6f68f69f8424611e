"""Draws what the program shows on a terminal, as SVG.

    pictures.py PROGRAM FOLDER

Each picture is the program itself, in a pseudo-terminal of fixed size, against the emulator. Figures in them are those of
the machine; names and sizes are the same each time."""

import contextlib
import fcntl
import io
import itertools
import json
import os
import pty
import re
import select
import struct
import subprocess
import sys
import tempfile
import termios
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pyte
from rich.console import CONSOLE_SVG_FORMAT, Console
from rich.style import Style
from rich.terminal_theme import DIMMED_MONOKAI
from rich.text import Text

COLUMNS = 100
PATIENCE = 60.0  # seconds that a scene has for what it waits for
SERVED = ["--synthetic", "train/:2000:100KiB", "--synthetic", "validation/:500:20KiB", "--latency-ms", "40"]

Program = str
Environment = dict[str, str]
Until = Callable[[str], bool]


@contextlib.contextmanager
def emulator(program: Program, *options: str) -> Iterator[Environment]:
    """The environment of what uses it."""
    with subprocess.Popen([program, "emulate", *options], stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            ready = json.loads(process.stdout.readline())
            kept = {name: value for name, value in os.environ.items() if not name.startswith(("RINGEST_", "GOOGLE_"))}
            yield kept | {
                "STORAGE_EMULATOR_HOST": ready["endpoint"],
                "SSL_CERT_FILE": ready["ca"],
                "TERM": "xterm-256color",
            }
        finally:
            process.terminate()


def shown(
    command: list[str], environment: Environment, folder: str, size: tuple[int, int], until: Until
) -> pyte.Screen:
    """The screen when `until` says so of its text, or when the command has ended."""
    columns, rows = size
    screen = pyte.Screen(columns, rows)
    stream = pyte.ByteStream(screen)
    child, master = pty.fork()
    if child == 0:
        os.chdir(folder)
        time.sleep(0.2)  # until the size is set
        os.execvpe(command[0], command, environment)
    try:
        fcntl.ioctl(master, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
        end = time.monotonic() + PATIENCE
        while not until("\n".join(screen.display)):
            if time.monotonic() > end:
                raise SystemExit(
                    f"{' '.join(command)}: what is to be drawn did not come:\n" + "\n".join(screen.display)
                )
            if select.select([master], [], [], 1.0)[0]:
                try:
                    stream.feed(os.read(master, 65536))
                except OSError:  # it has ended
                    break
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.kill(child, 15)
        os.waitpid(child, 0)
        os.close(master)
    return screen


def _color(name: str) -> str | None:
    if name == "default":
        return None
    name = {"brown": "yellow"}.get(name, name).replace("bright", "bright_").replace("bright_brown", "bright_yellow")
    return f"#{name}" if re.fullmatch("[0-9a-f]{6}", name) else name


def draw(name: str, typed: str, screen: pyte.Screen, folder: Path) -> None:
    """The command as it was typed, and the screen below it."""
    text = Text().append("$ ", style="bold green").append(typed, style="bold default")
    for row in range(screen.lines):
        line = Text("\n")
        cells = [screen.buffer[row][column] for column in range(screen.columns)]
        for style, run in itertools.groupby(cells, lambda cell: cell._replace(data="")):
            looks = Style(color=_color(style.fg), bgcolor=_color(style.bg), bold=style.bold, reverse=style.reverse)
            line.append("".join(cell.data for cell in run), looks)
        line.rstrip()
        text.append(line)
    text.rstrip()
    console = Console(
        record=True, width=screen.columns, file=io.StringIO(), force_terminal=True, color_system="truecolor"
    )
    console.print(text, no_wrap=True, overflow="ignore", crop=False)
    # A font of the machine: pictures fetch nothing.
    frame = re.sub(r"@font-face \{\{.*?\}\}\s*", "", CONSOLE_SVG_FORMAT, flags=re.DOTALL)
    frame = frame.replace("Fira Code, monospace", "ui-monospace, DejaVu Sans Mono, Menlo, Consolas, monospace")
    svg = console.export_svg(title="", theme=DIMMED_MONOKAI, code_format=frame, unique_id=name)
    (folder / f"{name}.svg").write_text("\n".join(line.rstrip() for line in svg.splitlines()) + "\n", encoding="utf-8")
    print(f"{folder / name}.svg")


def progress(program: Program, folder: Path) -> None:
    """A copy at two thirds of its way."""
    with emulator(program, *SERVED, "--conn-mbps", "8") as environment, tempfile.TemporaryDirectory() as place:
        until = lambda text: any(3 * int(done) > 2 * int(all) for done, all in re.findall(r"(\d+)/(\d+) ", text))
        screen = shown([program, "cp", "-r", "gs://train", "copy"], environment, place, (COLUMNS, 3), until)
    draw("cp", "ringest cp -r gs://train copy", screen, folder)


def doctor(program: Program, folder: Path) -> None:
    """All of what it says."""
    with emulator(program, *SERVED) as environment, tempfile.TemporaryDirectory() as place:
        screen = shown([program, "doctor"], environment, place, (116, 40), lambda text: False)
    draw("doctor", "ringest doctor", screen, folder)


def listing(program: Program, folder: Path) -> None:
    """The first names of a bucket."""
    with emulator(program, *SERVED) as environment, tempfile.TemporaryDirectory() as place:
        command = ["sh", "-c", f"{program} ls -l gs://train/ | head -n 6"]
        screen = shown(command, environment, place, (COLUMNS, 8), lambda text: False)
    draw("ls", "ringest ls -l gs://train/ | head -n 6", screen, folder)


def live(program: Program, folder: Path) -> None:
    """Two processes, some seconds after their start; not those that the user has besides."""
    with emulator(program, *SERVED) as environment, tempfile.TemporaryDirectory(dir="/dev/shm") as place:
        environment["RINGEST_SHARING"] = place
        benches = [
            subprocess.Popen(
                [program, "bench", "get", f"gs://{bucket}/", "--concurrency", str(count), "--seconds", "60"],
                env=environment,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
            )
            for bucket, count in (("train", 96), ("validation", 8))
        ]
        started = time.monotonic()
        until = lambda text: time.monotonic() - started > 5 and "train" in text and "validation" in text
        try:
            screen = shown([program, "top"], environment, place, (108, 6), until)
        finally:
            for bench in benches:
                bench.terminate()
                bench.wait()
    draw("top", "ringest top", screen, folder)


def main(program: Program, folder: str) -> None:
    Path(folder).mkdir(exist_ok=True)
    for picture in (listing, progress, doctor, live):
        picture(program, Path(folder))


if __name__ == "__main__":
    main(*sys.argv[1:])
