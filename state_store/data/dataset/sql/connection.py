"""A locked connection to an empty DuckDB, whose errors are this package's."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Any

from state_store.core.interruption import ScratchDirectory, interruptible
from state_store.core.settings.option import BYTES
from state_store.data.dataset.packages import require_duckdb
from state_store.data.dataset.sql.tables import StateTable, table_class
from state_store.data.query.arguments import check_text
from state_store.errors import InternalError, OptionError, StateStoreError, StorageError

if TYPE_CHECKING:
    import pyarrow

MEMORY = "1g"
"""Bound of the memory of a query, unless the caller gives another."""

LEAST_MEMORY_BYTES = 32 << 20
THREADS = 2
BATCH_ROWS = 1 << 16

_ERROR_KIND = re.compile(r"^[\w ]+ Error: ")


class Connection:
    """An empty database that reads only registered tables. A context manager, for one thread at a time."""

    def __init__(self, memory: str = MEMORY, *, utc: bool = False, option: str = "the query") -> None:
        """Open the database.

        Args:
            memory: the bound of its memory, such as `512m`.
            utc: read texts as moments in UTC, not in the local zone.
            option: the name of the query in errors, such as `--where`.

        Raises:
            OptionError: if DuckDB is not installed, or `memory` is no size.
        """
        require_duckdb()
        import duckdb

        limit = memory_bytes(memory)
        self._memory = memory
        self._option = option
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

    def __enter__(self) -> Connection:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

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

        reader = interruptible(partial(self._reader, query), self._duckdb.interrupt)

        def batches() -> Iterator[pyarrow.RecordBatch]:
            while True:
                batch = interruptible(partial(next, reader, None), self._duckdb.interrupt)
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
        return OptionError(f"{self._option} is wrong: {text}", option=self._option)


def memory_bytes(text: str) -> int:
    """Return the bytes of a bound of memory, such as `512m`.

    Raises:
        OptionError: if the text is no size, or less than 32m.
    """
    try:
        found = int(BYTES.parse(text))
    except (ValueError, AttributeError, TypeError) as error:
        raise OptionError(f"memory is {text!r}, but {error}", option="memory") from error
    if found < LEAST_MEMORY_BYTES:
        raise OptionError(f"memory is '{text}', but at least 32m are needed", option="memory")
    return min(found, 1 << 50)


def sentence(error: BaseException) -> str:
    """Return the message of an error of DuckDB as one line, without the place in the text."""
    text = re.split(r"\n+LINE \d+: ", str(error))[0]
    lines = [line.strip() for line in _ERROR_KIND.sub("", text).splitlines() if line.strip()]
    return "; ".join(line.rstrip("!.;") for line in lines)


def quoted(name: str) -> str:
    """Return a name as SQL has it, in double quotes."""
    escaped = name.replace('"', '""')
    return f'"{escaped}"'


Filtering = Callable[["pyarrow.RecordBatch"], "pyarrow.RecordBatch"]
"""Function that keeps some rows of a batch."""
