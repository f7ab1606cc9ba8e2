"""`state-store history`: the state of a key over the versions."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import click

from state_store.cli.output import moment, number_column, print_json, print_table, text_column
from state_store.cli.rows.chosen import Chosen, metered, parsed_key, state_command, version_options
from state_store.cli.rows.printed import DOCUMENT, cell, format_options, plain, print_rows
from state_store.data.dataset.history import KeyVersion
from state_store.data.dataset.state import State

_COLUMNS = (number_column("version"), number_column("batch"), text_column("committed"), text_column("state"))


@state_command(
    "history",
    examples=(
        "/data/checkpoint AA",
        "/data/checkpoint carrier=AA day=2024-02-29 --json",
        "/data/checkpoint AA --every --format csv --output AA.csv",
    ),
)
@version_options
@format_options
@click.option("--every", is_flag=True, help="Versions that did not write the key, too.")
@click.argument("key", nargs=-1, required=True, metavar="KEY...")
def history(
    chosen: Chosen,
    form: str,
    target: str | None,
    every: bool,
    key: Sequence[str],
) -> None:
    """Show the state of a key over the versions.

    Shows each version that wrote the key, oldest first, as far back as deltas go. KEY is as for get. With
    --format, rows have the columns version, batch, committed and change (put, removed, or nothing where the
    version did not write the key) before those of the state.
    """
    with chosen.open() as state:
        given = parsed_key(state, key)
        if target is not None or form not in ("table", DOCUMENT):
            with metered(state, "read", 1):
                found = state.history_rows(given, every=every)
            print_rows(iter(found.to_batches()), found.schema, form, target)
            return
        with metered(state, "read", 1):
            versions = [one for one in state.history(given) if every or one.is_changed]
        if form == DOCUMENT:
            print_json([{**_json(one), "row": plain(_value(state, one))} for one in versions])
        else:
            print_table(_COLUMNS, _cells(state, versions))


def _json(at: KeyVersion) -> dict[str, object]:
    return {
        "version": at.version,
        "batch": at.version - 1,
        "committed_ms": at.committed_ms,
        "is_changed": at.is_changed,
    }


def _value(state: State, one: KeyVersion) -> object:
    """The row of a key at a version, or the rows of a list; None where it has none."""
    return one.row if state.has_one_row_a_key else one.rows or None


def _cells(state: State, versions: Sequence[KeyVersion]) -> Iterator[tuple[object, ...]]:
    shown = [field.name for field in state.columns.value_fields]
    for at in versions:
        rows = [{name: row[name] for name in shown} for row in at.rows]
        value = "(none)" if not rows else cell(rows[0] if state.has_one_row_a_key else rows)
        yield at.version, at.version - 1, moment(at.committed_ms), value
