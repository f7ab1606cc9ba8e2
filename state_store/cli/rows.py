"""Commands that read the rows of a state: `show`, `get`, `history`, `diff`, `sql`, `export` and `stats`.

Each opens a version of a store (`Selection`), lets the state read, and prints the rows that it gets.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from datetime import datetime
from typing import Any

import click

from state_store.cli import command as declare
from state_store.cli import formats, output
from state_store.cli.process import is_utc, zone
from state_store.data.dataset.columns import key_columns
from state_store.data.dataset.history import KeyVersion
from state_store.data.dataset.moments import milliseconds_of
from state_store.data.dataset.opening import sql_batches
from state_store.data.dataset.sql import MEMORY, Condition, moment_columns
from state_store.data.dataset.state import State
from state_store.data.dataset.stats import RECENT, SAMPLE, WATERMARK, Ages, Statistics
from state_store.data.query import Query
from state_store.data.query.arguments import counted
from state_store.errors import MissingError, OptionError


@declare.state_command(
    "show",
    examples=(
        "/data/checkpoint",
        "/data/checkpoint --where \"flights > 100 and carrier <> 'AA'\" --columns carrier,flights",
        '/data/checkpoint --order-by "flights desc" --limit 10',
        "/data/checkpoint --key AA --version 41 --json",
        "/data/checkpoint --store left --limit 0 --format parquet --output left.parquet",
    ),
)
@declare.version_options
@formats.format_options
@formats.limit_option
@click.option("--columns", metavar="NAMES", help="Only these columns, separated by commas, in this order.")
@click.option(
    "--where",
    metavar="CONDITION",
    help="Only rows for which this SQL is true: \"n > 5 and name = 'x'\". Nulls are as in SQL.",
)
@click.option("--order-by", metavar="ORDER", help='The order of the rows in SQL: "n desc, name".')
@click.option(
    "--memory", metavar="SIZE", default=MEMORY, show_default=True, help="The most memory that sorting takes."
)
@click.option(
    "--key",
    "keys",
    multiple=True,
    metavar="VALUE",
    help="Only rows of this key: a value for each of its columns in order, or NAME=VALUE for each.",
)
@click.option(
    "--partition", "partitions", type=declare.NUMBER, multiple=True, metavar="N", help="Only this partition."
)
def show(
    selection: declare.Selection,
    form: str,
    target: str | None,
    limit: int | None,
    columns: str | None,
    where: str | None,
    order_by: str | None,
    memory: str,
    keys: Sequence[str],
    partitions: Sequence[int],
) -> None:
    """Show rows of the state.

    Shows the rows of one store in the version that Spark committed last, or another, with the user's own
    columns. Neither Spark nor a JVM is needed. Times are in the local zone in tables, and in UTC in JSON and
    CSV.
    """
    names = None if columns is None else [name.strip() for name in columns.split(",")]
    if names is not None and not all(names):
        raise OptionError("--columns has an empty name: give names, separated by commas", option="--columns")
    with selection.open(partitions or None) as state:
        key = parsed_key(state, keys) if keys else None
        if order_by is None:
            condition = (
                None if where is None else Condition(where, state.view, option="--where", utc=is_utc())
            )
            reader = state.scan(names, condition, key=key)
        else:
            maximum = formats.max_rows(form, limit)
            reader = state.ordered(
                order_by, names, where, key=key, limit=maximum, memory=memory, utc=is_utc()
            )
        described = f"row of version {state.version}"
        with metered(state, "read", prints=target is None):
            formats.print_first(
                reader, reader.schema, form, target, limit, described, moment_columns(state.view)
            )


@declare.state_command(
    "get",
    examples=(
        "/data/checkpoint AA",
        "/data/checkpoint carrier=AA day=2024-02-29 --json",
        "/data/checkpoint AA --batch 40",
        "/data/checkpoint AA --store left --format csv",
    ),
)
@declare.version_options
@formats.format_options
@click.argument("key", nargs=-1, required=True, metavar="KEY...")
def get(selection: declare.Selection, form: str, target: str | None, key: Sequence[str]) -> None:
    """Print the state of one key.

    KEY is a value for each column of the key in order, or NAME=VALUE for each; structs are JSON, and windows
    may be as tables show them. null stands for a null value, except in a column of texts: use show --where
    "NAME is null" there. A value that begins with a minus comes after --. Only the partition that has the
    key is read. The exit code is 3 if there is no such key. A side of a join has several rows for a key, and
    a list has one for each element: --json prints these as an array, and a single row as an object.
    """
    with selection.open() as state:
        with metered(state, "read", 1):
            rows = state.rows_of(parsed_key(state, key))
        if not rows.num_rows:
            named = ", ".join(text if text.strip() else f"'{text}'" for text in key)
            columns = ", ".join(name for name in state.columns.key_names if name not in state.view.hidden)
            hint = f"; the columns of a key are {columns}" if any("=" in text for text in key) else ""
            raise MissingError(f"there is no key {named} in version {state.version}{hint}")
        if not state.has_one_row_a_key or form not in ("table", formats.DOCUMENT):
            formats.print_rows(iter(rows.to_batches()), rows.schema, form, target, moment_columns(state.view))
            return
        (row,) = (row for batch in rows.to_batches() for row in formats.rows_as_values(batch))
        if form == formats.DOCUMENT:
            formats.print_document(formats.plain(row), target)
        else:
            formats.print_row(row, moment_columns(state.view))


@declare.state_command(
    "history",
    examples=(
        "/data/checkpoint AA",
        "/data/checkpoint carrier=AA day=2024-02-29 --json",
        "/data/checkpoint AA --every --format csv --output AA.csv",
    ),
)
@declare.version_options
@formats.format_options
@click.option("--every", is_flag=True, help="Show versions that did not write the key, too.")
@click.argument("key", nargs=-1, required=True, metavar="KEY...")
def history(
    selection: declare.Selection, form: str, target: str | None, every: bool, key: Sequence[str]
) -> None:
    """Show the state of a key over the versions.

    Shows each version that wrote the key, oldest first, as far back as deltas go. KEY is as for get. With
    --format, rows have the columns version, batch, committed and change before those of the state; change is
    put, removed, or null if the version did not write the key.
    """
    with selection.open() as state:
        parsed = parsed_key(state, key)
        if form not in ("table", formats.DOCUMENT):
            with metered(state, "read", 1):
                table = state.history_rows(parsed, every=every)
            formats.print_rows(iter(table.to_batches()), table.schema, form, target)
            return
        with metered(state, "read", 1):
            key_versions = state.history(parsed)
        versions = [version for version in key_versions if every or version.is_changed]
        if form == formats.DOCUMENT:
            document = [
                {**_version_json(version), "row": formats.plain(_state_at(state, version))}
                for version in versions
            ]
            formats.print_document(document, target)
            return
        _print_history(state, versions)
        if not versions:
            in_some = any(version.rows for version in key_versions)
            output.say(
                "\nno version of which the delta is there wrote the key"
                + ("; --every shows its state in them" if in_some else ", and none has it")
            )


def _version_json(at: KeyVersion) -> dict[str, object]:
    return {
        "version": at.version,
        "batch": at.version - 1,
        "committed_ms": at.committed_ms,
        "is_changed": at.is_changed,
    }


def _state_at(state: State, version: KeyVersion) -> object:
    """Return the row of a key at a version, or the rows of a list; None if it has none."""
    return version.row if state.has_one_row_a_key else version.rows or None


def _print_history(state: State, versions: Sequence[KeyVersion]) -> None:
    committed, times = output.moment_cells("committed", [version.committed_ms for version in versions])
    headings = (
        output.number_column("version"),
        output.number_column("batch"),
        committed,
        output.text_column("state"),
    )
    states = (_state_cell(state, version) for version in versions)
    rows = (
        (at.version, at.version - 1, time, text)
        for at, time, text in zip(versions, times, states, strict=True)
    )
    output.print_table(headings, rows, cut=True)


def _state_cell(state: State, version: KeyVersion) -> object:
    names = [field.name for field in state.columns.value_fields]
    rows = [{name: row[name] for name in names} for row in version.rows]
    value = rows[0] if rows and state.has_one_row_a_key else rows
    return formats.cell(value, moment_columns(state.view)) if rows else "(none)"


_VERSION_DIGITS = 8
"""Longer numbers are moments."""


class _VersionName(click.ParamType):
    """A version by its number, by its batch or by a moment."""

    name = "version"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the number of the version, or a moment."""
        if not isinstance(value, str):
            return value
        batch, _, number = value.rpartition("batch:")
        if number.isascii() and number.isdecimal() and not batch and len(number) <= _VERSION_DIGITS:
            return int(number) + (1 if value != number else 0)
        try:
            return declare.MomentType().convert(value, param, ctx)
        except click.BadParameter as error:
            self.fail(f"'{value}' is not a version: give 41, batch:40 or a time; {error.message}", param, ctx)


@declare.state_command(
    "diff",
    examples=(
        "/data/checkpoint 40 41",
        "/data/checkpoint batch:39 --json",
        "/data/checkpoint 2024-02-29T08:00:00 2024-02-29T09:00:00 --limit 0",
        "s3://bucket/checkpoint 1 41 --feed --format csv --output changes.csv",
    ),
)
@formats.format_options
@formats.limit_option
@click.option("--feed", is_flag=True, help="Show the writes of each version, instead of before and after.")
@click.argument("older", type=_VersionName(), metavar="OLDER")
@click.argument("newer", type=_VersionName(), required=False, metavar="[NEWER]")
def diff(
    checkpoint: str,
    operator: int,
    store: str | None,
    older: int | datetime,
    newer: int | datetime | None,
    form: str,
    target: str | None,
    limit: int | None,
    feed: bool,
) -> None:
    """Show what changed between two versions.

    Shows each key that was added, changed or removed after version OLDER (0: the empty state) and up to NEWER
    (default: the version that Spark committed last), with its values before and after; in a table, a changed
    key has only the values that differ. Reads the deltas, or both versions if a delta is gone. A version
    is given by its number, as batch:N, or as the newest at a time.
    """
    by_time = {"at": newer} if isinstance(newer, datetime) else {"version": newer}
    with declare.Selection(checkpoint, operator, store, **by_time).open() as state:
        reader = state.changes(older) if feed else state.diff(older)
        since = older if isinstance(older, int) else f"at {output.moment(milliseconds_of(older))}"
        described = f"change from version {since} to version {state.version}"
        units = moment_columns(state.view)
        of_rows: formats.Units = {**units, "before": units, "after": units}
        with metered(state, "read", prints=target is None):
            formats.print_first(
                reader, reader.schema, form, target, limit, described, units if feed else of_rows
            )


_SQL_NOTE = f"""\
{declare.DIRECTORY} The query may run meanwhile.

\b
Tables:
  state            the only store, the left side of a join, the first variable
  NAME             any store of the operator: SHOW TABLES lists them
  operator_1.NAME  a store of another operator
  state_at(41)     a table at another version, or: left_at('2 hours ago')
"""


@declare.command(
    "sql",
    examples=(
        '/data/checkpoint "select carrier, sum(flights) from state group by all order by 2 desc"',
        '/data/checkpoint "from state_at(40) anti join state using (carrier)" --json',
        '/data/checkpoint "show tables"',
        '/data/checkpoint "select * from state" --at "2 hours ago" --format parquet --output rows.parquet',
    ),
    note=_SQL_NOTE,
)
@declare.version_options
@formats.format_options
@formats.limit_option
@declare.utc_option
@click.option(
    "--memory", metavar="SIZE", default=MEMORY, show_default=True, help="The most memory that DuckDB takes."
)
@click.option(
    "--operator",
    type=declare.NUMBER,
    default=0,
    show_default=True,
    metavar="N",
    help="The operator whose stores are named without a schema.",
)
@declare.directory_argument
@click.argument("query", metavar="QUERY")
def sql(
    selection: declare.Selection, form: str, target: str | None, limit: int | None, memory: str, query: str
) -> None:
    """Query the state in SQL.

    Runs one SELECT of DuckDB's SQL over the stores of a query, at the version that Spark committed last, or
    another. Only the columns, partitions and keys that the query names are read. DuckDB runs in this process
    and sees the state alone: no files, no network.
    """
    stores = len(Query.open(selection.checkpoint).stores())
    with output.Meter("read", stores) as meter:
        reader = sql_batches(
            selection.checkpoint,
            query,
            operator=selection.operator,
            version=selection.version,
            batch=selection.batch,
            at=selection.at,
            memory=memory,
            utc=is_utc(),
            progress=meter,
        )
        batches = meter.hidden_before(reader) if target is None else reader
        formats.print_first(batches, reader.schema, form, target, limit, "row")


@declare.state_command(
    "export", examples=("/data/checkpoint /data/state", "/data/checkpoint /data/left --store left --batch 40")
)
@declare.version_options
@declare.json_option
@declare.spark_option
@declare.target_argument
def export(selection: declare.Selection, as_json: bool, target: str, spark: Any) -> None:
    """Write the state as Parquet files.

    Writes a file for each partition into the new directory TARGET. The metadata of each file's schema name
    the query, the store, the version, the batch and the watermark.
    """
    with selection.open() as state:
        advice = "remove it before the command is run again"
        with (
            output.Meter("exported", len(state.partitions)) as meter,
            declare.writing(target, if_interrupted=advice),
        ):
            rows = state.export(target, spark=spark, progress=meter)
        described = state.described()
    if as_json:
        output.print_json({**described, "rows": rows, "target": target})
    else:
        output.say(f"{counted(rows, 'row')} of version {described['version']} in {target}")


_PARTITIONS = (output.number_column("partition"), output.number_column("rows"), output.number_column("bytes"))


_SIZES = (
    output.text_column("bytes of"),
    *(output.number_column(name) for name in ("50 %", "95 %", "99 %", "largest")),
)


_LARGEST = (
    output.text_column("largest rows"),
    output.number_column("partition"),
    output.number_column("bytes"),
)


_RECENT = tuple(output.number_column(name) for name in ("version", "puts", "removes", "delta"))


_AGES = (output.text_column("last changed"), output.number_column("keys"), output.number_column("share"))


_AGE_LINES = 5


_MAX_PARTITIONS = 10


@declare.state_command(
    "stats", examples=("/data/checkpoint", "/data/checkpoint --exact --json", "/data/checkpoint --store left")
)
@declare.version_options
@output.wide_option
@declare.json_option
@click.option("--exact", is_flag=True, help=f"Read all partitions for sizes, not only {SAMPLE}.")
@click.option(
    "--recent",
    type=declare.WholeNumber(0, 10_000),
    default=RECENT,
    show_default=True,
    metavar="N",
    help="The number of versions whose changes are shown.",
)
@declare.spark_option
def stats(selection: declare.Selection, as_json: bool, exact: bool, recent: int, spark: Any) -> None:
    """Show the sizes of the state, and its changes.

    Rows and bytes of each partition are exact. Sizes of keys and values and the largest rows are those of a
    few partitions, which the output names; --exact reads all. Bytes of a partition are those of its
    files, with all column families. The changes of versions, and the last changes of keys, are known as far
    back as there are deltas. Rows whose time is over are those that the next batch may remove: by a time-out,
    a time to live, a timer, or a window that the watermark has passed.
    """
    with selection.open() as state:
        sample = None if exact else SAMPLE
        count = len(state.partitions)
        with output.Meter("read", count if sample is None else min(sample, count)) as meter:
            statistics = state.stats(sample=sample, recent=recent, spark=spark, progress=meter)
    if as_json:
        output.print_json(
            formats.plain(
                {
                    **asdict(statistics),
                    "rows": statistics.rows,
                    "is_exact": statistics.is_exact,
                    "skew": statistics.skew,
                    "expired_share": None if statistics.expired is None else statistics.expired.share,
                }
            )
        )
    else:
        _print_statistics(statistics)


def _print_statistics(statistics: Statistics) -> None:
    scope = (
        "all partitions" if statistics.is_exact else f"partitions {', '.join(map(str, statistics.sampled))}"
    )
    partitions = counted(len(statistics.partitions), "partition")
    output.say(
        f"version {statistics.version}: {counted(statistics.rows, 'row')} in {partitions}, "
        f"{output.size(statistics.size_bytes)} in files; "
        f"the largest partition has {statistics.skew:.2f} times the average\n"
    )
    largest = sorted(statistics.partitions, key=lambda part: -part.rows)[:_MAX_PARTITIONS]
    output.print_table(
        _PARTITIONS, ((part.partition, part.rows, output.size(part.size_bytes)) for part in largest)
    )
    output.say(f"\nsizes of {scope}, {statistics.average_bytes:.0f} bytes a row on average:\n")
    output.print_table(_SIZES, (("keys", *statistics.key_bytes), ("values", *statistics.value_bytes)))
    output.say()
    output.print_table(
        _LARGEST,
        ((formats.cell(row.key), row.partition, row.size_bytes) for row in statistics.largest),
        cut=True,
    )
    output.say()
    output.print_table(_RECENT, _recent_lines(statistics))
    if statistics.ages.keys:
        output.say(f"\nkeys of {scope} by their last change:\n")
        output.print_table(_AGES, _age_lines(statistics.ages))
    if statistics.expired is not None:
        expired = statistics.expired
        clock = "the watermark" if expired.clock == WATERMARK else "the time"
        output.say(
            f"\n{expired.rows} of {counted(expired.looked_at, 'row')} of {scope} ({expired.share:.1%}): "
            f"their time is over, by {expired.column} and {clock}, {output.moment(expired.at_ms)}"
        )


def _age_lines(ages: Ages) -> Iterator[tuple[object, ...]]:
    """Yield a line for each of the newest versions, and lines for those before them together."""
    changes = ages.last_changes
    older, newer = changes[:-_AGE_LINES], changes[-_AGE_LINES:]
    groups = [
        (f"in version {at.version}, {output.moment(at.committed_ms)}", at.keys) for at in reversed(newer)
    ]
    if older:
        first, last = older[0], older[-1]
        span = f"version {first.version}" if first is last else f"versions {first.version} to {last.version}"
        groups.append((f"in {span}, since {output.moment(first.committed_ms)}", sum(at.keys for at in older)))
    if ages.older:
        before = f"before version {changes[0].version}" if changes else "before all deltas"
        groups.append((before, ages.older))
    yield from ((name, keys, f"{keys / ages.keys:.1%}") for name, keys in groups)


def _recent_lines(statistics: Statistics) -> Iterator[tuple[object, ...]]:
    for at in statistics.recent:
        yield at.version, at.puts, at.removes, output.size(at.delta_bytes)


def parsed_key(state: State, texts: Sequence[str]) -> Any:
    """Return a key from texts: values in the order of the columns, or NAME=VALUE for each.

    Moments without a zone are in the zone that is shown.

    Raises:
        OptionError: as `key_columns`.
    """
    names = [name for name in state.columns.key_names if name not in state.view.hidden]
    pairs = [text.partition("=") for text in texts]
    if texts and all(equals and name in names for name, equals, _ in pairs):
        return _scalars(state, {name: value for name, _, value in pairs})
    if len(names) == 1 and len(texts) > 1:
        raise OptionError(f"a key has one column ({names[0]}), not {len(texts)}")
    return _scalars(state, tuple(texts))


def _scalars(state: State, key: Any) -> tuple[Any, ...]:
    columns = key_columns(state.view, key, zone(), moment_columns(state.view))
    return tuple(column[0] for column in columns)


@contextmanager
def metered(
    state: State, done: str, partitions: int | None = None, *, prints: bool = False
) -> Iterator[None]:
    """Show the progress of a reading of the state.

    Args:
        state: the state that is read.
        done: a participle, such as `read`.
        partitions: how many partitions are read; None is all.
        prints: True if rows are printed meanwhile; a terminal then shows nothing else.
    """
    if prints and sys.stdout.isatty():
        yield
        return
    with output.Meter(done, len(state.partitions) if partitions is None else partitions) as meter:
        state.follow(meter)
        yield
