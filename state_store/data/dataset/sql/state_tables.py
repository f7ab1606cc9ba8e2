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
    option: str = "the query",
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

    made: Mapping[str, bool] | dict[str, bool] = {}
    while True:
        try:
            return connection.planned(query)
        except duckdb.CatalogException as error:
            unknown = _UNKNOWN_TABLE.search(str(error))
            if versions is None or unknown is None or unknown[1] in made:
                raise
            address, _, version = unknown[1].rpartition("@")
            connection.register(unknown[1], versions(address, version.strip()))
            made = {**made, unknown[1]: True}
