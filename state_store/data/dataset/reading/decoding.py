"""The rows of a view's partitions as batches of columns."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from state_store.core.engine.rows import rows
from state_store.data.dataset.layout.columns import FAMILY_BYTES, Columns
from state_store.data.dataset.reading.partitions import READING, Partitions
from state_store.errors import DamagedError, OptionError

if TYPE_CHECKING:
    import pyarrow
    import pyarrow.compute


def filtered(
    partitions: Partitions,
    needed: Columns,
    names: Sequence[str],
    filter: pyarrow.compute.Expression | None,
    batch_rows: int,
    numbers: Sequence[int] | None = None,
) -> Iterator[pyarrow.RecordBatch]:
    """Yield the rows for which an expression is true, one partition after the other.

    Args:
        partitions: the partitions at their version; each is local while it is read.
        needed: the columns that are decoded.
        names: the columns that are returned.
        filter: None keeps all rows.
        batch_rows: the maximum number of rows of a batch.
        numbers: the numbers of the partitions that are read; None is all.

    Raises:
        DamagedError: a partition does not have the number of rows that it records.
        OptionError: the filter does not fit the columns.
    """
    for number in partitions.numbers if numbers is None else numbers:
        with partitions.read(number):
            for batch in decoded(partitions, needed, number, batch_rows):
                kept = batch if filter is None else _that_match(batch, filter)
                if kept.num_rows:
                    yield kept.select(names) if names != needed.schema.names else kept


def decoded(
    partitions: Partitions, needed: Columns, number: int, batch_rows: int
) -> Iterator[pyarrow.RecordBatch]:
    """Yield the rows of one partition, which is being read. Raises DamagedError for a wrong count of rows."""
    family = partitions.family(number) if partitions.is_readable(number) else None
    if family is None:
        return
    start, end = (place.to_bytes(FAMILY_BYTES, "big") for place in (family.id, family.id + 1))
    count = 0
    for page in rows(partitions.base(number).directory, READING, start, end):
        count += len(page)
        batch = needed.decode(tuple(page.keys), tuple(page.values), number)
        step = min(batch_rows, max(1, batch.num_rows))
        for first in range(0, batch.num_rows, step):
            yield batch.slice(first, step)
    if count != family.keys:
        raise DamagedError(
            f"store {partitions.key(number)} has {count} rows of column family "
            f"'{partitions.view.schema.family}' in version {partitions.version}, and says that it has "
            f"{family.keys}"
        )


def _that_match(batch: pyarrow.RecordBatch, filter: pyarrow.compute.Expression) -> pyarrow.RecordBatch:
    """Return the rows for which an expression is true. Raise OptionError if it does not fit the columns."""
    import pyarrow

    try:
        return batch.filter(filter)
    except pyarrow.ArrowException as error:
        raise OptionError(f"the filter does not fit the columns: {error}", option="filter") from error
