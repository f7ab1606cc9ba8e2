"""A condition on the rows of a state in SQL: `n > 5 and carrier in ('AA', 'UA') and worst.delay is null`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from state_store.data.dataset.layout.views import View
from state_store.data.dataset.sql.connection import Connection, Filtering, quoted
from state_store.data.dataset.sql.tables import (
    StateTable,
    as_moments,
    moment_columns,
    named_columns,
    shown_schema,
)
from state_store.errors import OptionError

if TYPE_CHECKING:
    import pyarrow
    import pyarrow.compute

STATE = "state"
"""The name of the table that a condition filters."""


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
            OptionError: if the text is no condition on the columns of the view.
        """
        self._text = text
        self._option = option
        self._utc = utc
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
            self._check_rows_alone(connection)
            with connection.translated():
                connection.rows(self._query("1")).read_all()

    @contextmanager
    def filtering(self) -> Iterator[Filtering]:
        """Yield a function that keeps the rows of a batch for which the condition is true, in their order."""
        import numpy
        import pyarrow

        with self._connection() as connection:

            def kept(batch: pyarrow.RecordBatch) -> pyarrow.RecordBatch:
                shown = as_moments(batch.select(self.columns), self._units)
                numbers = pyarrow.array(numpy.arange(batch.num_rows))
                names = [*self.columns, self._number]
                connection.register(STATE, pyarrow.Table.from_arrays([*shown.columns, numbers], names))
                with connection.translated():
                    found = connection.rows(self._query(quoted(self._number))).read_all().column(0)
                connection.unregister(STATE)
                return batch if len(found) == batch.num_rows else batch.take(numpy.sort(found.to_numpy()))

            yield kept

    def _connection(self) -> Connection:
        return Connection(utc=self._utc, option=self._option)

    def _query(self, shown: str) -> str:
        return f"SELECT {shown} FROM {STATE} WHERE (\n{self._text}\n)"

    def _check_rows_alone(self, connection: Connection) -> None:
        """Raise OptionError for a condition that contains a query: batches are filtered one by one."""
        ((parsed,),) = connection.execute(
            "SELECT CAST(json_serialize_sql(CAST($1 AS VARCHAR)) AS VARCHAR)", [self._query("1")]
        )
        if '"class":"SUBQUERY"' in parsed:
            raise OptionError(
                f"{self._option} is a condition on one row and cannot contain a query: use `state-store sql` "
                "or State.sql",
                option=self._option,
            )
