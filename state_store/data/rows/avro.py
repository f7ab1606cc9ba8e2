"""Rows that Spark encoded with Avro, decoded into columns and encoded again (`stateStore.encodingFormat`).

A row is a byte (0), the number of the schema that it was written with (2 bytes, little-endian; none in the
first part of a key), and a record in Avro's binary form. Spark makes each field a union of null and its type,
as it does arrays, maps and structs within others, but not the plain elements of arrays and maps. Columns that
order keys are two fields of bytes: the sign, and the number, big-endian.
"""

from __future__ import annotations

import decimal
import itertools
import struct
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from state_store.data.rows.decoder import KeyLayout, binary_of, ordered_bytes, ordered_numbers
from state_store.data.rows.encoder import element_counts, unscaled_numbers
from state_store.data.rows.types import ENCODING_VERSION
from state_store.errors import DamagedError, FormatError

if TYPE_CHECKING:
    import pyarrow

Reader = Callable[[bytes, int], tuple[Any, int]]
"""Function that reads an Avro value at an offset in bytes, and returns it and the offset of its end."""

_VERSION = 0
NUMBER_BYTES = 2
"""Bytes of the number of a schema."""

SIZE_BYTES = 4
"""Bytes of the size of the first part of a key."""

_NULL, _VALUE = b"\0", b"\2"
"""The branches of a union of null and another type."""

_VERSION_BYTE = bytes([ENCODING_VERSION])


def decode_avro(
    rows: Sequence[bytes], fields: Sequence[pyarrow.Field], writers: Mapping[int, Sequence[pyarrow.Field]]
) -> list[pyarrow.Array]:
    """Decode rows into the columns `fields`. A column that a row was written without is null.

    Args:
        rows: the rows, each with its version and the number of its schema.
        fields: the columns.
        writers: the fields with which rows were written, by number.

    Raises:
        DamagedError: a row is not an Avro record.
        FormatError: a schema or a type is not known.
    """
    readers = {number: _record(written) for number, written in writers.items()}

    def row(data: bytes) -> dict[str, Any]:
        number = int.from_bytes(data[1 : 1 + NUMBER_BYTES], "little")
        if number not in readers:
            raise FormatError(f"a row was written with schema {number}, which Spark's files do not have")
        return _entire_record(data, 1 + NUMBER_BYTES, readers[number])

    return _columns([row(data) for data in rows], fields)


def decode_avro_keys(
    keys: Sequence[bytes],
    fields: Sequence[pyarrow.Field],
    layout: KeyLayout,
    writers: Mapping[int, Sequence[pyarrow.Field]],
) -> list[pyarrow.Array]:
    """Return the columns of keys in their layout. Raises as `decode_avro`."""
    if not layout.first:
        return decode_avro(keys, fields, writers)
    others = layout.others(len(fields))
    parts = [_parts(key) for key in keys]
    first_fields = [fields[number] for number in layout.first]
    columns = dict(
        zip(layout.first, _first_columns([first for first, _ in parts], first_fields, layout), strict=True)
    )
    if others:
        rest = {number: [written[place] for place in others] for number, written in writers.items()}
        decoded = decode_avro([second for _, second in parts], [fields[place] for place in others], rest)
        columns |= zip(others, decoded, strict=True)
    return [columns[number] for number in range(len(fields))]


def _parts(key: bytes) -> tuple[bytes, bytes]:
    size = int.from_bytes(key[:SIZE_BYTES], "little", signed=True)
    if not 0 < size <= len(key) - SIZE_BYTES:
        raise DamagedError("the prefix of a key is longer than the key")
    return key[SIZE_BYTES : SIZE_BYTES + size], key[SIZE_BYTES + size :]


def _first_columns(
    parts: Sequence[bytes], fields: Sequence[pyarrow.Field], layout: KeyLayout
) -> list[pyarrow.Array]:
    import pyarrow

    if not layout.is_ordered:
        reader = _record(fields)
        return _columns([_entire_record(data, 1, reader) for data in parts], fields)
    halves = [
        pyarrow.field(f"{place}{half}", pyarrow.binary()) for place in range(len(fields)) for half in "ab"
    ]
    reader = _record(halves)
    rows = [list(_entire_record(data, 1, reader).values()) for data in parts]
    if any(half is None for row in rows for half in row):
        raise DamagedError("a column that orders a key has no bytes")
    return [
        ordered_numbers(
            field, pyarrow.array([row[2 * place] + row[2 * place + 1] for row in rows], pyarrow.binary())
        )
        for place, field in enumerate(fields)
    ]


def _columns(rows: Sequence[Mapping[str, Any]], fields: Sequence[pyarrow.Field]) -> list[pyarrow.Array]:
    import pyarrow

    try:
        return [pyarrow.array([row.get(field.name) for row in rows], field.type) for field in fields]
    except (pyarrow.ArrowException, OverflowError, ValueError) as error:
        raise DamagedError(f"a row has a value that its column cannot have: {error}") from error


def _entire_record(data: bytes, at: int, reader: Reader) -> dict[str, Any]:
    """Return the record that begins at an offset and extends to the end."""
    if data[:1] != bytes([_VERSION]):
        raise FormatError(f"a row starts with {data[:1].hex() or 'nothing'}, not with encoding version 0")
    try:
        record, end = reader(data, at)
    except (IndexError, struct.error, UnicodeDecodeError) as error:
        raise DamagedError(f"a row is not an Avro record: {error!r}") from error
    if end != len(data):
        raise DamagedError(f"a row has {len(data)} bytes, but its Avro record ends after {end}")
    return dict(record)


def _reader(kind: pyarrow.DataType) -> Reader:
    """Return the reader of a value within a union, or of an element."""
    import pyarrow

    types = pyarrow.types
    if types.is_boolean(kind):
        return lambda data, at: (bool(data[at]), at + 1)
    if types.is_integer(kind) or types.is_date32(kind) or types.is_timestamp(kind):
        return _long
    if types.is_float32(kind):
        return lambda data, at: (struct.unpack_from("<f", data, at)[0], at + 4)
    if types.is_float64(kind):
        return lambda data, at: (struct.unpack_from("<d", data, at)[0], at + 8)
    if types.is_binary(kind):
        return _bytes
    if types.is_string(kind):
        return _text
    if types.is_decimal128(kind):
        return _decimal(kind)
    if types.is_struct(kind):
        return _nullable(_record([kind.field(number) for number in range(kind.num_fields)]))
    if types.is_map(kind) and types.is_string(kind.key_type):
        return _nullable(_blocks(_pair(_reader(kind.item_type))))
    if types.is_list(kind):
        return _nullable(_blocks(_reader(kind.value_type)))
    raise FormatError(f"values of type {kind} cannot be read from Avro")


def _record(fields: Sequence[pyarrow.Field]) -> Reader:
    import pyarrow

    readers: list[tuple[str, Reader]] = []
    for field in fields:
        kind = field.type
        reader = _nothing if pyarrow.types.is_null(kind) else _reader(kind)
        is_plain = not pyarrow.types.is_nested(kind) and not pyarrow.types.is_null(kind)
        readers.append((field.name, _nullable(reader) if is_plain else reader))

    def read(data: bytes, at: int) -> tuple[dict[str, Any], int]:
        record = {}
        for name, reader in readers:
            record[name], at = reader(data, at)
        return record, at

    return read


def _nullable(reader: Reader) -> Reader:
    """Return the reader of a union of null and another type."""

    def read(data: bytes, at: int) -> tuple[Any, int]:
        branch, at = _long(data, at)
        if branch not in (0, 1):
            raise IndexError(f"branch {branch} of a union of two")
        return reader(data, at) if branch else (None, at)

    return read


def _blocks(reader: Reader) -> Reader:
    """Return the reader of the elements of an array or a map: blocks with a count, up to an empty block."""

    def read(data: bytes, at: int) -> tuple[list[Any], int]:
        items: list[Any] = []
        while True:
            count, at = _long(data, at)
            if not count:
                return items, at
            if count < 0:  # the size of the block in bytes follows
                count, (_, at) = -count, _long(data, at)
            if count > len(data):
                raise IndexError(f"a block of {count} elements")
            for _ in range(count):
                value, at = reader(data, at)
                items.append(value)

    return read


def _pair(reader: Reader) -> Reader:
    def read(data: bytes, at: int) -> tuple[tuple[str, Any], int]:
        key, at = _text(data, at)
        value, at = reader(data, at)
        return (key, value), at

    return read


def _decimal(kind: pyarrow.DataType) -> Reader:
    """Return the reader of an unscaled number, which has the fewest bytes for its precision."""
    size = decimal_bytes(kind)

    def read(data: bytes, at: int) -> tuple[decimal.Decimal, int]:
        if at + size > len(data):
            raise IndexError("a decimal beyond the end")
        unscaled = int.from_bytes(data[at : at + size], "big", signed=True)
        digits = tuple(map(int, str(abs(unscaled))))
        return decimal.Decimal((int(unscaled < 0), digits, -kind.scale)), at + size

    return read


def decimal_bytes(kind: pyarrow.DataType) -> int:
    """Return the bytes of a decimal of that type."""
    return int((10**kind.precision - 1).bit_length() + 8) // 8


def _nothing(data: bytes, at: int) -> tuple[None, int]:
    return None, at


def _text(data: bytes, at: int) -> tuple[str, int]:
    encoded, at = _bytes(data, at)
    return encoded.decode("utf-8"), at


def _bytes(data: bytes, at: int) -> tuple[bytes, int]:
    size, at = _long(data, at)
    if size < 0 or at + size > len(data):
        raise IndexError(f"{size} bytes beyond the end")
    return data[at : at + size], at + size


def _long(data: bytes, at: int) -> tuple[int, int]:
    """Return a number in zigzag encoding, 7 bits in each byte."""
    number = shift = 0
    while True:
        byte = data[at]
        number |= (byte & 0x7F) << shift
        at += 1
        if byte < 0x80:
            return (number >> 1) ^ -(number & 1), at
        shift += 7


def encode_avro(columns: Sequence[pyarrow.Array], number: int, count: int) -> list[bytes]:
    """Return `count` rows of these columns in Spark's Avro encoding.

    Args:
        columns: The fields of the schema.
        number: The number of the schema, which each row begins with.
        count: The number of rows.

    Raises:
        FormatError: Spark does not encode a type with Avro, or there is a null for which Avro has no union.
    """
    before = _VERSION_BYTE + number.to_bytes(NUMBER_BYTES, "little")
    return [before + record for record in _records(columns, count)]


def encode_avro_keys(
    columns: Sequence[pyarrow.Array], layout: KeyLayout, number: int, count: int
) -> list[bytes]:
    """Return keys in their layout. Raises as `encode_avro`."""
    if not layout.first:
        return encode_avro(columns, number, count)
    first_columns = [columns[index] for index in layout.first]
    firsts = _records(_halves(first_columns) if layout.is_ordered else first_columns, count)
    rests = encode_avro([columns[index] for index in layout.others(len(columns))], number, count)
    return [
        (len(first) + 1).to_bytes(SIZE_BYTES, "little") + _VERSION_BYTE + first + rest
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
    validity = column.is_valid().to_pylist()
    return [_VALUE + value if valid else _NULL for valid, value in zip(validity, values, strict=True)]


def _nested(column: pyarrow.Array) -> list[bytes]:
    import pyarrow

    types = pyarrow.types
    if types.is_struct(column.type):
        return _records(column.flatten(), len(column))
    counts = element_counts(column)
    if types.is_list(column.type):
        return _encoded_blocks(_element(column.flatten()), counts)
    if types.is_map(column.type) and types.is_string(column.type.key_type):
        within = slice(column.offsets[0].as_py(), column.offsets[len(column)].as_py())
        keys, items = column.keys[within], column.items[within]
        pairs = zip(_plain(keys), _element(items), strict=True)
        return _encoded_blocks((key + item for key, item in pairs), counts)
    raise _unknown(column)


def _encoded_blocks(elements: Iterable[bytes], counts: Any) -> list[bytes]:
    """Return each array as one block of its elements and an empty block."""
    remaining = iter(elements)
    return [
        b"".join((_encoded_long(count), *itertools.islice(remaining, count), _NULL)) if count else _NULL
        for count in counts.tolist()
    ]


def _plain(column: pyarrow.Array) -> Iterable[bytes]:
    """Encode values of a type that is not nested. The caller replaces the bytes of nulls."""
    import pyarrow

    kind, types = column.type, pyarrow.types
    if types.is_boolean(kind):
        return (b"\1" if value else b"\0" for value in column.to_pylist())
    if types.is_date32(kind):
        return (_encoded_long(value or 0) for value in column.cast(pyarrow.int32()).to_pylist())
    if types.is_integer(kind) or types.is_timestamp(kind):
        return (_encoded_long(value or 0) for value in column.cast(pyarrow.int64()).to_pylist())
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
    return _encoded_long(len(data)) + data


def _encoded_long(number: int) -> bytes:
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
