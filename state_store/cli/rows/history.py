"""`state-store history`: the state of a key over the versions."""

from __future__ import annotations

from collections.abc import Sequence

import click

from state_store.cli.output import moment_cells, number_column, print_json, print_table, say, text_column
from state_store.cli.rows.cells import cell, plain
from state_store.cli.rows.chosen import Chosen, metered, parsed_key, state_command, version_options
from state_store.cli.rows.formats import DOCUMENT, format_options, print_rows
from state_store.data.dataset.history import KeyVersion
from state_store.data.dataset.sql import moment_columns
from state_store.data.dataset.state import State


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
@click.option("--every", is_flag=True, help="Show versions that did not write the key, too.")
@click.argument("key", nargs=-1, required=True, metavar="KEY...")
def history(chosen: Chosen, form: str, target: str | None, every: bool, key: Sequence[str]) -> None:
    """Show the state of a key over the versions.

    Shows each version that wrote the key, oldest first, as far back as deltas go. KEY is as for get. With
    --format, rows have the columns version, batch, committed and change before those of the state; change is
    put, removed, or null if the version did not write the key.
    """
    with chosen.open() as state:
        given = parsed_key(state, key)
        if target is not None or form not in ("table", DOCUMENT):
            with metered(state, "read", 1):
                found = state.history_rows(given, every=every)
            print_rows(iter(found.to_batches()), found.schema, form, target)
            return
        with metered(state, "read", 1):
            known = state.history(given)
        versions = [version for version in known if every or version.is_changed]
        if form == DOCUMENT:
            print_json([{**_json(version), "row": plain(_value(state, version))} for version in versions])
            return
        _print(state, versions)
        if not versions and any(version.rows for version in known):
            say("\nno version of which the delta is there wrote the key; --every shows its state in them")


def _json(at: KeyVersion) -> dict[str, object]:
    return {
        "version": at.version,
        "batch": at.version - 1,
        "committed_ms": at.committed_ms,
        "is_changed": at.is_changed,
    }


def _value(state: State, version: KeyVersion) -> object:
    """Return the row of a key at a version, or the rows of a list; None if it has none."""
    return version.row if state.has_one_row_a_key else version.rows or None


def _print(state: State, versions: Sequence[KeyVersion]) -> None:
    committed, times = moment_cells("committed", [version.committed_ms for version in versions])
    headings = (number_column("version"), number_column("batch"), committed, text_column("state"))
    states = (_state(state, version) for version in versions)
    rows = ((at.version, at.version - 1, time, shown) for at, time, shown in zip(versions, times, states))
    print_table(headings, rows, cut=True)


def _state(state: State, version: KeyVersion) -> object:
    names = [field.name for field in state.columns.value_fields]
    rows = [{name: row[name] for name in names} for row in version.rows]
    shown = rows[0] if rows and state.has_one_row_a_key else rows
    return cell(shown, moment_columns(state.view)) if rows else "(none)"
