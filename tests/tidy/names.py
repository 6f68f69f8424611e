"""Whether what the documentation names is in the tree: files, functions, constants, and what links lead to; and whether
its indexes name every page."""

import os
import posixpath
import re

# Folders that paths in the documentation begin with, and in which a path without one is looked for.
TOP = "runtime|http|cache|gcs|dataset|checkpoint|emulator|cli|python|ringest|tests|perf|examples|script|include|docs"
PATH = re.compile(rf"(?<![\w./-])(?:{TOP})/[\w./-]*\.(?:c|cc|h|py|md|json|txt)\b")
HEADER = re.compile(r"<(ringest/\w+\.h)>")
NAME = re.compile(r"`((?:[a-z]\w*/)*[a-z_][a-z0-9_]*\.(?:c|cc|h|py))`")
SYMBOL = re.compile(r"\b(?:rg_[a-z0-9_]*[a-z0-9]|RG_[A-Z0-9_]*[A-Z0-9])\b")
CONSTANT = re.compile(r"`([A-Z][A-Z0-9]*_[A-Z0-9_]*[A-Z0-9])`")
LINK = re.compile(r"\]\(([^)\s]+)\)|<(?:img|source)\b[^>]*?\b(?:src|srcset)=\"([^\"]+)\"")
WORD = re.compile(r"\w+")

# What leads to every page: one for the repository, one for the site.
INDEXES = ("docs/README.md", "docs/site/mkdocs.yml")

# Names that are no names of ours: a pattern, and what was tried and is not used.
FOREIGN = {"rg_noun_verb", "IOSQE_BUFFER_SELECT"}

# Where C and Python keep what a path leaves out: "ringest/dcp.py" is python/ringest/dcp.py.
ROOTS = ("", "python/", "include/", "emulator/")


def is_documentation(path):
    return path.endswith(".md") and not path.startswith(("tests/", "perf/", "subprojects/")) and path != "CHANGELOG.md"


def anchors(text):
    """What links to headings of this text may end in, as forges make them."""
    titles = re.findall(r"^#+ (.*)$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


def words(texts):
    """Every word of the sources."""
    found = set()
    for path, text in texts.items():
        if not path.endswith(".md"):
            found.update(WORD.findall(text))
    return found


def check_links(path, text, texts):
    for match in LINK.finditer(text):
        target, _, anchor = (match.group(1) or match.group(2)).partition("#")
        if "://" in target:
            continue
        place = posixpath.normpath(posixpath.join(posixpath.dirname(path), target)) if target else path
        if place not in texts and not any(each.startswith(place + "/") for each in texts):
            yield match.start(), f"leads to {place}, which is not there"
        elif anchor and anchor not in anchors(texts.get(place, "")):
            yield match.start(), f"leads to #{anchor}, which {place} has not"


def check_paths(text, paths, names):
    for pattern, known in ((PATH, paths), (HEADER, paths), (NAME, names)):
        for match in pattern.finditer(text):
            name = match.group(match.lastindex or 0)
            if not any(root + name in paths for root in ROOTS) and (known is paths or name not in names):
                yield match.start(), f"names {name}, which is not there"


def check_words(text, known):
    for pattern in (SYMBOL, CONSTANT):
        for match in pattern.finditer(text):
            name = match.group(match.lastindex or 0)
            if name not in known and name not in FOREIGN:
                yield match.start(), f"names {name}, which no source has"


def check_indexes(texts):
    for path in sorted(texts):
        name = re.fullmatch(r"docs/(\w+\.md)", path)
        for index in INDEXES:
            if name and path not in INDEXES and index in texts and name[1] not in texts[index]:
                yield f"{path}: {index} does not name it"


def check(texts):
    """Of the sources and the documentation, texts by path: a line for each name that is not there."""
    known = words(texts)
    names = {os.path.basename(path) for path in texts}
    yield from check_indexes(texts)
    for path in sorted(filter(is_documentation, texts)):
        text = texts[path]
        found = [
            *check_links(path, text, texts),
            *check_paths(text, texts.keys(), names),
            *check_words(text, known),
        ]
        lines = {(text.count("\n", 0, position) + 1, problem) for position, problem in found}
        yield from (f"{path}:{line}: {problem}" for line, problem in sorted(lines))
