"""Each rule of tidy.py on a made-up tree: it finds what breaks the rule, and nothing in a tree that keeps it."""

import contextlib
import json
import os
import subprocess
import tempfile
import unittest
from unittest import mock

import callers
import sizes
import tidy
import units

GOOD = {
    "runtime/a.c": '#include "runtime/a.h"\n\nint rg_a_get(void)\n{\n    return 1;\n}\n',
    "runtime/a.h": "int rg_a_get(void);\n",
    "tests/runtime/test_a.c": '#include "runtime/a.h"\n\nint main(void)\n{\n    return rg_a_get();\n}\n',
}


def function_of(lines, name="rg_long"):
    """One that is that long, from its name to its end."""
    return f"int {name}(void)\n{{\n" + "    work();\n" * (lines - 3) + "}\n"


class Sources(unittest.TestCase):
    def findings(self, files, **lists):
        """Of GOOD with these files; None takes one away. `lists` are tidy.py's."""
        with tempfile.TemporaryDirectory() as root, contextlib.ExitStack() as stack:
            for path, text in {**GOOD, **files}.items():
                if text is not None:
                    os.makedirs(os.path.dirname(os.path.join(root, path)), exist_ok=True)
                    with open(os.path.join(root, path), "w", encoding="utf-8") as file:
                        file.write(text)
            for name, value in lists.items():
                stack.enter_context(mock.patch.object(tidy, name, value))
            return list(tidy.check_sources(root))

    def check(self, files, *wanted, **lists):
        found = self.findings(files, **lists)
        self.assertEqual(len(found), len(wanted), found)
        for text in wanted:
            self.assertTrue(any(text in each for each in found), (text, found))

    def test_a_good_tree(self):
        self.check({})

    def test_the_documentation_names_what_is_there(self):
        good = "# A title\n\n`runtime/a.c`, `a.h` and `rg_a_get` ([again](#a-title), [a](../runtime/a.h)).\n"
        self.check({"docs/a.md": good})
        wrong = {
            "`runtime/b.c`": "names runtime/b.c, which is not there",
            "runtime/x/a.c": "names runtime/x/a.c, which is not there",
            "`b.c`": "names b.c, which is not there",
            "<ringest/b.h>": "names ringest/b.h, which is not there",
            "rg_b_get": "names rg_b_get, which no source has",
            "RG_B_MAX": "names RG_B_MAX, which no source has",
            "`B_MAX`": "names B_MAX, which no source has",
            "[b](b.md)": "leads to docs/b.md, which is not there",
            '<img alt="b" src="b.svg">': "leads to docs/b.svg, which is not there",
            '<source media="m" srcset="b-dark.svg">': "leads to docs/b-dark.svg, which is not there",
            "[b](#b)": "leads to #b, which docs/a.md has not",
        }
        for text, finding in wrong.items():
            with self.subTest(text):
                self.check({"docs/a.md": f"Good.\n{text}.\n"}, f"docs/a.md:2: {finding}")

    def test_the_indexes_name_every_page(self):
        indexes = {"docs/README.md": "# All\n\n[a](a.md)\n", "docs/site/mkdocs.yml": "nav: [A: a.md]\n"}
        self.check({**indexes, "docs/a.md": "# A\n"})
        pages = {"docs/a.md": "# A\n", "docs/b.md": "# B\n"}
        self.check({**indexes, **pages}, *(f"docs/b.md: {index} does not name it" for index in indexes))

    def test_includes_upwards(self):
        self.check({"runtime/a.h": '#include "http/b.h"\n'}, 'runtime/a.h:1: must not include "http/b.h"')

    def test_foreign_headers(self):
        self.check({"runtime/a.h": "\n#include <openssl/ssl.h>\n"}, "runtime/a.h:2: must not include <openssl/ssl.h>")

    def test_folders_of_a_layer(self):
        folders = {"gcs": {"wire": set(), "request": {"wire"}}}
        tests = {"tests/gcs/wire/test_w.c": "", "tests/gcs/request/test_r.c": ""}
        good = {"gcs/wire/w.c": "", "gcs/request/r.c": '#include "gcs/wire/w.h"\n', **tests}
        self.check(good, FOLDERS=folders)
        self.check(
            {**good, "gcs/wire/w.c": '#include "gcs/request/r.h"\n'},
            'must not include "gcs/request/r.h"',
            FOLDERS=folders,
        )
        self.check({**good, "gcs/other.h": ""}, "lies in none of the folders", FOLDERS=folders)

    def test_the_order_of_folders_has_no_circle(self):
        self.check({}, "gcs/wire may include request", FOLDERS={"gcs": {"wire": {"request"}, "request": {"wire"}}})

    def test_circles(self):
        circle = {
            "http/b.h": "",
            "http/b.c": '#include "http/c.h"\n',
            "http/c.h": '#include "http/b.h"\n',
            "tests/http/test_b.c": "",
        }
        self.check(circle, "http/b includes http/c; http/c includes http/b")
        self.check({**circle, "http/b.c": ""})

    def test_a_circle_of_three_and_what_only_leads_to_it(self):
        graph = {"a": {"b"}, "b": {"c"}, "c": {"a"}, "d": {"a"}, "e": set()}
        self.assertEqual(units.circles_of(graph), [["a", "b", "c"]])

    def test_functions_of_c(self):
        most = sizes.FUNCTION_LINES
        self.check({"cli/b.c": function_of(most)})
        self.check({"cli/b.c": function_of(most + 1)}, f"cli/b.c:1: rg_long has {most + 1} lines")
        self.check({"tests/http/test_b.c": "\n" + function_of(most + 1)}, "tests/http/test_b.c:2: rg_long")

    def test_parameters_count(self):
        text = function_of(sizes.FUNCTION_LINES).replace("(void)", "(int a,\n            int b)")
        self.check({"cli/b.c": text}, "rg_long")

    def test_a_table_is_no_function(self):
        self.check({"cli/b.c": "static const int rows[] = {\n" + "    1,\n" * 100 + "};\n"})

    def test_functions_of_python(self):
        def text(lines):
            return "class A:\n    async def long(self):\n" + "        await x\n" * (lines - 1)

        self.check({"perf/a.py": text(sizes.FUNCTION_LINES)})
        self.check({"perf/a.py": text(sizes.FUNCTION_LINES + 1)}, "perf/a.py:2: long has")

    def test_files_of_c(self):
        code = "int x;\n" * sizes.FILE_LINES
        comments = "\n/* One\n * two */\n// three\n"
        self.check({"cli/b.h": code + comments})
        self.check({"cli/b.h": code + comments + 'char *y = "/*";\n'}, "cli/b.h: 801 lines of code")
        self.check({"cli/b.h": code + "int y; /* Why. */\n"}, "cli/b.h: 801 lines of code")

    def test_files_of_python(self):
        code = '"""What\nit is."""\n\n# Why.\n' + "x = 1\n" * sizes.FILE_LINES
        self.check({"perf/a.py": code})
        self.check({"perf/a.py": code + 'y = """\n"""\n'}, "perf/a.py: 802 lines of code")

    def test_a_unit_without_its_test(self):
        self.check({"tests/runtime/test_a.c": None}, "tests/runtime/test_a.c is missing")
        self.check({"runtime/deep/b.c": ""}, "tests/runtime/deep/test_b.c is missing")

    def test_printing(self):
        self.check({"http/b.h": 'static void say(void) { puts("x"); }\n'}, "prints only through its log")

    def test_starting_threads(self):
        call = "static int go(void) { return pthread_create(&t, NULL, f, NULL); }\n"
        self.check({"cli/b.c": call}, "threads are started by rg_thread_start")

    def test_markers_and_machines(self):
        self.check({"docs/a.md": "TO" + "DO: more\n"}, "docs/a.md:1: TO" + "DO")
        self.check({"docs/a.md": "see /ho" + "me/me/a\n"}, "a path of one machine")


def compiled(defines="", wants=""):
    return callers.Object(set(defines.split()), set(wants.split()))


class Callers(unittest.TestCase):
    def findings(self, objects, public="", for_tests=""):
        return list(callers.check_callers(objects, public.split(), for_tests.split()))

    def test_one_that_is_called_from_another_file(self):
        self.assertEqual(self.findings({"a.c": compiled("rg_f"), "b.c": compiled(wants="rg_f")}), [])

    def test_one_that_nobody_calls(self):
        self.assertIn("make it static", *self.findings({"a.c": compiled("rg_f main PyInit__core")}))

    def test_what_users_call(self):
        self.assertEqual(self.findings({"a.c": compiled("rg_f")}, public="rg_f"), [])

    def test_one_that_only_tests_call(self):
        objects = {"a.c": compiled("rg_f"), "tests/b.c": compiled("rg_g", "rg_f")}
        self.assertIn("no caller but tests", *self.findings(objects))
        self.assertEqual(self.findings(objects, for_tests="rg_f"), [])

    def test_one_that_is_said_to_be_for_tests(self):
        objects = {"a.c": compiled("rg_f"), "b.c": compiled(wants="rg_f"), "tests/b.c": compiled(wants="rg_f")}
        self.assertIn("may leave the list", *self.findings(objects, for_tests="rg_f"))
        self.assertIn("make it static", self.findings({"a.c": compiled("rg_f")}, for_tests="rg_f")[0])

    def test_a_build(self):
        """With a compiler: the call from the same file does not count."""
        with tempfile.TemporaryDirectory() as root:
            commands = []
            for name, text in {
                "a.c": "int rg_own(void) { return 1; }\nint rg_used(void) { return rg_own(); }\nint rg_data = 1;\n",
                "b.c": "int rg_used(void);\nint main(void) { return rg_used(); }\n",
            }.items():
                with open(os.path.join(root, name), "w", encoding="ascii") as file:
                    file.write(text)
                output = name + ".o"
                subprocess.run(["cc", "-O0", "-c", name, "-o", output], cwd=root, check=True)
                commands.append({"directory": root, "file": name, "output": output})
            described = os.path.join(root, "compile_commands.json")
            with open(described, "w", encoding="ascii") as file:
                json.dump(commands, file)
            found = self.findings(callers.objects_of(root, root))
            gone = {"directory": root, "file": "gone.c", "output": "gone.o"}
            with open(described, "w", encoding="ascii") as file:
                json.dump([*commands, gone], file)
            with self.assertRaisesRegex(callers.NotCompiled, "1 files are not compiled, gone.c"):
                callers.objects_of(root, root)
        self.assertEqual([each.split()[1] for each in found], ["rg_data", "rg_own"])


class Symbols(unittest.TestCase):
    def test_names(self):
        self.assertEqual(list(tidy.check_symbols("x", ["rg_a", "_init", "__asan_x"])), [])
        self.assertEqual(list(tidy.check_symbols("x", ["other"])), ["x: symbol other does not begin with rg_"])

    def test_functions_of_a_newer_glibc(self):
        text = "         U twalk_r@GLIBC_2.30\n         U exp@GLIBC_2.29\n         U stat64@GLIBC_2.33\n         U puts@GLIBC_2.2.5\n"
        found = list(tidy.check_glibc("x", text))
        self.assertEqual(found, ["x: twalk_r came with glibc 2.30; wheels are built for 2.28"])

    def test_a_library_that_exports_too_much_or_nothing(self):
        with tempfile.TemporaryDirectory() as root:
            library = os.path.join(root, "x.so")
            subprocess.run(
                ["cc", "-shared", "-fPIC", "-nostdlib", "-x", "c", "-", "-o", library],
                input=b"int other(void) { return 1; }",
                check=True,
            )
            found = list(tidy.check_exports(library))
        self.assertIn(f"{library}: exports nothing", found)
        self.assertIn("x.so: symbol other does not begin with rg_", found)


if __name__ == "__main__":
    unittest.main()
