"""The layouts in which Spark encodes keys, decoded into columns.

- plain: a row;
- prefix: 4 bytes with the size of the first part, a row of the first columns, a row of the others;
- range: the same, but the columns of the first part order the rows.

A column that orders rows is a number as bytes that sort as the numbers do: a byte that says negative (0), not
negative (1) or null (2), then the bytes of the number, big-endian; the bits of a negative float are inverted.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from state_store.core.compat import zip
from state_store.data.rows.decoder import decode_fields
from state_store.data.rows.packed import joined
from state_store.data.rows.types import width_of
from state_store.errors import DamagedError, FormatError

if TYPE_CHECKING:
    import pyarrow

_SIZE_BYTES = 4
_NEGATIVE, _NOT_NEGATIVE, _NULL = 0, 1, 2


@dataclass(frozen=True)
class KeyLayout:
    """The encoding of keys.

    Attributes:
        first: the numbers of the columns in the first part; empty for a plain key.
        is_ordered: True if these columns order the rows.
    """

    first: tuple[int, ...] = ()
    is_ordered: bool = False

    def others(self, count: int) -> list[int]:
        """Return the numbers of the columns, out of `count`, that are not in the first part."""
        return [number for number in range(count) if number not in self.first]


def decode_keys(
    keys: Sequence[bytes] | tuple[Any, Any, Any],
    fields: Sequence[pyarrow.Field],
    layout: KeyLayout,
    *,
    skip: int = 0,
    only: Sequence[int] | None = None,
) -> list[pyarrow.Array]:
    """Decode columns of encoded keys.

    Args:
        keys: the keys, as a list or as parts of one buffer (data, starts, lengths).
        fields: the columns of the key.
        layout: the encoding.
        skip: the number of other bytes before each key.
        only: the numbers of the columns to decode; None is all.

    Raises:
        FormatError: as `decode`.
        DamagedError: as `decode`.
    """
    wanted = list(range(len(fields))) if only is None else list(only)
    if not layout.first:
        return decode_fields(keys, fields, wanted, skip=skip)
    first, rest = _parts(keys if isinstance(keys, tuple) else joined(keys), skip)
    others = layout.others(len(fields))
    columns = dict(zip(layout.first, _first_columns(first, fields, layout), strict=True))
    if others:
        columns |= zip(others, decode_fields(rest, [fields[number] for number in others]), strict=True)
    return [columns[number] for number in wanted]


def _parts(keys: tuple[Any, Any, Any], skip: int) -> tuple[tuple[Any, Any, Any], tuple[Any, Any, Any]]:
    import numpy

    data, starts, lengths = keys
    starts, lengths = starts + skip, lengths - skip
    if (lengths < _SIZE_BYTES).any():
        raise DamagedError("a key with a prefix has less than 4 bytes")
    sizes = data[starts[:, None] + numpy.arange(_SIZE_BYTES)].view("<i4").reshape(-1).astype(numpy.int64)
    if ((sizes < 1) | (sizes > lengths - _SIZE_BYTES)).any():
        raise DamagedError("the prefix of a key is longer than the key")
    middles = starts + _SIZE_BYTES + sizes
    return (data, starts + _SIZE_BYTES, sizes), (data, middles, lengths - _SIZE_BYTES - sizes)


def _first_columns(
    part: tuple[Any, Any, Any], fields: Sequence[pyarrow.Field], layout: KeyLayout
) -> list[pyarrow.Array]:
    import pyarrow

    chosen = [fields[number] for number in layout.first]
    if not layout.is_ordered:
        return decode_fields(part, chosen)
    encoded = decode_fields(part, [pyarrow.field(field.name, pyarrow.binary()) for field in chosen])
    return [ordered_numbers(field, column) for field, column in zip(chosen, encoded, strict=True)]


def ordered_numbers(field: pyarrow.Field, encoded: pyarrow.Array) -> pyarrow.Array:
    """Decode numbers from bytes that sort alike.

    Raises:
        FormatError: the type cannot order keys.
        DamagedError: the bytes have another length.
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
    """Encode numbers as bytes that sort alike: a numpy table of uint8 with a row for each.

    Raises:
        FormatError: the type cannot order keys.
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
    """Return the rows of a numpy table of bytes as binary values."""
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
