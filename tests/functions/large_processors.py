"""Processors with large groups and large states, which show how much memory their worker has used."""

from __future__ import annotations

import resource
from collections.abc import Iterator
from typing import Any

from pyspark.sql import Row
from pyspark.sql.streaming import StatefulProcessor

OUTPUT = "n long, peak_kb long, growth_kb long"


class Large(StatefulProcessor):
    """Shows a number, and the peak of the worker's resident memory with its growth by this group."""

    def init(self, handle: Any) -> None:
        raise NotImplementedError

    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[Any]:
        before = _peak_kb()
        n = self.number(rows)
        yield Row(n=n, peak_kb=_peak_kb(), growth_kb=_peak_kb() - before)

    def number(self, rows: Any) -> int:
        """Return a number that depends on all of the rows and the state."""
        raise NotImplementedError

    def close(self) -> None:
        pass


class LargeGroup(Large):
    """Counts rows."""

    def init(self, handle: Any) -> None:
        self.text = handle.getValueState("text", "s string")

    def number(self, rows: Any) -> int:
        count = 0
        for row in rows:
            count += row.v >= 0
        self.text.update((str(count),))
        return count


class LargeValue(Large):
    """Keeps a text with as many bytes as its rows say, and bytes as many."""

    def init(self, handle: Any) -> None:
        self.text = handle.getValueState("text", "s string")
        self.bytes = handle.getValueState("bytes", "b binary")

    def number(self, rows: Any) -> int:
        length = sum(row.v for row in rows)
        known = len(self.text.get()[0]) + len(self.bytes.get()[0]) if self.text.exists() else 0
        self.text.update(("x" * length,))
        self.bytes.update((b"y" * length,))
        return known + len(self.text.get()[0])


class LargeMap(Large):
    """Adds as many entries to a map as its rows say, and goes through all of them."""

    def init(self, handle: Any) -> None:
        self.numbers = handle.getMapState("numbers", "k long", "n long")

    def number(self, rows: Any) -> int:
        length = sum(row.v for row in rows)
        for number in range(length):
            self.numbers.updateValue((number,), (1,))
        return sum(n for _, (n,) in self.numbers.iterator()) + sum(1 for _ in self.numbers.values())


class LargeList(Large):
    """Adds as many entries to a list as its rows say, and goes through all of them."""

    def init(self, handle: Any) -> None:
        self.numbers = handle.getListState("numbers", "n long")

    def number(self, rows: Any) -> int:
        length = sum(row.v for row in rows)
        for _ in range(length):
            self.numbers.appendValue((1,))
        return sum(n for (n,) in self.numbers.get())


def _peak_kb() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
