"""Values of the user's code that are kept while it goes on: copies of those that it can still change."""

from __future__ import annotations

import copy
import datetime
import decimal
import numbers
from typing import Any

SCALARS = frozenset(
    (
        type(None),
        bool,
        int,
        float,
        str,
        bytes,
        decimal.Decimal,
        datetime.date,
        datetime.datetime,
        datetime.timedelta,
    )
)
"""Types whose instances never change."""

_KINDS = (*SCALARS, numbers.Number)  # with subclasses, and with the numbers of numpy


def is_frozen(value: Any) -> bool:
    """Return True if `value` can never change; False if it may."""
    if type(value) in SCALARS:
        return True
    if isinstance(value, tuple):
        return all(map(is_frozen, value))
    return isinstance(value, _KINDS)


def frozen(value: Any) -> Any:
    """Return a copy of `value` that nobody else can change.

    A value that cannot be copied comes back itself: no column takes it, and the error of Arrow says so.
    """
    try:
        return copy.deepcopy(value)
    except Exception:
        return value
