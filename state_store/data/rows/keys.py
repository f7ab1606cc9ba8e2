"""The layouts in which Spark encodes keys, decoded into columns.

- plain: a row;
- prefix: 4 bytes that tell the size of the first part, a row of the first columns, a row of the others;
- range: the same, where the columns of the first part are those that order the rows
  (`state_store.data.rows.ordering`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from state_store.core.compat import zip
from state_store.data.rows.decoder import decode_fields
from state_store.data.rows.ordering import ordered_numbers
from state_store.data.rows.packed import joined
from state_store.errors import DamagedError

if TYPE_CHECKING:
    import pyarrow

_SIZE_BYTES = 4


@dataclass(frozen=True)
class KeyLayout:
    """How keys are encoded: `first` are the numbers of the columns that come first, none in a plain key;
    `is_ordered` says that these order the rows.
    """

    first: tuple[int, ...] = ()
    is_ordered: bool = False

    def others(self, count: int) -> list[int]:
        """The numbers of the columns that do not come first, of `count`."""
        return [number for number in range(count) if number not in self.first]


def decode_keys(
    keys: Sequence[bytes] | tuple[Any, Any, Any],
    fields: Sequence[pyarrow.Field],
    layout: KeyLayout,
    *,
    skip: int = 0,
    only: Sequence[int] | None = None,
) -> list[pyarrow.Array]:
    """The columns numbered `only` (None: all) of encoded keys, each after `skip` other bytes: texts, or parts
    of bytes (data, starts, lengths).

    Raises FormatError and DamagedError as `decode` does.
    """
    wanted = list(range(len(fields))) if only is None else list(only)
    if not layout.first:
        return decode_fields(keys, fields, wanted, skip=skip)
    first, rest = _parts(keys if isinstance(keys, tuple) else joined(keys), skip)
    others = layout.others(len(fields))
    columns = dict(zip(layout.first, _first_columns(first, fields, layout), strict=True))
    if others:
        columns |= zip(others, decode_fields(rest, [fields[n] for n in others]), strict=True)
    return [columns[number] for number in wanted]


def _parts(keys: tuple[Any, Any, Any], skip: int) -> tuple[tuple[Any, Any, Any], tuple[Any, Any, Any]]:
    import numpy

    data, starts, lengths = keys
    starts, lengths = starts + skip, lengths - skip
    if (lengths < _SIZE_BYTES).any():
        raise DamagedError("a key with a prefix has less than 4 bytes")
    sizes = data[starts[:, None] + numpy.arange(_SIZE_BYTES)].view("<i4").reshape(-1).astype(numpy.int64)
    if ((sizes < 1) | (sizes > lengths - _SIZE_BYTES)).any():
        raise DamagedError("the prefix of a key is longer than the key")
    middles = starts + _SIZE_BYTES + sizes
    return (data, starts + _SIZE_BYTES, sizes), (data, middles, lengths - _SIZE_BYTES - sizes)


def _first_columns(
    part: tuple[Any, Any, Any], fields: Sequence[pyarrow.Field], layout: KeyLayout
) -> list[pyarrow.Array]:
    import pyarrow

    chosen = [fields[number] for number in layout.first]
    if not layout.is_ordered:
        return decode_fields(part, chosen)
    encoded = decode_fields(part, [pyarrow.field(field.name, pyarrow.binary()) for field in chosen])
    return [ordered_numbers(field, column) for field, column in zip(chosen, encoded, strict=True)]
