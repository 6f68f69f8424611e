"""How long functions and files may be. A line of code is one that is neither blank nor only comment; of Python,
the texts that describe a module, class or function are comments. A function is measured as it stands, from its
name to its end."""

import ast
import re
from collections.abc import Iterator

FUNCTION_LINES = 70
FILE_LINES = 800

COMMENT_OR_STRING = re.compile(r'"(?:\\.|[^"\\\n])*"|/\*.*?\*/|//[^\n]*', re.DOTALL)


def without_comments(text: str) -> str:
    """C without its comments; line numbers stay."""

    def blank(match: re.Match[str]) -> str:
        return match.group() if match.group().startswith('"') else re.sub(r"[^\n]", " ", match.group())

    return COMMENT_OR_STRING.sub(blank, text)


def functions_of_c(text: str) -> Iterator[tuple[str, int, int]]:
    """(name, first line, lines) of each function, as clang-format leaves them: braces in the first column, with
    the name in the line that last began there."""
    name, began, is_open = "", 0, False
    for number, line in enumerate(text.splitlines(), 1):
        if line == "{":
            is_open = True
        elif is_open and line.startswith("}"):
            yield name, began, number - began + 1
            is_open = False
        elif not is_open and re.match(r"[A-Za-z_]", line):
            called = re.search(r"(\w+)\(", line)
            name, began = called.group(1) if called else line, number


def functions_of_python(tree: ast.Module) -> Iterator[tuple[str, int, int]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node.name, node.lineno, (node.end_lineno or node.lineno) - node.lineno + 1


def code_lines_of_c(text: str) -> int:
    return sum(1 for line in without_comments(text).splitlines() if line.strip())


def descriptions(tree: ast.Module) -> Iterator[ast.Expr]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) and node.body:
            first = node.body[0]
            if isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant):
                yield first


def code_lines_of_python(text: str, tree: ast.Module) -> int:
    lines = text.splitlines()
    for each in descriptions(tree):
        for number in range(each.lineno - 1, each.end_lineno or each.lineno):
            lines[number] = ""
    return sum(1 for line in lines if line.strip() and not line.lstrip().startswith("#"))


def check_sizes(path: str, text: str) -> Iterator[str]:
    """Of one file."""
    if path.endswith(".py"):
        tree = ast.parse(text, path)
        functions, count = functions_of_python(tree), code_lines_of_python(text, tree)
    else:
        functions, count = functions_of_c(text), code_lines_of_c(text)
    for name, line, length in functions:
        if length > FUNCTION_LINES:
            yield f"{path}:{line}: {name} has {length} lines, more than {FUNCTION_LINES}"
    if count > FILE_LINES:
        yield f"{path}: {count} lines of code, more than {FILE_LINES}"
