"""Which rows come, and which have come: the order of the rows of row groups, and what of it was consumed.

Row groups are gathered in *pools*, whose rows come in an order that seed and epoch determine; without a shuffle a pool
is one row group, in its order. A *record* says how far somebody was in a pool: its row groups, and how many rows of its
order had been given. When what is left of an epoch is divided among ranks and workers anew, all records that they had
become a *layer*: rows that they say were given do not come again. A later layer counts the rows that the earlier ones
left.

Invariant: of a row group, what all layers have given and what is left are all of its rows, each once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from ringest._needs import needs

Record = tuple[tuple[int, ...], int]
Layers = tuple[tuple[Record, ...], ...]


class Parts(NamedTuple):
    """What was consumed of row groups that were not consumed whole."""

    layers: Layers = ()
    pool: Record | None = None

    def to_plain(self) -> dict[str, Any]:
        """As JSON has it."""
        layers = [[[list(ids), done] for ids, done in layer] for layer in self.layers]
        return {"layers": layers, "pool": None if self.pool is None else [list(self.pool[0]), self.pool[1]]}

    @classmethod
    def of_plain(cls, plain: Any) -> Parts:
        try:
            layers = tuple(tuple(_record(record) for record in layer) for layer in plain["layers"])
            return cls(layers, None if plain["pool"] is None else _record(plain["pool"]))
        except (KeyError, TypeError, ValueError):
            raise ValueError(f"the parts of a state are damaged: {str(plain)[:100]}") from None

    def settled(self) -> Layers:
        """For those among whom the rest is divided anew."""
        return self.layers if self.pool is None else (*self.layers, (self.pool,))


def _record(plain: Any) -> Record:
    ids, done = plain
    if not all(isinstance(each, int) and each >= 0 for each in (*ids, done)) or not ids:
        raise ValueError
    return tuple(ids), done


def unite_parts(all_parts: Sequence[Parts | None]) -> Parts | None:
    """What all of them say together, whose row groups are different ones where they say different things."""
    united: list[dict[Record, None]] = []
    for parts in all_parts:
        for depth, layer in enumerate(parts.settled() if parts is not None else ()):
            united += [{}] * (depth == len(united))
            united[depth] = {**united[depth], **dict.fromkeys(layer)}
    for records in united:
        ids = [each for record in records for each in record[0]]
        if len(ids) != len(set(ids)):
            raise ValueError("states say different things of the same row groups: they are not of one run")
    return Parts(tuple(tuple(sorted(records)) for records in united)) if united else None


class Rows:
    """The rows of the row groups of an epoch. `count` says how many a row group has."""

    def __init__(self, count: Callable[[int], int], layers: Layers, *, shuffle: bool, seed: int, epoch: int) -> None:
        self._count, self._shuffle, self._of = count, shuffle, (seed, epoch)
        self._layers = [{each: record for record in layer for each in record[0]} for layer in layers]
        self._orders: dict[tuple[int, Record], Any] = {}

    def left(self, row_group: int) -> Any:
        """The numbers of its rows that were not given: a range, or an array."""
        return self._left(row_group, len(self._layers))

    def _left(self, row_group: int, depth: int) -> Any:
        while depth > 0 and row_group not in self._layers[depth - 1]:
            depth -= 1
        if depth == 0:
            return range(self._count(row_group))
        record = self._layers[depth - 1][row_group]
        key = depth, record
        if key not in self._orders:
            self._orders[key] = self._order(record[0], depth - 1)
        rest = self._orders[key][record[1] :]
        if isinstance(rest, range):
            return rest
        first = sum(map(self._count, record[0][: record[0].index(row_group)]))
        mine = rest[(rest >= first) & (rest < first + self._count(row_group))] - first
        mine.sort()
        return mine

    def order(self, ids: Sequence[int]) -> Any:
        """In which the rows of a pool come that were not given: their places in its row groups, one behind the
        other, as a range or an array."""
        return self._order(ids, len(self._layers))

    def _order(self, ids: Sequence[int], depth: int) -> Any:
        if not self._shuffle:
            (row_group,) = ids
            return self._left(row_group, depth)
        with needs("shuffle=True of ringest.ParquetDataset"):
            import numpy
        # Its import takes milliseconds, which whoever imports ringest would have to wait for.
        import hashlib

        first, places = 0, []
        for row_group in ids:
            places.append(first + numpy.asarray(self._left(row_group, depth), dtype=numpy.int64))
            first += self._count(row_group)
        seed = hashlib.sha256(repr((*self._of, ids[0])).encode()).digest()
        # Of all generators of NumPy this one gives the same numbers in every version.
        state = numpy.random.RandomState(numpy.frombuffer(seed, "<u4"))
        return numpy.concatenate(places)[state.permutation(sum(map(len, places)))]
