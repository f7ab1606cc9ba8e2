"""Records of a table as numpy has them, many at a time: keys and values lie in a few arrays of bytes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from state_store.core.compat import zip

if TYPE_CHECKING:
    import pyarrow


WORD = 8
KEY_PLACE = 5
"""Where keys begin, modulo 8: three bytes later, after the id of a column family and the version of a row, is
a multiple of 8."""


class Stretches(NamedTuple):
    """Parts of `data` (numpy bytes): `lengths[i]` bytes from `starts[i]`."""

    data: Any
    starts: Any
    lengths: Any

    def taken(self, chosen: Any) -> Stretches:
        return Stretches(self.data, self.starts[chosen], self.lengths[chosen])

    def text(self, number: int) -> bytes:
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

    def texts(self) -> Iterator[bytes]:
        """Each of them."""
        data = self.data.tobytes()
        bounds = zip(self.starts.tolist(), (self.starts + self.lengths).tolist(), strict=True)
        return (data[start:end] for start, end in bounds)


@dataclass(frozen=True)
class Page:
    """Records in order of their keys; `removed` says of each whether it removes its key."""

    keys: Stretches
    values: Stretches
    removed: Any

    def __len__(self) -> int:
        return len(self.removed)

    def between(self, first: int, end: int) -> Page:
        """Records number `first` to `end` (excluded)."""
        return self.taken(slice(first, end))

    def taken(self, chosen: Any) -> Page:
        """Some of the records: numbers, a slice, or true for each that is wanted."""
        return Page(self.keys.taken(chosen), self.values.taken(chosen), self.removed[chosen])


def joined(parts: Sequence[Page]) -> Page:
    """The records of pages, one after the other; that of one as it is."""
    import numpy

    if len(parts) == 1:
        return parts[0]
    keys, values = ([getattr(part, name) for part in parts] for name in ("keys", "values"))
    return Page(_joined(keys), _joined(values), numpy.concatenate([part.removed for part in parts]))


def _joined(parts: Sequence[Stretches]) -> Stretches:
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
    return Stretches(numpy.concatenate(data), numpy.concatenate(starts), lengths)


def gathered(data: Any, places: Any, size: int) -> Any:
    """`size` bytes of `data` from each place on, as a new array of things of this many bytes.

    Numpy copies such things several times as fast as numbers that do not lie at multiples of their size.
    """
    import numpy

    count = max(0, len(data) - size + 1)
    return numpy.ndarray((count,), f"V{size}", buffer=data, strides=(1,))[places]
