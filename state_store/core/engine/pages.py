"""Records of a table as numpy has them, many at a time: keys and values lie in a few arrays of bytes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from state_store.core.compat import zip

if TYPE_CHECKING:
    import pyarrow


WORD = 8
KEY_PLACE = 5
"""Where keys begin, modulo 8: three bytes later, after the id of a column family and the version of a row, is
a multiple of 8."""


class ByteSlices(NamedTuple):
    """Parts of `data` (numpy bytes): `lengths[i]` bytes from `starts[i]`."""

    data: Any
    starts: Any
    lengths: Any

    def take(self, chosen: Any) -> ByteSlices:
        return ByteSlices(self.data, self.starts[chosen], self.lengths[chosen])

    def value(self, number: int) -> bytes:
        """One of them."""
        start = int(self.starts[number])
        return bytes(self.data[start : start + int(self.lengths[number])])

    def to_arrow(self) -> pyarrow.Array:
        """Their bytes, copied: they come one after the other in `data`."""
        import numpy
        import pyarrow

        count = len(self.starts)
        bounds = numpy.empty(2 * count, numpy.int64)
        bounds[::2], bounds[1::2] = self.starts, self.starts + self.lengths
        buffers = [None, pyarrow.py_buffer(bounds), pyarrow.py_buffer(self.data)]
        stretches = pyarrow.Array.from_buffers(pyarrow.large_binary(), max(0, 2 * count - 1), buffers)
        return stretches.take(pyarrow.array(numpy.arange(0, 2 * count, 2)))

    def to_list(self) -> list[bytes]:
        """Each of them."""
        data = self.data.tobytes()
        bounds = zip(self.starts.tolist(), (self.starts + self.lengths).tolist(), strict=True)
        return [data[start:end] for start, end in bounds]


@dataclass(frozen=True)
class Page:
    """Records in order of their keys; `removed` says of each whether it removes its key."""

    keys: ByteSlices
    values: ByteSlices
    removed: Any

    def __len__(self) -> int:
        return len(self.removed)

    def between(self, first: int, end: int) -> Page:
        """Records number `first` to `end` (excluded)."""
        return self.take(slice(first, end))

    def take(self, chosen: Any) -> Page:
        """Some of the records: numbers, a slice, or true for each that is wanted."""
        return Page(self.keys.take(chosen), self.values.take(chosen), self.removed[chosen])


def concatenate(parts: Sequence[Page]) -> Page:
    """The records of pages, one after the other; that of one as it is."""
    import numpy

    if len(parts) == 1:
        return parts[0]
    keys, values = ([getattr(part, name) for part in parts] for name in ("keys", "values"))
    return Page(
        _concatenate_slices(keys),
        _concatenate_slices(values),
        numpy.concatenate([part.removed for part in parts]),
    )


def _concatenate_slices(parts: Sequence[ByteSlices]) -> ByteSlices:
    """Each part of which comes one after the other in its data; what begins at a multiple of 8 still does."""
    import numpy

    data, starts, size = [], [], 0
    for part in parts:
        first = int(part.starts[0]) // WORD * WORD
        whole = part.data[first : int(part.starts[-1] + part.lengths[-1])]
        room = -len(whole) % WORD
        data += [whole, numpy.zeros(room, numpy.uint8)]
        starts.append(part.starts + (size - first))
        size += len(whole) + room
    lengths = numpy.concatenate([part.lengths for part in parts])
    return ByteSlices(numpy.concatenate(data), numpy.concatenate(starts), lengths)


def gather_bytes(data: Any, places: Any, size: int) -> Any:
    """`size` bytes of `data` from each place on, as a new array of things of this many bytes.

    Numpy copies such things several times as fast as numbers that do not lie at multiples of their size.
    """
    import numpy

    count = max(0, len(data) - size + 1)
    return numpy.ndarray((count,), f"V{size}", buffer=data, strides=(1,))[places]
