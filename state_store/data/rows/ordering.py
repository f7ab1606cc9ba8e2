"""Numbers as bytes that sort as the numbers do, and back: the columns by which Spark orders keys.

A number is a byte that says negative (0), not negative (1) or null (2), then its bytes, big-endian; the bits
of a negative float are inverted.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from state_store.data.rows.widths import width_of
from state_store.errors import DamagedError, FormatError

if TYPE_CHECKING:
    import pyarrow

_NEGATIVE, _NOT_NEGATIVE, _NULL = 0, 1, 2


def ordered_numbers(field: pyarrow.Field, encoded: pyarrow.Array) -> pyarrow.Array:
    """Numbers from their bytes. Raises FormatError for a type that does not order keys, DamagedError for
    other bytes.
    """
    import numpy
    import pyarrow

    width, count = _width(field.name, field.type), len(encoded)
    data = numpy.frombuffer(encoded.buffers()[2] or b"", numpy.uint8)[: count * (width + 1)]
    if encoded.null_count or len(data) != count * (width + 1):
        raise DamagedError(f"a key has not {width + 1} bytes for column '{field.name}'")
    table = data.reshape(count, width + 1)
    values = numpy.ascontiguousarray(table[:, 1:]).view(f">i{width}").reshape(-1).astype(f"<i{width}")
    if pyarrow.types.is_floating(field.type):
        values = numpy.where(table[:, 0] == _NEGATIVE, ~values, values)
    nulls = table[:, 0] == _NULL
    validity = pyarrow.py_buffer(numpy.packbits(~nulls, bitorder="little")) if nulls.any() else None
    return pyarrow.Array.from_buffers(field.type, count, [validity, pyarrow.py_buffer(values)])


def ordered_bytes(column: pyarrow.Array) -> Any:
    """The bytes of numbers, a row of a numpy table for each. Raises FormatError for a type that does not
    order keys.
    """
    import numpy
    import pyarrow

    width, count = _width("", column.type), len(column)
    nulls = column.is_null().to_numpy(zero_copy_only=False)
    stored = numpy.frombuffer(column.buffers()[1] or b"", f"<i{width}")[column.offset : column.offset + count]
    values = numpy.where(nulls, 0, stored)
    is_negative = values < 0
    if pyarrow.types.is_floating(column.type):
        values = numpy.where(is_negative, ~values, values)
    table = numpy.empty((count, width + 1), numpy.uint8)
    table[:, 0] = numpy.where(nulls, _NULL, numpy.where(is_negative, _NEGATIVE, _NOT_NEGATIVE))
    table[:, 1:] = values.astype(f">i{width}").view(numpy.uint8).reshape(count, width)
    return table


def binary_of(table: Any) -> pyarrow.Array:
    """The rows of a numpy table of bytes as binary values."""
    import numpy
    import pyarrow

    count, width = table.shape
    data = pyarrow.py_buffer(numpy.ascontiguousarray(table))
    return pyarrow.Array.from_buffers(pyarrow.binary(width), count, [None, data]).cast(pyarrow.binary())


def _width(name: str, kind: pyarrow.DataType) -> int:
    import pyarrow

    width = width_of(kind)
    if width is None or pyarrow.types.is_boolean(kind) or pyarrow.types.is_decimal(kind):
        raise FormatError(f"column '{name}' of type {kind} cannot order keys")
    return width
