"""The checkpoint of a stopped query with the rows of a table as its state."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from state_store.dataset.repartition import Repartitioned, Replacement, rewrite
from state_store.dataset.views import view
from state_store.errors import MissingError, OptionError
from state_store.query import DEFAULT_NAME, Query
from state_store.runtime import SYSTEM, Runtime

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
    runtime: Runtime = SYSTEM,
) -> Repartitioned:
    """Writes the checkpoint of a stopped query to `target`, which must be empty, with `rows` as the state of
    one of its stores; everything else, its sources' offsets above all, is as it was.

    rows: a file or directory of Parquet, or anything that gives Arrow batches (`__arrow_c_stream__`), with
    the columns that the state has; `partition_id` does not count. A key must not come twice.

    So a query can begin with a state: run it once over an input that makes a first batch, stop it, and start
    it on what this writes. Needs memory for the rows of a partition.

    Raises MissingError for a column that lacks, OptionError for a column of another type, a key that comes
    twice, or a store whose rows belong to those of another (the stores of a join), and as `repartition`.
    """
    query = Query.open(checkpoint)
    meant = view(query, operator, store)
    if meant.hidden or meant.is_list or len(meant.operator.stores) > 1:
        raise OptionError(
            f"the rows of '{store}' belong to those of other stores: they cannot be given alone"
        )
    return rewrite(query, target, None, Replacement(meant, _batches(rows)), runtime=runtime)


def _batches(rows: Any) -> Iterator[pyarrow.RecordBatch]:
    import pyarrow
    import pyarrow.dataset

    if isinstance(rows, (str, Path)):
        if not Path(rows).exists():
            raise MissingError(f"there is no '{rows}'", file=str(rows))
        found: Iterable[pyarrow.RecordBatch] = pyarrow.dataset.dataset(rows, format="parquet").to_batches()
    else:
        found = pyarrow.RecordBatchReader.from_stream(rows)
    for batch in found:
        for first in range(0, batch.num_rows, BATCH_ROWS):
            yield batch.slice(first, BATCH_ROWS)
