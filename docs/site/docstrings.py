"""Docstrings as Markdown: they are prose for help(), in which NAME: begins what is said of a parameter."""

import ast
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


def _put_together(obj: griffe.Class) -> griffe.Docstring | None:
    """Of a class that makes its own of texts and those of other classes, which have been changed before."""
    made = obj.members.get("__doc__")
    if not isinstance(made, griffe.Attribute) or made.value is None:
        return None
    texts = []
    for node in ast.walk(ast.parse(str(made.value), mode="eval")):
        if isinstance(node, ast.Constant) and node.value:
            texts.append(str(node.value).strip())
        elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            other = obj.module.members[node.value.id]
            texts.append(other.docstring.value if other.docstring else "")
    return griffe.Docstring("\n\n".join(texts), parent=obj)


class Docstrings(griffe.Extension):
    """Changes those of what is collected, each once, and leaves out what classes keep without a word about it."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        if isinstance(obj, griffe.Class):
            made = _put_together(obj)
            for name, member in list(obj.members.items()):
                if isinstance(member, griffe.Attribute) and member.docstring is None and member.annotation is None:
                    obj.del_member(name)
            if made is not None:
                obj.docstring = made
                return
        if obj.docstring is None:
            return
        names: list[str] = []
        if isinstance(obj, griffe.Function):
            names = [parameter.name for parameter in obj.parameters]
        elif isinstance(obj, griffe.Class) and isinstance(init := obj.members.get("__init__"), griffe.Function):
            names = [parameter.name for parameter in init.parameters]
        obj.docstring.value = markdown(obj.docstring.value, names)
