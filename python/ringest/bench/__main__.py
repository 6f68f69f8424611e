"""The command line. Each command is a module of this package of the same name, imported when it is asked for, with

def add_arguments(parser: argparse.ArgumentParser) -> None
def main(options: argparse.Namespace) -> int    # an exit status
"""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import os
import sys

from ringest.bench import figures
from ringest.bench.result import ResultError

# Exit statuses as those of the program ringest: what was asked for is wrong, or failed.
FAILED, USAGE, INTERRUPTED = 1, 2, 130
COMMANDS = {
    "run": "measure a workload of a preset",
    "presets": "what presets there are, and what they do",
    "compare": "measure clients of others beside ringest's",
    "report": "show a result as Markdown and as a page, or compare two results",
}


def _parser(wanted: str | None) -> argparse.ArgumentParser:
    """With the arguments of the command that is wanted; those of others need no import."""
    parser = argparse.ArgumentParser(prog="ringest bench", description="Measures object storage for machine learning.")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    for name, summary in COMMANDS.items():
        if importlib.util.find_spec(f"ringest.bench.{name}") is None:
            continue
        command = commands.add_parser(name, help=summary, description=summary[0].upper() + summary[1:] + ".")
        if name == wanted:
            importlib.import_module(f"ringest.bench.{name}").add_arguments(command)
    return parser


def main(arguments: list[str]) -> int:
    options = _parser(next((each for each in arguments if not each.startswith("-")), None)).parse_args(arguments)
    try:
        return importlib.import_module(f"ringest.bench.{options.command}").main(options)
    except ResultError as error:
        print(f"ringest bench {options.command}: {figures.line(error)}", file=sys.stderr)
        return USAGE
    except ImportError as error:
        # What an optional package is needed for says so itself.
        print(f"ringest bench {options.command}: {error}", file=sys.stderr)
        return FAILED


def _main_to_its_end() -> int:
    """As the program ringest ends: a reader that went away, such as head, is no reason for a message, and Ctrl-C is no
    reason for a traceback."""
    try:
        status = main(sys.argv[1:])
        sys.stdout.flush()
        return status
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return FAILED
    except KeyboardInterrupt:
        print("ringest: bench: interrupted", file=sys.stderr)
        return INTERRUPTED


if __name__ == "__main__":
    sys.exit(_main_to_its_end())
