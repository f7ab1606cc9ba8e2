"""The columns of a view: those of the key, then those of the value, then the partition.

A column of the value that has the name of one before it gets `value_` in front, the partition `state_` where
a column of the key has its name.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Union

from state_store.core.compat import zip
from state_store.core.engine.pages import ByteSlices
from state_store.data.dataset.views import View
from state_store.data.rows.avro import decode_avro, decode_avro_keys
from state_store.data.rows.avro_encoder import encode_avro, encode_avro_keys
from state_store.data.rows.decoder import decode_fields
from state_store.data.rows.encoder import encode, encode_keys
from state_store.data.rows.keys import decode_keys
from state_store.data.rows.packed import joined, split_values
from state_store.errors import MissingError, OptionError

if TYPE_CHECKING:
    import pyarrow

PARTITION = "partition_id"
FAMILY_BYTES = 2
"""What a store has before each key: the id of the column family."""

NO_TIMEOUT = -1
"""What Spark has as the time-out of a group that has none."""


Encoded = Union[list[bytes], tuple[Any, Any, Any]]
"""Keys or values: texts, or parts of bytes (data, starts, lengths)."""


@dataclass(frozen=True)
class Column:
    """A column: of the key's or the value's field `number` (-1: the partition's number), of that struct's
    field `inner` where it is not None.
    """

    field: pyarrow.Field
    of_key: bool
    number: int
    inner: int | None = None


class Columns:
    """The columns of a view, all or some, decoded from its rows. Immutable; safe for any thread."""

    def __init__(self, view: View, chosen: Sequence[str] | None = None) -> None:
        """Raises MissingError for a name in `chosen` that there is not."""
        import pyarrow

        self.view = view
        every = {column.field.name: column for column in _columns(view)}
        self._partition = next(column.field for column in every.values() if column.number < 0)
        names = list(every) if chosen is None else list(dict.fromkeys(chosen))
        unknown = [name for name in names if name not in every]
        if unknown:
            raise MissingError(f"there is no column '{unknown[0]}'; there are: {', '.join(every)}")
        self._columns = [every[name] for name in names]
        self._keys = sorted({one.number for one in self._columns if one.of_key})
        self._values = sorted({one.number for one in self._columns if not one.of_key and one.number >= 0})
        self.schema: pyarrow.Schema = pyarrow.schema([column.field for column in self._columns])
        self.key_names = [column.field.name for column in every.values() if column.of_key]

    @property
    def partition_field(self) -> pyarrow.Field:
        """The column that has the number of the partition."""
        return self._partition

    @property
    def value_type(self) -> pyarrow.DataType:
        """What `whole_values` gives."""
        import pyarrow

        one = pyarrow.struct(self.value_fields)
        return pyarrow.list_(pyarrow.field("element", one, False)) if self.view.is_list else one

    @property
    def key_fields(self) -> list[pyarrow.Field]:
        return [column.field for column in self._columns if column.of_key]

    @property
    def value_fields(self) -> list[pyarrow.Field]:
        return [column.field for column in self._columns if not column.of_key and column.number >= 0]

    def keys(self, keys: list[bytes]) -> list[pyarrow.Array]:
        """The columns of the key. Raises as `decode`."""
        return decoded_keys(self.view, keys, self._keys)

    def values(self, values: list[bytes | None]) -> pyarrow.StructArray:
        """The columns of the value, null where there is none. Raises as `decode`."""
        import pyarrow

        present = [value for value in values if value is not None]
        columns = [column for column in self._columns if not column.of_key and column.number >= 0]
        if not columns:
            return pyarrow.array([None if one is None else {} for one in values], pyarrow.struct([]))
        decoded = dict(zip(self._values, self._decoded_values(present), strict=True))
        arrays = [_inner(decoded[column.number], column) for column in columns]
        found = pyarrow.StructArray.from_arrays(arrays, fields=[column.field for column in columns])
        places = itertools.count()
        return found.take(
            pyarrow.array([None if one is None else next(places) for one in values], pyarrow.int64())
        )

    def whole_values(self, values: list[bytes | None]) -> pyarrow.Array:
        """As `values`, of a list all of its elements together. Raises as `decode`."""
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

    def encode(self, batch: pyarrow.RecordBatch) -> tuple[list[bytes], list[bytes], list[pyarrow.Array]]:
        """The reverse of `decode`: the keys, without the id of a column family, and the values of rows that
        have all columns by name, and the columns of the keys. Columns that are not shown are 0.

        What a row need not say is whether it has matched (it has not), and when its state expires (never).
        Raises MissingError for a column that lacks, OptionError for one of another type.
        """
        import pyarrow

        schema, count = self.view.schema, batch.num_rows
        by_place = {(one.of_key, one.number, one.inner): one for one in self._columns}
        keys = [
            _zeros(count, field)
            if field.name in self.view.hidden
            else _typed(batch, by_place[True, number, None].field)
            for number, field in enumerate(schema.key)
        ]
        values = []
        for number, field in enumerate(schema.value):
            if (False, number, None) in by_place:
                values.append(_typed(batch, by_place[False, number, None].field, self._default(field.name)))
            elif self.view.has_no_values:
                values.append(pyarrow.nulls(count, field.type))
            else:
                inner = [by_place[False, number, place].field for place in range(field.type.num_fields)]
                values.append(_struct([_typed(batch, one) for one in inner], field))
        return encoded_keys(self.view, keys, count), encoded_values(self.view, values, count), keys

    def _decoded_values(self, values: Encoded) -> list[pyarrow.Array]:
        """The columns of the value that are wanted."""
        schema = self.view.schema
        if schema.avro is None:
            return decode_fields(values, list(schema.value), self._values)
        fields = [schema.value.field(number) for number in self._values]
        return decode_avro(_texts(values), fields, schema.avro.values)

    def _default(self, name: str) -> int | bool | None:
        """The value of a column that rows may lack."""
        if self.view.has_groups and name == "timeoutTimestamp":
            return NO_TIMEOUT
        return False if self.view.is_side and name == "matched" else None

    def decode(self, keys: Encoded, values: Encoded, partition: int) -> pyarrow.RecordBatch:
        """The rows as a batch; keys have the id of the column family in front. Raises FormatError and
        DamagedError as the decoder does.
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
    """The columns numbered `only` of keys with the id of a column family in front. Raises as `decode`."""
    schema = view.schema
    fields = list(schema.key)
    if schema.avro is None:
        return decode_keys(keys, fields, schema.layout, skip=FAMILY_BYTES, only=only)
    texts = [key[FAMILY_BYTES:] for key in _texts(keys)]
    found = decode_avro_keys(texts, fields, schema.layout, schema.avro.keys)
    return [found[number] for number in only]


def encoded_keys(view: View, columns: Sequence[pyarrow.Array], count: int) -> list[bytes]:
    """Keys as Spark has them, without the id of a column family. Raises FormatError as `encode_keys`."""
    avro, layout = view.schema.avro, view.schema.layout
    if avro is None:
        return encode_keys(columns, count, layout)
    return encode_avro_keys(columns, layout, avro.newest_keys, count)


def encoded_values(view: View, columns: Sequence[pyarrow.Array], count: int) -> list[bytes]:
    """Values as Spark has them. Raises FormatError as `encode`."""
    avro = view.schema.avro
    if avro is None:
        return encode(columns, count)
    return encode_avro(columns, avro.newest_values, count)


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
        return pyarrow.concat_arrays([batch[field.name].cast(field.type)])  # from the begin of its buffers
    except pyarrow.ArrowException as error:
        raise OptionError(
            f"column '{field.name}' of the rows has type {batch[field.name].type}, not {field.type}: {error}"
        ) from error


def _struct(columns: Sequence[pyarrow.Array], field: pyarrow.Field) -> pyarrow.StructArray:
    """A struct that is null where all its fields are."""
    import numpy
    import pyarrow

    nulls = numpy.ones(len(columns[0]) if columns else 0, bool)
    for column in columns:
        nulls &= column.is_null().to_numpy(zero_copy_only=False)
    fields = [field.type.field(number) for number in range(field.type.num_fields)]
    return pyarrow.StructArray.from_arrays(columns, fields=fields, mask=pyarrow.array(nulls))


def renamed(fields: Sequence[pyarrow.Field], taken: set[str], prefix: str) -> list[pyarrow.Field]:
    """The fields, those whose names are taken with `prefix` in front; their names are taken then."""
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
    taken = {field.name for _, field in keys} | {PARTITION}
    yield from (Column(field, True, number) for number, field in keys)
    for number, field in enumerate(view.schema.value):
        if view.has_no_values:
            break
        if number == 0 and view.has_groups and pyarrow.types.is_struct(field.type):
            inner: Sequence[tuple[int | None, pyarrow.Field]] = [
                (place, field.type.field(place).with_nullable(True)) for place in range(field.type.num_fields)
            ]
        else:
            inner = [(None, field)]
        named = renamed([field for _, field in inner], taken, "value_")
        for (place, _), shown in zip(inner, named, strict=True):
            yield Column(shown, False, number, place)
    partition = pyarrow.field(PARTITION, pyarrow.int32(), False)
    names = {field.name for _, field in keys}
    yield Column(renamed([partition], names, "state_")[0], False, -1)
