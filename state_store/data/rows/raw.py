"""Keys and values as they are, as a table."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pyarrow


def to_table(pairs: Iterable[tuple[bytes, bytes]]) -> pyarrow.Table:
    """Keys and values as they are: columns `key` and `value` of binary type."""
    import pyarrow

    rows = list(pairs)
    return pyarrow.table(
        {
            "key": pyarrow.array([key for key, _ in rows], pyarrow.large_binary()),
            "value": pyarrow.array([value for _, value in rows], pyarrow.large_binary()),
        }
    )
