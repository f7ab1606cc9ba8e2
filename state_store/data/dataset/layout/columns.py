"""The columns of a view: those of the key, then those of the value, then the partition.

A column of the value gets the prefix `value_` if an earlier column has its name; the partition gets `state_`
if a column of the key has its name.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Union

from state_store.core.compat import zip
from state_store.core.engine.rows import ByteSlices
from state_store.data.dataset.layout.views import View
from state_store.data.query.arguments import check_names
from state_store.data.rows.avro import decode_avro, decode_avro_keys
from state_store.data.rows.avro_encoder import encode_avro, encode_avro_keys
from state_store.data.rows.decoder import decode_fields
from state_store.data.rows.encoder import encode, encode_keys
from state_store.data.rows.key_layouts import decode_keys
from state_store.data.rows.packed import joined, split_values
from state_store.errors import MissingError, OptionError

if TYPE_CHECKING:
    import pyarrow

PARTITION = "partition_id"
FAMILY_BYTES = 2
"""Length of the id of the column family, which a store puts before each key."""

NO_TIMEOUT = -1
"""Spark's number for the time-out of a group without one."""

Encoded = Union[list[bytes], tuple[Any, Any, Any]]
"""Encoded keys or values: a list of them, or one buffer and its parts.

The parts are three numpy arrays: the bytes (uint8), and the start and the length of each row (int64).
"""


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

    def __init__(self, view: View, chosen: Sequence[str] | None = None) -> None:
        """Choose columns of a view.

        Args:
            view: the view.
            chosen: names of columns, in their order; None is all.

        Raises:
            MissingError: a name in `chosen` is no column.
            OptionError: `chosen` is no sequence of names.
        """
        import pyarrow

        if chosen is not None:
            check_names("columns", chosen)

        self.view = view
        every = {column.field.name: column for column in _columns(view)}
        self._partition = next(column.field for column in every.values() if column.number < 0)
        names = list(every) if chosen is None else list(dict.fromkeys(chosen))
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

    def values(self, values: list[bytes | None]) -> pyarrow.StructArray:
        """Return the columns of the value as structs, null for a value that is None. Raises as `decode`."""
        import pyarrow

        present = [value for value in values if value is not None]
        columns = [column for column in self._columns if not column.of_key and column.number >= 0]
        if not columns:
            return pyarrow.array([None if value is None else {} for value in values], pyarrow.struct([]))
        decoded = dict(zip(self._values, self._decoded_values(present), strict=True))
        arrays = [_inner(decoded[column.number], column) for column in columns]
        found = pyarrow.StructArray.from_arrays(arrays, fields=[column.field for column in columns])
        positions = itertools.count()
        return found.take(
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

    def encode(self, batch: pyarrow.RecordBatch) -> tuple[list[bytes], list[bytes], list[pyarrow.Array]]:
        """Encode rows for a store: the reverse of `decode`.

        Args:
            batch: rows with all columns, found by name. `matched` (default: false) and `timeoutTimestamp`
                (default: never) may lack; hidden columns become 0.

        Returns:
            The keys without the id of a column family, the values, and the columns of the keys.

        Raises:
            MissingError: a column lacks.
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
        values = []
        for number, field in enumerate(schema.value):
            if (False, number, None) in by_position:
                values.append(
                    _typed(batch, by_position[False, number, None].field, self._default(field.name))
                )
            elif self.view.has_no_values:
                values.append(pyarrow.nulls(count, field.type))
            else:
                inner = [
                    by_position[False, number, position].field for position in range(field.type.num_fields)
                ]
                values.append(_struct([_typed(batch, shown) for shown in inner], field))
        return encoded_keys(self.view, keys, count), encoded_values(self.view, values, count), keys

    def _decoded_values(self, values: Encoded) -> list[pyarrow.Array]:
        """Return the chosen columns of the value."""
        schema = self.view.schema
        if schema.avro is None:
            return decode_fields(values, list(schema.value), self._values)
        fields = [schema.value.field(number) for number in self._values]
        return decode_avro(_texts(values), fields, schema.avro.values)

    def _default(self, name: str) -> int | bool | None:
        """Return the default of a column that rows may lack; None if it has none."""
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
    found = decode_avro_keys(texts, fields, schema.layout, schema.avro.keys)
    return [found[number] for number in only]


def encoded_keys(view: View, columns: Sequence[pyarrow.Array], count: int) -> list[bytes]:
    """Return keys as Spark stores them, without the family's id. Raises FormatError as `encode_keys`."""
    avro, layout = view.schema.avro, view.schema.layout
    if avro is None:
        return encode_keys(columns, count, layout)
    return encode_avro_keys(columns, layout, avro.newest_keys, count)


def encoded_values(view: View, columns: Sequence[pyarrow.Array], count: int) -> list[bytes]:
    """Return values as Spark stores them. Raises FormatError as `encode`."""
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
        # Copied, so that its buffers begin at 0. Casts of slices lose the length of columns of nulls within.
        return pyarrow.concat_arrays([batch[field.name]]).cast(field.type)
    except pyarrow.ArrowException as error:
        raise OptionError(
            f"column '{field.name}' of the rows has type {batch[field.name].type}, not {field.type}: {error}"
        ) from error


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
    taken = {field.name for _, field in keys} | {PARTITION}
    yield from (Column(field, True, number) for number, field in keys)
    for number, field in enumerate(view.schema.value):
        if view.has_no_values:
            break
        if number == 0 and view.has_groups and pyarrow.types.is_struct(field.type):
            inner: Sequence[tuple[int | None, pyarrow.Field]] = [
                (position, field.type.field(position).with_nullable(True))
                for position in range(field.type.num_fields)
            ]
        else:
            inner = [(None, field)]
        named = renamed([field for _, field in inner], taken, "value_")
        for (position, _), shown in zip(inner, named, strict=True):
            yield Column(shown, False, number, position)
    partition = pyarrow.field(PARTITION, pyarrow.int32(), False)
    names = {field.name for _, field in keys}
    yield Column(renamed([partition], names, "state_")[0], False, -1)
