"""Rows in one buffer, each at a multiple of 8 bytes, so that numpy reads the words of all of them at once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from state_store.core.compat import zip
from state_store.errors import DamagedError, FormatError

ENCODING_VERSION = 0
"""The byte before each of Spark's rows in a state store."""

WORD = 8
_SIZE_BYTES = 4
_DELIMITER = b","


@dataclass(frozen=True)
class Packed:
    """Spark's rows (UnsafeRow) without the byte of their version: row i is `lengths[i]` bytes of `data` from
    `starts[i]`. `data` is of bytes, `starts` and `lengths` of 64-bit integers; all are numpy arrays.
    """

    data: Any
    starts: Any
    lengths: Any

    def __len__(self) -> int:
        return len(self.starts)

    @classmethod
    def of(cls, rows: Sequence[bytes], *, skip: int = 0) -> Packed:
        """Rows as stores have them, with the byte of the version before each, and `skip` bytes before that.

        Raises FormatError for another version, DamagedError for what has not the length of a row.
        """
        import numpy

        gap = bytes(WORD - 1 - skip)
        lengths = numpy.fromiter(map(len, rows), numpy.int64, len(rows)) - 1 - skip
        data = numpy.frombuffer(gap + gap.join(rows) + bytes(WORD), numpy.uint8)
        uneven = (lengths % WORD != 0) | (lengths < 0)
        if uneven.any():
            wrong = int(numpy.flatnonzero(uneven)[0])
            _check_version(rows[wrong][skip : skip + 1])
            found = len(rows[wrong]) - skip
            raise DamagedError(f"a row has {found} bytes, which is not one more than a multiple of 8")
        starts = numpy.cumsum(lengths + WORD) - lengths
        if len(rows):
            versions = data[starts - 1]
            if versions.any():
                _check_version(rows[int(numpy.flatnonzero(versions)[0])][skip : skip + 1])
        return cls(data[: len(data) // WORD * WORD], starts, lengths)

    @classmethod
    def of_slices(cls, data: Any, starts: Any, lengths: Any, *, aligned: bool = True) -> Packed:
        """Parts of `data`, wherever they lie: rows with the byte of their version before each. They are
        copied where they do not begin at multiples of 8, if that is asked for or they have one length.

        Raises FormatError and DamagedError as `of`.
        """
        import numpy

        uneven = (lengths < 1) | ((lengths - 1) & (WORD - 1) != 0)
        if uneven.any() or (len(starts) and data[starts].any()):
            wrong = int(numpy.flatnonzero(uneven | (data[numpy.where(uneven, 0, starts)] != 0))[0])
            _check_version(data[starts[wrong] : starts[wrong] + 1].tobytes() if lengths[wrong] > 0 else b"")
            raise DamagedError(
                f"a row has {int(lengths[wrong])} bytes, which is not one more than a multiple of 8"
            )
        starts, lengths = starts + 1, lengths - 1
        if len(data) % WORD == 0 and not (starts & (WORD - 1)).any():
            return cls(data, starts, lengths)
        size = int(lengths[0]) if len(lengths) else 0
        if size and (lengths == size).all():
            return cls(_of_size(data, starts, size), numpy.arange(len(starts)) * size, lengths)
        if not aligned:
            return cls(data, starts, lengths)
        offsets = numpy.cumsum(lengths) - lengths
        return cls(_words(data, starts - offsets, lengths), offsets, lengths)


def joined(parts: Sequence[bytes]) -> tuple[Any, Any, Any]:
    """The bytes of all parts, one after the other, and where each starts and how long it is."""
    import numpy

    lengths = numpy.fromiter(map(len, parts), numpy.int64, len(parts))
    data = numpy.frombuffer(b"".join(parts), numpy.uint8)
    return data, numpy.cumsum(lengths) - lengths, lengths


def split_values(lists: tuple[Any, Any, Any]) -> tuple[Any, tuple[Any, Any, Any]]:
    """The single values of lists of values, as parts of the same bytes, and the number of the list of each.

    A list is its values with a byte between two of them; each begins with its size in 4 bytes. Raises
    DamagedError for one that is none.
    """
    import numpy

    data, at, lengths = lists
    limits = at + lengths
    owners = numpy.arange(len(at))
    steps = []
    while len(owners):
        if (at + _SIZE_BYTES > limits).any():
            raise DamagedError("a list of values ends within the size of a value")
        sizes = data[at[:, None] + numpy.arange(_SIZE_BYTES)].view("<i4").reshape(-1).astype(numpy.int64)
        ends = at + _SIZE_BYTES + sizes
        if ((sizes < 1) | (ends > limits)).any():
            raise DamagedError("a value in a list is longer than the list")
        steps.append((owners, at + _SIZE_BYTES, sizes))
        goes_on = ends < limits
        owners, limits, at = owners[goes_on], limits[goes_on], ends[goes_on] + len(_DELIMITER)
    if not steps:
        return owners, (data, at, lengths)
    all_owners, starts, sizes = (numpy.concatenate(parts) for parts in zip(*steps, strict=True))
    order = numpy.argsort(all_owners, kind="stable")
    return all_owners[order], (data, starts[order], sizes[order])


def merged_values(values: Sequence[bytes]) -> bytes:
    """The reverse of `split_values`, of one list that is not empty."""
    return _DELIMITER.join(len(value).to_bytes(_SIZE_BYTES, "little") + value for value in values)


def gathered(data: Any, starts: Any, lengths: Any) -> Any:
    """The bytes of all slices of `data`, one after the other."""
    import numpy

    ends = numpy.cumsum(lengths)
    total = int(ends[-1]) if len(ends) else 0
    return data[numpy.repeat(starts - (ends - lengths), lengths) + numpy.arange(total)]


def _of_size(data: Any, starts: Any, size: int) -> Any:
    """Parts of one size after each other: numpy copies things of many bytes as fast as single words."""
    import numpy

    parts = numpy.ndarray((len(data) - size + 1,), f"V{size}", buffer=data, strides=(1,))
    return parts[starts].view(numpy.uint8)


def words_anywhere(data: Any) -> Any:
    """The 64-bit number that begins at each byte of `data`."""
    import numpy

    return numpy.ndarray((max(0, len(data) - WORD + 1),), "<i8", buffer=data, strides=(1,))


def _words(data: Any, shifts: Any, lengths: Any) -> Any:
    """Whole words of `data`, as bytes: those of each part are `shifts` after their place in the result."""
    import numpy

    total = int(lengths.sum()) // WORD
    if not total:
        return numpy.zeros(WORD, numpy.uint8)
    words = words_anywhere(data)[numpy.repeat(shifts, lengths // WORD) + numpy.arange(0, total * WORD, WORD)]
    return numpy.concatenate([words, numpy.zeros(1, "<i8")]).view(numpy.uint8)


def _check_version(first: bytes) -> None:
    if first != bytes([ENCODING_VERSION]):
        raise FormatError(f"a row starts with {first.hex() or 'nothing'}, not with encoding version 0")
