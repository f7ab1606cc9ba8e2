"""Functions that are called for one group at a time, with plain Python values, and their `GroupState`.

The groups of a call come and go as they do for a vectorised function, as one table of rows and one of states.
`GroupCaller` takes them apart for the function, and makes tables of the changes to each `GroupState` and of
the rows that the function returns.

**Values**. The values are those of `Row`s that `collect()` gives: `None` for null, `int`, `float`, `str`,
`bytes`, `Decimal`, `date`, `timedelta`, `datetime` without a zone in the session's time zone, `list` for
arrays, `dict` for maps, `Row` for structs. On the way back numpy's and pandas' scalars are taken too. Each
type of Spark has a `Codec`; a `RowSchema` converts whole rows.

The moments of an hour that the clocks repeat are told apart by `fold`, as in Python (PEP 495).

Rows, keys and states are tuples with names. Rows, and structs in them, are instances of PySpark's `Row`, too.
Keys and states are plain tuples, as in Spark's operator, so `value in key` asks for values and not for names.
"""

from __future__ import annotations

import array
import bisect
import collections
import dataclasses
import datetime
import decimal
import functools
import re
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from itertools import pairwise
from types import GeneratorType
from typing import TYPE_CHECKING, Any
from zoneinfo import ZoneInfo

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Row, types
from pyspark.sql.streaming.state import GroupState

from state_store.functions.checking import Call, bounds, conform, nullable, struct_type
from state_store.functions.group_context import (
    EXISTS,
    GROUP,
    BadResultError,
    Changes,
    Header,
    as_long,
    fields_without_state,
)

if TYPE_CHECKING:
    from pyspark.sql.types import StructType


_UTC = datetime.timezone.utc

_EPOCH = datetime.datetime(1970, 1, 1, tzinfo=_UTC)

_MICROSECOND = datetime.timedelta(microseconds=1)

_OFFSET = re.compile(r"(?:GMT|UTC|UT)?([+-])(\d{1,2})(?::?(\d{2}))?(?::?(\d{2}))?")

Make = Callable[[Iterable[Any]], Any]

Emit = Callable[[pa.StructArray], Any]
"""Makes an item of a stream of answers of output rows."""

_MAX_OUTPUT_ROWS = 10_000


# ---- moments in the session's zone ----------------------------------------------------------------------


class SessionZone:
    """The time zone with this name, in any of the forms that Spark knows."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.tzinfo = _tzinfo(name)
        self._type = pa.timestamp("us", name)
        self._in_arrow = self._arrow_knows()

    def _arrow_knows(self) -> bool:
        """Return True if Arrow, which has no zones where the machine has none, can do the arithmetic."""
        try:
            pc.local_timestamp(pa.scalar(0, self._type))
        except pa.ArrowInvalid:
            return False
        return True

    def datetimes(self, column: pa.Array) -> list[datetime.datetime | None]:
        """Return the moments of `column`, timestamps with any zone, in this zone and without it."""
        if self._in_arrow:
            moments = column.cast(self._type)
            local = pc.local_timestamp(moments)
            first = pc.assume_timezone(local, self.name, ambiguous="earliest", nonexistent="earliest")
            datetimes = local.to_pylist()
            for i in pc.indices_nonzero(pc.not_equal(first, moments).fill_null(False)).to_pylist():
                datetimes[i] = datetimes[i].replace(fold=1)
            return datetimes
        micros = column.cast(pa.timestamp("us", column.type.tz)).cast(pa.int64())
        return [None if us is None else self._datetime(us) for us in micros.to_pylist()]

    def _datetime(self, us: int) -> datetime.datetime:
        return (_EPOCH + us * _MICROSECOND).astimezone(self.tzinfo).replace(tzinfo=None)

    def moments(self, values: Sequence[datetime.datetime | None]) -> pa.Array:
        """Return the array for `datetimes`; a value with a zone of its own keeps its moment."""
        if self._in_arrow and all(value is None or value.tzinfo is None for value in values):
            try:
                return pc.assume_timezone(pa.array(values, pa.timestamp("us")), self.name)
            except pa.ArrowInvalid:  # clocks change: Python knows `fold`
                pass
        micros = [None if value is None else self.micros(value) for value in values]
        return pa.array(micros, pa.int64()).cast(self._type)

    def micros(self, value: datetime.datetime) -> int:
        """Return microseconds since the epoch of `value`, which is in this zone if it has none."""
        aware = value if value.tzinfo is not None else value.replace(tzinfo=self.tzinfo)
        return (aware.astimezone(_UTC) - _EPOCH) // _MICROSECOND


def _tzinfo(name: str) -> datetime.tzinfo:
    if name == "Z":
        return _UTC
    match = _OFFSET.fullmatch(name)
    if match is None:
        return ZoneInfo(name)
    sign, hours, minutes, seconds = match.groups()
    offset = datetime.timedelta(hours=int(hours), minutes=int(minutes or 0), seconds=int(seconds or 0))
    return datetime.timezone(offset if sign == "+" else -offset)


# ---- rows and the types of their values -----------------------------------------------------------------


@functools.lru_cache(maxsize=256)
def row_class(names: tuple[str, ...]) -> Make:
    """Make a `Row` of its values. It has quick attributes; those of a plain `Row` are looked up by name."""
    base = _named_tuple("Row", names)
    new_class = type("Row", (base, Row), {"__fields__": list(names), "__module__": Row.__module__})
    return functools.partial(tuple.__new__, new_class)


@functools.lru_cache(maxsize=256)
def tuple_class(kind: str, names: tuple[str, ...]) -> Make:
    """Make a named tuple of its values; `kind` is the name of its class."""
    return functools.partial(tuple.__new__, _named_tuple(kind, names))


def _named_tuple(kind: str, names: tuple[str, ...]) -> Any:
    # Names that are not identifiers of Python become _0, _1, ...: the number of the column.
    return collections.namedtuple(kind, names, rename=True)


class UnfitValueError(ValueError):
    """A value that a column cannot hold; the message names the value and the type that the column needs."""


class Codec:
    """A type of Spark: `arrow` is its Arrow type, with nulls allowed everywhere.

    Values of the classes in `exact` are good as they are, those of `kinds` are made so by `own`. The first of
    `exact` is the usual one.
    """

    def __init__(
        self, arrow: pa.DataType, spark: Any, exact: Sequence[type], kinds: tuple[type, ...]
    ) -> None:
        self.arrow = arrow
        self.name = spark.simpleString()
        self.exact = frozenset(exact)
        self.usual = next(iter(exact), None)
        self._kinds = kinds

    def values(self, column: pa.Array) -> list[Any]:
        """Return the values of `column`, an array of the type."""
        return column.to_pylist()

    def own(self, value: Any) -> Any:
        """Return `value`, not `None`, as one that `column` takes and that the user's function cannot change.

        Raises:
            UnfitValueError: It is of another kind.
        """
        if isinstance(value, self._kinds) and not (isinstance(value, bool) and bool not in self.exact):
            return value
        raise self.unfit(value)

    def column(self, values: list[Any]) -> pa.Array:
        """Return an array of values that `own` gave, or `None`; an error of Arrow if one does not fit."""
        return pa.array(values, type=self.arrow)

    def unfit(self, value: Any) -> UnfitValueError:
        """Return the error for a value of another kind."""
        return UnfitValueError(f"{value!r} is of type {type(value).__name__}, not {self.name}")


class Number(Codec):
    """Integers, floating-point numbers and booleans."""

    def values(self, column: pa.Array) -> list[Any]:
        if column.null_count:
            return column.to_pylist()
        return column.to_numpy(zero_copy_only=False).tolist()  # a fifth of the time


class Binary(Codec):
    """Bytes, of any class that has them."""

    def own(self, value: Any) -> bytes:
        return bytes(super().own(value))


class Date(Codec):
    """Dates; a moment stands for its date."""

    def own(self, value: Any) -> datetime.date:
        date = super().own(value)
        return date.date() if isinstance(date, datetime.datetime) else date


class Timestamp(Codec):
    """Moments, in the session's zone."""

    def __init__(self, arrow: pa.DataType, spark: Any, zone: SessionZone) -> None:
        super().__init__(arrow, spark, [datetime.datetime], (datetime.datetime,))
        self._zone = zone

    def values(self, column: pa.Array) -> list[Any]:
        return self._zone.datetimes(column)

    def column(self, values: list[Any]) -> pa.Array:
        return self._zone.moments(values).cast(self.arrow)


class LocalTimestamp(Codec):
    """Dates with times and without a zone."""

    def column(self, values: list[Any]) -> pa.Array:
        for value in values:
            if value is not None and value.tzinfo is not None:
                raise UnfitValueError(f"{value!r} has a time zone, which a {self.name} has not")
        return super().column(values)


class Decimal(Codec):
    """Decimals. Too many digits after the point are rounded half up, as Spark rounds what it is given."""

    def __init__(self, arrow: pa.DataType, spark: Any) -> None:
        super().__init__(arrow, spark, [decimal.Decimal], (decimal.Decimal, int))
        self._unit = decimal.Decimal(1).scaleb(-spark.scale)
        self._context = decimal.Context(prec=100, rounding=decimal.ROUND_HALF_UP)

    def own(self, value: Any) -> decimal.Decimal:
        return decimal.Decimal(super().own(value))

    def column(self, values: list[Any]) -> pa.Array:
        try:
            return super().column(values)
        except pa.ArrowInvalid:
            rounded = [None if v is None else v.quantize(self._unit, context=self._context) for v in values]
            return super().column(rounded)


def plain(value: Any) -> Any:
    """Return the Python value of a scalar of numpy or pandas, and any other value as it is."""
    module = type(value).__module__
    if module == "builtins":
        return value
    if module.startswith("numpy"):
        return from_numpy(value) if isinstance(value, np.generic) else value
    if module.startswith("pandas"):
        for convert in ("to_pydatetime", "to_pytimedelta"):
            if hasattr(value, convert) and value == value:
                return getattr(value, convert)()
        if type(value).__name__ in ("NAType", "NaTType"):
            return None
    return value


def from_numpy(value: np.generic | np.ndarray) -> Any:
    """Return the Python value of a scalar of numpy, or the list of those of an array.

    Moments become `datetime`, spans of time `timedelta`, in microseconds, whatever their unit is: numpy
    itself makes integers of those in nanoseconds.
    """
    if value.dtype.kind in "mM":
        value = value.astype(f"{value.dtype.kind}8[us]")
    return value.tolist()


def by_position(value: Any, names: list[str]) -> Sequence[Any]:
    """Return the values of a row or struct in the order of `names`.

    Tuples and lists have one for each name, in their order; a mapping may leave names out, which are `None`.

    Raises:
        UnfitValueError: It has too many, too few or unknown names, or is neither a row nor a mapping.
    """
    if isinstance(value, dict):
        unknown = [key for key in value if key not in names]
        if unknown:
            raise UnfitValueError(f"{value!r} has {unknown[0]!r}, and the schema has only {names}")
        return tuple(map(value.get, names))
    if not isinstance(value, (tuple, list)):
        raise UnfitValueError(f"{value!r} is of type {type(value).__name__}, not a row")
    if len(value) != len(names):
        raise UnfitValueError(f"{value!r} has {len(value)} values, and the schema has {len(names)}: {names}")
    return value


class _Struct(Codec):
    def __init__(self, arrow: pa.DataType, spark: Any, zone: SessionZone) -> None:
        super().__init__(arrow, spark, [], ())
        self.names = spark.names
        self.fields = [codec(f.dataType, a.type, zone) for f, a in zip(spark.fields, arrow, strict=True)]
        self._row = row_class(tuple(self.names))

    def values(self, column: pa.Array) -> list[Any]:
        children = [c.values(a) for c, a in zip(self.fields, column.flatten(), strict=True)]
        rows: list[Any] = list(map(self._row, zip(*children, strict=True))) or [self._row(())] * len(column)
        return _with_nulls(rows, column)

    def own(self, value: Any) -> tuple[Any, ...]:
        return tuple(
            None if v is None else _own(c, v, f"{self.name}, {n!r}")
            for v, c, n in zip(by_position(value, self.names), self.fields, self.names, strict=True)
        )

    def column(self, values: list[Any]) -> pa.Array:
        if not self.fields:
            return pa.array([None if v is None else {} for v in values], self.arrow)
        nothing = (None,) * len(self.fields)
        children = list(zip(*(nothing if v is None else v for v in values), strict=True)) or [()] * len(
            nothing
        )
        arrays = [c.column(list(child)) for c, child in zip(self.fields, children, strict=True)]
        return pa.StructArray.from_arrays(arrays, fields=list(self.arrow), mask=_mask(values))


class _List(Codec):
    def __init__(self, arrow: pa.DataType, spark: Any, zone: SessionZone) -> None:
        super().__init__(arrow, spark, [], (list, tuple, array.array))
        self._element = codec(spark.elementType, arrow.value_type, zone)

    def values(self, column: pa.Array) -> list[Any]:
        offsets = bounds(column).tolist()
        flat = self._element.values(column.values.slice(offsets[0], offsets[-1] - offsets[0]))
        first = offsets[0]
        lists = [flat[a - first : b - first] for a, b in pairwise(offsets)]
        return _with_nulls(lists, column)

    def own(self, value: Any) -> list[Any]:
        items = super().own(from_numpy(value) if isinstance(value, np.ndarray) else value)
        if self._element.exact.issuperset(map(type, items)):
            return list(items)
        return [None if v is None else _own(self._element, v, self.name) for v in items]

    def column(self, values: list[Any]) -> pa.Array:
        flat = [item for value in values if value is not None for item in value]
        return pa.ListArray.from_arrays(
            _offsets(values), self._element.column(flat), type=self.arrow, mask=_mask(values)
        )


class _Map(Codec):
    def __init__(self, arrow: pa.DataType, spark: Any, zone: SessionZone) -> None:
        super().__init__(arrow, spark, [], (dict,))
        self._key = codec(spark.keyType, arrow.key_type, zone)
        self._item = codec(spark.valueType, arrow.item_type, zone)

    def values(self, column: pa.Array) -> list[Any]:
        offsets = bounds(column).tolist()
        first, count = offsets[0], offsets[-1] - offsets[0]
        keys = self._key.values(column.keys.slice(first, count))
        items = self._item.values(column.items.slice(first, count))
        pairs = list(zip(keys, items, strict=True))
        maps = [dict(pairs[a - first : b - first]) for a, b in pairwise(offsets)]
        return _with_nulls(maps, column)

    def own(self, value: Any) -> dict[Any, Any]:
        pairs = super().own(value).items()
        if self._key.exact.issuperset(map(type, value)) and self._item.exact.issuperset(
            map(type, value.values())
        ):
            return dict(pairs)
        if any(k is None for k, _ in pairs):
            raise UnfitValueError(f"{value!r} has a key None, which a {self.name} cannot have")
        return {
            _own(self._key, k, self.name): None if v is None else _own(self._item, v, self.name)
            for k, v in pairs
        }

    def column(self, values: list[Any]) -> pa.Array:
        keys = [k for value in values if value is not None for k in value]
        items = [v for value in values if value is not None for v in value.values()]
        return pa.MapArray.from_arrays(
            _offsets(values), self._key.column(keys), self._item.column(items), self.arrow, mask=_mask(values)
        )


class _UserDefined(Codec):
    """A user-defined type: its class converts the values of its SQL type."""

    def __init__(self, arrow: pa.DataType, spark: Any, zone: SessionZone) -> None:
        super().__init__(arrow, spark, [], ())
        self._udt = spark
        self._inner = codec(spark.sqlType(), arrow, zone)

    def values(self, column: pa.Array) -> list[Any]:
        return [None if v is None else self._udt.deserialize(v) for v in self._inner.values(column)]

    def own(self, value: Any) -> Any:
        return self._inner.own(self._udt.serialize(value))

    def column(self, values: list[Any]) -> pa.Array:
        return self._inner.column(values)


class _Rare(Codec):
    """Types that PySpark alone knows (variants, geometries): its own conversions, value by value."""

    def __init__(self, arrow: pa.DataType, spark: Any) -> None:
        from pyspark.sql.conversion import ArrowTableToRowsConversion, LocalDataToArrowConversion

        super().__init__(arrow, spark, [], ())
        self._from_arrow: Callable[[Any], Any] = ArrowTableToRowsConversion._create_converter(spark)
        self._to_arrow: Callable[[Any], Any] = LocalDataToArrowConversion._create_converter(spark)

    def values(self, column: pa.Array) -> list[Any]:
        return [self._from_arrow(value) for value in column.to_pylist()]

    def own(self, value: Any) -> Any:
        try:
            return self._to_arrow(value)
        except (AssertionError, ValueError, TypeError) as error:
            raise self.unfit(value) from error


# A type of Spark, its codec, and the classes of values that are good as they are, and that are made so.
_SCALARS: tuple[tuple[Any, type[Codec], list[type], tuple[type, ...]], ...] = (
    (types.BooleanType, Number, [bool], (bool,)),
    (types.IntegralType, Number, [int], (int,)),
    ((types.FloatType, types.DoubleType), Number, [float, int], (float, int)),
    (types.StringType, Codec, [str], (str,)),
    (types.BinaryType, Binary, [bytes], (bytes, bytearray, memoryview)),
    (types.DateType, Date, [datetime.date], (datetime.date,)),
    (types.TimestampNTZType, LocalTimestamp, [datetime.datetime], (datetime.datetime,)),
    (types.DayTimeIntervalType, Codec, [datetime.timedelta], (datetime.timedelta,)),
    (types.NullType, Codec, [], ()),
)


def codec(spark: Any, arrow: pa.DataType, zone: SessionZone) -> Codec:
    """Return the codec of a type of Spark (`pyspark.sql.types.DataType`) whose Arrow type is `arrow`."""
    arrow = nullable(arrow)
    for kind, scalar, exact, kinds in _SCALARS:
        if isinstance(spark, kind):
            return scalar(arrow, spark, exact, kinds)
    if isinstance(spark, types.DecimalType):
        return Decimal(arrow, spark)
    if isinstance(spark, types.TimestampType):
        return Timestamp(arrow, spark, zone)
    if isinstance(spark, types.StructType):
        return _Struct(arrow, spark, zone)
    if isinstance(spark, types.ArrayType):
        return _List(arrow, spark, zone)
    if isinstance(spark, types.MapType):
        return _Map(arrow, spark, zone)
    if isinstance(spark, types.UserDefinedType):
        return _UserDefined(arrow, spark, zone)
    return _Rare(arrow, spark)


def _own(part: Codec, value: Any, where: str) -> Any:
    if type(value) in part.exact:
        return value
    value = plain(value)
    try:
        return None if value is None else part.own(value)
    except UnfitValueError as error:
        raise UnfitValueError(f"{error} (in {where})") from None


def _with_nulls(values: list[Any], column: pa.Array) -> list[Any]:
    if not column.null_count:
        return values
    valid = column.is_valid().to_pylist()
    return [value if is_valid else None for value, is_valid in zip(values, valid, strict=True)]


def _mask(values: list[Any]) -> pa.Array:
    return pa.array([value is None for value in values], pa.bool_())


def _offsets(values: list[Any]) -> pa.Array:
    lengths = [0 if value is None else len(value) for value in values]
    return pa.array(np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)]), pa.int32())


# ---- whole rows -----------------------------------------------------------------------------------------


_MAX_KNOWN = 1024
"""The largest number of kinds of good rows that are remembered: nulls alone make 2**n kinds of n columns."""


class RowSchema:
    """The rows of one schema, in plain Python values and in Arrow."""

    def __init__(self, spark: StructType, arrow: pa.Schema, zone: SessionZone) -> None:
        self.names: list[str] = list(spark.names)
        self._arrow = arrow
        self._codecs: list[Codec] = [
            codec(f.dataType, a.type, zone) for f, a in zip(spark.fields, arrow, strict=True)
        ]
        self._columns = [(c, f.name, f.nullable) for c, f in zip(self._codecs, spark.fields, strict=True)]
        self._is_flat = all(part.exact for part in self._codecs)
        self._known_rows: set[type] = {tuple}
        self._known_values: set[tuple[type, ...]] = set()
        self.is_usual = self._made_check()

    def _made_check(self) -> Callable[[Any], bool]:
        """Return a function that says if a row is known to be good as it is: all values are of usual classes.

        It is made of the schema's columns, as dataclasses make theirs, because it is called for each row: it
        takes half the time of looking the classes of a row up.
        """
        usual = [part.usual for part in self._codecs]
        if None in usual:
            return lambda row: False
        tests = [f"len(row) == {len(usual)}", *(f"type(row[{i}]) is c{i}" for i in range(len(usual)))]
        names = {f"c{i}": kind for i, kind in enumerate(usual)}
        text = f"lambda row: type(row) in known and {' and '.join(tests)}"
        check: Callable[[Any], bool] = eval(text, {"known": self._known_rows, **names})
        return check

    def values(self, columns: list[Any]) -> list[list[Any]]:
        """Return the values of each of `columns` (arrays, chunked or not)."""
        return [c.values(_single(column)) for c, column in zip(self._codecs, columns, strict=True)]

    def own(self, row: Any) -> tuple[Any, ...]:
        """Return `row` checked, as values that the user's function cannot change later.

        A row whose values have the same types as those of a row before is known to be good.

        Raises:
            UnfitValueError: It is not a row of this schema.
        """
        if self.is_usual(row) or (
            type(row) in self._known_rows and tuple(map(type, row)) in self._known_values
        ):
            return row
        own: list[Any] = []
        for value, (part, name, may_be_null) in zip(by_position(row, self.names), self._columns, strict=True):
            if type(value) in part.exact:
                own.append(value)
                continue
            value = plain(value)
            if value is None:
                if not may_be_null:
                    raise UnfitValueError(f"column {name!r} is None, but the schema says NOT NULL")
                own.append(None)
            else:
                try:
                    own.append(part.own(value))
                except UnfitValueError as error:
                    raise UnfitValueError(f"column {name!r}: {error}") from None
        if self._is_flat and isinstance(row, tuple) and self._all_exact(row):
            for kinds in (self._known_rows, self._known_values):
                if len(kinds) >= _MAX_KNOWN:
                    kinds.clear()
            self._known_rows.add(type(row))
            self._known_values.add(tuple(map(type, row)))
        return tuple(own)

    def _all_exact(self, row: tuple[Any, ...]) -> bool:
        return all(v is None or type(v) in c.exact for v, c in zip(row, self._codecs, strict=True))

    def struct(self, values: list[Any], part_name: str, place: Callable[[int], str]) -> pa.StructArray:
        """Return the values of rows that `own` returned, one row after the other, as a struct array.

        `part_name` and `place(i)` name the rows and the row i in messages.

        Raises:
            BadResultError: A value does not fit its column, or is null against the schema.
        """
        arrays = []
        for i, (part, field) in enumerate(zip(self._codecs, self._arrow, strict=True)):
            array = self._column(values[i :: len(self.names)], part, field, part_name, place)
            arrays.append(conform(array, field, part_name, place))
        return pa.StructArray.from_arrays(arrays, fields=list(struct_type(self._arrow)))

    def _column(
        self, values: list[Any], part: Codec, field: pa.Field, part_name: str, place: Callable[[int], str]
    ) -> pa.Array:
        column = f"{part_name}: column {field.name!r} ({part.name})"
        try:
            return part.column(values)
        except (ValueError, TypeError, ArithmeticError) as error:  # Arrow's errors are of these
            for i, value in enumerate(values):
                try:
                    part.column([value])
                except (ValueError, TypeError, ArithmeticError) as its:
                    raise BadResultError(f"{column} cannot hold {value!r} of {place(i)} ({its}).") from None
            raise BadResultError(f"{column}: {error}") from error


def _single(column: pa.ChunkedArray | pa.Array) -> pa.Array:
    if not isinstance(column, pa.ChunkedArray):
        return column
    return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()


# ---- calls of the function ------------------------------------------------------------------------------


class PlainState(GroupState):
    """PySpark's `GroupState`; its states are named tuples, and datetimes are in the session's zone."""

    def __init__(self, common: CommonState, value: Any, group: Callable[[], str]) -> None:
        self.__dict__.update(common.fields)  # PySpark's constructor would set each of a group's
        self._value = value
        self._defined = value is not None
        self._common = common
        self._group = group

    @property
    def get(self) -> Any:
        """The state as a named tuple; without state a `PySparkValueError`."""
        return self._value if self._defined else super().get

    @property
    def getOption(self) -> Any:
        """The state as a named tuple, or `None`."""
        return self._value if self._defined else None

    def update(self, newValue: Any) -> None:
        """Make `newValue` the state: a value for each column of the state schema, or a mapping by name.

        Raises:
            BadResultError: It has too many values or too few, or one that its column cannot take.
        """
        if newValue is None:
            super().update(newValue)  # which refuses it
        if not isinstance(newValue, (tuple, list, dict)):
            newValue = tuple(newValue)
        try:
            self._value = self._common.make(self._common.schema.own(newValue))
        except UnfitValueError as error:
            raise self._common.fail(f"the new state of {self._group()}: {error}.") from None
        self._defined = self._updated = True
        self._removed = False

    def setTimeoutTimestamp(self, timestampMs: float | datetime.datetime) -> None:
        """Set the timeout as PySpark does; a `datetime` without a zone is in the session's."""
        if isinstance(timestampMs, datetime.datetime):
            timestampMs = self._common.zone.micros(timestampMs) / 1000
        super().setTimeoutTimestamp(timestampMs)


@dataclasses.dataclass(frozen=True)
class CommonState:
    """The facts that the states of all groups of a call share. `fail` makes the error with a message.

    Attributes:
        fields: those of PySpark's `GroupState`, of a group without state.
    """

    fields: dict[str, Any]
    schema: RowSchema
    zone: SessionZone
    make: Callable[[Any], Any]
    fail: Callable[[str], Exception]


class GroupCaller:
    """Caller of one function for the groups of a stream. Used by the one thread of a worker."""

    def __init__(self, func: Callable[..., Any], header: Header) -> None:
        self._func = func
        self._header = header
        self._zone = SessionZone(header.time_zone)
        self._key = RowSchema(header.key, header.key_schema, self._zone)
        self._row = RowSchema(header.rows, header.row_schema, self._zone)
        self._state = RowSchema(header.state, header.state_schema, self._zone)
        self._output = RowSchema(header.output, header.output_schema, self._zone)
        self._make_key = tuple_class("Key", tuple(header.key.names))
        self._make_row = row_class(tuple(header.rows.names))
        self._make_state = tuple_class("State", tuple(header.state.names))

    def call(self, rows: pa.Table, states: pa.Table, call: Call, emit: Emit) -> Generator[Any, None, Changes]:
        """Call the function for each group of `states`; yield the items that `emit` makes of output.

        Raises:
            BadResultError: A row or a state that the function gave does not fit its schema.
        """
        fields = fields_without_state(self._header)
        common = CommonState(fields, self._state, self._zone, self._make_state, call.fail)
        output = _Output(self._output, call)
        changes = _StateChanges(self._state, call)
        for number, (key, group, before) in enumerate(self._groups(rows, states)):
            state = PlainState(common, before, functools.partial(call.group, number))
            try:
                result = self._func(key, group, state)
                if result is not None:
                    for taken in output.add(_iterable(result, call), number, result):
                        yield emit(taken)
                changes.add(state)
            except Exception as error:
                _name_group(error, call, number)
                raise
        return changes.taken(output.taken())

    def _groups(self, rows: pa.Table, states: pa.Table) -> Iterable[tuple[Any, list[Any], Any]]:
        """Yield key, rows and state (or `None`) of each group; columns are in the order of the schemas.

        The rows of a group are made when its turn comes: Python's garbage collector walks through all that
        wait, which takes longer than all else.
        """
        count = len(self._key.names)
        columns = states.columns
        keys = map(self._make_key, zip(*self._key.values(columns[:count]), strict=True))
        before = self._state.values(columns[count : count + len(self._state.names)])
        exists = states.column(EXISTS).to_pylist()
        values = self._row.values(rows.columns[:-1])
        lengths = np.bincount(rows.column(GROUP).to_numpy(), minlength=states.num_rows)
        ends = np.cumsum(lengths).tolist()
        start = 0
        for key, state, exists_now, end in zip(keys, zip(*before, strict=True), exists, ends, strict=True):
            group = list(map(self._make_row, zip(*[column[start:end] for column in values], strict=True)))
            yield key, group, self._make_state(state) if exists_now else None
            start = end


class _StateChanges:
    """Changes to the states of a call's groups, taken as soon as each group has ended."""

    def __init__(self, schema: RowSchema, call: Call) -> None:
        self._schema = schema
        self._call = call
        self._updated: list[bool] = []
        self._removed: list[bool] = []
        self._timeouts: list[int] = []
        self._values: list[Any] = []

    def add(self, state: PlainState) -> None:
        """Take the changes to the state of the next group."""
        self._timeouts.append(as_long(state._timeout_timestamp))
        self._updated.append(state._updated)
        self._removed.append(state._removed)
        if state._updated:
            self._values += state.get

    def taken(self, output: pa.StructArray) -> Changes:
        """Return all changes, beside the output that is left."""
        updated = np.array(self._updated, dtype=bool)
        places = np.flatnonzero(updated)
        states = self._schema.struct(
            self._values, f"{self._call.name}: state", lambda i: self._call.group(int(places[i]))
        )
        removed, timeouts = np.array(self._removed, dtype=bool), np.array(self._timeouts, dtype=np.int64)
        return Changes(updated, removed, timeouts, states, output)


class _Output:
    """The values of rows that the function returned and that wait to be sent, with the groups they are of."""

    def __init__(self, schema: RowSchema, call: Call) -> None:
        self._schema = schema
        self._call = call
        self._values: list[Any] = []
        self._width = max(1, len(schema.names))
        self._groups: list[int] = []
        self._firsts: list[int] = []

    def add(self, rows: Iterable[Any], number: int, result: Any) -> Iterator[pa.StructArray]:
        """Add the rows of the group with this number, each as it is now; yield those that should be sent.

        Args:
            rows: an iterator over `result`.
            number: the group.
            result: the rows that its function returned.
        """
        schema, values, limit = self._schema, self._values, _MAX_OUTPUT_ROWS * self._width
        is_usual = schema.is_usual
        self._begin(number)
        for row in rows:
            if is_usual(row):
                values += row
            else:
                try:
                    values += schema.own(row)
                except UnfitValueError as unfit:
                    raise self._error(unfit, number, result) from None
            if len(values) >= limit:
                yield self.taken()
                self._begin(number)

    def _begin(self, number: int) -> None:
        self._groups.append(number)
        self._firsts.append(len(self._values))

    def _error(self, unfit: UnfitValueError, number: int, result: Any) -> Exception:
        error = self._call.fail(
            f"a row of {self._call.group(number)}: {unfit}. Yield rows, or return a list of them."
        )
        if hasattr(result, "throw"):  # a generator: its traceback shows the line that yields
            result.throw(error)
        return error

    def _group(self, row: int) -> str:
        return self._call.group(self._groups[bisect.bisect(self._firsts, row * self._width) - 1])

    def taken(self) -> pa.StructArray:
        """Return all rows as a struct array. None are left."""
        struct = self._schema.struct(self._values, f"{self._call.name}: output", self._group)
        for waiting in (self._values, self._groups, self._firsts):
            waiting.clear()
        return struct


def _iterable(result: Any, call: Call) -> Iterable[Any]:
    """Return an iterator over the result of a function; a single row is not an iterable of rows."""
    if type(result) in (GeneratorType, list):
        return iter(result)
    if isinstance(result, (str, bytes, dict)) or hasattr(result, "_fields") or hasattr(result, "columns"):
        raise call.fail(f"returned a {type(result).__name__}: yield rows, or return a list of them.")
    try:
        return iter(result)
    except TypeError:
        raise call.fail(
            f"returned a {type(result).__name__}: yield rows, or return a list of them."
        ) from None


def _name_group(error: Exception, call: Call, number: int) -> None:
    """Add the group to the traceback of an error of the user's function, where Python has notes (3.11)."""
    if not isinstance(error, BadResultError) and hasattr(error, "add_note"):
        error.add_note(f"{call.name} was called for {call.group(number)}.")
