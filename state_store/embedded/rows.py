"""Rows of the state as Arrow: Spark's encoding (UnsafeRow) decoded column by column, with numpy.

What Spark's RocksDB encoders write as key and value is one version byte, 0, and an UnsafeRow: a null bitmap
of 8-byte words, one 8-byte word a field (the value, or offset and length of the bytes that follow, relative
to the row), then the bytes. Little-endian, as the machines that Spark runs on. A key that is encoded for
range or prefix scans has another layout: give its bytes as they are to whoever knows it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from state_store.errors import DamagedError, FormatError

if TYPE_CHECKING:
    import pyarrow

ENCODING_VERSION = 0
_WORD = 8


def to_table(pairs: Iterable[tuple[bytes, bytes]]) -> pyarrow.Table:
    """Keys and values as they are: columns `key` and `value` of binary type."""
    import pyarrow

    rows = list(pairs)
    return pyarrow.table(
        {
            "key": pyarrow.array([key for key, _ in rows], pyarrow.large_binary()),
            "value": pyarrow.array([value for _, value in rows], pyarrow.large_binary()),
        }
    )


def decode(rows: Sequence[bytes], schema: pyarrow.Schema) -> pyarrow.RecordBatch:
    """The rows as columns of `schema`, which has the fields of Spark's schema in order.

    Known are booleans, integers, floats, dates, timestamps (microseconds), strings, binaries and decimals of
    up to 18 digits. Raises FormatError for a field of another type or a row of another encoding, DamagedError
    for a row that is too short.
    """
    import numpy
    import pyarrow

    decoder = _Decoder(rows, len(schema))
    columns = [decoder.column(index, field) for index, field in enumerate(schema)]
    if not schema.names:
        return pyarrow.RecordBatch.from_struct_array(
            pyarrow.array(numpy.zeros(len(rows)), pyarrow.struct([]))
        )
    return pyarrow.RecordBatch.from_arrays(columns, schema=schema)


class _Decoder:
    """The words of some rows, found by arithmetic on one buffer that holds them all."""

    def __init__(self, rows: Sequence[bytes], fields: int) -> None:
        import numpy

        self._rows = rows
        self._bitmap_bytes = (fields + 63) // 64 * _WORD
        least = 1 + self._bitmap_bytes + fields * _WORD
        for row in rows:
            if row[:1] != bytes([ENCODING_VERSION]):
                raise FormatError(
                    f"a row starts with {row[:1].hex() or 'nothing'}, not with encoding version 0"
                )
            if len(row) < least:
                raise DamagedError(
                    f"a row of {fields} fields has {len(row)} bytes, at least {least} are needed"
                )
        lengths = numpy.fromiter((len(row) for row in rows), numpy.int64, len(rows))
        self._starts = numpy.cumsum(lengths) - lengths + 1
        self._bytes = numpy.frombuffer(b"".join(rows), numpy.uint8)

    def column(self, index: int, field: pyarrow.Field) -> pyarrow.Array:
        import pyarrow

        bitmap = self._words(index // 64 * _WORD)
        nulls = (bitmap >> (index % 64)) & 1 == 1
        words = self._words(self._bitmap_bytes + index * _WORD)
        kind = field.type
        if pyarrow.types.is_string(kind) or pyarrow.types.is_binary(kind):
            return pyarrow.array(self._slices(words, nulls), pyarrow.binary()).cast(kind)
        if pyarrow.types.is_decimal128(kind) and kind.precision <= 18:
            units = [
                None if null else Decimal(int(word)).scaleb(-kind.scale)
                for word, null in zip(words, nulls, strict=True)
            ]
            return pyarrow.array(units, kind)
        return pyarrow.array(_fixed(words, field), mask=nulls).cast(kind)

    def _words(self, offset: int) -> Any:
        """One little-endian 64-bit word of every row, `offset` bytes after its start."""
        import numpy

        if not self._rows:
            return numpy.zeros(0, numpy.int64)
        places = (self._starts + offset)[:, None] + numpy.arange(_WORD)
        return self._bytes[places].view("<i8").reshape(-1)

    def _slices(self, words: Any, nulls: Any) -> list[bytes | None]:
        found: list[bytes | None] = []
        for row, word, null in zip(self._rows, words.tolist(), nulls.tolist(), strict=True):
            start, length = 1 + (word >> 32), word & 0xFFFFFFFF
            if not null and start + length > len(row):
                raise DamagedError(f"a row of {len(row)} bytes refers to bytes {start} to {start + length}")
            found.append(None if null else row[start : start + length])
        return found


def _fixed(words: Any, field: pyarrow.Field) -> Any:
    """The values of a field that fits into its word."""
    import numpy
    import pyarrow

    kind, types = field.type, pyarrow.types
    if types.is_boolean(kind):
        return (words & 0xFF) != 0
    if types.is_signed_integer(kind):
        return words.astype(f"<i{kind.bit_width // 8}")
    if types.is_date32(kind):
        return words.astype(numpy.int32)
    if types.is_timestamp(kind) and kind.unit == "us":
        return words
    if types.is_float64(kind):
        return words.view(numpy.float64)
    if types.is_float32(kind):
        return words.astype(numpy.uint32).view(numpy.float32)
    raise FormatError(f"column '{field.name}' has type {kind}, which cannot be read from Spark's rows yet")
