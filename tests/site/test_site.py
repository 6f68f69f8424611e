"""The documentation's site, built from this tree: every link and anchor leads somewhere, nothing of it is fetched from
elsewhere, and the references have all that programs may use."""

import ast
import collections
import html.parser
import json
import os
import pathlib
import re
import shutil
import subprocess
import tempfile
import unittest
import urllib.parse

ROOT = pathlib.Path(os.environ["RINGEST_TESTS"]).parent
LIBRARY = pathlib.Path(os.environ["RINGEST_PROGRAM"]).parent.parent / "libringest.so"
MKDOCS = pathlib.Path(os.environ["RINGEST_SITE_PACKAGES"], "bin/mkdocs")
PACKAGE = ROOT / "python" / "ringest"

# Modules whose classes and functions are documented as those of `ringest`, or which have none for programs.
INSIDE = {"aio", "bench", "client", "dataset", "device", "parquet", "tar"}
# Elements that a browser fetches, and by which attribute.
FETCHED = {"link": "href", "script": "src", "img": "src", "source": "srcset", "iframe": "src"}
MARKDOWN = re.compile(r"```|\]\(|^\|---|^[-*] |<picture|<!--|\| \|", re.MULTILINE)
# Elements that have no end.
VOID = {"area", "base", "br", "col", "embed", "hr", "img", "input", "link", "meta", "source", "track", "wbr"}


class Page(html.parser.HTMLParser):
    """What is in one: anchors, links, what a browser fetches, pictures, and text that is no code."""

    def __init__(self, path):
        super().__init__()
        self.path = path
        self.anchors, self.links, self.fetched, self.pictures, self.text = set(), [], [], [], []
        self.open = []
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag, attributes):
        values = dict(attributes)
        self.anchors |= {values[name] for name in ("id", "name") if values.get(name)}
        if tag == "a" and values.get("href"):
            self.links.append(values["href"])
        if values.get(FETCHED.get(tag)):
            self.fetched.append(values[FETCHED[tag]])
        if tag == "img":
            self.pictures.append(values["src"])
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        while self.open and self.open.pop() != tag:
            pass

    def handle_data(self, data):
        if not {"code", "pre", "script", "style", "title"} & set(self.open):
            self.text.append(data)


def build(folder):
    """The site in a folder; the output if it cannot be built."""
    command = [
        MKDOCS,
        "build",
        "--strict",
        "--config-file",
        ROOT / "docs/site/mkdocs.yml",
        "--site-dir",
        folder,
    ]
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1", "PYTHONDONTWRITEBYTECODE": "1"}
    return subprocess.run(command, capture_output=True, text=True, env=environment, check=False)


class Site(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        missing = [
            name for name, there in (("mkdocs", MKDOCS.exists()), ("mandoc", shutil.which("mandoc"))) if not there
        ]
        if missing:
            raise unittest.SkipTest(f"the site needs {' and '.join(missing)}: script/site installs it")
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        cls.folder = pathlib.Path(folder.name)
        done = build(cls.folder)
        if done.returncode:
            raise AssertionError(done.stdout + done.stderr)
        # 404.html is shown at any place of a server.
        paths = [path for path in cls.folder.rglob("*.html") if path.name != "404.html"]
        cls.pages = {path.relative_to(cls.folder).as_posix(): Page(path) for path in sorted(paths)}

    def test_links(self):
        """To pages, to anchors in them, and to files."""
        checked = 0
        for name, page in self.pages.items():
            for link in {*page.links, *page.fetched}:
                parts = urllib.parse.urlsplit(link)
                if parts.scheme or parts.netloc:
                    continue
                checked += 1
                with self.subTest(page=name, link=link):
                    target = os.path.normpath(os.path.join(os.path.dirname(name), urllib.parse.unquote(parts.path)))
                    target = target if parts.path else name
                    self.assertTrue((self.folder / target).is_file(), "there is no such file")
                    anchor = urllib.parse.unquote(parts.fragment)
                    if anchor and target in self.pages:
                        self.assertIn(anchor, self.pages[target].anchors)
        self.assertGreater(checked, 1000)

    def test_nothing_comes_from_elsewhere(self):
        for name, page in self.pages.items():
            for link in page.fetched:
                self.assertFalse(urllib.parse.urlsplit(link).netloc, f"{name} fetches {link}")
        sheets = list(self.folder.rglob("*.css")) + list(self.folder.rglob("*.svg"))
        self.assertTrue(sheets)
        for path in sheets:
            text = path.read_text(encoding="utf-8")
            self.assertIsNone(re.search(r"(url\(|@import|\bhref=)\s*[\"']?(https?:)?//", text), path)

    def test_all_markdown_was_understood(self):
        for name, page in self.pages.items():
            found = MARKDOWN.search("".join(page.text))
            self.assertIsNone(found, f"{name} shows Markdown as it is")

    def test_pictures_have_both_colours(self):
        """Charts, that is; terminals are dark."""
        shown = 0
        for name, page in self.pages.items():
            colours = collections.defaultdict(set)
            for picture in page.pictures:
                path, _, colour = picture.partition("#only-")
                if path.startswith("pictures/"):
                    continue
                colours[path.replace("-dark.svg", ".svg")].add(colour)
            for path, found in colours.items():
                shown += 1
                self.assertEqual(found, {"light", "dark"}, f"{path} in {name}")
        self.assertGreater(shown, 5)

    def test_every_function_of_the_library(self):
        lines = subprocess.run(
            ["nm", "-D", "--defined-only", "--format=posix", LIBRARY], capture_output=True, check=True, text=True
        )
        names = {line.split()[0].removesuffix("_sized") for line in lines.stdout.splitlines()}
        self.assertIn("rg_client_open_explained", names)
        anchors = {anchor for name, page in self.pages.items() if name.startswith("c/") for anchor in page.anchors}
        self.assertEqual({name for name in names if name.startswith("rg_")} - anchors, set())

    def test_every_name_of_the_package(self):
        anchors = {anchor for name, page in self.pages.items() if name.startswith("python/") for anchor in page.anchors}
        modules = {path.stem for path in PACKAGE.glob("[a-z]*.py")} | {
            path.parent.name for path in PACKAGE.glob("[a-z]*/__init__.py")
        }
        wanted = {f"ringest.{name}" for name in exported(PACKAGE / "__init__.py")}
        for module in modules - INSIDE:
            path = PACKAGE / f"{module}.py"
            names = exported(path if path.exists() else PACKAGE / module / "__init__.py")
            wanted |= {f"ringest.{module}", *(f"ringest.{module}.{name}" for name in names)}
        self.assertGreater(len(wanted), 60)
        self.assertEqual(wanted - anchors, set())

    def test_every_option_of_the_commands(self):
        manuals = sorted(ROOT.glob("docs/man/*.1"))
        self.assertTrue(manuals)
        for manual in manuals:
            shown = re.sub(r"<[^>]*>", "", (self.folder / f"man/{manual.stem}.html").read_text(encoding="utf-8"))
            for option in re.findall(
                r"^\.It .*?Fl (?:\w , )?(-[\w-]+)", manual.read_text(encoding="utf-8"), re.MULTILINE
            ):
                self.assertIn("-" + option, shown, manual.name)

    def test_search_works_without_a_server(self):
        text = (self.folder / "search/search_index.js").read_text(encoding="utf-8")
        found = json.loads(text.removeprefix("var __index = "))["docs"]
        for where, word in (
            ("c/dataset.html", "rg_reader_open"),
            ("python/datasets.html", "MapDataset"),
            ("man/ringest-rsync.html", "--delete"),
            ("FAQ.html", "gcsfuse"),
        ):
            with self.subTest(word):
                self.assertTrue(
                    any(each["location"].startswith(where) and word in each["title"] + each["text"] for each in found)
                )


def exported(path):
    """The names of __all__ in a file."""
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.Assign) and any(
            isinstance(each, ast.Name) and each.id == "__all__" for each in node.targets
        ):
            return ast.literal_eval(node.value)
    return []


if __name__ == "__main__":
    unittest.main()
