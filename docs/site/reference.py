"""Pages of reference, in Markdown: one of each installed header, manual page and module of Python.

A header is shown in its order, as it is written to be read: each comment as text, and below it what it is about."""

import ast
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
HEADERS = ROOT / "include" / "ringest"
MANUALS = ROOT / "docs" / "man"

# Pages of Python, and what is on each: names of `ringest`, or whole modules.
PYTHON = {
    "client": ["Client", "default_client", "Item", "Buffer", "Objects", "metrics", "Metric", "stats", "trace"],
    "datasets": [
        "IterableDataset", "MapDataset", "TarDataset", "TarMapDataset", "TarIndex", "ParquetDataset", "SKIP",
        "TransformError", "gather_state", "to_device", "DeviceBatches", "webdataset",
    ],
    "errors": [
        "Error", "NotFoundError", "PermissionDeniedError", "PreconditionError", "ChecksumError", "UnavailableError",
        "ListError",
    ],
    "checkpoint": ["checkpoint"],
    "dcp": ["dcp"],
    "safetensors": ["safetensors"],
    "retention": ["retention"],
    "fs": ["fs"],
    "lightning": ["lightning"],
    "torchdata": ["torchdata"],
    "torch_checkpointing": ["torch_checkpointing"],
    "ray": ["ray"],
    "dlio": ["dlio"],
    "dataflux": ["dataflux", *(f"dataflux.dataflux_{each}" for each in ("mapstyle_dataset", "iterable_dataset", "checkpoint"))],
    "prometheus": ["prometheus"],
    "opentelemetry": ["opentelemetry"],
    "tensorboard": ["tensorboard"],
}  # fmt: skip
_TITLES = {"client": "Client", "datasets": "Datasets", "errors": "Errors"}

_NOISE = re.compile(r"#(ifndef|endif|include|ifdef|else)\b|#define RINGEST_\w+_H$|RG_DECLS_(BEGIN|END)$|extern \"C\"")
_NAMES = re.compile(
    r"^#define (RG_\w+)"
    r"|^(?:enum|struct) (rg_\w+)(?: \{|;)"
    r"|^typedef [^;]*?\(\*(rg_\w+)\)"
    r"|^(?!#|typedef|struct \w+ \{|enum \w+ \{)\w[^;{(]*?\b(rg_\w+)\(",
    re.MULTILINE,
)
# What programs call, in place of macros and inline functions, and of what only these call.
_CALLED = (
    (r"^#define RG_(?:INIT|SUBMIT|SUBMIT_ITEMS|OPEN)\((?:.*\\\n)*.*\n?", ""),
    (r"^RG_INIT\((\w+)\)", r"void \1_init(struct \1 *options);"),
    (
        r"^RG_SUBMIT(?:_ITEMS)?\((\w+), (\w+)(?:, \w+)?\)",
        r"int rg_submit_\1(struct rg_client *client, struct rg_cq *cq, const struct \2 *request);",
    ),
    (
        r"^RG_OPEN\((\w+)\)",
        r"int \1_open(struct \1 **out, struct rg_client *client, const struct \1_options *options);",
    ),
    (r"^RG_API [^;]*?_sized\([^;]*;\n", ""),
    (r"^static inline ([^{;]*?)\n\{\n(?:.*\n)*?\}", r"\1;"),
    (r"^RG_API ", ""),
)
_COMMENT = re.compile(r"/\*(.*?)\*/", re.DOTALL)
_SYMBOL = re.compile(r"(?<![`\w])(rg_\w*\w(?:\(\))?|RG_\w*\w|-E[A-Z]{2,}|struct_size|NULL)\b")


def _without_guard(text: str) -> str:
    return "".join(line + "\n" for line in text.splitlines() if not _NOISE.match(line))


def _pieces(text: str) -> Iterator[tuple[str, str]]:
    """Each comment at the left margin and the declarations behind it; a blank line between them ends these."""
    comment, code, depth, place = "", "", 0, 0
    while place < len(text):
        if depth == 0 and (match := _COMMENT.match(text, place)) and text[place - 1 : place] in ("", "\n"):
            if code.strip() or comment:
                yield comment, code
            comment, code, place = match[1], "", match.end() + 1
            continue
        end = text.find("\n", place) + 1 or len(text)
        line = text[place:end]
        depth += (bare := _COMMENT.sub("", line)).count("{") - bare.count("}")
        if depth == 0 and not line.strip() and (comment or code):
            yield comment, code
            comment, code = "", ""
        else:
            code += line
        place = end
    if comment or code:
        yield comment, code


def _prose(comment: str) -> str:
    paragraphs = re.split(r"\n[ *]*\n", comment)
    joined = "\n\n".join(" ".join(line.strip(" *") for line in each.splitlines()).strip() for each in paragraphs)
    return _SYMBOL.sub(r"`\1`", joined.replace("<", "&lt;"))


def names_of(code: str) -> list[str]:
    """What these declarations declare, each once."""
    return list(dict.fromkeys(name for found in _NAMES.findall(code) for name in found if name))


def _as_called(code: str) -> str:
    for pattern, text in _CALLED:
        code = re.sub(pattern, text, code, flags=re.MULTILINE)
    return code.strip("\n")


def header(path: Path) -> str:
    """The page of a header."""
    pieces = list(_pieces(_without_guard(path.read_text(encoding="utf-8"))))
    text = f"# ringest/{path.name}\n"
    seen: set[str] = set()
    for comment, declared in pieces:
        code = _as_called(declared)
        if not comment and not code:
            continue
        names = [name for name in names_of(code) if name not in seen]
        seen.update(names)
        if names:
            # What a shorter title leaves out can be linked to all the same.
            shown = ", ".join(f"`{name}`" for name in names[:3]) + (", …" if len(names) > 3 else "")
            text += "\n" + "".join(f"[](){{ #{name} }}\n" for name in names[1:])
            text += f"\n## {shown} {{ #{names[0]} }}\n"
        elif seen:
            text += "\n## In general\n"
        text += f"\n{_prose(comment)}\n"
        if code:
            text += f"\n```c\n{code}\n```\n"
    return text


def headers() -> list[Path]:
    """In the order in which they include each other."""
    order = "ringest runtime error gcs objects upload listing tar dataset checkpoint metrics trace version".split()
    return sorted(
        HEADERS.glob("*.h"), key=lambda path: (order.index(path.stem) if path.stem in order else 99, path.stem)
    )


def header_index() -> str:
    """The first page of the C reference."""
    text = "# C reference\n\nThe installed headers. `#include <ringest/ringest.h>` includes all of them."
    text += " [C library](../C.md) is about how they are used.\n\n| header | what |\n|---|---|\n"
    for path in headers():
        comment = next(_pieces(_without_guard(path.read_text(encoding="utf-8"))))[0]
        sentence = re.split(r"(?<=[.;]) (?=[A-Z])", _prose(comment).split("\n\n")[0])[0]
        text += f"| [`{path.name}`]({path.stem}.md) | {sentence} |\n"
    return text


def manual_index() -> str:
    """The first page of the manual pages."""
    text = "# Commands\n\nThe manual pages. [Command line](../COMMANDS.md) shows what the commands are for.\n"
    text += "\n| command | what it does |\n|---|---|\n"
    for name in manuals():
        what = re.search(r"^\.Nd (.*)", (MANUALS / f"{name}.1").read_text(encoding="utf-8"), re.MULTILINE)
        text += f"| [`{name.replace('-', ' ', 1)}`]({name}.md) | {what[1] if what else ''} |\n"
    return text


def manuals() -> list[str]:
    """ringest, then the commands."""
    return sorted((path.stem for path in MANUALS.glob("*.1")), key=lambda name: (name != "ringest", name))


def manual(name: str) -> str:
    """The page of a manual page: mandoc's, with headings of Markdown."""
    command = ["mandoc", "-T", "html", "-O", "fragment,man=%N.html", str(MANUALS / f"{name}.1")]
    html = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    html = re.sub(r'<table class="(head|foot)">.*?</table>\n', "", html, flags=re.DOTALL)
    html = re.sub(r"</?section\b[^>]*>\n", "", html)
    html = re.sub(r'^<div class="manual-text">\n|</div>\s*$', "", html)
    html = re.sub(r'<a class="permalink" href="#[^"]*">(.*?)</a>', r"\1", html, flags=re.DOTALL)
    known, here = manuals(), set(re.findall(r'\bid="([^"]*)"', html))
    # Sections that are not here are those of the main page.
    html = re.sub(
        r'<a class="Sx" href="#([^"]*)">',
        lambda match: match[0] if match[1] in here else f'<a class="Sx" href="ringest.html#{match[1]}">',
        html,
    )
    html = re.sub(
        r'<a class="Xr" href="([\w-]+)\.html">(.*?)</a>',
        lambda match: match[0] if match[1] in known else match[2],
        html,
        flags=re.DOTALL,
    )
    title = r'<h([12]) class="S[hs]" id="([^"]*)">(.*?)</h[12]>'
    html = re.sub(title, lambda match: _heading(int(match[1]) + 1, match[2], match[3]), html, flags=re.DOTALL)
    return f"# {name}(1) {{ #top }}\n\n{html}"


def _heading(level: int, anchor: str, html: str) -> str:
    words = " ".join(re.sub(r"<[^>]*>", "", html).split())
    return f"\n\n{'#' * level} {words.capitalize() if level == 2 else words} {{ #{anchor} }}\n\n"


def python_index() -> str:
    """The first page of the Python reference."""
    text = "# Python reference\n\n[Python client](../PYTHON.md) and the other pages of tasks show how it is used.\n"
    text += "\n| module | what |\n|---|---|\n"
    for name, members in PYTHON.items():
        what = ", ".join(f"`{each}`" for each in members)
        if name in members:
            what = (ast.get_docstring(ast.parse(_module(name).read_text(encoding="utf-8"))) or "").split("\n\n")[0]
        text += f"| [{python_title(name)}]({name}.md) | {' '.join(what.split())} |\n"
    return text


def _module(name: str) -> Path:
    file = ROOT / "python" / "ringest" / f"{name}.py"
    return file if file.exists() else file.with_suffix("") / "__init__.py"


def python_page(name: str) -> str:
    """The page of some names or of a module; mkdocstrings makes it of the sources."""
    title = _TITLES.get(name, f"ringest.{name}")
    anchor = "" if name in _TITLES else f" {{ #{title} }}"
    text = f"# {title}{anchor}\n"
    for each in PYTHON[name]:
        text += f"\n::: ringest.{each}\n"
        if each == name:
            text += "    options:\n      show_root_heading: false\n      show_root_toc_entry: false\n"
    return text


def python_title(name: str) -> str:
    return _TITLES.get(name, f"ringest.{name}")
