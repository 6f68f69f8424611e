"""What makes a site of the documentation as it is written for people who read it in the repository.

Pages stay where they are in docs/. Pages of the repository's top, the figures, the references, and the sources that
pages link to are added. Links lead to these, to the same things that they lead to in the repository."""

import posixpath
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import reference
from mkdocs.structure.files import File, Files

ROOT = Path(__file__).resolve().parents[2]
HERE = Path(__file__).resolve().parent

# Where on the site what lies outside of docs/ is, and what has another place there.
PLACES = {
    "README.md": "index.md",
    "docs/README.md": "pages.md",
    "CONTRIBUTING.md": "CONTRIBUTING.md",
    "SECURITY.md": "SECURITY.md",
    "CHANGELOG.md": "CHANGELOG.md",
    "docs/internals": "ARCHITECTURE.md",
    "docs/man": "man/index.md",
    "include/ringest": "c/index.md",
    "perf/results": "results/figures.md",
    "perf/results/README.md": "results/figures.md",
}
FENCE = re.compile(r"^ *(`{3,}|~{3,})(.*)$")
LINK = re.compile(r"\]\(([^)\s]+)\)")
PICTURE = re.compile(
    r'<picture>\s*<source media="\(prefers-color-scheme: dark\)" srcset="([^"]+)">\s*<img alt="([^"]*)" src="([^"]+)">'
    r"\s*</picture>"
)
# Names in the text that a page of reference has.
CODE = re.compile(r'(?<!">)<code>((?:rg|RG)_\w+|ringest(?:\.\w+)+)((?:\([^<]*\))?)</code>(?!</a>|</h\d>)')
PAGE = re.compile(r"(?<![\w/>\"])docs/(\w+)\.md")
MANUAL = re.compile(r'(?<!">)<code>man (ringest[\w-]*)</code>')
LANGUAGES = {".c": "c", ".h": "c", ".py": "python", ".sh": "sh", ".json": "json", ".yml": "yaml", ".yaml": "yaml"}


def place(path: str) -> str:
    """Where on the site something of the repository is."""
    if path in PLACES:
        return PLACES[path]
    stem, ending = posixpath.splitext(path)
    for folder, ours, of_pages in (("docs/man/", "man/", ".1"), ("include/ringest/", "c/", ".h")):
        if path.startswith(folder) and ending == of_pages:
            return ours + posixpath.basename(stem) + ".md"
    for folder, ours in (("docs/", ""), ("perf/results/", "results/")):
        if path.startswith(folder):
            return ours + path.removeprefix(folder)
    return f"source/{path}/index.md" if (ROOT / path).is_dir() else f"source/{path}.md"


# Pages that people wrote, by their place; what they are of.
_OF_FOLDERS = [
    path.relative_to(ROOT).as_posix() for each in ("docs", "perf/results") for path in ROOT.glob(each + "/**/*.md")
]
WRITTEN = {place(path): path for path in [*PLACES, *sorted(_OF_FOLDERS)] if path.endswith(".md")}


def outside_fences(text: str, change: Callable[[str], str]) -> str:
    """The text with what is not in blocks of code changed."""
    parts: list[str] = []
    prose: list[str] = []
    fence = ""
    for line in text.splitlines(keepends=True):
        match = FENCE.match(line)
        if fence:
            fence = "" if match and match[1].startswith(fence) and not match[2].strip() else fence
            parts.append(line)
        elif match:
            fence = match[1]
            language, _, file = match[2].strip().partition(" ")
            parts += [change("".join(prose)), f'{fence}{language} title="{file}"\n' if file else line]
            prose = []
        else:
            prose.append(line)
    return "".join([*parts, change("".join(prose))])


def _target(path: str, link: str) -> tuple[str, str]:
    """What a link of a page leads to in the repository, and where in there; "" if it leads elsewhere."""
    target, _, anchor = link.partition("#")
    if not target or "://" in target or target.startswith("mailto:"):
        return "", anchor
    return posixpath.normpath(posixpath.join(posixpath.dirname(path), target)), anchor


def _moved(path: str, link: str) -> str:
    """A link of a page as it is on the site."""
    target, anchor = _target(path, link)
    if not target:
        return link
    here = posixpath.dirname(place(path))
    return posixpath.relpath(place(target), here or ".") + (anchor and "#" + anchor)


def _of_site(path: str, prose: str) -> str:
    # The theme shows the one that its colours go with.
    prose = PICTURE.sub(r"![\2](\3#only-light)\n![\2](\1#only-dark)", prose)
    return LINK.sub(lambda match: f"]({_moved(path, match[1])})", prose)


def _sources() -> Iterator[str]:
    """What pages link to that is on no other page, with the files of folders."""
    for path in WRITTEN.values():
        for link in LINK.findall((ROOT / path).read_text(encoding="utf-8")):
            target, _ = _target(path, link)
            if target and place(target).startswith("source/"):
                yield target
                if (ROOT / target).is_dir():
                    yield from (f"{target}/{name}" for name in _files(target))


def _files(folder: str) -> list[str]:
    return sorted(
        path.name for path in (ROOT / folder).iterdir() if path.is_file() and path.suffix in {*LANGUAGES, ".txt"}
    )


def _source(path: str) -> str:
    """The page of a file, or of a folder."""
    if (ROOT / path).is_dir():
        return f"# {path}\n\n" + "".join(f"- [`{name}`]({name}.md)\n" for name in _files(path))
    text = (ROOT / path).read_text(encoding="utf-8").rstrip("\n")
    language = LANGUAGES.get(posixpath.splitext(path)[1], "text")
    return f"---\nsearch: {{exclude: true}}\n---\n# {path}\n\n~~~~~{language}\n{text}\n~~~~~\n"


def _pages() -> Iterator[tuple[str, str]]:
    """Those that are in no file of docs/: place and text."""
    for where, path in WRITTEN.items():
        if "docs/" + where != path:
            yield where, (ROOT / path).read_text(encoding="utf-8")
    yield "c/index.md", reference.header_index()
    yield "man/index.md", reference.manual_index()
    yield "python/index.md", reference.python_index()
    for header in reference.headers():
        yield f"c/{header.stem}.md", reference.header(header)
    for name in reference.manuals():
        yield f"man/{name}.md", reference.manual(name)
    for name in reference.PYTHON:
        yield f"python/{name}.md", reference.python_page(name)
    for path in sorted(set(_sources())):
        yield place(path), _source(path)


def _title(path: Path) -> str:
    return path.read_text(encoding="utf-8").split("\n", 1)[0].lstrip("# ").lower()


def on_config(config: Any) -> Any:
    """The parts of the navigation that follow from what there is."""
    parts: dict[str, list[Any]] = {
        "PYTHON_PAGES": [
            "python/index.md",
            *({reference.python_title(name): f"python/{name}.md"} for name in reference.PYTHON),
        ],
        "C_PAGES": ["c/index.md", *({header.name: f"c/{header.stem}.md"} for header in reference.headers())],
        "MANUALS": ["man/index.md", *({name: f"man/{name}.md"} for name in reference.manuals())],
    }
    internals = [f"internals/{path.name}" for path in sorted(ROOT.glob("docs/internals/*.md"), key=_title)]
    for section in config.nav:
        for entries in section.values():
            if "INTERNALS" in entries:
                entries.remove("INTERNALS")
                entries += internals
            for entry in entries:
                if isinstance(entry, dict):
                    entry.update({title: parts[of] for title, of in entry.items() if of in parts})
    config.mdx_configs["toc"]["slugify"] = slug
    return config


def slug(title: str, separator: str) -> str:
    """The anchor of a heading, as forges make it."""
    return re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", separator)


def on_files(files: Files, config: Any) -> Files:
    files.remove(files.src_uris["README.md"])
    for where, text in _pages():
        files.append(File.generated(config, where, content=text))
    for path in sorted((ROOT / "perf/results").iterdir()):
        if path.suffix != ".md":
            files.append(File.generated(config, f"results/{path.name}", abs_src_path=str(path)))
    for name in ("favicon.svg", "iframe-worker.js", "site.css"):
        files.append(File.generated(config, name, abs_src_path=str(HERE / name)))
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, files: Files) -> str:
    path = WRITTEN.get(page.file.src_uri)
    if path and path != "CHANGELOG.md":
        page.meta["search"] = {"boost": 2}  # before references and what has changed
    return outside_fences(markdown, lambda prose: _of_site(path, prose)) if path else markdown


def on_page_content(html: str, page: Any, config: Any, files: Files) -> str:
    """Names of functions, classes and manuals lead to their reference, and from there those of pages to these."""
    top = posixpath.relpath(".", posixpath.dirname(page.file.src_uri) or ".")
    manuals = reference.manuals()
    link = lambda match: f'<a href="{top}/man/{match[1]}.html">{match[0]}</a>' if match[1] in manuals else match[0]
    html = MANUAL.sub(link, html)
    if page.file.src_uri not in WRITTEN:
        html = PAGE.sub(rf'<a href="{top}/\1.html">docs/\1.md</a>', html)
    if page.file.src_uri.startswith("c/"):
        return html
    return CODE.sub(r'<autoref identifier="\1" optional><code>\1\2</code></autoref>', html)
