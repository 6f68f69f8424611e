"""Circles among units. A unit is NAME.c and NAME.h of one folder; it includes another where either file does.
Two units that include each other, in however many steps, are one unit in two places."""

import os
import re
from collections.abc import Iterator, Mapping

INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]+"([^"]+)"', re.MULTILINE)

Graph = dict[str, set[str]]


def unit_of(path: str) -> str:
    return os.path.splitext(path)[0]


def graph_of(sources: Mapping[str, str]) -> Graph:
    """Which unit includes which; `sources` are texts by path. Includes are told from the root or from the
    file's own folder."""
    graph: Graph = {unit_of(path): set() for path in sources}
    for path, text in sources.items():
        for name in INCLUDE.findall(text):
            for target in (name, os.path.join(os.path.dirname(path), name)):
                if target in sources and unit_of(target) != unit_of(path):
                    graph[unit_of(path)].add(unit_of(target))
    return graph


def reached(graph: Graph, unit: str) -> set[str]:
    """What a unit includes in one step or more."""
    found: set[str] = set()
    todo = list(graph[unit])
    while todo:
        each = todo.pop()
        if each not in found:
            found.add(each)
            todo += graph[each]
    return found


def circles_of(graph: Graph) -> list[list[str]]:
    """Groups of units of which each includes each."""
    after = {unit: reached(graph, unit) for unit in graph}
    groups = {frozenset(other for other in after[unit] if unit in after[other]) for unit in graph}
    return sorted(sorted(group) for group in groups if group)


def check_circles(sources: Mapping[str, str]) -> Iterator[str]:
    graph = graph_of(sources)
    for circle in circles_of(graph):
        arrows = [f"{unit} includes {', '.join(sorted(graph[unit] & set(circle)))}" for unit in circle]
        yield "a circle of includes: " + "; ".join(arrows)
