"""Function `state_store.sql`: a SELECT over all stores of a query."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from typing import TYPE_CHECKING

from state_store.data.dataset.layout.views import default_name, view_at, views
from state_store.data.dataset.moments import Moment
from state_store.data.dataset.packages import require_arrow, require_duckdb
from state_store.data.dataset.reading.versions import version_number
from state_store.data.dataset.sql.conditions import STATE
from state_store.data.dataset.sql.connection import MEMORY
from state_store.data.dataset.sql.state_tables import Named, run
from state_store.data.dataset.sql.tables import StateTable, state_table
from state_store.data.dataset.state import State
from state_store.data.query import Operator, Progress, ProgressOption, Query, reporting
from state_store.data.query.arguments import Location, check_flag, check_number, check_text
from state_store.errors import StateStoreError

if TYPE_CHECKING:
    import pyarrow


def sql(
    checkpoint: Location,
    query: str,
    *,
    operator: int = 0,
    version: int | None = None,
    batch: int | None = None,
    at: Moment | None = None,
    memory: str = MEMORY,
    utc: bool = False,
    progress: ProgressOption = None,
) -> pyarrow.Table:
    """Run a SELECT over the stores of a query, all at one version, and return the rows in memory.

        state_store.sql("/data/checkpoint", "select avg(flights) from state").to_pandas()

    The tables are the stores of the operator by their names; `state` is its default store (the first variable
    of `transformWithState`, the left side of a join). Each operator has a schema, too: `operator_1.state`.
    `state_at(41)`, `left_at('2 hours ago')` and so on are the tables at another version, or at a moment.

    Args:
        checkpoint: the query's checkpointLocation, a path or a URI.
        query: one SELECT (or DESCRIBE, SHOW TABLES, SUMMARIZE, EXPLAIN) in DuckDB's SQL.
        operator: the stateful operator whose stores need no schema.
        version: the version; default: the one that Spark committed last.
        batch: the batch after which the version was there.
        at: a moment; the version is the newest then.
        memory: the bound of DuckDB's memory, such as `512m`; sorts and joins spill into the directory of
            temporary files.
        utc: read and show moments in UTC, not in the local zone.
        progress: True for a progress bar, or a function that is called with each `ProgressUpdate`.

    Returns:
        The rows. `State.sql` gives those of a query over one store in batches.

    Raises:
        OptionError: if the query is wrong, or needs more memory.
        MissingError: if there is no such version.
    """
    return sql_batches(
        checkpoint,
        query,
        operator=operator,
        version=version,
        batch=batch,
        at=at,
        memory=memory,
        utc=utc,
        progress=progress,
    ).read_all()


def sql_batches(
    checkpoint: Location,
    query: str,
    *,
    operator: int = 0,
    version: int | None = None,
    batch: int | None = None,
    at: Moment | None = None,
    memory: str = MEMORY,
    utc: bool = False,
    progress: ProgressOption = None,
) -> pyarrow.RecordBatchReader:
    """Do as `sql`, and return the rows in batches, for one thread.

    Files are held until the reader ends or is collected.
    """
    require_arrow()
    require_duckdb()
    check_text("query", query, "'select count(*) from state'")
    check_number("operator", operator)
    check_flag("utc", utc)
    opened = Query.open(checkpoint)
    number = version_number(opened, version, batch, at)
    shown = ExitStack()
    meter = shown.enter_context(reporting(progress, "read", len(opened.stores())))

    def at_version(address: str, text: str) -> StateTable:
        operator_id, _, store = address.partition("/")
        is_number = text.isdigit() and len(text) < 9
        found = version_number(opened, int(text)) if is_number else version_number(opened, at=text)
        return _table(opened, int(operator_id), store, found, meter)

    with shown:
        tables = list(_tables(opened, operator, number, meter))
        rows = run(query, tables, at_version, memory=memory, utc=utc)
        until_read = shown.pop_all()
    return _closing(rows, until_read)


def _closing(rows: pyarrow.RecordBatchReader, resources: ExitStack) -> pyarrow.RecordBatchReader:
    """Return the same rows; close the resources after the last one."""
    import pyarrow

    def batches() -> Iterator[pyarrow.RecordBatch]:
        with resources:
            yield from rows

    return pyarrow.RecordBatchReader.from_batches(rows.schema, batches())


def _tables(query: Query, chosen: int, version: int, progress: Progress | None) -> Iterator[Named]:
    """Yield the tables of all operators; those of the chosen one in the main schema, too."""
    if chosen not in {operator.id for operator in query.operators}:
        view_at(query, chosen, STATE, version - 1)  # raises MissingError, which lists the operators
    for operator in query.operators:
        for name, table in _of_operator(query, operator, version, progress).items():
            address = f"{operator.id}/{default_name(query, operator.id) if name == STATE else name}"
            yield Named(f"operator_{operator.id}", name, table, address)
            if operator.id == chosen:
                yield Named(None, name, table, address)


def _of_operator(
    query: Query, operator: Operator, version: int, progress: Progress | None
) -> dict[str, StateTable]:
    """Return the tables of an operator; without stores that have no readable rows in this version."""
    tables = {}
    for name in views(query, operator):
        try:
            tables[name] = _table(query, operator.id, name, version, progress)
        except StateStoreError:
            continue
    default = default_name(query, operator.id)
    return {STATE: tables[default], **tables} if default in tables and STATE not in tables else tables


def _table(query: Query, operator: int, name: str, version: int, progress: Progress | None) -> StateTable:
    view = view_at(query, operator, name, version - 1)

    def opened(partitions: Sequence[int]) -> State:
        state = State(query, view, version, partitions)
        if progress is not None:
            state.follow(progress)
        return state

    return state_table(view, range(view.operator.stores[view.store]), opened)
