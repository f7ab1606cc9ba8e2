"""Arrow columns and plain Python values, for types of Spark that are not nested.

The values are those of `Row`s that `collect()` gives: `None` for null, `int`, `float`, `str`, `bytes`,
`Decimal`, `date`, `timedelta`, `datetime` without a zone in the session's time zone, `list` for arrays,
`dict` for maps, `Row` for structs. On the way back numpy's and pandas' scalars are taken too.
"""

from __future__ import annotations

import datetime
import decimal
from collections.abc import Iterable
from typing import Any

import numpy as np
import pyarrow as pa

from state_store.functions.plain.session_zone import SessionZone


class UnfitValueError(ValueError):
    """A value that a column cannot hold; the message names the value and the type that the column needs."""


class Codec:
    """A type of Spark: `arrow` is its Arrow type, with nulls allowed everywhere.

    Values of the classes in `exact` are good as they are, those of `kinds` are made so by `own`.
    """

    def __init__(
        self, arrow: pa.DataType, spark: Any, exact: Iterable[type], kinds: tuple[type, ...]
    ) -> None:
        self.arrow = arrow
        self.name = spark.simpleString()
        self.exact = frozenset(exact)
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
        return UnfitValueError(f"{value!r} is of type {type(value).__name__}, and no {self.name}")


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


def by_position(value: Any, names: list[str]) -> tuple[Any, ...]:
    """Return the values of a row or struct in the order of `names`.

    Tuples and lists have one for each name, in their order; a mapping may leave names out, which are `None`.

    Raises:
        UnfitValueError: It has too many, too few or unknown names, or is neither a row nor a mapping.
    """
    if isinstance(value, dict):
        unknown = [key for key in value if key not in names]
        if unknown:
            raise UnfitValueError(f"{value!r} has {unknown[0]!r}, and the schema has only {names}")
        return tuple(plain(value.get(name)) for name in names)
    if not isinstance(value, (tuple, list)):
        raise UnfitValueError(f"{value!r} is of type {type(value).__name__}, and no row")
    if len(value) != len(names):
        raise UnfitValueError(f"{value!r} has {len(value)} values, and the schema has {len(names)}: {names}")
    return tuple(map(plain, value))
