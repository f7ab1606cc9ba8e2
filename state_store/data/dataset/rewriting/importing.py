"""The checkpoint of a stopped query with the rows of tables as its state."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from state_store.core.runtime import SYSTEM, Runtime
from state_store.data.dataset.places import brought_files, local_path
from state_store.data.dataset.rewriting.repartition import Repartitioned, rewrite
from state_store.data.dataset.rewriting.replacing import Replacement
from state_store.data.dataset.views import view, views
from state_store.data.query import DEFAULT_NAME, Progress, Query
from state_store.errors import MissingError

if TYPE_CHECKING:
    import pyarrow

BATCH_ROWS = 1 << 16


def import_rows(
    checkpoint: str,
    rows: Any,
    target: str,
    operator: int = 0,
    store: str = DEFAULT_NAME,
    *,
    progress: Progress | None = None,
    runtime: Runtime = SYSTEM,
) -> Repartitioned:
    """Writes the checkpoint of a stopped query to `target`, which must be empty, with `rows` in place of what
    the state has; everything else, its sources' offsets above all, is as it was.

    rows: a file or directory of Parquet (a path or a URI), or anything that gives Arrow batches
    (`__arrow_c_stream__`), with the columns that the state has; `partition_id` does not count. They take the
    place of those of `store`. Or a mapping from names of stores to such rows: several stores at once, such as
    both sides of a join. What has no rows here stays as it is. A key must not come twice, but in lists and in
    the sides of joins.

    Rows whose time to live was over when the last batch ran are left out.

    A row need not say whether it has matched (`matched` of a join: it has not), nor when its state expires
    (`timeoutTimestamp`: never).

    So a query can begin with a state: `bootstrap` makes the checkpoint of one that has never run. Needs
    memory for the rows of a partition, and disk for all rows.

    Raises MissingError for a column that lacks, OptionError for a column of another type, a key that comes
    twice, a row with a time to live that does not say when it expires, or a store whose rows follow from
    those of others, and as `repartition`.
    """
    query = Query.open(checkpoint)
    batch = query.committed_batch()
    expired_ms = None if batch is None else query.logs.batch_ms(batch)
    given = rows if isinstance(rows, Mapping) else {store: rows}
    replacements = []
    for name, one in given.items():
        meant = view(query, operator, name)
        replacements.append(Replacement(meant, _batches(one), views(query, meant.operator), expired_ms))
    return rewrite(query, target, None, replacements, progress=progress, runtime=runtime)


def _batches(rows: Any) -> Iterator[pyarrow.RecordBatch]:
    import pyarrow

    if isinstance(rows, (str, Path)):
        batches = _of_files(rows)
    else:
        batches = iter(pyarrow.RecordBatchReader.from_stream(rows))
    for batch in batches:
        for first in range(0, batch.num_rows, BATCH_ROWS):
            yield batch.slice(first, BATCH_ROWS)


def _of_files(location: str | Path) -> Iterator[pyarrow.RecordBatch]:
    import pyarrow.dataset

    path = local_path(location)
    if path is not None and not path.exists():
        raise MissingError(f"there is no '{location}'", file=str(location))
    for one in brought_files(str(location), ".parquet") if path is None else [path]:
        yield from pyarrow.dataset.dataset(one, format="parquet").to_batches()
