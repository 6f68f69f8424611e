"""Docstrings as Markdown: they are prose for help(), in which NAME: begins what is said of a parameter."""

import re
from typing import Any

import griffe

_CODE = re.compile(r"(`[^`]*`)")


def _escaped(text: str) -> str:
    """What Markdown would take for emphasis or HTML, outside of what is between backticks."""
    parts = _CODE.split(text)
    return "".join(
        part if number % 2 else part.replace("*", r"\*").replace("<", "&lt;") for number, part in enumerate(parts)
    )


def _of_parameters(paragraph: str, names: list[str]) -> str:
    """A paragraph as a list, if it is about parameters."""
    if not names:
        return paragraph
    name = "|".join(sorted(map(re.escape, names), key=len, reverse=True))
    entry = re.compile(rf"(?:^|(?<=[.;)]) )`?((?:{name})(?:=[^\s:]+)?(?:, (?:{name})(?:=[^\s:]+)?)*)`?: ")
    found = list(entry.finditer(paragraph))
    if not found:
        return paragraph
    text = paragraph[: found[0].start()].strip()
    ends = [match.start() for match in found[1:]] + [len(paragraph)]
    for match, end in zip(found, ends, strict=True):
        text += f"\n\n- `{match[1]}`: " + paragraph[match.end() : end].strip()
    return text.strip()


def markdown(text: str, names: list[str]) -> str:
    """A docstring as Markdown."""
    done = []
    for block in re.split(r"\n\s*\n", text):
        if block.startswith("    ") or re.match(r"[-*|] ", block):
            done.append(block)  # code, a list, a table
            continue
        # A line that ends in a colon stands above a list.
        title, _, rest = block.partition("\n")
        lines = [title, rest] if re.fullmatch(r"[^.:]{1,60}:", title) and rest else [block]
        done += [_of_parameters(_escaped(" ".join(line.split())), names) for line in lines]
    return "\n\n".join(done)


class Docstrings(griffe.Extension):
    """Changes those of what is collected, each once."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        if obj.docstring is None:
            return
        names: list[str] = []
        if isinstance(obj, griffe.Function):
            names = [parameter.name for parameter in obj.parameters]
        elif isinstance(obj, griffe.Class) and isinstance(init := obj.members.get("__init__"), griffe.Function):
            names = [parameter.name for parameter in init.parameters]
        obj.docstring.value = markdown(obj.docstring.value, names)
