"""Where the bytes of many rows lie, and what their words refer to: places in one array of numpy."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from state_store.data.rows.packed import WORD, Packed, words_anywhere
from state_store.errors import DamagedError


@dataclass(frozen=True)
class Region:
    """Stretches of `data`, each of which has offsets relative to its start; `stride` is the distance of
    the starts where that is always the same (None: it is not), and `aligned` says that they are multiples
    of 8.
    """

    data: Any
    starts: Any
    ends: Any
    stride: int | None = None
    aligned: bool = True

    @classmethod
    def of(cls, packed: Packed) -> Region:
        starts, ends = packed.starts, packed.starts + packed.lengths
        if len(packed.data) % WORD or (starts & (WORD - 1)).any():
            return cls(packed.data, starts, ends, aligned=False)
        steps = starts[1:] - starts[:-1]
        is_even = len(steps) > 0 and steps[0] > 0 and bool((steps == steps[0]).all())
        return cls(packed.data, starts, ends, int(steps[0]) if is_even else None)

    def taken(self, chosen: Any) -> Region:
        """Some of the stretches, by number."""
        return Region(self.data, self.starts[chosen], self.ends[chosen])

    def parts(self, words: Any, nulls: Any) -> Region:
        """What words of offset and length refer to; nothing for nulls. Raises DamagedError."""
        import numpy

        offsets = numpy.where(nulls, 0, words >> 32)
        sizes = numpy.where(nulls, 0, words & 0xFFFFFFFF)
        starts = self.starts + offsets
        ends = starts + sizes
        wrong = (offsets < 0) | (ends > self.ends)
        if wrong.any():
            row = int(numpy.flatnonzero(wrong)[0])
            first = int(offsets[row])
            raise DamagedError(
                f"a row of {self.ends[row] - self.starts[row]} bytes refers to bytes {first} to "
                f"{first + int(sizes[row])}"
            )
        return Region(self.data, starts, ends)

    def at(self, places: Any, kind: str) -> Any:
        """The number of numpy's type `kind` at each place, a multiple of its size."""
        import numpy

        view = self.data.view(kind)
        return view[places // numpy.dtype(kind).itemsize]

    def words(self, offset: int) -> Any:
        """The 64-bit word of every row `offset` bytes after its start."""
        if not self.aligned:
            return words_anywhere(self.data)[self.starts + offset]
        words = self.data.view("<i8")
        if self.stride is None:
            return words[(self.starts + offset) >> 3]
        first = (int(self.starts[0]) + offset) // WORD
        step = self.stride // WORD
        return words[first : first + step * (len(self.starts) - 1) + 1 : step]

    def check_room(self, least: int, fields: int) -> None:
        import numpy

        short = self.ends - self.starts < least
        if short.any():
            row = int(numpy.flatnonzero(short)[0])
            length = int(self.ends[row] - self.starts[row])
            raise DamagedError(
                f"a row of {fields} fields has {length + 1} bytes, at least {least + 1} are needed: it was "
                "written with other columns than Spark's file of the schema has, or is damaged"
            )
