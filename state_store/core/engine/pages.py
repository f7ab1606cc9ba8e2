"""Many records of a table as numpy arrays: keys and values are slices of a few arrays of bytes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from state_store.core.compat import zip

if TYPE_CHECKING:
    import pyarrow


WORD = 8
KEY_PLACE = 5
"""Offset of keys modulo 8: three bytes later, after the id of a column family and the version of a row, is a
multiple of 8."""

_LONG_SLICE = 1024
"""Number of items from which a slice is copied for itself."""


class ByteSlices(NamedTuple):
    """Slices of an array of bytes: slice i has `lengths[i]` bytes from `starts[i]`.

    Attributes:
        data: numpy array of uint8.
        starts: numpy array of int64.
        lengths: numpy array of int64.
    """

    data: Any
    starts: Any
    lengths: Any

    def take(self, chosen: Any) -> ByteSlices:
        """Return some of the slices: by their numbers, a slice, or a mask."""
        return ByteSlices(self.data, self.starts[chosen], self.lengths[chosen])

    def value(self, number: int) -> bytes:
        """Return the bytes of a slice."""
        start = int(self.starts[number])
        return bytes(self.data[start : start + int(self.lengths[number])])

    def to_arrow(self) -> pyarrow.Array:
        """Return an array of large_binary with copies; slices follow each other in `data`."""
        import numpy
        import pyarrow

        count = len(self.starts)
        bounds = numpy.empty(2 * count, numpy.int64)
        bounds[::2], bounds[1::2] = self.starts, self.starts + self.lengths
        buffers = [None, pyarrow.py_buffer(bounds), pyarrow.py_buffer(self.data)]
        slices_and_gaps = pyarrow.Array.from_buffers(pyarrow.large_binary(), max(0, 2 * count - 1), buffers)
        return slices_and_gaps.take(pyarrow.array(numpy.arange(0, 2 * count, 2)))

    def to_list(self) -> list[bytes]:
        """Return the bytes of all slices."""
        data = self.data.tobytes()
        bounds = zip(self.starts.tolist(), (self.starts + self.lengths).tolist(), strict=True)
        return [data[start:end] for start, end in bounds]


@dataclass(frozen=True)
class Page:
    """Records in order of their keys; `removed` is a mask of those that remove their key."""

    keys: ByteSlices
    values: ByteSlices
    removed: Any

    def __len__(self) -> int:
        return len(self.removed)

    def between(self, first: int, end: int) -> Page:
        """Return the records from number `first` to `end` (excluded)."""
        return self.take(slice(first, end))

    def take(self, chosen: Any) -> Page:
        """Return some of the records: by their numbers, a slice, or a mask."""
        return Page(self.keys.take(chosen), self.values.take(chosen), self.removed[chosen])


def concatenate(parts: Sequence[Page]) -> Page:
    """Return the records of pages as one page; a single page is not copied."""
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
    """Return slices one after the other; a slice that begins at a multiple of 8 still does."""
    import numpy

    data, starts, size = [], [], 0
    for part in parts:
        first = int(part.starts[0]) // WORD * WORD
        used = part.data[first : int(part.starts[-1] + part.lengths[-1])]
        padding = -len(used) % WORD
        data += [used, numpy.zeros(padding, numpy.uint8)]
        starts.append(part.starts + (size - first))
        size += len(used) + padding
    lengths = numpy.concatenate([part.lengths for part in parts])
    return ByteSlices(numpy.concatenate(data), numpy.concatenate(starts), lengths)


def copy_slices(target: Any, places: Any, source: Any, starts: Any, lengths: Any) -> None:
    """Copy slices of an array to their places in another one, which may be the same if nothing overlaps.

    Short slices are copied by an index for each item, which takes several times their memory; long ones each
    for itself.

    Args:
        target: the array that receives the items.
        places: the index in `target` of each slice.
        source: the array of the same type that has the items.
        starts: the index in `source` of each slice.
        lengths: the number of items of each slice.
    """
    import numpy

    are_long = lengths >= _LONG_SLICE
    if are_long.any():
        chosen = (column[are_long].tolist() for column in (places, starts, lengths))
        for place, start, length in zip(*chosen, strict=True):
            target[place : place + length] = source[start : start + length]
        places, starts, lengths = (column[~are_long] for column in (places, starts, lengths))
    if not len(lengths):
        return
    ends = numpy.cumsum(lengths)
    within = numpy.arange(int(ends[-1]))
    target[numpy.repeat(places - (ends - lengths), lengths) + within] = source[
        numpy.repeat(starts - (ends - lengths), lengths) + within
    ]


def gather_bytes(data: Any, places: Any, size: int) -> Any:
    """Return `size` bytes of `data` from each of the indexes `places`, as a new array of voids of that size.

    Numpy copies voids several times as fast as numbers that are not aligned.
    """
    import numpy

    count = max(0, len(data) - size + 1)
    return numpy.ndarray((count,), f"V{size}", buffer=data, strides=(1,))[places]
