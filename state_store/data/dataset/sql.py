"""SQL over state: DuckDB, locked down, on the Arrow streams of the stores of a query.

DuckDB runs in this process and sees nothing but the stores: no files, no network, no extensions, no Python
variables. Its memory is bounded, and beyond the bound it spills into the directory of temporary files. It
hands the columns and the conditions of a query to the reader of the state, which decodes only these columns
and reads only the partitions, or the key, that the conditions leave.

1. A connection is locked and empty, and its errors are this package's.
2. A state is an Arrow dataset that is scanned by columns and conditions. Columns of a store that are moments
   as numbers (time-outs, times to live, timers) are timestamps in SQL, and null if there is none.
3. A condition is checked alone: `n > 5 and carrier in ('AA', 'UA') and worst.delay is null`.
4. Queries over several tables declare them under the names that users give them.
"""

from __future__ import annotations

import functools
import json
import re
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Protocol

from state_store.core.runtime import Closing, ScratchDirectory, interruptible
from state_store.core.settings.option import BYTES
from state_store.data.dataset.columns import Columns
from state_store.data.dataset.views import EXPIRES_MS, TIMER_MS, View
from state_store.data.query.arguments import check_text, require_duckdb
from state_store.errors import InternalError, OptionError, StateStoreError, StorageError

if TYPE_CHECKING:
    import pyarrow
    import pyarrow.compute

MEMORY = "1g"
"""Bound of the memory of a query, unless the caller gives another."""

MIN_MEMORY_BYTES = 32 << 20
THREADS = 2
BATCH_ROWS = 1 << 16

_ERROR_KIND = re.compile(r"^[\w ]+ Error: ")

Filtering = Callable[["pyarrow.RecordBatch"], "pyarrow.RecordBatch"]
"""Function that keeps some rows of a batch."""

_LATEST_MS = 253_402_300_799_999
"""The last millisecond of the year 9999; later moments are null in SQL."""

_NESTED = "FieldRef.Nested("
"""The beginning of a field of a struct in the text of an expression of Arrow."""

NO_MOMENT = -1
"""Spark's number for the lack of a time-out or a time to live."""

Scanned = Callable[["Sequence[str] | None", "pyarrow.compute.Expression | None"], Iterator[Any]]
"""Function that yields batches with some columns (None: all), filtered by an expression (None: all rows)."""

STATE = "state"
"""The name of the table that a condition filters."""

_COLUMN_NAMES = re.compile(r'"column_names":(\["(?:[^"\\]|\\.)*"(?:,"(?:[^"\\]|\\.)*")*\])')
"""The names of a column, or of a field of one, in DuckDB's JSON of a parsed query."""

_UNKNOWN_TABLE = re.compile(r'Table with name "?(\d+/.+?@.*?)"? does not exist', re.DOTALL)


QUERY = "the query"
"""The name of a whole query in errors."""


class Connection(Closing):
    """An empty database that reads only registered tables. A context manager, for one thread at a time."""

    def __init__(
        self, memory: str = MEMORY, *, utc: bool = False, option: str = QUERY, columns: Sequence[str] = ()
    ) -> None:
        """Open the database.

        Args:
            memory: the bound of its memory, such as `512m`.
            utc: read texts as moments in UTC, not in the local zone.
            option: the name of the query in errors, such as `--where`.
            columns: all columns that there are, for the error of a wrong one; empty: DuckDB names some.

        Raises:
            OptionError: if DuckDB is not installed, or `memory` is not a size.
        """
        require_duckdb()
        import duckdb

        limit = memory_bytes(memory)
        self._memory = memory
        self._option = option
        self._columns = columns
        self._failures: list[Exception] = []
        self._directory = ScratchDirectory("state-store-sql-")
        self._duckdb = duckdb.connect(
            config={
                "memory_limit": f"{limit}B",
                "temp_directory": self._directory.name,
                "threads": str(THREADS),
                "autoinstall_known_extensions": "false",
                "autoload_known_extensions": "false",
                "allow_community_extensions": "false",
            }
        )
        self._duckdb.execute("SET python_enable_replacements = false")
        if utc:
            self._duckdb.execute("SET TimeZone = 'UTC'")
        self._duckdb.execute("SET enable_external_access = false")
        self._duckdb.execute("SET lock_configuration = true")

    def close(self) -> None:
        """Close the database and remove what it spilled; closing twice is allowed."""
        self._duckdb.close()
        self._directory.cleanup()

    def register(self, name: str, table: StateTable | pyarrow.Table) -> None:
        """Make a table known under a name."""
        if isinstance(table, StateTable):
            table = table_class()(table, self._failures)
        with self.translated():
            self._duckdb.register(name, table)

    def unregister(self, name: str) -> None:
        """Forget a table."""
        self._duckdb.unregister(name)

    def execute(self, text: str, parameters: Sequence[Any] = ()) -> list[Any]:
        """Run a statement of this package's own and return its rows."""
        with self.translated():
            return self._duckdb.execute(text, list(parameters)).fetchall()

    def check_single(self, query: str) -> None:
        """Raise OptionError unless the text is one statement that only reads."""
        import duckdb

        check_text(self._option, query, "'select count(*) from state'")
        with self.translated():
            statements = self._duckdb.extract_statements(query)
        types = (duckdb.StatementType.SELECT, duckdb.StatementType.EXPLAIN)
        if len(statements) != 1 or statements[0].type not in types:
            raise OptionError(
                f"{self._option} is not one SELECT: give a single statement that only reads",
                option=self._option,
            )

    def check_expression(self, text: str) -> None:
        """Raise OptionError unless the text is one expression."""
        import duckdb

        if not check_text(self._option, text, "'flights > 8'").strip():
            raise OptionError(f"{self._option} is empty: give an SQL expression", option=self._option)
        with self.translated():
            duckdb.SQLExpression(text)

    def rows(self, query: str) -> pyarrow.RecordBatchReader:
        """Return the rows of a query, computed as they are read; errors while reading are DuckDB's."""
        with self.translated():
            return self.planned(query)

    def planned(self, query: str) -> pyarrow.RecordBatchReader:
        """Return the rows as `rows` does, but with DuckDB's errors of planning."""
        import pyarrow

        reader = interruptible(functools.partial(self._reader, query), self._duckdb.interrupt)

        def batches() -> Iterator[pyarrow.RecordBatch]:
            while True:
                batch = interruptible(functools.partial(next, reader, None), self._duckdb.interrupt)
                if batch is None:
                    return
                yield batch

        return pyarrow.RecordBatchReader.from_batches(reader.schema, batches())

    def _reader(self, query: str) -> pyarrow.RecordBatchReader:
        relation: Any = self._duckdb.sql(query)
        if hasattr(relation, "to_arrow_reader"):
            return relation.to_arrow_reader(BATCH_ROWS)
        return relation.fetch_arrow_reader(BATCH_ROWS)

    @contextmanager
    def translated(self) -> Iterator[None]:
        """Turn errors of DuckDB into errors of this package, and restore the errors of readers."""
        import duckdb
        import pyarrow

        try:
            yield
        except (duckdb.Error, pyarrow.ArrowException) as error:
            if self._failures:
                raise self._failures[0] from error
            raise self._as_store_error(error) from error

    def _as_store_error(self, error: Exception) -> StateStoreError:
        import duckdb

        if isinstance(error, duckdb.OutOfMemoryException):
            return OptionError(
                f"{self._option} needs more memory than {self._memory}: give it more", option="--memory"
            )
        text = sentence(error)
        if isinstance(error, duckdb.InternalException):
            return InternalError(f"DuckDB failed: {text}")
        if isinstance(error, duckdb.IOException):
            return StorageError(f"the directory of temporary files {tempfile.gettempdir()} failed: {text}")
        fault, candidates, _ = text.partition("; Candidate bindings")
        if candidates and self._columns:
            text = f"{fault}; there are: {', '.join(self._columns)}"
        return OptionError(f"{self._option} is wrong: {text}", option=self._option)


def memory_bytes(text: str) -> int:
    """Return the bytes of a bound of memory, such as `512m`.

    Raises:
        OptionError: if the text is not a size, or less than 32m.
    """
    try:
        size_bytes = int(BYTES.parse(text))
    except (ValueError, AttributeError, TypeError) as error:
        raise OptionError(f"memory is {text!r}, but {error}", option="memory") from error
    if size_bytes < MIN_MEMORY_BYTES:
        raise OptionError(f"memory is '{text}', but at least 32m are needed", option="memory")
    return min(size_bytes, 1 << 50)


def sentence(error: BaseException) -> str:
    """Return the message of an error of DuckDB as one line, without the place in the text."""
    text = re.split(r"\n+LINE \d+: ", str(error))[0]
    lines = [line.strip() for line in _ERROR_KIND.sub("", text).splitlines() if line.strip()]
    return "; ".join(line.rstrip("!.;") for line in lines)


def quoted(name: str) -> str:
    """Return a name as SQL has it, in double quotes."""
    escaped = name.replace('"', '""')
    return f'"{escaped}"'


class Source(Protocol):
    """A state that can be read; the end of `with` closes it."""

    def __enter__(self) -> Source: ...
    def __exit__(self, *error: Any) -> None: ...

    def matching(
        self, columns: Sequence[str], pushed: pyarrow.compute.Expression | None
    ) -> Iterator[pyarrow.RecordBatch]:
        """Yield at least the rows for which the expression may be true, with some columns."""


Opened = Callable[[Sequence[int]], Source]
"""Function that opens some partitions of a state."""


@dataclass(frozen=True)
class StateTable:
    """A table: its columns, and a function that scans it; several scans may run at the same time."""

    schema: pyarrow.Schema
    scanned: Scanned


def state_table(
    view: View,
    partitions: Sequence[int],
    opened: Opened,
    key: pyarrow.compute.Expression | None = None,
) -> StateTable:
    """Return a view as a table.

    Args:
        view: the store.
        partitions: the partitions to read.
        opened: opens partitions, once for each scan.
        key: an expression on the view's own columns that keeps rows; None keeps all.
    """
    schema, units = shown_schema(view), moment_columns(view)
    numbers = tuple(partitions)

    def scanned(
        columns: Sequence[str] | None, pushed: pyarrow.compute.Expression | None
    ) -> Iterator[pyarrow.RecordBatch]:
        names = schema.names if columns is None else list(columns)
        needed = named_columns(schema, names, pushed, key)
        partitions_left = numbers if pushed is None else pruned(pushed, view, numbers)
        if not partitions_left:
            return
        with opened(partitions_left) as state:
            for batch in state.matching(needed, pushed):
                rows = as_moments(batch if key is None else batch.filter(key), units)
                if pushed is not None:
                    rows = rows.filter(pushed)
                yield rows.select(names)

    return StateTable(schema, scanned)


def refuse_ambiguous(view: View, names: Sequence[str], option: str) -> None:
    """Raise OptionError for a column that SQL, which ignores case, does not tell from another one."""
    for name in names:
        same = [other for other in Columns(view).schema.names if other.lower() == name.lower()]
        if len(same) > 1:
            raise OptionError(
                f"{option} cannot tell the columns {' and '.join(same)} apart, as SQL ignores case: use "
                "`state-store sql` or State.sql, where DESCRIBE state has a name for each",
                option=option,
            )


def named_columns(
    schema: pyarrow.Schema, names: Sequence[str], *expressions: pyarrow.compute.Expression | None
) -> list[str]:
    """Return the columns in `names` and those whose names are in the texts of expressions.

    A text may have a name by chance: then a column more is read, never one less.
    """
    texts = [str(expression) for expression in expressions if expression is not None]
    return [name for name in schema.names if name in names or any(name in text for text in texts)]


def pruned(pushed: pyarrow.compute.Expression, view: View, partitions: Sequence[int]) -> tuple[int, ...]:
    """Return the partitions that may have rows for which an expression on `partition_id` is true."""
    import pyarrow
    import pyarrow.compute
    import pyarrow.dataset
    import pyarrow.fs

    name = Columns(view).partition_field.name
    if name not in str(pushed):
        return tuple(partitions)
    field = pyarrow.compute.field(name)
    fragments = pyarrow.dataset.FileSystemDataset.from_paths(
        [f"/{number}" for number in partitions],
        schema=shown_schema(view),
        format=pyarrow.dataset.ParquetFileFormat(),
        filesystem=pyarrow.fs.LocalFileSystem(),
        partitions=[field == pyarrow.scalar(number, pyarrow.int32()) for number in partitions],
    )
    try:
        return tuple(int(fragment.path[1:]) for fragment in fragments.get_fragments(filter=pushed))
    except (pyarrow.ArrowException, TypeError, ValueError):
        return tuple(partitions)


def key_of(
    pushed: pyarrow.compute.Expression | None, fields: Sequence[pyarrow.Field]
) -> dict[str, Any] | None:
    """Return the key that an expression demands, by its columns; None if it leaves a column open.

    Only columns of texts and whole numbers count: their equality in SQL is that of their encoding. An
    expression on a field of a struct demands no key: Arrow's function asserts that there is none.
    """
    import pyarrow
    import pyarrow.dataset

    if pushed is None or not fields or _NESTED in str(pushed):
        return None
    try:
        value_by_column = pyarrow.dataset.get_partition_keys(pushed)
    except (pyarrow.ArrowException, TypeError, ValueError):
        return None
    key = {}
    for field in fields:
        value = value_by_column.get(field.name)
        is_text = pyarrow.types.is_string(field.type) and isinstance(value, str)
        is_number = pyarrow.types.is_integer(field.type) and type(value) is int
        if not (is_text or is_number):
            return None
        key[field.name] = value
    return key


@functools.cache
def table_class() -> Any:
    """Return the class that DuckDB takes as an Arrow dataset: `scanner` gets columns and a filter."""
    import pyarrow
    import pyarrow.dataset

    class Scannable(pyarrow.dataset.Dataset):
        """A table; it keeps the errors of its scans in a list, since DuckDB passes on only their text."""

        def __init__(self, table: StateTable, failures: list[Exception]) -> None:
            self._table = table
            self._failures = failures

        @property
        def schema(self) -> pyarrow.Schema:
            return self._table.schema

        def scanner(
            self, columns: Sequence[str] | None = None, filter: Any = None, **_: Any
        ) -> pyarrow.dataset.Scanner:
            names = self.schema.names if columns is None else columns
            schema = pyarrow.schema([self.schema.field(name) for name in names])
            reader = pyarrow.RecordBatchReader.from_batches(schema, self._batches(columns, filter))
            return pyarrow.dataset.Scanner.from_batches(reader)

        def _batches(self, columns: Sequence[str] | None, filter: Any) -> Iterator[pyarrow.RecordBatch]:
            try:
                yield from self._table.scanned(columns, filter)
            except Exception as error:
                self._failures.append(error)
                raise

    return Scannable


def moment_columns(view: View) -> dict[str, str]:
    """Return the columns of a view that are moments as numbers since 1970 UTC, with units `ms`, `us`."""
    names = {field.name: str(field.type) for field in Columns(view).schema}
    units = {}
    if view.has_groups:
        units["timeoutTimestamp"] = "ms"
    if view.operator.name.startswith("dedupe"):
        units["expiresAtMicros"] = "us"
    if view.operator.name.startswith("transformWithState"):
        units.update(dict.fromkeys((EXPIRES_MS, TIMER_MS, "expirationMs"), "ms"))
    return {name: unit for name, unit in units.items() if names.get(name) == "int64"}


def shown_schema(view: View) -> pyarrow.Schema:
    """Return the columns of a view as SQL shows them."""
    import pyarrow

    units = moment_columns(view)
    return pyarrow.schema(
        [
            pyarrow.field(field.name, pyarrow.timestamp(units[field.name], "UTC"))
            if field.name in units
            else field
            for field in Columns(view).schema
        ]
    )


def as_moments(batch: pyarrow.RecordBatch, units: Mapping[str, str]) -> pyarrow.RecordBatch:
    """Return a batch with moments in place of numbers; null if the number means that there is none."""
    import pyarrow
    import pyarrow.compute

    if not any(name in units for name in batch.schema.names):
        return batch
    columns, fields = list(batch.columns), list(batch.schema)
    for index, field in enumerate(fields):
        unit = units.get(field.name)
        if unit is None or not pyarrow.types.is_integer(field.type):
            continue
        numbers, latest = columns[index], _LATEST_MS * (1000 if unit == "us" else 1)
        valid = pyarrow.compute.and_(
            pyarrow.compute.greater_equal(numbers, 0), pyarrow.compute.less_equal(numbers, latest)
        )
        kind = pyarrow.timestamp(unit, "UTC")
        columns[index] = pyarrow.compute.if_else(valid, numbers, pyarrow.scalar(None, field.type)).cast(kind)
        fields[index] = pyarrow.field(field.name, kind)
    return pyarrow.RecordBatch.from_arrays(columns, schema=pyarrow.schema(fields))


def restored(
    batch: pyarrow.RecordBatch, schema: pyarrow.Schema, units: Mapping[str, str]
) -> pyarrow.RecordBatch:
    """Return rows from DuckDB with their original types; `units` are those of moments."""
    import pyarrow

    columns = [
        _of_type(column, field.type, units.get(field.name))
        for column, field in zip(batch.columns, schema, strict=True)
    ]
    return pyarrow.RecordBatch.from_arrays(columns, schema=schema)


def _of_type(column: pyarrow.Array, kind: pyarrow.DataType, unit: str | None) -> pyarrow.Array:
    import pyarrow

    if column.type == kind:
        return column
    if unit is not None and pyarrow.types.is_timestamp(column.type):
        return column.cast(pyarrow.timestamp(unit, "UTC")).cast(kind).fill_null(NO_MOMENT)
    try:
        return column.cast(kind)
    except pyarrow.ArrowNotImplementedError:
        return pyarrow.array([_with_spans(value) for value in column.to_pylist()], kind)


def _with_spans(value: Any) -> Any:
    """Return a Python value with its intervals as `timedelta`."""
    if isinstance(value, dict):
        return {name: _with_spans(inner) for name, inner in value.items()}
    if type(value) in (list, tuple):
        return type(value)(map(_with_spans, value))
    if hasattr(value, "nanoseconds") and hasattr(value, "months"):
        return timedelta(days=value.days, microseconds=value.nanoseconds // 1000)
    return value


class Condition:
    """A condition on single rows of a view, for one thread at a time. A row is kept if the condition is true.

    DuckDB's planner finds the attributes.

    Attributes:
        columns: the columns that the condition names.
        pushed: the part that the reader can check before; None if there is none.
        is_never: True if it is true for no row.
    """

    def __init__(self, text: str, view: View, *, option: str = "filter", utc: bool = False) -> None:
        """Plan the condition.

        Args:
            text: the condition in DuckDB's SQL.
            view: the store whose columns it names.
            option: the name of the condition in errors, such as `--where`.
            utc: read texts as moments in UTC, not in the local zone.

        Raises:
            OptionError: if the text is not a condition on the columns of the view.
        """
        self._text = text
        self._option = option
        self._utc = utc
        self._names = shown_schema(view).names
        self._units = moment_columns(view)
        self._number = "row number"
        self.columns: list[str] = []
        self.pushed: pyarrow.compute.Expression | None = None
        self.is_never = True
        schema = shown_schema(view)
        while self._number in schema.names:
            self._number += "_"

        def probed(
            columns: Sequence[str] | None, pushed: pyarrow.compute.Expression | None
        ) -> Iterator[pyarrow.RecordBatch]:
            names = schema.names if columns is None else columns
            self.columns = named_columns(schema, names, pushed)
            self.pushed, self.is_never = pushed, False
            return iter(())

        with self._connection() as connection:
            connection.check_expression(text)
            connection.register(STATE, StateTable(schema, probed))
            self._check_rows_alone(connection, view)
            with connection.translated():
                connection.rows(self._query("1")).read_all()

    @contextmanager
    def filtering(self) -> Iterator[Filtering]:
        """Yield a function that keeps the rows of a batch for which the condition is true, in their order."""
        import numpy
        import pyarrow

        with self._connection() as connection:

            def kept(batch: pyarrow.RecordBatch) -> pyarrow.RecordBatch:
                moments = as_moments(batch.select(self.columns), self._units)
                numbers = pyarrow.array(numpy.arange(batch.num_rows))
                names = [*self.columns, self._number]
                connection.register(STATE, pyarrow.Table.from_arrays([*moments.columns, numbers], names))
                with connection.translated():
                    indices = connection.rows(self._query(quoted(self._number))).read_all().column(0)
                connection.unregister(STATE)
                return batch if len(indices) == batch.num_rows else batch.take(numpy.sort(indices.to_numpy()))

            yield kept

    def _connection(self) -> Connection:
        return Connection(utc=self._utc, option=self._option, columns=self._names)

    def _query(self, columns: str) -> str:
        return f"SELECT {columns} FROM {STATE} WHERE (\n{self._text}\n)"

    def _check_rows_alone(self, connection: Connection, view: View) -> None:
        """Raise OptionError for a condition that contains a query: batches are filtered one by one.

        Raises:
            OptionError: also as `refuse_ambiguous`.
        """
        ((parsed,),) = connection.execute(
            "SELECT CAST(json_serialize_sql(CAST($1 AS VARCHAR)) AS VARCHAR)", [self._query("1")]
        )
        if '"class":"SUBQUERY"' in parsed:
            raise OptionError(
                f"{self._option} is a condition on one row and cannot contain a query: use `state-store sql` "
                "or State.sql",
                option=self._option,
            )
        for names in _COLUMN_NAMES.findall(parsed):
            refuse_ambiguous(view, json.loads(names), self._option)


@dataclass(frozen=True)
class Named:
    """A table under a name, in a schema (None: the main one).

    `address` identifies it among the tables of all versions; an empty address has no other versions.
    """

    schema: str | None
    name: str
    table: StateTable
    address: str = ""


Versions = Callable[[str, str], StateTable]
"""Function that returns the table of an address at another version, given as a number or a moment."""


def run(
    query: str,
    tables: list[Named],
    versions: Versions | None = None,
    *,
    memory: str = MEMORY,
    utc: bool = False,
    option: str = QUERY,
) -> pyarrow.RecordBatchReader:
    """Return the rows of a SELECT over tables; the database is closed when they are read or collected.

    Args:
        query: one SELECT.
        tables: the tables; if names differ in case alone, the first counts.
        versions: makes the tables that `NAME_at(version)` names; None: there are no such functions.
        memory: the bound of DuckDB's memory.
        utc: read moments without a zone in UTC, not in the local zone.
        option: the name of the query in errors.

    Raises:
        OptionError: if the query is wrong, or needs more memory.
    """
    import pyarrow

    columns = () if option == QUERY else tables[0].table.schema.names
    connection = Connection(memory, utc=utc, option=option, columns=columns)
    try:
        connection.check_single(query)
        _declare(connection, tables, with_versions=versions is not None)
        with connection.translated():
            reader = _planned(connection, query, versions)
    except BaseException:
        connection.close()
        raise

    def batches() -> Iterator[pyarrow.RecordBatch]:
        with connection, connection.translated():
            yield from reader

    return pyarrow.RecordBatchReader.from_batches(reader.schema, batches())


def _declare(connection: Connection, tables: list[Named], *, with_versions: bool) -> None:
    declared: set[tuple[str | None, str]] = set()
    for named in tables:
        key = (named.schema, named.name.lower())
        if key in declared:
            continue
        declared.add(key)
        prefix, source = "", named.name
        if named.schema is not None:
            prefix, source = f"{quoted(named.schema)}.", f"{named.schema}/{named.name}"
        connection.register(source, named.table)
        if prefix:
            connection.execute(f"CREATE SCHEMA IF NOT EXISTS {quoted(str(named.schema))}")
            connection.execute(f"CREATE VIEW {prefix}{quoted(named.name)} AS SELECT * FROM {quoted(source)}")
        if with_versions and named.address:
            literal = f"{named.address}@".replace("'", "''")
            connection.execute(
                f"CREATE MACRO {prefix}{quoted(named.name + '_at')}(version) AS TABLE "
                f"SELECT * FROM query_table('{literal}' || version)"
            )


def _planned(connection: Connection, query: str, versions: Versions | None) -> pyarrow.RecordBatchReader:
    """Plan the query, and make the versions that it names when planning asks for them."""
    import duckdb

    versions_tried: Mapping[str, bool] | dict[str, bool] = {}
    while True:
        try:
            return connection.planned(query)
        except duckdb.CatalogException as error:
            unknown = _UNKNOWN_TABLE.search(str(error))
            if versions is None or unknown is None or unknown[1] in versions_tried:
                raise
            address, _, version = unknown[1].rpartition("@")
            connection.register(unknown[1], versions(address, version.strip()))
            versions_tried = {**versions_tried, unknown[1]: True}
