"""`state-store diff`: changes between two versions of the state."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import click

from state_store.cli.command import MomentType
from state_store.cli.output import moment
from state_store.cli.rows.chosen import Chosen, metered, state_command
from state_store.cli.rows.formats import Units, format_options, limit_option, print_first
from state_store.data.dataset.moments import milliseconds_of
from state_store.data.dataset.sql import moment_columns

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
            return MomentType().convert(value, param, ctx)
        except click.BadParameter as error:
            self.fail(f"'{value}' is no version: give 41, batch:40 or a time; {error.message}", param, ctx)


@state_command(
    "diff",
    examples=(
        "/data/checkpoint 40 41",
        "/data/checkpoint batch:39 --json",
        "/data/checkpoint 2024-02-29T08:00:00 2024-02-29T09:00:00 --limit 0",
        "s3://bucket/checkpoint 1 41 --feed --format csv --output changes.csv",
    ),
)
@format_options
@limit_option
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
    with Chosen(checkpoint, operator, store, **by_time).open() as state:
        reader = state.changes(older) if feed else state.diff(older)
        since = older if isinstance(older, int) else f"at {moment(milliseconds_of(older))}"
        described = f"change from version {since} to version {state.version}"
        units = moment_columns(state.view)
        of_rows: Units = {**units, "before": units, "after": units}
        with metered(state, "read", prints=target is None):
            print_first(reader, reader.schema, form, target, limit, described, units if feed else of_rows)
