"""The objects that a workload reads: what the table [data] says, and their names and sizes."""

from __future__ import annotations

import dataclasses
import math
import statistics
from collections.abc import Iterator
from dataclasses import dataclass

from ringest.bench import fields

# Sizes that differ are of so many classes, equally large: a normal distribution by its quantiles.
SIZE_CLASSES = 16
# What a scaled-down set has at least, as long as the original has as many; then sizes become smaller.
OBJECTS_MIN = 32
FOLDERS_MAX = 4096


@dataclass(frozen=True)
class Group:
    """Objects PREFIX00000000 and so on, of one size."""

    prefix: str
    count: int
    size: int

    def names(self) -> Iterator[str]:
        return (f"{self.prefix}{i:08d}" for i in range(self.count))


@dataclass(frozen=True, kw_only=True)
class Objects:
    objects: int = fields.count()
    size: int = fields.size()
    # Of a normal distribution; no size is less than a tenth of the mean.
    size_deviation: int = fields.size(0)
    # Names are spread over so many folders, each `depth` folders deep; 0: none.
    folders: int = fields.count(0, lowest=0, highest=FOLDERS_MAX)
    depth: int = fields.count(1, highest=16)

    def scaled(self, factor: float, ranks: int) -> Objects:
        """With so much of the bytes: less objects, and if these are few, smaller ones."""
        if factor == 1:
            return self
        objects = fields.scaled_count(self.objects, factor, OBJECTS_MIN * ranks)
        left = min(self.objects * factor / objects, 1.0)
        return dataclasses.replace(
            self,
            objects=objects,
            size=math.ceil(self.size * left),
            size_deviation=int(self.size_deviation * left),
            folders=min(self.folders, objects),
        )

    def _sizes(self) -> list[int]:
        if self.size_deviation == 0:
            return [self.size]
        spread = statistics.NormalDist(self.size, self.size_deviation)
        classes = min(SIZE_CLASSES, self.objects)
        return [max(round(spread.inv_cdf((i + 0.5) / classes)), self.size // 10) for i in range(classes)]

    def _folder(self, number: int) -> str:
        """Such as 00c/f0/: the number in hexadecimal digits, cut into so many folders."""
        digits = f"{number:0{max(self.depth, 3)}x}"
        first = len(digits) - self.depth + 1
        return "/".join([digits[:first], *digits[first:]]) + "/"

    def groups(self) -> list[Group]:
        """Below the folder of the data."""
        places = [self._folder(i) for i in range(self.folders)] or [""]
        kinds = [(place, f"{i:02d}-", size) for place in places for i, size in enumerate(self._sizes())]
        share, rest = divmod(self.objects, len(kinds))
        counts = [share + (i < rest) for i in range(len(kinds))]
        return [Group(place + name, n, size) for (place, name, size), n in zip(kinds, counts) if n]

    def entries(self, prefix: str) -> list[tuple[str, int]]:
        return [(prefix + name, group.size) for group in self.groups() for name in group.names()]

    @property
    def largest(self) -> int:
        """Of an object: what few of many are larger than."""
        return self.size + self.size_deviation

    @property
    def total_bytes(self) -> int:
        return sum(group.count * group.size for group in self.groups())
