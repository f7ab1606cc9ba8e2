"""Arrow's columns as rows that Spark encodes with Avro: the reverse of `state_store.data.rows.avro`."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from state_store.core.compat import zip
from state_store.data.rows.avro import NUMBER_BYTES, SIZE_BYTES, decimal_bytes
from state_store.data.rows.key_layouts import KeyLayout, binary_of, ordered_bytes
from state_store.data.rows.packed import ENCODING_VERSION
from state_store.data.rows.values import element_counts, unscaled_numbers
from state_store.errors import FormatError

if TYPE_CHECKING:
    import pyarrow

_NULL, _VALUE = b"\0", b"\2"
"""The branches of a union of null and another type."""

_VERSION = bytes([ENCODING_VERSION])


def encode_avro(columns: Sequence[pyarrow.Array], number: int, count: int) -> list[bytes]:
    """Return `count` rows of these columns in Spark's Avro encoding.

    Args:
        columns: The fields of the schema.
        number: The number of the schema, which each row begins with.
        count: The number of rows.

    Raises:
        FormatError: Spark does not encode a type with Avro, or there is a null for which Avro has no union.
    """
    before = _VERSION + number.to_bytes(NUMBER_BYTES, "little")
    return [before + record for record in _records(columns, count)]


def encode_avro_keys(
    columns: Sequence[pyarrow.Array], layout: KeyLayout, number: int, count: int
) -> list[bytes]:
    """Return keys in their layout. Raises as `encode_avro`."""
    if not layout.first:
        return encode_avro(columns, number, count)
    chosen = [columns[index] for index in layout.first]
    firsts = _records(_halves(chosen) if layout.is_ordered else chosen, count)
    rests = encode_avro([columns[index] for index in layout.others(len(columns))], number, count)
    return [
        (len(first) + 1).to_bytes(SIZE_BYTES, "little") + _VERSION + first + rest
        for first, rest in zip(firsts, rests, strict=True)
    ]


def _halves(columns: Sequence[pyarrow.Array]) -> list[pyarrow.Array]:
    """Return two columns for each that orders keys: the byte of the sign, and the number."""
    tables = map(ordered_bytes, columns)
    return [binary_of(half) for table in tables for half in (table[:, :1], table[:, 1:])]


def _records(columns: Sequence[pyarrow.Array], count: int) -> list[bytes]:
    if not columns:
        return [b""] * count
    return list(map(b"".join, zip(*map(_field, columns), strict=True)))


def _field(column: pyarrow.Array) -> list[bytes]:
    """Return the values of a field: a union with null, except for a column of nulls only."""
    import pyarrow

    if pyarrow.types.is_null(column.type):
        return [b""] * len(column)
    return _in_union(column, _nested(column) if pyarrow.types.is_nested(column.type) else _plain(column))


def _element(column: pyarrow.Array) -> Iterable[bytes]:
    """Encode the elements of arrays or maps. Raises FormatError for a null of a type that is not nested."""
    import pyarrow

    if pyarrow.types.is_nested(column.type):
        return _field(column)
    if column.null_count:
        raise FormatError(f"an array or a map has a null among its values of type {column.type}")
    return _plain(column)


def _in_union(column: pyarrow.Array, values: Iterable[bytes]) -> list[bytes]:
    known = column.is_valid().to_pylist()
    return [_VALUE + value if valid else _NULL for valid, value in zip(known, values, strict=True)]


def _nested(column: pyarrow.Array) -> list[bytes]:
    import pyarrow

    types = pyarrow.types
    if types.is_struct(column.type):
        return _records(column.flatten(), len(column))
    counts = element_counts(column)
    if types.is_list(column.type):
        return _blocks(_element(column.flatten()), counts)
    if types.is_map(column.type) and types.is_string(column.type.key_type):
        within = slice(column.offsets[0].as_py(), column.offsets[len(column)].as_py())
        keys, items = column.keys[within], column.items[within]
        pairs = zip(_plain(keys), _element(items), strict=True)
        return _blocks((key + item for key, item in pairs), counts)
    raise _unknown(column)


def _blocks(elements: Iterable[bytes], counts: Any) -> list[bytes]:
    """Return each array as one block of its elements and an empty block."""
    remaining = iter(elements)
    return [
        b"".join((_long(count), *itertools.islice(remaining, count), _NULL)) if count else _NULL
        for count in counts.tolist()
    ]


def _plain(column: pyarrow.Array) -> Iterable[bytes]:
    """Encode values of a type that is not nested. The caller replaces the bytes of nulls."""
    import pyarrow

    kind, types = column.type, pyarrow.types
    if types.is_boolean(kind):
        return (b"\1" if value else b"\0" for value in column.to_pylist())
    if types.is_date32(kind):
        return (_long(value or 0) for value in column.cast(pyarrow.int32()).to_pylist())
    if types.is_integer(kind) or types.is_timestamp(kind):
        return (_long(value or 0) for value in column.cast(pyarrow.int64()).to_pylist())
    if types.is_float32(kind) or types.is_float64(kind):
        width = kind.bit_width // 8
        data = column.fill_null(0).to_numpy(zero_copy_only=False).astype(f"<f{width}").tobytes()
        return (data[at : at + width] for at in range(0, len(data), width))
    if types.is_string(kind) or types.is_binary(kind):
        return (_sized(value or b"") for value in column.cast(pyarrow.binary()).to_pylist())
    if types.is_decimal128(kind):
        size = decimal_bytes(kind)
        return (number.to_bytes(size, "big", signed=True) for number in unscaled_numbers(column))
    raise _unknown(column)


def _sized(data: bytes) -> bytes:
    return _long(len(data)) + data


def _long(number: int) -> bytes:
    """Return a number in zigzag encoding, 7 bits in each byte."""
    rest = number << 1 if number >= 0 else ~(number << 1)
    encoded = bytearray()
    while rest > 0x7F:
        encoded.append(rest & 0x7F | 0x80)
        rest >>= 7
    encoded.append(rest)
    return bytes(encoded)


def _unknown(column: pyarrow.Array) -> FormatError:
    return FormatError(f"values of type {column.type} cannot be written with Avro")
