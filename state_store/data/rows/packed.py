"""Packed rows: many rows in one buffer, each at a multiple of 8 bytes, so that numpy reads whole words."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from state_store.core.compat import zip
from state_store.core.engine.rows import copy_slices
from state_store.errors import DamagedError, FormatError

ENCODING_VERSION = 0
"""The byte before each of Spark's rows in a state store."""

WORD = 8
_SIZE_BYTES = 4
_DELIMITER = b","


@dataclass(frozen=True)
class Packed:
    """Spark's rows (UnsafeRow) without the byte of their version, in one buffer.

    Attributes:
        data: the bytes, as an array of uint8.
        starts: the start of each row, as int64.
        lengths: the length of each row, as int64.
    """

    data: Any
    starts: Any
    lengths: Any

    def __len__(self) -> int:
        return len(self.starts)

    @classmethod
    def of(cls, rows: Sequence[bytes], *, skip: int = 0) -> Packed:
        """Pack rows of a store.

        Args:
            rows: the rows, each with `skip` other bytes and the byte of the version in front.
            skip: the number of bytes before that byte.

        Raises:
            FormatError: a row has another version.
            DamagedError: a row has an impossible length.
        """
        import numpy

        gap = bytes(WORD - 1 - skip)
        lengths = numpy.fromiter(map(len, rows), numpy.int64, len(rows)) - 1 - skip
        data = numpy.frombuffer(gap + gap.join(rows) + bytes(WORD), numpy.uint8)
        uneven = (lengths % WORD != 0) | (lengths < 0)
        if uneven.any():
            wrong = int(numpy.flatnonzero(uneven)[0])
            _check_version(rows[wrong][skip : skip + 1])
            size_bytes = len(rows[wrong]) - skip
            raise DamagedError(f"a row has {size_bytes} bytes, which is not one more than a multiple of 8")
        starts = numpy.cumsum(lengths + WORD) - lengths
        if len(rows):
            versions = data[starts - 1]
            if versions.any():
                _check_version(rows[int(numpy.flatnonzero(versions)[0])][skip : skip + 1])
        return cls(data[: len(data) // WORD * WORD], starts, lengths)

    @classmethod
    def of_slices(cls, data: Any, starts: Any, lengths: Any, *, aligned: bool = True) -> Packed:
        """Pack slices of `data`, each a row with the byte of its version in front.

        They are copied if they do not begin at multiples of 8, and `aligned` demands it or all have the same
        length. Raises FormatError and DamagedError as `of`.
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
    """Return the concatenated bytes of all parts, and the start and the length of each, as numpy arrays."""
    import numpy

    lengths = numpy.fromiter(map(len, parts), numpy.int64, len(parts))
    data = numpy.frombuffer(b"".join(parts), numpy.uint8)
    return data, numpy.cumsum(lengths) - lengths, lengths


def split_values(lists: tuple[Any, Any, Any]) -> tuple[Any, tuple[Any, Any, Any]]:
    """Split lists of values into single values, which are slices of the same bytes.

    A list is its values, each after its size in 4 bytes, with a byte between two of them.

    Args:
        lists: the lists, as (data, starts, lengths).

    Returns:
        The number of the list of each value, and the values as (data, starts, lengths).

    Raises:
        DamagedError: the bytes are not a list of values.
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
    """Return a list of values that is not empty as bytes: the reverse of `split_values`."""
    return _DELIMITER.join(len(value).to_bytes(_SIZE_BYTES, "little") + value for value in values)


def gathered(data: Any, starts: Any, lengths: Any) -> Any:
    """Return the concatenated bytes of all slices of `data`."""
    import numpy

    ends = numpy.cumsum(lengths)
    copied = numpy.empty(int(ends[-1]) if len(ends) else 0, data.dtype)
    copy_slices(copied, ends - lengths, data, starts, lengths)
    return copied


def _of_size(data: Any, starts: Any, size: int) -> Any:
    """Return slices of one size, concatenated: numpy copies long items as fast as single words."""
    import numpy

    parts = numpy.ndarray((len(data) - size + 1,), f"V{size}", buffer=data, strides=(1,))
    return parts[starts].view(numpy.uint8)


def words_anywhere(data: Any) -> Any:
    """Return the 64-bit number that begins at each byte of `data`."""
    import numpy

    return numpy.ndarray((max(0, len(data) - WORD + 1),), "<i8", buffer=data, strides=(1,))


def _words(data: Any, shifts: Any, lengths: Any) -> Any:
    """Return words of `data`, as bytes; each part is `shifts` bytes after its place in the result."""
    import numpy

    total = int(lengths.sum()) // WORD
    if not total:
        return numpy.zeros(WORD, numpy.uint8)
    words = words_anywhere(data)[numpy.repeat(shifts, lengths // WORD) + numpy.arange(0, total * WORD, WORD)]
    return numpy.concatenate([words, numpy.zeros(1, "<i8")]).view(numpy.uint8)


def _check_version(first: bytes) -> None:
    if first != bytes([ENCODING_VERSION]):
        raise FormatError(f"a row starts with {first.hex() or 'nothing'}, not with encoding version 0")
