"""Queries over several tables of state, which are declared under the names that users give them."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from state_store.data.dataset.sql.connection import MEMORY, Connection, quoted
from state_store.data.dataset.sql.tables import StateTable

if TYPE_CHECKING:
    import pyarrow

_UNKNOWN_TABLE = re.compile(r'Table with name "?(\d+/.+?@.*?)"? does not exist', re.DOTALL)


@dataclass(frozen=True)
class Named:
    """A table under a name, in a schema (None: the main one).

    `place` identifies it among the tables of all versions; an empty one has no other versions.
    """

    schema: str | None
    name: str
    table: StateTable
    place: str = ""


Versions = Callable[[str, str], StateTable]
"""Gives the table of a place at another version, which is the text of a number or of a moment."""


def run(
    query: str,
    tables: list[Named],
    versions: Versions | None = None,
    *,
    memory: str = MEMORY,
    utc: bool = False,
    option: str = "the query",
) -> pyarrow.RecordBatchReader:
    """Return the rows of a SELECT over tables; the database is gone when they have been read, or forgotten.

    Args:
        query: one SELECT.
        tables: the tables; of those whose names differ in case alone, the first counts.
        versions: makes the tables that `NAME_at(version)` names; None: there are no such functions.
        memory: the most that DuckDB takes.
        utc: moments without a zone are in UTC, not in the local zone.
        option: what errors are about.

    Raises:
        OptionError: if the query is wrong, or needs more memory.
    """
    import pyarrow

    connection = Connection(memory, utc=utc, option=option)
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
        place = (named.schema, named.name.lower())
        if place in declared:
            continue
        declared.add(place)
        prefix, source = "", named.name
        if named.schema is not None:
            prefix, source = f"{quoted(named.schema)}.", f"{named.schema}/{named.name}"
        connection.register(source, named.table)
        if prefix:
            connection.execute(f"CREATE SCHEMA IF NOT EXISTS {quoted(str(named.schema))}")
            connection.execute(f"CREATE VIEW {prefix}{quoted(named.name)} AS SELECT * FROM {quoted(source)}")
        if with_versions and named.place:
            literal = f"{named.place}@".replace("'", "''")
            connection.execute(
                f"CREATE MACRO {prefix}{quoted(named.name + '_at')}(version) AS TABLE "
                f"SELECT * FROM query_table('{literal}' || version)"
            )


def _planned(connection: Connection, query: str, versions: Versions | None) -> pyarrow.RecordBatchReader:
    """Plan the query, and make the versions that it names, one after the other."""
    import duckdb

    made: Mapping[str, bool] | dict[str, bool] = {}
    while True:
        try:
            return connection.planned(query)
        except duckdb.CatalogException as error:
            unknown = _UNKNOWN_TABLE.search(str(error))
            if versions is None or unknown is None or unknown[1] in made:
                raise
            place, _, version = unknown[1].rpartition("@")
            connection.register(unknown[1], versions(place, version.strip()))
            made = {**made, unknown[1]: True}
