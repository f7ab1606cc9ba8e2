"""The values of an Arrow column as numpy numbers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from state_store.core.compat import zip
from state_store.data.rows.packed import WORD
from state_store.data.rows.types import SMALL_DECIMAL

if TYPE_CHECKING:
    import pyarrow

DECIMAL_BYTES = 16
"""Bytes of a decimal in Arrow."""


def numbers_in_place(column: pyarrow.Array, width: int) -> Any:
    """Return the numbers of a column as unsigned integers of `width` bytes (signed for 8)."""
    import numpy
    import pyarrow

    kind = column.type
    count, offset = len(column), column.offset
    if pyarrow.types.is_boolean(kind):
        bits = numpy.frombuffer(column.buffers()[1], numpy.uint8)
        return numpy.unpackbits(bits, bitorder="little")[offset : offset + count]
    if pyarrow.types.is_decimal128(kind):
        assert kind.precision <= SMALL_DECIMAL
        return numpy.frombuffer(column.buffers()[1], "<i8")[2 * offset : 2 * (offset + count) : 2]
    sign = "i" if width == WORD else "u"
    return numpy.frombuffer(column.buffers()[1], f"<{sign}{width}")[offset : offset + count]


def unscaled_numbers(column: pyarrow.Array) -> list[int]:
    """Return decimals of any precision without their point; 0 for nulls."""
    data = column.buffers()[1].to_pybytes()
    offsets = range(
        DECIMAL_BYTES * column.offset, DECIMAL_BYTES * (column.offset + len(column)), DECIMAL_BYTES
    )
    numbers = (int.from_bytes(data[at : at + DECIMAL_BYTES], "little", signed=True) for at in offsets)
    return [0 if null else number for number, null in zip(numbers, nulls_of(column).tolist(), strict=True)]


def element_counts(column: pyarrow.Array) -> Any:
    """Return the number of elements of each list or map, 0 for nulls, as a numpy array of int64."""
    import numpy

    bounds = column.offsets.to_numpy(zero_copy_only=False).astype(numpy.int64)
    return numpy.where(nulls_of(column), 0, numpy.diff(bounds))


def nulls_of(column: pyarrow.Array) -> Any:
    """Return a numpy array that is True for nulls."""
    return column.is_null().to_numpy(zero_copy_only=False)
