"""Values of state variables and keys, as the processor has them and as they travel.

A value of plain types travels as the tuple that it is. Any other travels as the pickle that PySpark's own
client of state makes and reads, so that conversions, and their errors, are PySpark's.
"""

from __future__ import annotations

import decimal
import math
import pickle
from collections.abc import Callable
from typing import Any

from pyspark.serializers import CPickleSerializer
from pyspark.sql import types
from pyspark.sql.streaming.stateful_processor_api_client import StatefulProcessorApiClient

from state_store.core.compat import zip

_INTEGERS = {types.ByteType: 7, types.ShortType: 15, types.IntegerType: 31, types.LongType: 63}
_SCALARS = frozenset((int, float, str, bytes, bytearray, bool, type(None)))
_LARGE = 4096


def _client() -> Any:
    """Return PySpark's client of state without a connection, for its conversions."""
    client = object.__new__(StatefulProcessorApiClient)
    client.pickleSer = CPickleSerializer()
    return client


class RowCodec:
    """Rows of one schema (`pyspark.sql.types.StructType`).

    Args:
        schema: the schema.
        are_keys: whether rows are keys, of which those that come back unchanged are compared by Python: then
            numbers that Python and Spark do not compare alike (NaN, -0.0) do not count as such.
    """

    def __init__(self, schema: types.StructType, are_keys: bool = False) -> None:
        self.schema = schema
        self._length = len(schema.fields)
        self._names = schema.names
        self._has_texts = any(isinstance(field.dataType, types.StringType) for field in schema.fields)
        self._dump = _client()._serialize_to_bytes
        self._exact = [_exact(field, are_keys) for field in schema.fields]
        self._is_plain = all(self._exact)
        self._safe = [_safe(field.dataType, field.nullable) for field in schema.fields]
        self.is_quick = self._quick_check()

    def _quick_check(self) -> Callable[[Any], bool]:
        """Return a check that a value is a tuple that travels as it is, comes back unchanged, and is small.

        A value that fails the check may be one, too.
        """
        exact = self._exact
        if not self._is_plain or self._has_texts:
            return lambda value: False
        if len(exact) == 1:  # most values and keys
            only = exact[0]
            return lambda value: type(value) is tuple and len(value) == 1 and only(value[0])  # type: ignore[misc]
        return lambda value: type(value) is tuple and self._is_exact(value)

    def sent(self, value: Any) -> tuple[Any, bool, bool, int]:
        """Return `value` as it travels, and the facts of it.

        The facts: whether it comes back unchanged, whether the JVM surely takes it, and about how many bytes
        it takes in a message (0 for few).

        Raises:
            Exception: the error of PySpark for a value that it cannot convert.
        """
        if self._is_plain:
            kind = type(value)
            if (kind is tuple or kind is list) and self._is_exact(value):
                length = _size(value) if self._has_texts else 0
                return (value if kind is tuple else tuple(value)), True, True, length
        dumped = self._dump(self.schema, value)
        return dumped, False, self._is_safe(value), len(dumped)

    def key(self, value: tuple[Any, ...]) -> Any:
        """Return a grouping key as it travels; two are equal if and only if they are the same key."""
        return self.sent(value)[0]

    def tuple(self, travelled: Any) -> tuple[Any, ...]:
        """Return a value that came from the JVM as the tuple that PySpark gives."""
        return travelled if type(travelled) is tuple else tuple(pickle.loads(travelled))

    def row(self, travelled: Any) -> types.Row:
        """Return a value that came from the JVM as the `Row` that PySpark gives."""
        if type(travelled) is tuple:
            row = tuple.__new__(types.Row, travelled)
            object.__setattr__(row, "__fields__", self._names)
            return row
        return pickle.loads(travelled)

    @property
    def of_iterators(self) -> Callable[[Any], Any] | None:
        """The function that makes what came from the JVM a tuple; `None` if it always is that tuple."""
        return None if self._is_plain else self.tuple

    def is_kept(self, travelled: Any) -> bool:
        """Return True if a key that came from the JVM may be compared with others by Python."""
        return type(travelled) is tuple and self._is_exact(travelled)

    def _is_exact(self, value: Any) -> bool:
        if len(value) != self._length:
            return False
        if self._length == 1:  # most values and keys; a loop takes twice the time
            return self._exact[0](value[0])  # type: ignore[misc]
        for item, exact in zip(value, self._exact):  # noqa: SIM110 (a generator takes twice the time)
            if not exact(item):  # type: ignore[misc]
                return False
        return True

    def _is_safe(self, value: Any) -> bool:
        try:
            return len(value) == self._length and all(map(_call, self._safe, value))
        except TypeError:
            return False


def _size(value: Any) -> int:
    """Return how many characters the long texts of a value have."""
    total = 0
    for item in value:
        if type(item) is str and len(item) > _LARGE:
            total += len(item)
    return total


def _call(check: Callable[[Any], bool], value: Any) -> bool:
    return check(value)


def _exact(field: types.StructField, is_key: bool) -> Callable[[Any], bool] | None:
    """Return a check that a value of this field comes back unchanged; `None` if no check can tell.

    In a key the check fails, too, for a value that is equal to another one in Python and not in Spark.

    The rule for types is that of the JVM's `RowCodec.isPlain`.
    """
    kind, nullable = type(field.dataType), field.nullable
    if kind in _INTEGERS:
        limit = 1 << _INTEGERS[kind]
        return lambda v: (-limit <= v < limit) if type(v) is int else v is None and nullable
    if kind is types.DoubleType and is_key:
        return lambda v: _is_usual(v) if type(v) is float else v is None and nullable
    if kind is types.DoubleType:
        return lambda v: type(v) is float or (v is None and nullable)
    if kind is types.BooleanType:
        return lambda v: type(v) is bool or (v is None and nullable)
    if kind is types.StringType and field.dataType == types.StringType():
        return lambda v: (type(v) is str and _is_text(v)) or (v is None and nullable)
    return None


def _is_usual(value: float) -> bool:
    """Return True if Python takes `value` for equal to the number with its bits alone: not NaN, not -0.0."""
    return value == value if value else math.copysign(1.0, value) > 0


def _is_text(value: str) -> bool:
    """Return True if UTF-8 has the text: half of a surrogate pair comes back as another character."""
    if value.isascii():
        return True
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


def _safe(kind: types.DataType, nullable: bool) -> Callable[[Any], bool]:
    """Return a check that the JVM takes any value of this type that PySpark has converted and that passes it.

    A value that fails the check is written at once, so that an error of the JVM has the line of the user.
    """
    inner: Callable[[Any], bool]
    if isinstance(kind, types.DecimalType):
        limit = decimal.Decimal(10) ** (kind.precision - kind.scale) - 1

        def inner(value: Any) -> bool:
            return type(value) is decimal.Decimal and value.is_finite() and abs(value) < limit

    elif isinstance(kind, types.ArrayType):
        element = _safe(kind.elementType, kind.containsNull)

        def inner(value: Any) -> bool:
            return type(value) in (list, tuple) and all(map(element, value))

    elif isinstance(kind, types.MapType):
        key, item = _safe(kind.keyType, False), _safe(kind.valueType, kind.valueContainsNull)

        def inner(value: Any) -> bool:
            return type(value) is dict and all(map(key, value)) and all(map(item, value.values()))

    elif isinstance(kind, types.StructType):
        checks = [_safe(field.dataType, field.nullable) for field in kind.fields]

        def inner(value: Any) -> bool:
            return (
                isinstance(value, (list, tuple))
                and len(value) == len(checks)
                and all(map(_call, checks, value))
            )

    elif isinstance(kind, (types.DateType, types.TimestampType, types.TimestampNTZType)):
        import datetime

        def inner(value: Any) -> bool:
            return isinstance(value, datetime.date)

    elif type(kind) in _INTEGERS or isinstance(
        kind, (types.FloatType, types.DoubleType, types.BooleanType, types.StringType, types.BinaryType)
    ):

        def inner(value: Any) -> bool:
            return type(value) in _SCALARS

    else:

        def inner(value: Any) -> bool:
            return False

    return lambda value: nullable if value is None else inner(value)
