"""The classes of rows, keys and states that a function for one group at a time gets.

All are tuples with names. Rows, and structs in them, are instances of PySpark's `Row`, too. Keys and states
are plain tuples, as in Spark's operator, so `value in key` asks for values and not for names.
"""

from __future__ import annotations

import collections
import functools
from collections.abc import Callable, Iterable
from typing import Any

from pyspark.sql import Row

Make = Callable[[Iterable[Any]], Any]


@functools.lru_cache(maxsize=256)
def row_class(names: tuple[str, ...]) -> Make:
    """Make a `Row` of its values. It has quick attributes; those of a plain `Row` are looked up by name."""
    base = _named_tuple("Row", names)
    made = type("Row", (base, Row), {"__fields__": list(names), "__module__": Row.__module__})
    return functools.partial(tuple.__new__, made)


@functools.lru_cache(maxsize=256)
def tuple_class(kind: str, names: tuple[str, ...]) -> Make:
    """Make a named tuple of its values; `kind` is the name of its class."""
    return functools.partial(tuple.__new__, _named_tuple(kind, names))


def _named_tuple(kind: str, names: tuple[str, ...]) -> Any:
    # Names that are no identifiers of Python become _0, _1, ...: the number of the column.
    return collections.namedtuple(kind, names, rename=True)
