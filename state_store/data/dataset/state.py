"""A version of one store of a query, all its partitions, as an Arrow table that is read in batches."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any

from state_store.core.runtime import SYSTEM, Closing, Runtime
from state_store.data.dataset.columns import Columns, Key, key_columns, key_filter
from state_store.data.dataset.export import write_export
from state_store.data.dataset.history import Changes, KeyVersion, Lookups
from state_store.data.dataset.moments import Moment, cells, table
from state_store.data.dataset.partitions import Partitions, check_committed, decoded, filtered, version_number
from state_store.data.dataset.sql import (
    MEMORY,
    STATE,
    Condition,
    Named,
    StateTable,
    key_of,
    moment_columns,
    pruned,
    quoted,
    refuse_ambiguous,
    restored,
    run,
    state_table,
)
from state_store.data.dataset.stats import (
    RECENT,
    SAMPLE,
    Expiry,
    PartStatistics,
    Statistics,
    part_statistics,
    statistics,
)
from state_store.data.dataset.views import View, users_first, views
from state_store.data.jobs import Workers, workers
from state_store.data.query import Progress, ProgressOption, Query, reporting
from state_store.data.query.arguments import (
    Location,
    check_flag,
    check_number,
    check_text,
    counted,
    require_pandas,
    whole_uri,
)
from state_store.data.query.arguments import shown as as_text
from state_store.errors import MissingError, OptionError, StateStoreError

if TYPE_CHECKING:
    import pandas
    import pyarrow
    import pyarrow.compute

BATCH_ROWS = 1 << 16
HEAD_ROWS = 10


class State(Closing):
    """A version of a store, as it was when Spark committed it. `state_store.open` makes it.

    `schema` are the columns: those of the key, those of the value, and `partition_id`. Every reading goes
    through all partitions one after the other; their rows are in no order. It needs disk for one partition in
    the directory of temporary files, and memory for a batch. Use it in `with`: otherwise its files are leased
    until it is garbage-collected. One thread at a time.

    Raises:
        MissingError: a version or a column does not exist.
        DamagedError: a file is damaged; the message says which partition is lost, and how many rows.
        FormatError: the encoding of rows is not known.
        StorageError: as the storage raises it.
    """

    def __init__(
        self,
        query: Query,
        view: View,
        number: int,
        partitions: Iterable[int] | None = None,
        *,
        skip_damaged: bool = False,
        runtime: Runtime = SYSTEM,
    ) -> None:
        self.view = view
        self.version = number
        self.columns = Columns(view)
        self._query = query
        self._runtime = runtime
        self._skip_damaged = skip_damaged
        self._partitions = Partitions(
            query, view, number, partitions, skip_damaged=skip_damaged, runtime=runtime
        )
        self._lookups = Lookups(self._partitions, self.columns, self.of_partition)

    def close(self) -> None:
        """Release the files in checkpoint storage and remove local ones; closing twice is allowed."""
        self._partitions.close()

    def follow(self, progress: Progress) -> None:
        """Report files that are fetched from now on, and partitions that have been read, to `progress`."""
        self._partitions.follow(progress)

    def __repr__(self) -> str:
        operator = self.view.operator
        closed = "closed, " if self._partitions.is_closed else ""
        return (
            f"State({closed}operator {operator.id} ({operator.words}), store {self.view.name}, "
            f"version {self.version}, {counted(len(self.partitions), 'partition')}: "
            f"{', '.join(self.schema.names)})"
        )

    def _repr_html_(self) -> str:
        """Return the first rows for notebooks; of a state that was closed, the columns alone."""
        if self._partitions.is_closed:
            return table(repr(self), self.schema.names, [])
        first = next(iter(self.scan(batch_rows=HEAD_ROWS)), None)
        units = moment_columns(self.view)
        rows = [cells(row, units) for row in ([] if first is None else first.to_pylist())]
        return table(repr(self), self.schema.names, rows)

    @property
    def schema(self) -> pyarrow.Schema:
        """The columns and their types."""
        return self.columns.schema

    @property
    def batch(self) -> int:
        """The batch that made the version."""
        return self.version - 1

    @property
    def partitions(self) -> tuple[int, ...]:
        """The numbers of the partitions."""
        return self._partitions.numbers

    @property
    def stores(self) -> list[str]:
        """The stores of the operator by their names, those of users first."""
        return users_first(views(self._query, self.view.operator))

    @property
    def has_one_row_a_key(self) -> bool:
        """False for lists and sides of a join, where a key may have several rows."""
        return not (self.view.is_side or self.view.is_list)

    @property
    def lost(self) -> Mapping[int, StateStoreError]:
        """With `on_damage="skip"`: the partitions that could not be read so far, each with its error."""
        return dict(self._partitions.lost)

    # ---- rows --------------------------------------------------------------------------------------------

    def scan(
        self,
        columns: Sequence[str] | None = None,
        filter: str | Condition | pyarrow.compute.Expression | None = None,
        *,
        key: Key = None,
        batch_rows: int = BATCH_ROWS,
    ) -> pyarrow.RecordBatchReader:
        """Return the rows that `filter` keeps, as batches of at most `batch_rows` rows.

        Decodes only the columns that are needed. A filter in SQL reads only the partitions, or the key, that
        may match.

        Args:
            columns: the columns, in that order; None is all.
            filter: a condition in SQL, such as `flights > 8 and worst.delay is null`, or an expression of
                pyarrow.
            key: only rows of this key, as for `get`; None is all.
            batch_rows: the maximum number of rows in a batch.

        Raises:
            OptionError: if the filter or the key is wrong.
        """
        import pyarrow

        check_number("batch_rows", batch_rows, minimum=1)
        if not (filter is None or isinstance(filter, (str, Condition)) or _is_expression(filter)):
            raise OptionError(
                f"filter is a condition in SQL or an expression of pyarrow, not {as_text(filter)}",
                option="filter",
            )
        selection = Columns(self.view, columns)
        names = selection.schema.names
        of_key = None if key is None else self.key_filter(key)
        if isinstance(filter, (str, Condition)):
            condition = Condition(filter, self.view) if isinstance(filter, str) else filter
            batches = self._kept(condition, of_key, selection.schema, batch_rows)
            return pyarrow.RecordBatchReader.from_batches(selection.schema, batches)
        if of_key is not None:
            filter = of_key if filter is None else filter & of_key
        needed = selection if filter is None else Columns(self.view, self._needed(names, filter))
        return pyarrow.RecordBatchReader.from_batches(
            selection.schema, filtered(self._partitions, needed, names, filter, batch_rows)
        )

    def to_batches(self, columns: Sequence[str] | None = None) -> Iterator[pyarrow.RecordBatch]:
        """Yield all rows in batches."""
        yield from self.scan(columns)

    def to_arrow(
        self, columns: Sequence[str] | None = None, filter: str | pyarrow.compute.Expression | None = None
    ) -> pyarrow.Table:
        """Return the rows that `filter` keeps, in memory."""
        return self.scan(columns, filter).read_all()

    def sql(self, query: str, *, memory: str = MEMORY, utc: bool = False) -> pyarrow.RecordBatchReader:
        """Run a SELECT over this state, which is the table `state`.

            state.sql("select carrier, delay / flights as mean from state order by mean desc limit
            3").read_all()

        Args:
            query: one SELECT in DuckDB's SQL. Moments that the state has as numbers (time-outs, times to
                live, timers) are timestamps in it.
            memory: the bound of DuckDB's memory, such as `512m`; beyond it DuckDB spills into the directory
                of temporary files.
            utc: read and show moments in UTC, not in the local zone.

        Raises:
            OptionError: if the query is wrong, or needs more memory.
        """
        return run(query, [Named(None, STATE, self.table())], memory=memory, utc=utc)

    def ordered(
        self,
        order_by: str,
        columns: Sequence[str] | None = None,
        condition: str | None = None,
        *,
        key: Key = None,
        limit: int | None = None,
        memory: str = MEMORY,
        utc: bool = False,
    ) -> pyarrow.RecordBatchReader:
        """Return rows in an order.

        Args:
            order_by: the order in SQL, such as `flights desc, carrier`.
            columns: the columns, in that order; None is all.
            condition: a condition in SQL; None keeps all rows.
            key: only rows of this key; None is all.
            limit: the maximum number of rows; None is all. Sorting all rows may spill into the directory of
                temporary files.
            memory: the bound of DuckDB's memory, such as `512m`.
            utc: read moments without a zone in UTC, not in the local zone.

        Raises:
            OptionError: if the order, the condition or the key is wrong, or more memory is needed.
        """
        import pyarrow

        if not check_text("order_by", order_by, "'flights desc'").strip():
            raise OptionError(
                "--order-by is empty: give the order, such as 'flights desc'", option="--order-by"
            )
        check_number("limit", limit, minimum=0, optional=True)
        check_flag("utc", utc)
        schema = Columns(self.view, columns).schema
        refuse_ambiguous(self.view, schema.names, "--order-by")
        query = f"SELECT {', '.join(map(quoted, schema.names))} FROM {STATE}"
        if condition is not None:
            Condition(condition, self.view, option="--where", utc=utc)
            query += f" WHERE (\n{condition}\n)"
        query += f"\nORDER BY\n{order_by}\n" + ("" if limit is None else f"LIMIT {limit}")
        table = self.table(None if key is None else self.key_filter(key))
        batches = run(query, [Named(None, STATE, table)], memory=memory, utc=utc, option="--order-by")
        units = moment_columns(self.view)
        return pyarrow.RecordBatchReader.from_batches(
            schema, (restored(batch, schema, units) for batch in batches)
        )

    def table(self, key: pyarrow.compute.Expression | None = None) -> StateTable:
        """Return this state as a table for SQL; each scan opens the version anew.

        `key` is an expression that keeps the rows of a key; None keeps all.
        """
        return state_table(self.view, self.partitions, self._reopened, key)

    def to_pandas(self, columns: Sequence[str] | None = None) -> pandas.DataFrame:
        """Return all rows as a frame, in memory, with the types that pyarrow converts to."""
        require_pandas()
        return self.to_arrow(columns).to_pandas()

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        """Return all rows for libraries that read Arrow streams, such as DuckDB and Polars."""
        return self.scan().__arrow_c_stream__(requested_schema)

    def of_partition(self, partition: int) -> Iterator[pyarrow.RecordBatch]:
        """Yield the rows of one partition in batches."""
        with self._partitions.read(partition):
            yield from decoded(self._partitions, self.columns, partition, BATCH_ROWS)

    def export(self, target: Location, *, spark: Any = None, progress: ProgressOption = None) -> int:
        """Write a Parquet file for each partition into a new directory; return the number of rows.

        The metadata of each file's schema (`state_store.data.dataset.export`) name the query, store and
        version. If the export fails, nothing is left.

        Args:
            target: a path or a URI; it must not exist.
            spark: a SparkSession, whose executors then write the files, a task a partition; a path is then of
                a directory that all machines share. None: this process.
            progress: True for a progress bar, or a function that is called with each `ProgressUpdate`.

        Raises:
            ConflictError: the directory exists.
            OptionError: Parquet does not have a type, or the target is inside of the checkpoint.
        """
        described = {**self.described(), "partitions": list(self.partitions)}
        tasks = workers(spark, self._runtime)
        with reporting(progress, "exported", len(self.partitions)) as meter:
            if meter is not None:
                self.follow(meter)
            return write_export(
                target,
                self.schema,
                described,
                self.partitions,
                self._opener(tasks),
                tasks,
                meter,
                runtime=self._runtime,
            )

    def _opener(self, workers: Workers) -> Callable[[int, Progress | None], AbstractContextManager[State]]:
        """Return what opens a partition of this version for workers: anew if they are elsewhere."""
        if not workers.are_elsewhere:
            return lambda _number, _meter: nullcontext(self)
        query, view, version, skips = self._query, self.view, self.version, self._skip_damaged

        def reopened(number: int, meter: Progress | None) -> State:
            state = State(query, view, version, [number], skip_damaged=skips)
            if meter is not None:
                state.follow(meter)
            return state

        return reopened

    def described(self) -> dict[str, Any]:
        """Return the origin of the rows: checkpoint, operator, store, version, batch and watermark."""
        return {
            "checkpoint": whole_uri(self._query.location),
            "operator": self.view.operator.id,
            "operator_name": self.view.operator.name,
            "store": self.view.name,
            "version": self.version,
            "batch": self.batch,
            "watermark_ms": self._query.logs.watermark_ms(self.batch),
        }

    def count(self) -> int:
        """Return the number of keys as the files state it, without a restore."""
        return sum(self._partitions.count(partition) for partition in self.partitions)

    def stats(
        self,
        *,
        sample: int | None = SAMPLE,
        recent: int = RECENT,
        spark: Any = None,
        progress: ProgressOption = None,
    ) -> Statistics:
        """Return statistics: the largest partitions and rows, recent changes, and the age and expiry of keys.

        Args:
            sample: the number of partitions whose rows are read, evenly chosen; None reads all.
            recent: the number of versions whose changes are counted.
            spark: a SparkSession, whose executors then read the partitions, a task a partition; None: this
                process.
            progress: True for a progress bar, or a function that is called with each `ProgressUpdate`.
        """
        check_number("sample", sample, minimum=0, optional=True)
        check_number("recent", recent, minimum=0)
        tasks, count = workers(spark, self._runtime), len(self.partitions)
        now_ms = self._runtime.wall_ms()
        with reporting(progress, "read", count if sample is None else min(sample, count)) as meter:
            if meter is not None:
                self.follow(meter)
            return statistics(
                self.partitions,
                self.version,
                self._opener(tasks),
                sample,
                recent,
                now_ms,
                self._expiry(now_ms),
                tasks,
                meter,
            )

    def part_statistics(self, number: int, *, is_sampled: bool, recent: int, now_ms: int) -> PartStatistics:
        """Return what `stats` needs of one partition; its rows are read only if it `is_sampled`."""
        return part_statistics(
            self._partitions,
            self.columns,
            number,
            is_sampled=is_sampled,
            recent=recent,
            expiry=self._expiry(now_ms),
        )

    def _expiry(self, now_ms: int) -> Expiry | None:
        return Expiry.of(self._query, self.view, self.batch, now_ms)

    def get(self, key: Key) -> dict[str, Any] | None:
        """Return the row of a key as Python values by column; None if the key does not exist.

        Reads only the partition in which Spark keeps the key.

        Args:
            key: a value if keys have one column, else a sequence of values in the order of the columns, or a
                mapping from their names.

        Raises:
            OptionError: the key has other columns or types, or the view may have several rows for it; use
                `rows_of` there.
        """
        if not self.has_one_row_a_key:
            raise OptionError(f"a key may have several rows in '{self.view.name}': use rows_of")
        rows = self.rows_of(key).to_pylist()
        return dict(rows[0]) if rows else None

    def rows_of(self, key: Key) -> pyarrow.Table:
        """Return all rows of a key.

        A list has a row for each element, a side of a join a row for each that waits. Reads only the
        partition of the key; of a side of a join, all of that partition. Raises OptionError as `get`.
        """
        return self._lookups.rows(key)

    def key_filter(self, key: Key) -> pyarrow.compute.Expression:
        """Return an expression for `scan` that is true for the rows of a key.

        Raises OptionError as `get`, and for columns of lists or maps.
        """
        return key_filter(self.view, key_columns(self.view, key))

    # ---- over time ---------------------------------------------------------------------------------------

    def diff(self, since: int | Moment) -> pyarrow.RecordBatchReader:
        """Return the net changes from version `since` up to this one.

        Read from the deltas if all exist, else by comparing both versions.

        Args:
            since: a version (0: the empty state), or a moment: the newest version then.

        Returns:
            A row for each key that differs: `change` (added, changed, removed), the columns of the key, and
                its values `before` and `after`. For a side of a join, a row for each row that was added or
                removed, also if its `matched` changed.

        Raises:
            MissingError: the version `since` is gone.
        """
        return Changes(self._partitions, self.columns).diff(self._number(since))

    def history(self, key: Key) -> list[KeyVersion]:
        """Return the state of a key at every version up to this one that can be restored, oldest first.

        The rows of a list are all of its elements, those of a side of a join all that wait with the key. A
        side is read as a whole partition. Raises OptionError for a key of other columns or types.
        """
        return self._lookups.versions(key)

    def history_rows(self, key: Key, *, every: bool = True) -> pyarrow.Table:
        """Return the state of a key at its versions as rows.

        The columns are `version`, `batch`, `committed`, `change` (put, removed; null if the version did not
        write the key) and those of the state, which are null if the key has no value. A list has a row for
        each element, a side of a join a row for each that waits.

        Args:
            key: as for `get`.
            every: False leaves out versions that did not write the key.
        """
        return self._lookups.history(key, every=every)

    def changes(self, since: int | Moment) -> pyarrow.RecordBatchReader:
        """Return the changes of each version after `since` up to this one, version by version.

        Args:
            since: a version (0: the empty state), or a moment: the newest version then.

        Returns:
            Rows of `version`, `batch`, `change` (put, removed) and the columns of the state.

        Raises:
            MissingError: the delta of a version is gone.
        """
        return Changes(self._partitions, self.columns).feed(self._number(since))

    def matching(
        self, columns: Sequence[str], pushed: pyarrow.compute.Expression | None
    ) -> Iterator[pyarrow.RecordBatch]:
        """Yield at least the rows for which an expression may be true, with some columns.

        Reads only the rows of a key if the expression names one, else all.
        """
        if not self._is_one_key(pushed):
            yield from self.scan(columns)
            return
        key = key_of(pushed, self.columns.key_fields)
        try:
            yield from self.rows_of(key).select(columns).to_batches()
        except MissingError:  # its partition was not opened
            return

    def _kept(
        self,
        condition: Condition,
        of_key: pyarrow.compute.Expression | None,
        schema: pyarrow.Schema,
        batch_rows: int,
    ) -> Iterator[pyarrow.RecordBatch]:
        """Yield the rows of a key (None: all) for which a condition in SQL is true."""
        named = [] if of_key is None else self._needed([], of_key)
        names = list(dict.fromkeys([*schema.names, *condition.columns, *named]))
        if condition.is_never:
            return
        partitions = self.partitions
        if condition.pushed is not None:
            partitions = pruned(condition.pushed, self.view, partitions)
        if self._is_one_key(condition.pushed):
            batches = self.matching(names, condition.pushed)
        else:
            batches = filtered(
                self._partitions, Columns(self.view, names), names, None, batch_rows, partitions
            )
        with condition.filtering() as keep:
            for batch in batches:
                matches = keep(batch if of_key is None else batch.filter(of_key))
                if matches.num_rows:
                    yield matches.select(schema.names)

    def _is_one_key(self, pushed: pyarrow.compute.Expression | None) -> bool:
        return not self.view.is_side and key_of(pushed, self.columns.key_fields) is not None

    def _reopened(self, partitions: Sequence[int]) -> State:
        """Return the same version opened again, with some partitions, for an independent reading."""
        return State(
            self._query,
            self.view,
            self.version,
            partitions,
            skip_damaged=self._skip_damaged,
            runtime=self._runtime,
        )

    def _number(self, since: int | Moment) -> int:
        if isinstance(since, int) and not isinstance(since, bool):
            if since > self.version:
                check_committed(self._query, since, self._query.newest_batch())
            return since
        return version_number(self._query, at=since)

    def _needed(self, names: Sequence[str], filter: pyarrow.compute.Expression) -> list[str]:
        """Return the shown columns and those that the filter may name: its text contains their names."""
        text = str(filter)
        return [name for name in self.schema.names if name in names or name in text]


def _is_expression(value: object) -> bool:
    import pyarrow.compute  # slow to import, and most readers filter nothing

    return isinstance(value, pyarrow.compute.Expression)
