"""A version of one store of a query, all its partitions, as an Arrow table that is read in batches."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any

from state_store.core.engine.rows import rows
from state_store.core.runtime import SYSTEM, Runtime
from state_store.data.dataset.changes import Changes
from state_store.data.dataset.columns import FAMILY_BYTES, Columns
from state_store.data.dataset.expiry import Expiry
from state_store.data.dataset.export import write_export
from state_store.data.dataset.history import KeyVersion
from state_store.data.dataset.html import table
from state_store.data.dataset.keys import Key, key_columns, key_filter
from state_store.data.dataset.lookups import Lookups
from state_store.data.dataset.moments import Moment
from state_store.data.dataset.partitions import READING, Partitions
from state_store.data.dataset.sql.conditions import STATE, Condition
from state_store.data.dataset.sql.connection import MEMORY, quoted
from state_store.data.dataset.sql.database import Named, run
from state_store.data.dataset.sql.tables import (
    StateTable,
    key_of,
    moment_columns,
    pruned,
    restored,
    state_table,
)
from state_store.data.dataset.stats import RECENT, SAMPLE, Statistics, statistics
from state_store.data.dataset.versions import version_number
from state_store.data.dataset.views import View, users_first, views
from state_store.data.query import Progress, ProgressOption, Query, reporting
from state_store.data.query.arguments import Location
from state_store.errors import DamagedError, MissingError, OptionError, StateStoreError

if TYPE_CHECKING:
    import pandas
    import pyarrow
    import pyarrow.compute

BATCH_ROWS = 1 << 16
HEAD_ROWS = 10


class State:
    """One version of a store, as it was when Spark committed it. `state_store.open` makes it.

    `schema` are the columns: those of the key, those of the value, and `partition_id`. Every reading goes
    through all partitions, one after the other, their rows in no order; it needs disk for one partition in
    the directory of temporary files, and memory for a batch. Takes part in `with`; whoever does not close it
    has its files held until it is collected. One thread at a time.

    Methods raise MissingError for versions and columns that are not there, DamagedError for damaged files (it
    says which partition is lost, and how many rows), FormatError for rows that cannot be read, StorageError
    as the storage does.
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

    def __enter__(self) -> State:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Lets the files in checkpoint storage go, and removes local ones; twice is fine."""
        self._partitions.close()

    def follow(self, progress: Progress) -> None:
        """Tells of the files that readings bring from now on, and of the partitions that are done."""
        self._partitions.follow(progress)

    def __repr__(self) -> str:
        operator = self.view.operator
        return (
            f"State(operator {operator.id} ({operator.name}), store {self.view.name}, "
            f"version {self.version}, {len(self.partitions)} partitions: {', '.join(self.schema.names)})"
        )

    def _repr_html_(self) -> str:
        """The first rows, for notebooks."""
        first = next(iter(self.scan(batch_rows=HEAD_ROWS)), None)
        rows = [] if first is None else [list(row.values()) for row in first.to_pylist()]
        return table(repr(self), self.schema.names, rows)

    @property
    def schema(self) -> pyarrow.Schema:
        """The columns and their types."""
        return self.columns.schema

    @property
    def batch(self) -> int:
        """The batch after which the state was like this."""
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
        """Whether a key never has several rows: it has in lists, and on a side of a join."""
        return not (self.view.is_side or self.view.is_list)

    @property
    def lost(self) -> Mapping[int, StateStoreError]:
        """With `on_damage="skip"`: the partitions that could not be read so far, each with why."""
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

        Only what is needed is decoded; a filter in SQL reads only the partitions, or the key, that it leaves.

        Args:
            columns: the columns, in that order; None is all.
            filter: a condition in SQL, such as `flights > 8 and worst.delay is null`, or an expression of
                pyarrow.
            key: only rows of this key, as for `get`; None is all.
            batch_rows: the most rows of a batch.

        Raises:
            OptionError: if the filter or the key is wrong.
        """
        import pyarrow

        if batch_rows < 1:
            raise OptionError(f"a batch has at least 1 row, not {batch_rows}")
        shown = Columns(self.view, columns)
        names = shown.schema.names
        of_key = None if key is None else self.key_filter(key)
        if isinstance(filter, (str, Condition)):
            condition = Condition(filter, self.view) if isinstance(filter, str) else filter
            kept = self._kept(condition, of_key, shown.schema, batch_rows)
            return pyarrow.RecordBatchReader.from_batches(shown.schema, kept)
        if of_key is not None:
            filter = of_key if filter is None else filter & of_key
        needed = shown if filter is None else Columns(self.view, self._needed(names, filter))
        return pyarrow.RecordBatchReader.from_batches(
            shown.schema, self._filtered(needed, names, filter, batch_rows)
        )

    def to_batches(self, columns: Sequence[str] | None = None) -> Iterator[pyarrow.RecordBatch]:
        """All rows in batches."""
        yield from self.scan(columns)

    def to_arrow(
        self, columns: Sequence[str] | None = None, filter: str | pyarrow.compute.Expression | None = None
    ) -> pyarrow.Table:
        """The rows that `filter` keeps, in memory."""
        return self.scan(columns, filter).read_all()

    def sql(self, query: str, *, memory: str = MEMORY, utc: bool = False) -> pyarrow.RecordBatchReader:
        """Run a SELECT over this state, which is the table `state`.

            state.sql("select carrier, delay / flights as mean from state order by mean desc limit
            3").read_all()

        Args:
            query: one SELECT in DuckDB's SQL. Moments that the state has as numbers (time-outs, times to
                live, timers) are timestamps in it.
            memory: the most that DuckDB takes, such as `512m`; beyond that it uses the directory of temporary
                files.
            utc: moments are read and shown in UTC, not in the local zone.

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
            limit: the most rows; None is all. Sorting all needs disk in the directory of temporary files.
            memory: the most that DuckDB takes, such as `512m`.
            utc: moments without a zone are in UTC, not in the local zone.

        Raises:
            OptionError: if the order, the condition or the key is wrong, or more memory is needed.
        """
        import pyarrow

        shown = Columns(self.view, columns).schema
        query = f"SELECT {', '.join(map(quoted, shown.names))} FROM {STATE}"
        if condition is not None:
            Condition(condition, self.view, option="--where", utc=utc)
            query += f" WHERE (\n{condition}\n)"
        query += f"\nORDER BY\n{order_by}\n" + ("" if limit is None else f"LIMIT {limit}")
        table = self.table(None if key is None else self.key_filter(key))
        found = run(query, [Named(None, STATE, table)], memory=memory, utc=utc, option="--order-by")
        units = moment_columns(self.view)
        return pyarrow.RecordBatchReader.from_batches(
            shown, (restored(batch, shown, units) for batch in found)
        )

    def table(self, key: pyarrow.compute.Expression | None = None) -> StateTable:
        """Return this state as a table for SQL; each scan opens the version anew. `key` keeps rows of a
        key.
        """
        return state_table(self.view, self.partitions, self._reopened, key)

    def to_pandas(self, columns: Sequence[str] | None = None) -> pandas.DataFrame:
        """All rows as a frame, in memory, with the types that pyarrow gives frames."""
        return self.to_arrow(columns).to_pandas()

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        """All rows for whoever takes Arrow streams, such as DuckDB and Polars."""
        return self.scan().__arrow_c_stream__(requested_schema)

    def of_partition(self, partition: int) -> Iterator[pyarrow.RecordBatch]:
        """The rows of one partition in batches."""
        with self._partitions.read(partition):
            yield from self._decoded(self.columns, partition, BATCH_ROWS)

    def export(self, target: Location, *, progress: ProgressOption = None) -> int:
        """Write a Parquet file for each partition into a new directory; return the number of rows.

        The metadata of each file's schema (`state_store.data.dataset.export`) say of which query, store and
        version it is. If it fails, nothing is left.

        Args:
            target: a path or a URI; it must not exist.
            progress: True for a progress bar, or a function that is called with each `ProgressUpdate`.

        Raises:
            ConflictError: the directory exists.
            OptionError: Parquet does not have a type, or the target is inside of the checkpoint.
        """
        described = {**self.described(), "partitions": list(self.partitions)}
        parts = ((number, self.of_partition(number)) for number in self.partitions)
        with reporting(progress, "exported", len(self.partitions)) as meter:
            if meter is not None:
                self.follow(meter)
            return write_export(
                target, self.schema, described, parts, lambda: self.lost, runtime=self._runtime
            )

    def described(self) -> dict[str, Any]:
        """Where the rows are from: checkpoint, operator, store, version, batch and watermark."""
        return {
            "checkpoint": self._query.location,
            "operator": self.view.operator.id,
            "operator_name": self.view.operator.name,
            "store": self.view.name,
            "version": self.version,
            "batch": self.batch,
            "watermark_ms": self._query.logs.watermark_ms(self.batch),
        }

    def count(self) -> int:
        """The number of keys, as the files say: nothing is restored. A key has a row, but in lists."""
        return sum(self._partitions.count(partition) for partition in self.partitions)

    def stats(self, *, sample: int | None = SAMPLE, recent: int = RECENT) -> Statistics:
        """What is big and what is hot: rows and bytes of each partition, sizes of keys and values, the
        largest rows, how much the last `recent` versions changed, since when keys have not been changed, and
        how many rows have had their time.

        sample: sizes are those of this many partitions, evenly chosen (None: of all, which reads everything).
        """
        expiry = Expiry.of(self._query, self.view, self.batch, self._runtime.wall_ms())
        return statistics(self._partitions, self.columns, sample, recent, expiry)

    def get(self, key: Key) -> dict[str, Any] | None:
        """The row of a key as Python values by column; None where there is none.

        key: a value where keys have one column, else a sequence of values in the order of the columns or a
        mapping from their names. Its partition is found as Spark finds it. Raises OptionError for a key of
        other columns or types, and for views where a key has several rows: there, `rows_of`.
        """
        if not self.has_one_row_a_key:
            raise OptionError(f"a key has several rows in '{self.view.name}': rows_of gives all")
        found = self.rows_of(key).to_pylist()
        return dict(found[0]) if found else None

    def rows_of(self, key: Key) -> pyarrow.Table:
        """All rows of a key, none where there is none: one, but of a list one for each element, and of a side
        of a join each that waits. Only the partition that the key is in is read; of a side, all of it.
        Raises OptionError as `get`.
        """
        return self._lookups.rows(key)

    def key_filter(self, key: Key) -> pyarrow.compute.Expression:
        """Which rows have the key, for `scan`. Raises OptionError as `get` does, and for columns of lists."""
        return key_filter(self.view, key_columns(self.view, key))

    # ---- over time ---------------------------------------------------------------------------------------

    def diff(self, since: int | Moment) -> pyarrow.RecordBatchReader:
        """What changed after version `since` (0: the empty state; a moment: the newest then), up to this
        one: rows of `change` (added, changed, removed), the key, and its values `before` and `after`.

        From the deltas, where all are still there, else from both versions. Raises MissingError when `since`
        is not there any more.
        """
        return Changes(self._partitions, self.columns).diff(self._number(since))

    def history(self, key: Key) -> list[KeyVersion]:
        """The state of a key at every version up to this one that can still be told, oldest first.

        Raises OptionError for a key of other columns or types. A list's versions have all of its elements,
        those of a side of a join all rows that wait with the key; for a side, all of its partition is read.
        """
        return self._lookups.versions(key)

    def history_rows(self, key: Key, *, every: bool = True) -> pyarrow.Table:
        """The same as rows of `version`, `batch`, `committed`, `change` (put, removed; null where the version
        did not write the key) and the columns of the state, which are null where the key has none: a row for
        each element of a list, and for each row that waits on a side of a join. Without `every`, only of
        versions that wrote the key.
        """
        return self._lookups.history(key, every=every)

    def changes(self, since: int | Moment) -> pyarrow.RecordBatchReader:
        """What each version after `since`, up to this one, changed, version by version: rows of `version`,
        `batch`, `change` (put, removed) and the columns of the state.

        Raises MissingError when the delta of a version is not there any more.
        """
        return Changes(self._partitions, self.columns).feed(self._number(since))

    def matching(
        self, columns: Sequence[str], pushed: pyarrow.compute.Expression | None
    ) -> Iterator[pyarrow.RecordBatch]:
        """Yield at least the rows for which an expression may be true, with some columns: all, or those of
        the key that it names.
        """
        if not self._is_one_key(pushed):
            yield from self.scan(columns)
            return
        key = key_of(pushed, self.columns.key_fields)
        try:
            yield from self.rows_of(key).select(columns).to_batches()
        except MissingError:  # it is in a partition that was not opened
            return

    def _kept(
        self,
        condition: Condition,
        of_key: pyarrow.compute.Expression | None,
        shown: pyarrow.Schema,
        batch_rows: int,
    ) -> Iterator[pyarrow.RecordBatch]:
        """Yield the rows of a key (None: all) for which a condition in SQL is true."""
        named = [] if of_key is None else self._needed([], of_key)
        names = list(dict.fromkeys([*shown.names, *condition.columns, *named]))
        if condition.is_never:
            return
        partitions = self.partitions
        if condition.pushed is not None:
            partitions = pruned(condition.pushed, self.view, partitions)
        if self._is_one_key(condition.pushed):
            batches = self.matching(names, condition.pushed)
        else:
            batches = self._filtered(Columns(self.view, names), names, None, batch_rows, partitions)
        with condition.filtering() as kept:
            for batch in batches:
                found = kept(batch if of_key is None else batch.filter(of_key))
                if found.num_rows:
                    yield found.select(shown.names)

    def _is_one_key(self, pushed: pyarrow.compute.Expression | None) -> bool:
        return not self.view.is_side and key_of(pushed, self.columns.key_fields) is not None

    def _reopened(self, partitions: Sequence[int]) -> State:
        """Return the same version once more, of some partitions, for a reading of its own."""
        return State(
            self._query,
            self.view,
            self.version,
            partitions,
            skip_damaged=self._skip_damaged,
            runtime=self._runtime,
        )

    def _number(self, since: int | Moment) -> int:
        return since if isinstance(since, int) else version_number(self._query, at=since)

    def _filtered(
        self,
        needed: Columns,
        names: Sequence[str],
        filter: pyarrow.compute.Expression | None,
        batch_rows: int,
        partitions: Sequence[int] | None = None,
    ) -> Iterator[pyarrow.RecordBatch]:
        for partition in self.partitions if partitions is None else partitions:
            with self._partitions.read(partition):
                for batch in self._decoded(needed, partition, batch_rows):
                    kept = batch if filter is None else batch.filter(filter)
                    if kept.num_rows:
                        yield kept.select(names) if names != needed.schema.names else kept

    def _decoded(self, needed: Columns, partition: int, batch_rows: int) -> Iterator[pyarrow.RecordBatch]:
        family = self._partitions.family(partition) if self._partitions.is_readable(partition) else None
        if family is None:
            return
        start, end = (one.to_bytes(FAMILY_BYTES, "big") for one in (family.id, family.id + 1))
        count = 0
        for page in rows(self._partitions.base(partition).directory, READING, start, end):
            count += len(page)
            batch = needed.decode(tuple(page.keys), tuple(page.values), partition)
            for first in range(0, batch.num_rows, batch_rows):
                yield batch.slice(first, batch_rows)
        if count != family.keys:
            raise DamagedError(
                f"store {self._partitions.key(partition)} has {count} rows of column family "
                f"'{self.view.schema.family}' in version {self.version}, and says that it has {family.keys}"
            )

    def _needed(self, names: Sequence[str], filter: pyarrow.compute.Expression) -> list[str]:
        """The columns shown and those that the filter may name: its text has the names of its columns."""
        text = str(filter)
        return [name for name in self.schema.names if name in names or name in text]
