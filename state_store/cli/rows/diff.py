"""`state-store diff`: what changed between two versions of the state."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import click

from state_store.cli.rows.chosen import TIMES, Chosen, metered, state_command
from state_store.cli.rows.printed import format_options, limit_option, print_first


class _VersionName(click.ParamType):
    """A version by its number, by its batch or by a time."""

    name = "version"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        text = str(value)
        batch, _, number = text.rpartition("batch:")
        if number.isdecimal() and not batch:
            return int(number) + (1 if text != number else 0)
        try:
            return click.DateTime(TIMES).convert(value, param, ctx)
        except click.BadParameter:
            self.fail(
                f"'{text}' is no version: 41, batch:40 or a time such as 2024-02-29T08:00:00", param, ctx
            )


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
@click.option("--feed", is_flag=True, help="What each version wrote, instead of before and after.")
@click.argument("older", type=_VersionName(), metavar="OLDER")
@click.argument("newer", type=_VersionName(), required=False, metavar="[NEWER]")
def diff(
    checkpoint: str,
    operator: int,
    store: str,
    older: int | datetime,
    newer: int | datetime | None,
    form: str,
    target: str | None,
    limit: int | None,
    feed: bool,
) -> None:
    """Show what changed between two versions.

    Shows each key that was added, changed or removed after version OLDER (0: the empty state) and up to NEWER
    (default: the version that Spark committed last), with its values before and after. It reads the deltas;
    where one is gone, both versions. A version is given by its number, as batch:N, or as the newest at a time
    (UTC).
    """
    by_time = {"at": newer} if isinstance(newer, datetime) else {"version": newer}
    with Chosen(checkpoint, operator, store, **by_time).open() as state:
        reader = state.changes(older) if feed else state.diff(older)
        since = older if isinstance(older, int) else f"of {older}"
        told = f"changes from version {since} to version {state.version}"
        with metered(state, "read", prints=target is None):
            print_first(reader, reader.schema, form, target, limit, told)
