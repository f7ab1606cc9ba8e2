"""Functions that open the state of a query; all but `open` then read something and close it.

`open` finds the query, the store, the view and the version, and returns a `State`. `sql` does so for all
stores of a query that a SELECT names.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any, Literal

from state_store.core.runtime import SYSTEM, Runtime
from state_store.data.dataset.columns import Key
from state_store.data.dataset.history import KeyVersion
from state_store.data.dataset.moments import Moment
from state_store.data.dataset.partitions import version_number
from state_store.data.dataset.sql import MEMORY, STATE, Condition, Named, StateTable, run, state_table
from state_store.data.dataset.state import State
from state_store.data.dataset.stats import RECENT, SAMPLE, Statistics
from state_store.data.dataset.views import default_name, view_at, views
from state_store.data.query import Operator, Progress, ProgressOption, Query, reporting
from state_store.data.query.arguments import (
    Location,
    check_flag,
    check_name,
    check_number,
    check_text,
    require_arrow,
    require_duckdb,
)
from state_store.errors import OptionError, StateStoreError

if TYPE_CHECKING:
    import pyarrow

OnDamage = Literal["raise", "skip"]
"""The treatment of partitions that cannot be read."""


def open(
    checkpoint: Location,
    operator: int = 0,
    store: str | None = None,
    version: int | None = None,
    partitions: Iterable[int] | None = None,
    *,
    batch: int | None = None,
    at: Moment | None = None,
    on_damage: OnDamage = "raise",
    runtime: Runtime = SYSTEM,
) -> State:
    """Open the state of a query as a table, without Spark or a JVM; the query may be running.

        with state_store.open("/data/checkpoint") as state:
            print(state.schema)
            frame = state.to_pandas()

    The table is one version of all partitions and stays so while the query goes on. A lease, which is a small
    file in the store's directory, keeps its files for an hour or until the state is closed.

    Args:
        checkpoint: the query's checkpointLocation, a path or a URI (`hdfs://`, `webhdfs://`, `s3://`,
            `gs://`, `abfs://`).
        operator: the number of the stateful operator in the query, 0 for the first.
        store: `default`, a side of a join (`left`, `right`), `timers`, or the name of a state variable, a
            store or a column family. Default: the operator's only store, the left side of a join, the first
            variable of `transformWithState`.
        version: the number of the version. Default: the version that Spark committed last.
        batch: the version is the one after this batch, `batch` + 1.
        at: the version is the newest at this moment: a `datetime`, or a text such as `2024-02-29 08:00` or `2
            hours ago` (without a zone: the local one).
        partitions: the numbers of some partitions. Default: all.
        on_damage: the treatment of a partition that cannot be read because a file is damaged or gone. `raise`
            raises an error; `skip` leaves it out of scans and exports, and `State.lost` has it.
        runtime: clocks, randomness and threads.

    Raises:
        MissingError: there is no such query, operator, store, version or partition; the message lists the
            existing ones.
        OptionError: an argument is of a wrong type; another provider keeps the state; pyarrow is missing.
        StateStoreError: as the files and the storage are.
    """
    require_arrow()
    if on_damage not in ("raise", "skip"):
        raise OptionError(f"on_damage is 'raise' or 'skip', not {on_damage!r}", option="on_damage")
    check_number("operator", operator)
    check_name("store", store)
    numbers = None
    if partitions is not None:
        if isinstance(partitions, (str, bytes)) or not isinstance(partitions, Iterable):
            raise OptionError(
                f"partitions are numbers such as [0, 1], not {partitions!r}", option="partitions"
            )
        numbers = list(partitions)
        for partition in numbers:
            check_number("partitions", partition)
    query = Query.open(checkpoint)
    number = version_number(query, version, batch, at)
    return State(
        query,
        view_at(query, operator, default_name(query, operator) if store is None else store, number - 1),
        number,
        numbers,
        skip_damaged=on_damage == "skip",
        runtime=runtime,
    )


@contextmanager
def _followed(state: State, progress: ProgressOption, partitions: int | None = None) -> Iterator[None]:
    """Report readings of a state, of this many of its partitions (None: all), to the argument `progress`."""
    count = len(state.partitions)
    with reporting(progress, "read", count if partitions is None else min(partitions, count)) as meter:
        if meter is not None:
            state.follow(meter)
        yield


def show(
    checkpoint: Location,
    operator: int = 0,
    store: str | None = None,
    version: int | None = None,
    partitions: Iterable[int] | None = None,
    *,
    batch: int | None = None,
    at: Moment | None = None,
    columns: Sequence[str] | None = None,
    where: str | None = None,
    order_by: str | None = None,
    key: Key = None,
    limit: int | None = None,
    memory: str = MEMORY,
    utc: bool = False,
    progress: ProgressOption = None,
) -> pyarrow.Table:
    """Return rows of a state as an Arrow table, in memory. `open` gives them in batches.

    Args:
        checkpoint: the query's checkpoint directory, a path or a URI.
        operator: the number of the stateful operator in the query.
        store: as for `open`.
        version: as for `open`.
        partitions: as for `open`.
        batch: as for `open`.
        at: as for `open`.
        columns: the names of the columns, in that order. Default: all.
        where: a condition in SQL that rows have to meet, such as `flights > 8 and carrier <> 'AA'`.
        order_by: the order in SQL, such as `flights desc, carrier`. Default: none.
        key: only rows of this key, as for `get`.
        limit: the most rows. Default: all.
        memory: the most that sorting takes, such as `512m`.
        utc: moments without a zone in `where` and `order_by` are in UTC, not in the local zone.
        progress: True for a progress bar, or a function that is called with each `ProgressUpdate`.

    Raises:
        OptionError: a condition, an order, a column or another argument is wrong.
        StateStoreError: as for `open`.
    """
    check_number("limit", limit, minimum=0, optional=True)
    check_flag("utc", utc)
    with (
        open(checkpoint, operator, store, version, partitions, batch=batch, at=at) as state,
        _followed(state, progress),
    ):
        if order_by is not None:
            ordered = state.ordered(order_by, columns, where, key=key, limit=limit, memory=memory, utc=utc)
            return ordered.read_all()
        condition = None if where is None else Condition(where, state.view, option="where", utc=utc)
        return _first(state.scan(columns, condition, key=key), limit)


def _first(reader: pyarrow.RecordBatchReader, limit: int | None) -> pyarrow.Table:
    """Return at most `limit` rows of a reader (None: all), without reading more than these."""
    import pyarrow

    batches, rows_left = [], limit
    while rows_left is None or rows_left > 0:
        try:
            batch = reader.read_next_batch()
        except StopIteration:
            break
        batches.append(batch if rows_left is None else batch.slice(0, min(rows_left, batch.num_rows)))
        rows_left = None if rows_left is None else rows_left - batches[-1].num_rows
    reader.close()
    return pyarrow.Table.from_batches(batches, reader.schema)


def get(
    checkpoint: Location,
    key: Key,
    operator: int = 0,
    store: str | None = None,
    version: int | None = None,
    *,
    batch: int | None = None,
    at: Moment | None = None,
    progress: ProgressOption = None,
) -> dict[str, Any] | None:
    """Return the row of a key as Python values by column; None without one.

    Only the partition that the key is in is read.

    Args:
        checkpoint: the query's checkpoint directory, a path or a URI.
        key: a value if keys have one column, else a sequence of values in the order of the columns, or a
            mapping from their names.
        operator: the number of the stateful operator in the query.
        store: as for `open`.
        version: as for `open`.
        batch: as for `open`.
        at: as for `open`.
        progress: True for a progress bar, or a function that is called with each `ProgressUpdate`.

    Raises:
        OptionError: the key has other columns or types, or has several rows (`State.rows_of` has them all).
        StateStoreError: as for `open`.
    """
    with (
        open(checkpoint, operator, store, version, batch=batch, at=at) as state,
        _followed(state, progress, 1),
    ):
        return state.get(key)


def diff(
    checkpoint: Location,
    since: int | Moment,
    operator: int = 0,
    store: str | None = None,
    version: int | None = None,
    *,
    batch: int | None = None,
    at: Moment | None = None,
    feed: bool = False,
    progress: ProgressOption = None,
) -> pyarrow.Table:
    """Return the changes from version `since` up to another one.

    Args:
        checkpoint: the query's checkpoint directory, a path or a URI.
        since: a version (0: the empty state), or a moment: the newest version then.
        operator: the number of the stateful operator in the query.
        store: as for `open`.
        version: the later version, as for `open`.
        batch: as for `open`.
        at: as for `open`.
        feed: return the writes of each version instead, as `State.changes` does.
        progress: True for a progress bar, or a function that is called with each `ProgressUpdate`.

    Returns:
        A row for each key that differs: `change` (added, changed, removed), the columns of the key, and its
        values `before` and `after`. `State.diff` gives them in batches.

    Raises:
        MissingError: the version `since` is gone.
        StateStoreError: as for `open`.
    """
    check_flag("feed", feed)
    with (
        open(checkpoint, operator, store, version, batch=batch, at=at) as state,
        _followed(state, progress),
    ):
        return (state.changes(since) if feed else state.diff(since)).read_all()


def history(
    checkpoint: Location,
    key: Key,
    operator: int = 0,
    store: str | None = None,
    version: int | None = None,
    *,
    batch: int | None = None,
    at: Moment | None = None,
    every: bool = False,
    progress: ProgressOption = None,
) -> list[KeyVersion]:
    """Return the state of a key at each version that wrote it, oldest first, as far back as deltas go.

    Args:
        checkpoint: the query's checkpoint directory, a path or a URI.
        key: as for `get`.
        operator: the number of the stateful operator in the query.
        store: as for `open`.
        version: the last version, as for `open`.
        batch: as for `open`.
        at: as for `open`.
        every: return versions that did not write the key, too.
        progress: True for a progress bar, or a function that is called with each `ProgressUpdate`.

    Raises:
        OptionError: the key has other columns or types.
        StateStoreError: as for `open`.
    """
    check_flag("every", every)
    with (
        open(checkpoint, operator, store, version, batch=batch, at=at) as state,
        _followed(state, progress, 1),
    ):
        return [key_version for key_version in state.history(key) if every or key_version.is_changed]


def stats(
    checkpoint: Location,
    operator: int = 0,
    store: str | None = None,
    version: int | None = None,
    *,
    batch: int | None = None,
    at: Moment | None = None,
    sample: int | None = SAMPLE,
    recent: int = RECENT,
    spark: Any = None,
    progress: ProgressOption = None,
) -> Statistics:
    """Return the sizes of a state: of partitions, keys and values; and its changes and expired rows.

    Args:
        checkpoint: the query's checkpoint directory, a path or a URI.
        operator: the number of the stateful operator in the query.
        store: as for `open`.
        version: as for `open`.
        batch: as for `open`.
        at: as for `open`.
        sample: partitions whose rows are read, evenly chosen; None: all.
        recent: versions whose changes are counted.
        spark: a SparkSession, whose executors then read the partitions, a task a partition; None: this
            process.
        progress: True for a progress bar, or a function that is called with each `ProgressUpdate`.

    Raises:
        StateStoreError: as for `open`.
    """
    check_number("sample", sample, minimum=0, optional=True)
    with open(checkpoint, operator, store, version, batch=batch, at=at) as state:
        return state.stats(sample=sample, recent=recent, spark=spark, progress=progress)


def export(
    checkpoint: Location,
    target: Location,
    operator: int = 0,
    store: str | None = None,
    version: int | None = None,
    partitions: Iterable[int] | None = None,
    *,
    batch: int | None = None,
    at: Moment | None = None,
    on_damage: OnDamage = "raise",
    spark: Any = None,
    progress: ProgressOption = None,
) -> int:
    """Write a state as Parquet files into a new directory, one for each partition; return the number of rows.

    Args:
        checkpoint: the query's checkpoint directory, a path or a URI.
        target: a path or a URI; it must not exist. If the export fails, nothing is left.
        operator: the number of the stateful operator in the query.
        store: as for `open`.
        version: as for `open`.
        partitions: as for `open`.
        batch: as for `open`.
        at: as for `open`.
        on_damage: as for `open`.
        spark: a SparkSession, whose executors then write the files, a task a partition; a path is then of a
            directory that all machines share. None: this process.
        progress: True for a progress bar, or a function that is called with each `ProgressUpdate`.

    Raises:
        ConflictError: the target exists.
        OptionError: Parquet does not have a type, or the target is inside of the checkpoint.
        StateStoreError: as for `open`.
    """
    with open(
        checkpoint, operator, store, version, partitions, batch=batch, at=at, on_damage=on_damage
    ) as state:
        return state.export(target, spark=spark, progress=progress)


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
    stack = ExitStack()
    meter = stack.enter_context(reporting(progress, "read", len(opened.stores())))

    def at_version(address: str, text: str) -> StateTable:
        operator_id, _, store = address.partition("/")
        is_number = text.isdigit() and len(text) < 9
        number_then = version_number(opened, int(text)) if is_number else version_number(opened, at=text)
        return _table(opened, int(operator_id), store, number_then, meter)

    with stack:
        tables = list(_tables(opened, operator, number, meter))
        rows = run(query, tables, at_version, memory=memory, utc=utc)
        until_read = stack.pop_all()
    return _closing(rows, until_read)


def _closing(rows: pyarrow.RecordBatchReader, resources: ExitStack) -> pyarrow.RecordBatchReader:
    """Return the same rows; close the resources after the last one."""
    import pyarrow

    def batches() -> Iterator[pyarrow.RecordBatch]:
        with resources:
            yield from rows

    return pyarrow.RecordBatchReader.from_batches(rows.schema, batches())


def _tables(query: Query, main_operator: int, version: int, progress: Progress | None) -> Iterator[Named]:
    """Yield the tables of all operators; those of the chosen one in the main schema, too."""
    if main_operator not in {operator.id for operator in query.operators}:
        view_at(query, main_operator, STATE, version - 1)  # raises MissingError, which lists the operators
    for operator in query.operators:
        for name, table in _of_operator(query, operator, version, progress).items():
            address = f"{operator.id}/{default_name(query, operator.id) if name == STATE else name}"
            yield Named(f"operator_{operator.id}", name, table, address)
            if operator.id == main_operator:
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
