"""Reports of benchmarks: figures, comparisons that claim no more than the rounds allow, and a page into which no name of a
result can put anything."""

import contextlib
import dataclasses
import html.parser
import importlib.util
import io
import itertools
import json
import os
import random
import re
import shutil
import subprocess
import sys
import tempfile
import unittest
import unittest.mock

from ringest.bench import __main__ as command
from ringest.bench import changes, figures, markdown, report, result
from ringest.bench.result import Document, Latency, Machine, Phase, Point, Round, Row

WITH_PLOTS = importlib.util.find_spec("matplotlib") is not None
needs_plots = unittest.skipUnless(WITH_PLOTS, "matplotlib is not installed")
CHROMIUM = shutil.which("chromium")
HOSTILE = "</title></style></svg><script>alert(1)</script>\"'><img src=//evil.example onerror=alert(2)>"
VOID = ("meta", "link", "br", "img")


def latency(rng, count, scale=1e6):
    bounds = sorted({int(scale * rng.lognormvariate(0, 0.6)) + 1 for _ in range(count)})
    return Latency([(bound, 1) for bound in bounds], origin="sent", max=bounds[-1])


def one_round(rng, rate=1000.0, spread=0.05, **more):
    seconds = rng.lognormvariate(0, spread)
    fields = {
        "seconds": seconds,
        "operations": int(rate),
        "bytes": int(rate) * 4096,
        "cpu_user_seconds": 0.2 * rng.lognormvariate(0, spread),
        "cpu_system_seconds": 0.3 * rng.lognormvariate(0, spread),
        "peak_rss_bytes": 50 << 20,
        "latency": latency(rng, 200),
        "series": [Point(at_seconds=(i + 1) / 10, operations=int(rate / 10)) for i in range(10)],
        "phases": [Phase("warm-up", 0.2), Phase("measured", seconds)],
    }
    return Round(**{**fields, **more})


def sample(seed=1, rounds=5, faster=1.0):
    """Two clients at three numbers of connections, and one that failed."""
    rng = random.Random(seed)
    rows = [
        Row("get-4k", client, {"connections": connections, "tls": True}, rounds=[
            one_round(rng, rate * connections * faster) for _ in range(rounds)
        ])
        for client, rate in (("ringest", 1000), ("another", 300))
        for connections in (1, 4, 16)
    ]  # fmt: skip
    rows.append(Row("get-4k", "third", {"connections": 1, "tls": True}, error="third is not installed"))
    return Document(rows, Machine("Some CPU", 2, 1 << 34, "6.1"), {"ringest": "0.1.0"}, ["ringest", "bench"])


def hostile():
    rng = random.Random(3)
    huge = Round(seconds=1e-300, operations=10**300, bytes=10**300, errors=10**30, cpu_user_seconds=1e308,
                 cpu_system_seconds=1e308, peak_rss_bytes=10**200, metrics={HOSTILE: 1e308, "nothing": 0.0},
                 latency=Latency([(1, 10**300), (10**300, 1)]),
                 series=[Point(0.0), Point(1e300, 10**300), Point(1e301, 0)],
                 phases=[Phase(HOSTILE, 1e300), Phase("b", 0.0)])  # fmt: skip
    nothing = Round(seconds=0, operations=0, bytes=0, latency=Latency([]), series=[], phases=[])
    rows = [
        Row(HOSTILE, HOSTILE, {HOSTILE: HOSTILE, "n": 1}, rounds=[huge]),
        Row(HOSTILE, HOSTILE, {HOSTILE: [HOSTILE], "n": 2}, error=HOSTILE, rounds=[nothing]),
        Row(HOSTILE, "$x^{\\frac$ \ud800 \x00\x1b[31m\u202e\n\n# head | `a` ![x](http://evil.example/)", rounds=[huge, nothing]),
        Row("none", "a", error=HOSTILE),
        Row("empty", "a", rounds=[nothing]),
        Row("no bytes", "b", {"n": None}, rounds=[Round(seconds=1, operations=5)]),
    ]  # fmt: skip
    rows += [Row("many", f"client {i % 50}", {"n": i}, rounds=[one_round(rng, 10 + i)]) for i in range(200)]
    machine = Machine(HOSTILE, 10**18, 10**40, HOSTILE, HOSTILE)
    return Document(rows, machine, {HOSTILE: HOSTILE}, [HOSTILE], HOSTILE)


class Page(html.parser.HTMLParser):
    """Reads a page strictly: each element ends where it should."""

    def __init__(self, text):
        super().__init__()
        self.open, self.tags, self.ids, self.references, self.wrong = [], [], [], [], []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag, attributes):
        self.tags.append(tag)
        if tag not in VOID:
            self.open.append(tag)
        for name, value in attributes:
            if name == "id":
                self.ids.append(value)
            elif name in ("href", "src", "srcset", "action", "data", "xlink:href"):
                self.references.append(value)
            elif name.startswith(("on", "xmlns")):
                self.wrong.append(name)

    def handle_endtag(self, tag):
        if tag not in VOID and (not self.open or self.open.pop() != tag):
            self.wrong.append(f"</{tag}>")


class Report(unittest.TestCase):
    def setUp(self):
        self.folder = self.enterContext(tempfile.TemporaryDirectory())

    def save(self, document, name="a.json"):
        path = os.path.join(self.folder, name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        # What cannot be written is what others may have written.
        with open(path, "w", encoding="utf-8") as file:
            file.write(json.dumps(result._plain(document)))
        return path

    def report(self, *arguments):
        said, errors = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(said), contextlib.redirect_stderr(errors):
            status = command.main(["report", *arguments])
        return status, said.getvalue(), errors.getvalue()

    def page(self, document, after=None):
        path = os.path.join(self.folder, "report.html")
        both = [self.save(document), *([self.save(after, "b.json")] if after else [])]
        self.assertEqual(self.report(*both, "--html", path)[:2], (0, ""))
        with open(path, encoding="utf-8") as file:
            return file.read()

    def check_page(self, text):
        read = Page(text)
        self.assertEqual((read.wrong, read.open), ([], []))
        self.assertEqual(len(read.ids), len(set(read.ids)))
        self.assertNotIn("script", read.tags)
        self.assertNotIn("img", read.tags)
        for each in read.references:
            self.assertTrue(each == "data:," or (each[1:] in read.ids and each[0] == "#"), each)
        for each in re.findall(r"url\(([^)]*)\)", text):
            self.assertIn(each.removeprefix("#"), read.ids)
        self.assertNotIn("@import", text)
        # Every colour of a plot is one of the style sheet's.
        self.assertEqual(re.findall(r"#0[1-4]0[1-4]0\d", text), [])
        defined = set(re.findall(r"(--[\w-]+):", text))
        self.assertLessEqual(set(re.findall(r"var\((--[\w-]+)\)", text)), defined)
        return read

    def test_medians_ranges_and_failures(self):
        document = Document([
            Row("get", "a", {"n": 8, "tls": True}, rounds=[
                Round(seconds=2, operations=each, bytes=each * 1000, cpu_user_seconds=1, cpu_system_seconds=1)
                for each in (20_000, 40_000, 26_000)
            ]),
            Row("get", "b", {"n": 8, "tls": True}, error="b is not installed"),
        ])  # fmt: skip
        _, said, _ = self.report(self.save(document))
        self.assertIn("With n 8, tls true.", said)
        line = next(each for each in said.splitlines() if each.startswith("| a "))
        self.assertEqual([each.strip() for each in line.split("|")[1:5]],
                         ["a", "3", "13,000 (10,000 to 20,000)", "13.0 (10.0 to 20.0)"])  # fmt: skip
        self.assertIn("76.9 (50.0 to 100)", line)
        self.assertIn("b failed: b is not installed", said)

    def test_a_client_that_has_no_way_has_not_failed(self):
        lacking = Row("list", "b", {"n": 8}, error="has no way to list")
        document = Document([Row("list", "a", {"n": 8}, rounds=[Round(seconds=2, operations=9)]), lacking])
        _, said, _ = self.report(self.save(document))
        self.assertNotIn("failed", said)
        self.assertIn("\nb has no way to list\n", said)
        line = next(each for each in said.splitlines() if each.startswith("| b "))
        self.assertEqual({each.strip() for each in line.split("|")[2:-1]}, {figures.NONE})
        if WITH_PLOTS:
            shown = self.page(document).partition("<body>")[2]
            self.assertNotIn(">failed", shown)
            self.assertIn(f"<td>b</td><td>{figures.NONE}</td><td>{figures.NONE}</td>", shown)
            self.assertIn(">has no way to list<", shown)
        ran = dataclasses.replace(document, rows=[document.rows[0], dataclasses.replace(lacking, error=None,
            rounds=[Round(seconds=2, operations=9)])])  # fmt: skip
        for before, after, sentence in (
            (document, document, "list, b: has no way to list."),
            (ran, document, "list, b: has no way to list."),
            (document, ran, "list, b: was not measured before (has no way to list), and is measured now."),
        ):
            self.assertEqual(changes.compare(before, after).rows[1].sentence(), sentence)

    def test_the_command_is_there_to_be_given_again(self):
        words = ["ringest", "bench", "get", "gs://train/it is here/", "--concurrency", "16", "--seconds", "0.5",
                 "--interval", "0.1", "--result", "x" * 80]  # fmt: skip
        round_ = Round(seconds=1, operations=1)
        document = Document([Row("get", "a", rounds=[round_])], Machine(hypervisor="unknown"), command=words)
        _, said, _ = self.report(self.save(document))
        self.assertIn(
            f"- command: ringest bench get 'gs://train/it is here/' --concurrency 16 {' '.join(words[6:])}\n", said
        )
        self.assertIn("- hypervisor: one whose name is not known\n", said)
        shown = dict(figures.about(dataclasses.replace(document, command=["x" * 10_000])))["command"]
        self.assertEqual(len(shown), figures.MAX_COMMAND)

    def test_quantiles_of_a_histogram(self):
        every = Latency([(each * 1000, 1) for each in range(1, 10_001)], max=10_000_000)
        self.assertEqual(figures.quantile(every, 0.5), 5_000_000)
        self.assertEqual(figures.quantile(every, 0.9999), 9_999_000)
        few = Latency([(each, 1) for each in range(1, 1000)])
        self.assertIsNone(figures.quantile(few, 0.999))
        self.assertEqual(figures.quantile(few, 0.99), 990)
        self.assertIsNone(figures.quantile(Latency([]), 0.5))
        self.assertEqual(figures.quantile(Latency([(5, 0), (2047, 2)], max=2000), 0.0), 2000)
        both = figures.merged_latency([Round(1, 1, latency=every), Round(1, 1, latency=every), Round(1, 1)])
        self.assertEqual((both.total, both.max, both.counts[0]), (20_000, 10_000_000, (1000, 2)))

    def test_bytes_on_the_wire_go_both_ways(self):
        """Of a checkpoint that is saved and loaded, half of what is asked for goes each way."""
        row = Round(seconds=1, operations=2, bytes=200, wire_received_bytes=104, wire_sent_bytes=106)
        self.assertEqual(figures.WIRE.of(row), 1.05)
        self.assertIsNone(figures.WIRE.of(dataclasses.replace(row, wire_sent_bytes=None)))

    def test_numbers(self):
        for value, text in ((0, "0"), (1234567, "1,234,567"), (99.94, "99.9"), (1.234, "1.23"), (0.01234, "0.0123"),
                            (0.1, "0.100"), (0.00036, "0.000360"),
                            (1e300, "1.00e+300"), (1e-9, "1.00e-09"), (None, "\u2013"), (float("inf"), "\u2013")):  # fmt: skip
            self.assertEqual(figures.number(value), text)

    def test_a_folder_is_one_result(self):
        for i in range(4):
            self.save(sample(seed=i, rounds=1), f"run/{i}.json")
        _, said, _ = self.report(os.path.join(self.folder, "run"))
        self.assertIn("| ringest, connections 1 ", said.replace("|  ", "| "))
        self.assertEqual(len(re.findall(r"\|\s+4 \|", said)), 6, said)
        self.assertEqual(
            sorted(["b-2", "a-16", "a-4", "a", "10"], key=report._by_numbers), ["10", "a", "a-4", "a-16", "b-2"]
        )
        os.mkdir(os.path.join(self.folder, "none"))
        status, _, errors = self.report(os.path.join(self.folder, "none"))
        self.assertEqual(status, 2)
        self.assertIn("has no *.json", errors)

    def test_results_of_one_folder_that_are_not_of_the_same_are_named(self):
        first = sample(1)
        machine = dataclasses.replace(first.machine, cpu="Another CPU")
        second = dataclasses.replace(sample(2), machine=machine, versions={**first.versions, "ringest": "0.2.0"})
        self.save(first, "mixed/1.json")
        self.save(second, "mixed/2.json")
        same = self.save(first, "same/1.json")
        folder, alone = os.path.join(self.folder, "mixed"), os.path.dirname(same)
        wanted = (f"CPU: {first.machine.cpu}, Another CPU", f"version of ringest: {first.versions['ringest']}, 0.2.0")
        for arguments, notes in (
            ([folder], [f"not the same: {each}" for each in wanted]),
            ([alone, folder], [f"results after are not of the same {each}" for each in wanted]),
            ([folder, alone], [f"results before are not of the same {each}" for each in wanted]),
            ([alone, alone], []),
        ):
            _, said, _ = self.report(*arguments)
            for note in notes:
                self.assertIn(note, said)
            self.assertEqual(said.count("not the same") + said.count("not of the same"), len(notes), said)

    def test_a_folder_of_several_commands_names_them_all(self):
        """And when they were given. Rounds of a loop have one command."""
        round_ = Round(seconds=1, operations=1)
        for i, verb in enumerate(("get", "put", "list", "list")):
            document = Document(
                [Row(verb, "a", rounds=[round_])],
                command=["ringest", "bench", verb, "gs://b/", "--result", f"{i}.json"],
                made=f"2026-01-0{4 - i}T00:00:00Z",
            )
            self.save(document, f"run/{i}.json")
        folder = os.path.join(self.folder, "run")
        _, said, _ = self.report(folder)
        for each in (
            "measured: 2026-01-01T00:00:00Z to 2026-01-04T00:00:00Z",
            "command: ringest bench get gs://b/ --result 0.json",
            "command: ringest bench put gs://b/ --result 1.json",
            "command: ringest bench list gs://b/ --result 2.json",
        ):
            self.assertIn(f"- {each}\n", said)
        self.assertEqual(said.count("- command: "), 3)
        with unittest.mock.patch.object(figures, "MAX_COMMANDS", 2):
            _, said, _ = self.report(folder)
        self.assertEqual(said.count("- command: "), 3)
        self.assertIn("- command: and 1 more\n", said)

    def test_the_interval_is_that_of_the_test(self):
        """Its ends are where Mann and Whitney's test begins to tell the two apart."""
        try:
            from scipy.stats import mannwhitneyu
        except ImportError:
            self.skipTest("scipy is not installed")
        rng = random.Random(7)
        for first, second in ((4, 6), (5, 5), (3, 10), (10, 7), (12, 12), (40, 4)):
            before = [rng.lognormvariate(0, 0.2) for _ in range(first)]
            after = [rng.lognormvariate(0.1, 0.2) for _ in range(second)]
            low, high = changes.interval(before, after)
            for ratio, is_within in (
                (low * 0.9999, False),
                (low * 1.0001, True),
                (high * 0.9999, True),
                (high * 1.0001, False),
            ):
                p = mannwhitneyu([ratio * each for each in before], after, method="exact").pvalue
                self.assertEqual(p > 0.01, is_within, (first, second, ratio, low, high, p))

    def test_the_interval_holds_as_often_as_it_says(self):
        for first, second, spread in ((5, 5, 0.3), (5, 8, 0.1), (10, 10, 0.5), (31, 12, 0.2)):
            rng = random.Random(first)
            tries, held = 1000, 0
            for _ in range(tries):
                # Rounds with neighbours that are noisy in some: skewed, with outliers.
                draw = lambda scale: scale * rng.lognormvariate(0, spread) * (3 if rng.random() < 0.1 else 1)
                low, high = changes.interval([draw(5) for _ in range(first)], [draw(6) for _ in range(second)])
                held += low <= 1.2 <= high
            self.assertGreater(held / tries, 0.98, (first, second))
            self.assertLess(held, tries, (first, second))

    def test_few_rounds_claim_nothing(self):
        self.assertEqual([changes.cut(n, n) for n in range(1, 6)], [0, 0, 0, 0, 1])
        before, after = self.save(sample(rounds=4)), self.save(sample(rounds=4, faster=0.1), "b.json")
        status, said, _ = self.report(before, after)
        self.assertEqual(status, 0)
        self.assertIn("4 and 4 rounds are too few to tell a change from noise (rate \u221290 %)", said)
        self.assertNotIn("slower", said)
        status, _, errors = self.report(before, after, "--fail-above", "5")
        self.assertEqual(status, 1)
        self.assertIn("nothing can be told from noise", errors)

    def test_what_changed_is_said_and_fails(self):
        before = self.save(sample(seed=1, rounds=8))
        same, slower = (
            self.save(sample(seed=1, rounds=8), "same.json"),
            self.save(sample(seed=2, rounds=8, faster=0.7), "b.json"),
        )
        status, said, _ = self.report(before, same, "--fail-above", "0")
        self.assertEqual((status, said.count("no change beyond noise")), (0, 6))
        status, said, errors = self.report(before, slower, "--fail-above", "5")
        self.assertEqual((status, said.count(": slower: rate \u2212")), (1, 6), said)
        self.assertEqual(errors.count("got slower"), 6)
        self.assertEqual(self.report(before, slower, "--fail-above", "200")[0], 0)
        status, said, _ = self.report(slower, before, "--fail-above", "5")
        self.assertEqual((status, said.count(": faster: rate +")), (0, 6), said)

    def test_noise_alone_rarely_is_a_change(self):
        found = [
            any(change.is_beyond_noise for change in row.changes)
            for rounds in (5, 8)
            for seed in range(30)
            for row in changes.compare(sample(seed=seed, rounds=rounds), sample(seed=1000 + seed, rounds=rounds)).rows
        ]
        self.assertGreater(len(found), 300)
        self.assertLess(sum(found) / len(found), 0.05)

    def test_runs_in_turns_know_what_lies_between_them(self):
        """The rounds of a run have a part of their noise in common."""
        rng = random.Random(5)

        def folder(name, faster=1.0):
            for run in range(8):
                drift = rng.lognormvariate(0, 0.1) * faster
                rounds = [one_round(rng, 1000 * drift * rng.lognormvariate(0, 0.01)) for _ in range(5)]
                same = [dataclasses.replace(each, seconds=1.0) for each in rounds]
                self.save(Document([Row("get", "ringest", rounds=same)]), f"{name}/{run}.json")
            return report._read(os.path.join(self.folder, name))

        def rate(before, after):
            compared = changes.compare(before, after)
            return next(each for each in compared.rows[0].changes if each.measure is figures.RATE), compared.notes

        folders = [folder(f"same-{i}") for i in range(8)]
        found = [rate(*each)[0] for each in itertools.combinations(folders, 2)]
        self.assertTrue(all(each.by_run for each in found))
        self.assertLess(sum(each.is_beyond_noise for each in found), len(found) / 10)
        self.assertEqual(found[0].before.count, 40)
        faster, notes = rate(folders[0], folder("faster", 1.5))
        self.assertEqual((faster.verdict, notes), (1, []))
        one, other = (sample(seed=1, rounds=8), sample(seed=2, rounds=8, faster=0.7))
        self.assertEqual(changes.compare(one, other).notes, [changes.BETWEEN_RUNS])

    def test_what_is_not_the_same_is_named(self):
        before, after = sample(rounds=4), sample(rounds=4)
        gone = Row("put", "ringest", {"n": 1}, rounds=before.rows[0].rounds)
        new = Row("put", "ringest", {"n": 2}, rounds=before.rows[0].rounds)
        failing = Row("get-4k", "ringest", {"connections": 1, "tls": True}, error="refused")
        local, cloud = "https://localhost:1", "https://storage.googleapis.com"
        before = Document(before.rows + [gone], Machine("One CPU", 2), {"ringest": "0.1.0", "x": "1"}, endpoint=local)
        after = Document(
            [failing, *after.rows[1:], new], Machine("Another CPU", 4), {"ringest": "0.2.0"}, endpoint=cloud
        )
        again = dataclasses.replace(before, endpoint="https://localhost:2")
        self.assertEqual(changes.compare(before, again).notes, [])
        status, said, _ = self.report(self.save(before), self.save(after, "b.json"), "--fail-above", "1000")
        self.assertEqual(status, 1)
        for each in (
            "CPU differs: One CPU before, Another CPU after",
            "number of CPUs differs: 2 before, 4 after",
            f"server differs: https://localhost before, {cloud} after",
            "version of ringest differs: 0.1.0 before, 0.2.0 after",
            "version of x differs: 1 before, none after",
            "put, ringest has other parameters: n 1 before, n 2 after".replace(", n 2", ", 2"),
            "only before: put, ringest, n 1",
            "only after: put, ringest, n 2",
            "get-4k, ringest, connections 1: fails (refused)",
            "get-4k, third, connections 1: fails as before (third is not installed)",
        ):
            self.assertIn(each, said)

    def test_operations_of_another_size_are_named(self):
        before = sample()
        row = before.rows[0]

        def sized(factor):
            rounds = [dataclasses.replace(each, bytes=int(each.bytes * factor)) for each in row.rounds]
            return dataclasses.replace(before, rows=[dataclasses.replace(row, rounds=rounds), *before.rows[1:]])

        for factor, wanted in ((1, 0), (1.01, 0), (1.1, 1), (0.5, 1)):
            notes = [each for each in changes.compare(before, sized(factor)).notes if "is not the same" in each]
            self.assertEqual(len(notes), wanted, notes)
        self.assertIn(
            "get-4k, ringest, connections 1: an operation had 4,096 bytes before, and has 2,048 after: what was read or "
            "written is not the same",
            changes.compare(before, sized(0.5)).notes,
        )

    def test_an_interrupted_run_is_no_failure(self):
        rows = sample(rounds=4).rows[:1]
        cut = "interrupted after 1 of 4 measurements"
        whole, partial, none, broken = (
            self.save(Document([row]), f"{name}.json")
            for name, row in (
                ("whole", rows[0]),
                ("partial", dataclasses.replace(rows[0], rounds=rows[0].rounds[:1], error=cut)),
                ("none", dataclasses.replace(rows[0], rounds=[], error=cut)),
                ("broken", dataclasses.replace(rows[0], rounds=[], error="refused")),
            )
        )
        for one in (partial, none):
            self.assertIn(f"did not end: {cut}", self.report(one)[1])
            status, said, errors = self.report(whole, one, "--fail-above", "5")
            self.assertEqual(status, 1)
            self.assertIn(f"ringest: did not end ({cut}).", said)
            self.assertIn("ringest did not end", errors)
            self.assertNotIn("fail", said + errors)
            self.assertIn(f"did not end before ({cut}), and did now", self.report(one, whole)[1])
            status, said, errors = self.report(one, broken, "--fail-above", "5")
            self.assertEqual(status, 1)
            self.assertIn("ringest: fails (refused)", said)
            self.assertIn("ringest fails", errors)

    def test_what_is_no_result_is_said(self):
        whole = self.save(sample())
        with open(whole, encoding="utf-8") as file:
            text = file.read()
        for name, content, expected in (
            ("empty", "", "is empty; did the benchmark end before it wrote it?"),
            ("blank", "\n", "is empty; "),
            ("cut", text[: len(text) // 2], "not JSON: .*; was it written to its end?"),
            ("older", text.replace(result.FORMAT, "ringest-bench/0"),
             'format: must be "ringest-bench/1", is "ringest-bench/0"; another version of this program wrote it'),
            ("other", "{}", 'format: must be "ringest-bench/1", is null; is it a file of this program?'),
        ):  # fmt: skip
            path = os.path.join(self.folder, name + ".json")
            with open(path, "w", encoding="utf-8") as file:
                file.write(content)
            for arguments in ((path,), (whole, path), (path, whole)):
                with self.subTest(name, arguments=arguments):
                    status, said, errors = self.report(*arguments)
                    self.assertEqual((status, said), (2, ""))
                    self.assertRegex(errors, f"^ringest bench report: {path}: {expected}")

    def test_runs_with_nothing_in_common(self):
        before = Document([Row("get-4k", "ringest", {"n": n}, rounds=sample().rows[0].rounds) for n in (1, 2)])
        after = Document([Row("list", "ringest", rounds=sample().rows[0].rounds)], Machine(memory_bytes=3 << 30))
        _, said, _ = self.report(self.save(before), self.save(after, "b.json"))
        self.assertIn("no row in common: none has the same workload, client and parameters", said)
        self.assertIn("memory differs: none before, 3.00 GiB after", said)
        self.assertEqual((said.count("only before: get-4k, ringest, n "), said.count("only after: list")), (2, 1))

    def test_wrong_arguments(self):
        path = self.save(sample())
        self.assertEqual(self.report(path, "--fail-above", "5")[0], 2)
        for each in ("-1", "nan", "much"):
            said = io.StringIO()
            with self.subTest(each), self.assertRaises(SystemExit), contextlib.redirect_stderr(said):
                command.main(["report", path, path, "--fail-above", each])
            self.assertIn(f"argument --fail-above: invalid number value: '{each}'", said.getvalue())

    def test_markdown_of_anything(self):
        one = self.report(self.save(hostile()))[1]
        two = self.report(self.save(hostile()), self.save(hostile(), "b.json"))[1]
        for said in (one, two):
            self.assertNotRegex(said, r"(?<!\\)<script|(?<!\\)!?\[x|[\x00\x1b\u202e\ud800]")
            self.assertLess(max(map(len, said.splitlines())), 3000)
            for line in said.splitlines():
                if line.startswith("| "):
                    self.assertTrue(line.endswith(" |"), line)
        self.assertEqual(markdown.escaped("get_4k *a* <b> _c_ a|b"), r"get_4k \*a\* \<b\> \_c\_ a\|b")

    @needs_plots
    def test_a_page_stands_alone(self):
        read = self.check_page(self.page(sample()))
        self.assertEqual(read.tags.count("svg"), 6)
        self.assertEqual(read.tags.count("table"), 1)
        read = self.check_page(self.page(sample(rounds=6), sample(seed=2, rounds=6, faster=0.5)))
        self.assertEqual((read.tags.count("svg"), read.tags.count("table")), (4, 6))

    @needs_plots
    def test_a_page_of_anything(self):
        for document in (hostile(), Document([]), Document([Row("a", "b", error="c")])):
            self.check_page(self.page(document))
            self.check_page(self.page(document, document))
        for workloads in (40,):
            rows = [Row(f"w{i}", "a", rounds=[Round(1, 1)]) for i in range(workloads)]
            text = self.page(Document(rows))
            self.assertEqual(self.check_page(text).tags.count("svg"), 12)
            self.assertIn("Only the first 12 workloads have plots.", text)

    def drawn(self, document):
        """(what, figure) of each plot of a page."""
        from ringest.bench import plots

        found = []

        def watched(figure, what):
            found.append((what, figure))
            return plain(figure, what)

        plain = plots._svg
        with unittest.mock.patch.object(plots, "_svg", watched):
            self.page(document)
        return found

    @needs_plots
    def test_an_axis_has_two_numbers_at_least(self):
        for low, high in ((2700, 2900), (5, 5), (0.3, 0.31), (99, 101), (1, 1.5), (0.04, 300), (1e-5, 9e5)):
            bounds = [int(low * 1e6), int(high * 1e6)]
            one = Round(1, 200, latency=Latency([(each, 100) for each in sorted(set(bounds))]))
            for what, figure in self.drawn(Document([Row("a", "b", rounds=[one])])):
                if not what.startswith("latencies"):
                    continue
                axis = figure.axes[0].yaxis
                begin, end = axis.get_view_interval()
                seen = [each for each in axis.get_majorticklocs() if begin * 0.999 <= each <= end * 1.001]
                self.assertGreaterEqual(len(seen), 2, (low, high, begin, end))
                self.assertLessEqual(len(seen), 12, (low, high, begin, end))
                self.assertTrue(begin <= bounds[0] / 1e6 and bounds[1] / 1e6 <= end, (low, high, begin, end))

    @needs_plots
    def test_a_bar_has_all_phases(self):
        one = Round(1, 1, phases=[Phase(f"epoch {i}", 0.25) for i in range(40)])
        figure = next(f for what, f in self.drawn(Document([Row("a", "b", rounds=[one])])) if what.startswith("phases"))
        (axes,) = figure.axes
        self.assertAlmostEqual(sum(each.get_width() for each in axes.patches), 10)
        self.assertEqual([each.get_text() for each in figure.legends[0].texts][-2:], ["epoch 6", "33 more"])

    @needs_plots
    def test_names_of_bars_keep_both_ends(self):
        from ringest.bench import plots

        for label, shown in (("ringest", "ringest"), ("ringest threads, concurrency 64", "ringest threads,\nconcurrency 64"),
                             ("google-cloud-storage threads, concurrency 16", "google-cloud-storage\nthreads, concurrency 16")):  # fmt: skip
            self.assertEqual(plots._lines(label), shown)
        for label in ("x" * 100, "x " * 50 + "end", "begin, " + "x" * 80 + " end"):
            lines = plots._lines(label).split("\n")
            self.assertEqual(len(lines), 2)
            self.assertLess(max(map(len, lines)), 30)
            self.assertEqual((lines[0][:3], lines[1].rstrip()[-3:]), (label[:3], label.rstrip()[-3:]))

    @needs_plots
    def test_marks_say_what_they_are_where_the_pointer_rests(self):
        text = self.page(sample())
        for said in (r"ringest, connections 4: [\d,.]+ \([\d,.]+ to [\d,.]+\) operations/s", r"another, connections 1: user [\d,.]+ µs/operation",
                     r"another, connections 16: p50 [\d.]+ ms, p90 [\d.]+ ms, p99 [\d.]+ ms", r"ringest, connections 16: warm-up 0.200 s"):  # fmt: skip
            self.assertRegex(text, f"<title>{said}")
        both = self.page(sample(rounds=6), sample(seed=2, rounds=6, faster=0.5))
        self.assertRegex(both, r"<title>get-4k, ringest, connections 4: 0[.]\d+ \(0[.]\d+ to 0[.]\d+\)")
        self.assertNotIn('"tip ', text + both)

    @needs_plots
    def test_a_table_can_be_moved_by_keys(self):
        for text in (self.page(sample()), self.page(sample(rounds=6), sample(seed=2, rounds=6))):
            regions = re.findall(r'<div class="scroll" tabindex="0" role="region" aria-label="[^"]+"><table>', text)
            self.assertEqual((len(regions), len(regions) > 0), (text.count("<table"), True))

    @needs_plots
    def test_no_label_is_cut(self):
        """Where the names of rows are so long that little is left for the axes."""

        def seen(axes):
            """Names of ticks: those beyond the ends of an axis are not drawn."""
            low, high = sorted(axes.get_ylim())
            return [label for at, label in zip(axes.get_yticks(), axes.get_yticklabels()) if low <= at <= high]

        rng = random.Random(4)
        rows = [
            Row("get-100k", f"google-cloud-storage in threads {i}", {"concurrency": 48 + i}, rounds=[one_round(rng, 1e4 * (i + 1))] * 3)
            for i in range(4)
        ]  # fmt: skip
        drawn = [
            (what, text.get_text(), text.get_window_extent(), figure.bbox)
            for what, figure in self.drawn(Document(rows))
            for axes in figure.axes
            for text in (axes.xaxis.label, axes.yaxis.label, *seen(axes), *axes.texts)
            if text.get_text()
        ]
        self.assertGreater(len(drawn), 20)
        for what, text, label, box in drawn:
            self.assertTrue(box.x0 <= label.x0 and label.x1 <= box.x1, f"{what}: {text}: {label}")
            self.assertTrue(box.y0 <= label.y0 and label.y1 <= box.y1, f"{what}: {text}: {label}")

    @needs_plots
    @unittest.skipUnless(CHROMIUM, "chromium is not installed")
    def test_a_browser_shows_it(self):
        for name, text in (("sample", self.page(sample())), ("hostile", self.page(hostile()))):
            path = os.path.join(self.folder, name + ".html")
            with open(path, "w", encoding="utf-8") as file:
                file.write(text)
            done = subprocess.run(
                [
                    CHROMIUM, "--headless", "--no-sandbox", "--disable-gpu", "--enable-logging=stderr", "--dump-dom",
                    f"--user-data-dir={self.folder}/profile", "--window-size=400,800", "file://" + path,
                ],
                capture_output=True, text=True, timeout=300,
            )  # fmt: skip
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertNotIn("CONSOLE", done.stderr)
            self.assertEqual(done.stdout.count("<svg"), text.count("<svg"))
            self.assertEqual(done.stdout.count("<tr"), text.count("<tr"))

    def test_without_matplotlib_it_says_what_to_install(self):
        code = "import sys; sys.modules['matplotlib'] = None; from ringest.bench.__main__ import main; sys.exit(main(sys.argv[1:]))"
        path = os.path.join(self.folder, "report.html")
        arguments = ["report", self.save(sample()), "--html", path]
        done = subprocess.run([sys.executable, "-c", code, *arguments], capture_output=True, text=True)
        self.assertEqual((done.returncode, done.stdout, os.path.exists(path)), (1, "", False))
        self.assertIn("needs the package matplotlib, which is not installed: pip install 'ringest[bench]'", done.stderr)


if __name__ == "__main__":
    unittest.main()
