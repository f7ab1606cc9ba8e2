"""The columns of a view: those of the key, then those of the value, then the partition.

A column of the value gets the prefix `value_` if an earlier column has its name; the partition gets `state_`
if a column of the key has its name.

A key that a user names is a filter on columns, the bytes that a store has, and the partition that it is in.
"""

from __future__ import annotations

import base64
import itertools
import json
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime, time, timedelta, tzinfo
from decimal import Decimal
from numbers import Real
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from state_store.core.engine.rows import ByteSlices
from state_store.data.dataset.moments import parse_moment
from state_store.data.dataset.views import SESSIONS, View
from state_store.data.query.arguments import check_names
from state_store.data.rows.avro import decode_avro, decode_avro_keys, encode_avro, encode_avro_keys
from state_store.data.rows.decoder import decode_fields, decode_keys
from state_store.data.rows.encoder import encode, encode_keys, partitions_of
from state_store.data.rows.types import joined, split_values
from state_store.errors import FormatError, MissingError, OptionError

if TYPE_CHECKING:
    import pyarrow
    import pyarrow.compute

PARTITION = "partition_id"
FAMILY_BYTES = 2
"""Length of the id of the column family, which a store puts before each key."""

NO_TIMEOUT = -1
"""Spark's number for the time-out of a group without one."""

Encoded = list[bytes] | tuple[Any, Any, Any]
"""Encoded keys or values: a list of them, or one buffer and its parts.

The parts are three numpy arrays: the bytes (uint8), and the start and the length of each row (int64).
"""

Key = Any
"""A key as callers give it.

A value if keys have one column, else a sequence of values in the order of the columns, or a mapping from
their names.
"""

_GROUPING_KEYS = ("key", "groupingKey", "elementKey")
"""Names of the grouping key in stores whose keys begin with other columns.

Timers have `key`; indexes of times to live have `groupingKey` up to Spark 4.0 and `elementKey` since.
"""

_NORMALIZING = ("stateStoreSave", SESSIONS, "symmetricHashJoin")
"""Beginnings of the names of operators whose keys Spark normalizes: -0.0 is 0.0, and NaN is NaN."""

_SPAN = re.compile(r"([^{].*) to (.*)")
"""A window as tables show it; the end lacks its date if that is the date of the start."""

_INTERVAL = re.compile(r"(?:(-?\d{1,9}) days?, )?(\d{1,2}):([0-5]\d):([0-5]\d)(?:\.(\d{1,6}))?")


@dataclass(frozen=True)
class Column:
    """A column: a field of the key or of the value, or the number of the partition.

    Attributes:
        field: name and type.
        of_key: True if it belongs to the key.
        number: the number of the field in the key or in the value; -1 is the partition.
        inner: the number of the field within that struct; None is the whole field.
    """

    field: pyarrow.Field
    of_key: bool
    number: int
    inner: int | None = None


class Columns:
    """The columns of a view, all or some, decoded from its rows. Immutable; safe for any thread."""

    def __init__(self, view: View, columns: Sequence[str] | None = None) -> None:
        """Choose columns of a view.

        Args:
            view: the view.
            columns: names of columns, in their order; None is all.

        Raises:
            MissingError: a name in `columns` is not a column.
            OptionError: `columns` is not a sequence of names.
        """
        import pyarrow

        if columns is not None:
            check_names("columns", columns)

        self.view = view
        every = {column.field.name: column for column in _columns(view)}
        self._partition = next(column.field for column in every.values() if column.number < 0)
        names = list(every) if columns is None else list(dict.fromkeys(columns))
        unknown = [name for name in names if name not in every]
        if unknown:
            raise MissingError(f"there is no column '{unknown[0]}'; there are: {', '.join(every)}")
        self._columns = [every[name] for name in names]
        self._keys = sorted({column.number for column in self._columns if column.of_key})
        self._values = sorted(
            {column.number for column in self._columns if not column.of_key and column.number >= 0}
        )
        self.schema: pyarrow.Schema = pyarrow.schema([column.field for column in self._columns])
        self.key_names = [column.field.name for column in every.values() if column.of_key]

    @property
    def partition_field(self) -> pyarrow.Field:
        """The column with the number of the partition."""
        return self._partition

    @property
    def value_type(self) -> pyarrow.DataType:
        """The type of the rows that `whole_values` returns."""
        import pyarrow

        row = pyarrow.struct(self.value_fields)
        return pyarrow.list_(pyarrow.field("element", row, False)) if self.view.is_list else row

    @property
    def key_fields(self) -> list[pyarrow.Field]:
        """The chosen columns of the key."""
        return [column.field for column in self._columns if column.of_key]

    @property
    def value_fields(self) -> list[pyarrow.Field]:
        """The chosen columns of the value."""
        return [column.field for column in self._columns if not column.of_key and column.number >= 0]

    def keys(self, keys: list[bytes]) -> list[pyarrow.Array]:
        """Return the columns of the key. Raises as `decode`."""
        return decoded_keys(self.view, keys, self._keys)

    def shown_keys(self, keys: list[bytes]) -> list[bytes]:
        """Return keys in which hidden columns are 0: equal if the columns that are shown are equal."""
        numbers = [
            number for number, field in enumerate(self.view.schema.key) if field.name not in self.view.hidden
        ]
        decoded = iter(decoded_keys(self.view, keys, numbers))
        arrays = [
            next(decoded) if number in numbers else _zeros(len(keys), field)
            for number, field in enumerate(self.view.schema.key)
        ]
        return list(encoded_keys(self.view, arrays, len(keys)).to_pylist())

    def values(self, values: list[bytes | None]) -> pyarrow.StructArray:
        """Return the columns of the value as structs, null for a value that is None. Raises as `decode`."""
        import pyarrow

        present = [value for value in values if value is not None]
        columns = [column for column in self._columns if not column.of_key and column.number >= 0]
        if not columns:
            return pyarrow.array([None if value is None else {} for value in values], pyarrow.struct([]))
        decoded = dict(zip(self._values, self._decoded_values(present), strict=True))
        arrays = [_inner(decoded[column.number], column) for column in columns]
        structs = pyarrow.StructArray.from_arrays(arrays, fields=[column.field for column in columns])
        positions = itertools.count()
        return structs.take(
            pyarrow.array([None if value is None else next(positions) for value in values], pyarrow.int64())
        )

    def whole_values(self, values: list[bytes | None]) -> pyarrow.Array:
        """Return the values as `values` does, but a list with all of its elements as one row.

        Raises as `decode`.
        """
        import numpy
        import pyarrow

        if not self.view.is_list:
            return self.values(values)
        nulls = numpy.array([value is None for value in values], bool)
        owners, parts = split_values(joined([value for value in values if value is not None]))
        elements = self.values(list(ByteSlices(*parts).to_list()))
        ends = numpy.searchsorted(numpy.flatnonzero(~nulls)[owners], numpy.arange(len(values)), "right")
        offsets = pyarrow.array([0, *ends], pyarrow.int32())
        return pyarrow.ListArray.from_arrays(offsets, elements, self.value_type, mask=pyarrow.array(nulls))

    def encode(
        self, batch: pyarrow.RecordBatch
    ) -> tuple[pyarrow.LargeBinaryArray, pyarrow.LargeBinaryArray, list[pyarrow.Array]]:
        """Encode rows for a store: the reverse of `decode`.

        Args:
            batch: rows with all columns, found by name. `matched` (default: false) and `timeoutTimestamp`
                (default: never) may be missing; hidden columns become 0.

        Returns:
            The keys without the id of a column family, the values, and the columns of the keys.

        Raises:
            MissingError: a column is missing.
            OptionError: a column has another type.
        """
        import pyarrow

        schema, count = self.view.schema, batch.num_rows
        by_position = {(column.of_key, column.number, column.inner): column for column in self._columns}
        keys = [
            _zeros(count, field)
            if field.name in self.view.hidden
            else _typed(batch, by_position[True, number, None].field)
            for number, field in enumerate(schema.key)
        ]
        keys = list(_as_grouped(self.view, keys))
        values = []
        for number, field in enumerate(schema.value):
            if (False, number, None) in by_position:
                values.append(
                    _typed(batch, by_position[False, number, None].field, self._default(field.name))
                )
            elif self.view.repeats_key(number):
                values.append(keys[schema.key.get_field_index(field.name)])
            elif self.view.has_no_content(number):
                values.append(pyarrow.nulls(count, field.type))
            else:
                inner = [
                    by_position[False, number, position].field for position in range(field.type.num_fields)
                ]
                values.append(_struct([_typed(batch, column) for column in inner], field))
        return encoded_keys(self.view, keys, count), encoded_values(self.view, values, count), keys

    def _decoded_values(self, values: Encoded) -> list[pyarrow.Array]:
        """Return the chosen columns of the value."""
        schema = self.view.schema
        if schema.avro is None:
            return decode_fields(values, list(schema.value), self._values)
        fields = [schema.value.field(number) for number in self._values]
        return decode_avro(_texts(values), fields, schema.avro.values)

    def _default(self, name: str) -> int | bool | None:
        """Return the default of a column that may be missing in rows; None if it has none."""
        if self.view.has_groups and name == "timeoutTimestamp":
            return NO_TIMEOUT
        return False if self.view.is_side and name == "matched" else None

    def decode(self, keys: Encoded, values: Encoded, partition: int) -> pyarrow.RecordBatch:
        """Return the rows of a partition as a batch.

        Args:
            keys: the encoded keys, each with the id of its column family in front.
            values: the encoded values.
            partition: the number of the partition.

        Raises:
            FormatError: the rows have an encoding that is not known.
            DamagedError: a row does not fit its schema.
        """
        import pyarrow

        owners = None
        if self.view.is_list:
            owners, values = split_values(values if isinstance(values, tuple) else joined(values))
        count = _count(values)
        key_columns: dict[int, pyarrow.Array] = {}
        value_columns: dict[int, pyarrow.Array] = {}
        if self._keys:
            decoded = decoded_keys(self.view, keys, self._keys)
            if owners is not None:
                decoded = [column.take(pyarrow.array(owners)) for column in decoded]
            key_columns = dict(zip(self._keys, decoded, strict=True))
        if self._values:
            decoded = self._decoded_values(values)
            value_columns = dict(zip(self._values, decoded, strict=True))
        arrays = []
        for column in self._columns:
            if column.number < 0:
                arrays.append(pyarrow.repeat(pyarrow.scalar(partition, pyarrow.int32()), count))
                continue
            arrays.append(_inner((key_columns if column.of_key else value_columns)[column.number], column))
        return pyarrow.RecordBatch.from_arrays(arrays, schema=self.schema)


def decoded_keys(view: View, keys: Encoded, only: Sequence[int]) -> list[pyarrow.Array]:
    """Return the columns numbered `only` of keys that have the id of a column family in front.

    Raises as `Columns.decode`.
    """
    schema = view.schema
    fields = list(schema.key)
    if schema.avro is None:
        return decode_keys(keys, fields, schema.layout, skip=FAMILY_BYTES, only=only)
    texts = [key[FAMILY_BYTES:] for key in _texts(keys)]
    columns_of_keys = decode_avro_keys(texts, fields, schema.layout, schema.avro.keys)
    return [columns_of_keys[number] for number in only]


def encoded_keys(view: View, columns: Sequence[pyarrow.Array], count: int) -> pyarrow.LargeBinaryArray:
    """Return keys as Spark stores them, without the family's id. Raises FormatError as `encode_keys`."""
    import pyarrow

    columns = _as_grouped(view, columns)
    avro, layout = view.schema.avro, view.schema.layout
    if avro is None:
        return encode_keys(columns, count, layout)
    return pyarrow.array(encode_avro_keys(columns, layout, avro.newest_keys, count), pyarrow.large_binary())


def _as_grouped(view: View, columns: Sequence[pyarrow.Array]) -> Sequence[pyarrow.Array]:
    """Return the columns of keys as the view's operator has them when it looks for a key."""
    if not view.operator.name.startswith(_NORMALIZING):
        return columns
    return [_normalized(column) for column in columns]


def _normalized(column: pyarrow.Array) -> pyarrow.Array:
    """Return a column of keys with 0.0 in the place of -0.0, and a single NaN, in nested values, too."""
    import numpy
    import pyarrow

    kind, types = column.type, pyarrow.types
    if types.is_floating(kind):
        numbers = column.fill_null(0.0).to_numpy(zero_copy_only=False)
        numbers = numpy.where(
            numpy.isnan(numbers), numbers.dtype.type("nan"), numbers + numbers.dtype.type(0)
        )
        return pyarrow.array(numbers, kind, mask=column.is_null().to_numpy(zero_copy_only=False))
    if types.is_struct(kind) and kind.num_fields:
        inner = [_normalized(part) for part in column.flatten()]
        return pyarrow.StructArray.from_arrays(inner, fields=list(kind), mask=column.is_null())
    if types.is_list(kind) and len(column):
        column = pyarrow.concat_arrays([column])
        return pyarrow.ListArray.from_arrays(
            column.offsets, _normalized(column.values), kind, mask=column.is_null()
        )
    return column


def encoded_values(view: View, columns: Sequence[pyarrow.Array], count: int) -> pyarrow.LargeBinaryArray:
    """Return values as Spark stores them. Raises FormatError as `encode`."""
    import pyarrow

    avro = view.schema.avro
    if avro is None:
        return encode(columns, count)
    return pyarrow.array(encode_avro(columns, avro.newest_values, count), pyarrow.large_binary())


def _zeros(count: int, field: pyarrow.Field) -> pyarrow.Array:
    import pyarrow

    return pyarrow.repeat(pyarrow.scalar(0, field.type), count)


def _typed(
    batch: pyarrow.RecordBatch, field: pyarrow.Field, default: int | bool | None = None
) -> pyarrow.Array:
    import pyarrow

    if default is not None and field.name not in batch.schema.names:
        return pyarrow.repeat(pyarrow.scalar(default, field.type), batch.num_rows)
    if field.name not in batch.schema.names:
        raise MissingError(
            f"the rows have no column '{field.name}'; they have: {', '.join(batch.schema.names)}"
        )
    try:
        # Copied, so that its buffers begin at 0. Casts of slices lose the length of columns of nulls within.
        return _cast(pyarrow.concat_arrays([batch[field.name]]), field.type)
    except pyarrow.ArrowException as error:
        raise OptionError(
            f"column '{field.name}' of the rows has type {batch[field.name].type}, not {field.type}: {error}"
        ) from error


def _cast(column: pyarrow.Array, kind: pyarrow.DataType) -> pyarrow.Array:
    """Return a column with another type; nulls of any type become those of `void`.

    Parquet has no type for a column of nulls alone: Spark reads it as integers.
    """
    import pyarrow

    if pyarrow.types.is_null(kind) and column.null_count == len(column):
        return pyarrow.nulls(len(column))
    if not pyarrow.types.is_struct(kind) or not pyarrow.types.is_struct(column.type):
        return column.cast(kind)
    fields = [kind.field(number) for number in range(kind.num_fields)]
    names = [field.name for field in column.type]
    if names != [field.name for field in fields]:
        return column.cast(kind)
    inner = [_cast(part, field.type) for part, field in zip(column.flatten(), fields, strict=True)]
    return pyarrow.StructArray.from_arrays(inner, fields=fields, mask=column.is_null())


def _struct(columns: Sequence[pyarrow.Array], field: pyarrow.Field) -> pyarrow.StructArray:
    """Return structs; a struct is null if all its fields are null."""
    import numpy
    import pyarrow

    nulls = numpy.ones(len(columns[0]) if columns else 0, bool)
    for column in columns:
        nulls &= column.is_null().to_numpy(zero_copy_only=False)
    fields = [field.type.field(number) for number in range(field.type.num_fields)]
    return pyarrow.StructArray.from_arrays(columns, fields=fields, mask=pyarrow.array(nulls))


def renamed(fields: Sequence[pyarrow.Field], taken: set[str], prefix: str) -> list[pyarrow.Field]:
    """Return the fields with `prefix` before each name that is in `taken`, and add their names to `taken`."""
    free = []
    for field in fields:
        name = field.name
        while name in taken:
            name = prefix + name
        taken.add(name)
        free.append(field.with_name(name))
    return free


def _texts(rows: Encoded) -> list[bytes]:
    return ByteSlices(*rows).to_list() if isinstance(rows, tuple) else rows


def _count(rows: Encoded) -> int:
    return len(rows[1]) if isinstance(rows, tuple) else len(rows)


def _inner(array: pyarrow.Array, column: Column) -> pyarrow.Array:
    return array if column.inner is None else array.flatten()[column.inner]


def _columns(view: View) -> Iterator[Column]:
    import pyarrow

    keys = [(number, field) for number, field in enumerate(view.schema.key) if field.name not in view.hidden]
    names_in_use = {field.name for _, field in keys} | {PARTITION}
    yield from (Column(field, True, number) for number, field in keys)
    for number, field in enumerate(view.schema.value):
        if view.has_no_content(number):
            continue
        if number == 0 and view.has_groups and pyarrow.types.is_struct(field.type):
            inner: Sequence[tuple[int | None, pyarrow.Field]] = [
                (position, field.type.field(position).with_nullable(True))
                for position in range(field.type.num_fields)
            ]
        else:
            inner = [(None, field)]
        named = renamed([field for _, field in inner], names_in_use, "value_")
        for (position, _), column in zip(inner, named, strict=True):
            yield Column(column, False, number, position)
    partition = pyarrow.field(PARTITION, pyarrow.int32(), False)
    names = {field.name for _, field in keys}
    yield Column(renamed([partition], names, "state_")[0], False, -1)


def key_columns(
    view: View, key: Key, zone: tzinfo | None = None, units: Mapping[str, str] = MappingProxyType({})
) -> list[pyarrow.Array]:
    """Return a key as arrays of one row, one for each column of the key that the view shows.

    Args:
        view: the store.
        key: the key; texts are parsed.
        zone: the zone of texts that are moments and name none; None is the local one.
        units: columns that are moments in numbers, each with its unit, `ms` or `us`; their texts may be
            moments.

    Raises:
        OptionError: the key lacks a column, has one too many, or has a value of another type.
    """
    fields = [field for field in view.schema.key if field.name not in view.hidden]
    names = [field.name for field in fields]
    if isinstance(key, Mapping):
        if set(key) != set(names):
            raise OptionError(f"a key has the columns {', '.join(names)}, not {', '.join(map(str, key))}")
        values: Sequence[Any] = [key[name] for name in names]
    elif isinstance(key, (tuple, list)) and (len(fields) != 1 or len(key) == 1):
        values = key
    else:
        values = [key]
    if len(values) != len(fields):
        raise OptionError(f"a key has {len(fields)} columns ({', '.join(names)}), not {len(values)}")
    return [
        _typed_key(value, field, zone, units.get(field.name))
        for value, field in zip(values, fields, strict=True)
    ]


def key_bytes(view: View, columns: Sequence[pyarrow.Array], family: int) -> bytes:
    """Return the key as a store has it, with the id of the column family.

    Raises:
        FormatError: the key cannot be encoded.
    """
    (encoded,) = encoded_keys(view, columns, 1)
    return family.to_bytes(FAMILY_BYTES, "big") + bytes(encoded.as_py())


def partition_of(view: View, columns: Sequence[pyarrow.Array]) -> int | None:
    """Return the partition in which Spark keeps the key; None if its columns do not tell."""
    try:
        key_columns = [columns[number] for number in partitioning_columns(view)]
        return int(key_partitions(view, key_columns, 1, view.operator.stores[view.store])[0])
    except FormatError:
        return None


def partitioning_columns(view: View) -> list[int]:
    """Return the numbers of the key's columns by which Spark partitions, for `key_partitions`.

    Raises:
        FormatError: the columns are not known.
    """
    numbers, layout = list(range(len(view.schema.key))), view.schema.layout
    if view.operator.name.startswith("transformWithState"):
        if not layout.is_ordered:
            return list(layout.first) or numbers
        grouping = [number for number in numbers if view.schema.key.names[number] in _GROUPING_KEYS]
        if len(grouping) != 1:
            raise FormatError(
                f"'{view.name}' of operator {view.operator.id} ({view.operator.words}) is ordered by other "
                f"columns than its keys ({', '.join(view.schema.key.names)}): the partition of a key cannot "
                "be told"
            )
        return grouping
    is_last_apart = view.operator.name.startswith("sessionWindow") or view.has_row_numbers
    return numbers[:-1] if is_last_apart else numbers


def key_partitions(view: View, columns: Sequence[pyarrow.Array], count: int, partitions: int) -> Any:
    """Return the partitions of `count` keys, as a numpy array of int64, by their `partitioning_columns`.

    Raises FormatError as `partitions_of`.
    """
    import numpy

    fields = [view.schema.key.field(number) for number in partitioning_columns(view)]
    if not fields:
        return numpy.zeros(count, numpy.int64)
    if view.is_index_of_map:  # the hash of the key and the user's key together
        columns, fields = [columns[0].flatten()[0]], [fields[0].type.field(0)]
    return partitions_of(columns, fields, partitions)


def key_filter(view: View, columns: Sequence[pyarrow.Array]) -> pyarrow.compute.Expression:
    """Return an expression that is true for the rows of a key.

    Raises:
        OptionError: a column is a list or a map.
    """
    import pyarrow.compute

    expression = pyarrow.compute.scalar(True)
    fields = [field for field in view.schema.key if field.name not in view.hidden]
    for field, column in zip(fields, columns, strict=True):
        expression = expression & _equals(pyarrow.compute.field(field.name), (field.name,), column[0])
    return expression


def _equals(
    reference: pyarrow.compute.Expression, path: tuple[str, ...], value: pyarrow.Scalar
) -> pyarrow.compute.Expression:
    import pyarrow
    import pyarrow.compute

    if not value.is_valid:
        return reference.is_null()
    if pyarrow.types.is_nested(value.type) and not pyarrow.types.is_struct(value.type):
        raise OptionError(f"rows cannot be found by column '{path[0]}', which has type {value.type}")
    if pyarrow.types.is_floating(value.type) and (value.as_py() != value.as_py() or not value.as_py()):
        return _equals_number(reference, value.as_py())
    if not pyarrow.types.is_struct(value.type):
        return reference == value
    expression = reference.is_valid()
    for index in range(value.type.num_fields):
        inner = (*path, value.type.field(index).name)
        expression = expression & _equals(pyarrow.compute.field(*inner), inner, value[index])
    return expression


def _equals_number(reference: pyarrow.compute.Expression, value: float) -> pyarrow.compute.Expression:
    """Return an expression for NaN, which equals itself as a key, or for one of 0.0 and -0.0: two keys."""
    import pyarrow.compute

    if math.isnan(value):
        return pyarrow.compute.is_nan(reference)
    inverse = pyarrow.compute.divide(pyarrow.compute.scalar(math.copysign(1.0, value)), reference)
    return (reference == value) & (inverse > 0)


def scalar_of(text: str, kind: pyarrow.DataType, zone: tzinfo | None = None) -> pyarrow.Scalar:
    """Return the value that a text stands for.

    Structs and lists are JSON; a window may be as tables show it, `START to END`, and a struct of one field
    may be the value of that. Bytes are base64, as they are shown.

    Args:
        text: the text.
        kind: the type of the value.
        zone: the zone of moments whose texts name none; None is the local one.

    Raises:
        ArrowException or ValueError: the text is not a value of the type.
    """
    import pyarrow

    types = pyarrow.types
    if types.is_string(kind):
        return pyarrow.scalar(text, kind)
    if _is_span(kind) and (span := _SPAN.fullmatch(text.strip())):
        start, end = span[1], span[2] if "-" in span[2][:5] else f"{span[1][:10]} {span[2]}"
        return pyarrow.scalar(_of_json({"start": start, "end": end}, kind, zone), kind)
    if _has_one_field(kind) and not text.lstrip().startswith("{"):
        return pyarrow.scalar({kind.field(0).name: scalar_of(text, kind.field(0).type, zone).as_py()}, kind)
    if types.is_nested(kind):
        value = _of_json(json.loads(text), kind, zone)
        _check_structs(value, kind)
        return pyarrow.scalar(value, kind)
    if types.is_timestamp(kind) and kind.tz is not None:
        try:
            return pyarrow.scalar(parse_moment(text, zone), kind)
        except OptionError as error:
            raise ValueError(error.message) from error
    if types.is_binary(kind):
        return pyarrow.scalar(base64.b64decode(text, validate=True), kind)
    if types.is_time(kind):
        return pyarrow.scalar(time.fromisoformat(text.strip()), kind)
    if types.is_duration(kind):
        return pyarrow.scalar(_interval(text.strip()), kind)
    return pyarrow.scalar(text).cast(kind)


def _interval(text: str) -> timedelta:
    """Return what a text stands for that Python makes of an interval. Raises ValueError."""
    parts = _INTERVAL.fullmatch(text)
    if parts is None:
        raise ValueError("an interval is '1 day, 2:30:00', '-1 day, 23:59:59.5' or '0:00:10'")
    days, hours, minutes, seconds, fraction = parts.groups()
    return timedelta(
        days=int(days or 0),
        hours=int(hours),
        minutes=int(minutes),
        seconds=int(seconds),
        microseconds=int((fraction or "").ljust(6, "0")),
    )


def _has_one_field(kind: pyarrow.DataType) -> bool:
    import pyarrow

    return pyarrow.types.is_struct(kind) and kind.num_fields == 1


def _is_span(kind: pyarrow.DataType) -> bool:
    """Return True if a type is that of windows."""
    import pyarrow

    names = [kind.field(place).name for place in range(kind.num_fields)]
    return (
        pyarrow.types.is_struct(kind)
        and names == ["start", "end"]
        and all(pyarrow.types.is_timestamp(kind.field(name).type) for name in names)
    )


def _of_json(value: Any, kind: pyarrow.DataType, zone: tzinfo | None) -> Any:
    import pyarrow

    if isinstance(value, str):
        return scalar_of(value, kind, zone).as_py()
    if isinstance(value, list) and pyarrow.types.is_struct(kind):
        raise ValueError("a struct is a JSON object")
    if isinstance(value, dict) and pyarrow.types.is_struct(kind):
        _check_fields(value, kind)
        return {name: _of_json(inner, kind.field(name).type, zone) for name, inner in value.items()}
    if isinstance(value, list) and pyarrow.types.is_list(kind):
        return [_of_json(inner, kind.value_type, zone) for inner in value]
    return value


def _check_fields(value: Mapping[Any, Any], kind: pyarrow.DataType) -> None:
    """Raise ValueError if a struct lacks a field or has an unknown one: Arrow would take null for it."""
    names = [kind.field(place).name for place in range(kind.num_fields)]
    unknown = [name for name in value if name not in names]
    if unknown:
        raise ValueError(f"it has no field {unknown[0]!r}")
    missing = [name for name in names if name not in value]
    if missing:
        raise ValueError(f"its field {missing[0]!r} is missing; null is a value, too")


def _check_structs(value: Any, kind: pyarrow.DataType) -> None:
    """Check the structs of a Python value as `_check_fields` does, and its numbers and dates.

    Raises:
        ValueError: also if Arrow would cut off a fraction, or the time of a day.
    """
    import pyarrow

    if isinstance(value, Mapping) and pyarrow.types.is_struct(kind):
        _check_fields(value, kind)
        for name, inner in value.items():
            _check_structs(inner, kind.field(name).type)
    elif isinstance(value, (list, tuple)) and pyarrow.types.is_list(kind):
        for inner in value:
            _check_structs(inner, kind.value_type)
    elif pyarrow.types.is_integer(kind) and isinstance(value, (Real, Decimal)) and value % 1 != 0:
        raise ValueError("it is not a whole number")
    elif pyarrow.types.is_date(kind) and isinstance(value, datetime) and value.time() != time.min:
        raise ValueError("it has a time of the day")


def _typed_key(value: Any, field: pyarrow.Field, zone: tzinfo | None, unit: str | None) -> pyarrow.Array:
    """Return one value in the column's type; a text is parsed."""
    import pyarrow

    try:
        if not isinstance(value, str):
            if _has_one_field(field.type) and isinstance(value, (int, float, bytes, date, Decimal)):
                value = {field.type.field(0).name: value}
            _check_structs(value, field.type)
            return pyarrow.array([value], field.type)
        if value.strip() == "null" and not pyarrow.types.is_string(field.type):
            return pyarrow.nulls(1, field.type)
        if unit is not None and not value.strip().lstrip("-").isdecimal():
            moment = scalar_of(value, pyarrow.timestamp(unit, "UTC"), zone)
            return pyarrow.array([moment.cast(pyarrow.int64()).as_py()], field.type)
        return pyarrow.array([scalar_of(value, field.type, zone).as_py()], field.type)
    except (pyarrow.ArrowException, TypeError, ValueError) as error:
        raise OptionError(
            f"{value!r} is not a value of column '{field.name}', which has type {field.type}: {error}"
        ) from error
