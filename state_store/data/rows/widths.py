"""How many bytes a value takes in a row or an array of Spark's."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pyarrow

SMALL_DECIMAL = 18
"""Digits of a decimal that fits into its word."""


def width_of(kind: pyarrow.DataType) -> int | None:
    """Bytes of a value that is stored in place, in an array as in a row; None where the word refers to it."""
    import pyarrow

    types = pyarrow.types
    if types.is_boolean(kind) or types.is_int8(kind):
        return 1
    if types.is_int16(kind):
        return 2
    if types.is_int32(kind) or types.is_date32(kind) or types.is_float32(kind):
        return 4
    if types.is_int64(kind) or types.is_float64(kind):
        return 8
    if (types.is_timestamp(kind) or types.is_duration(kind)) and kind.unit == "us":
        return 8
    if types.is_time64(kind) or (types.is_decimal128(kind) and kind.precision <= SMALL_DECIMAL):
        return 8
    return None
