"""`state-store repair`: remove what nothing needs, make anew what the other files allow."""

from __future__ import annotations

from typing import Any

import click

from state_store.cli import exit_codes
from state_store.cli.command import query_command
from state_store.cli.output import number_column, output, print_json, print_table, size, text_column
from state_store.cli.progress import Meter
from state_store.cli.stores.at_once import stores_option
from state_store.cli.stores.repair_steps import REBUILD, Repair, repair_store
from state_store.core.settings.option_types import DURATION, at_least
from state_store.data.maintenance.descriptors import share
from state_store.data.query import Filter, Query

_AGE = at_least(DURATION, 3_600_000)
_COLUMNS = (
    text_column("store"),
    text_column("action"),
    text_column("file"),
    number_column("bytes"),
    text_column("why"),
)
_LEFT_COLUMNS = (text_column("store"), text_column("file"), text_column("problem that stays"))


def _age_ms(_ctx: click.Context, _parameter: click.Parameter, text: str) -> int:
    try:
        return int(_AGE.parse(text))
    except ValueError as error:
        raise click.BadParameter(f"{text!r} is not an age: {error}") from error


@query_command(
    "repair",
    examples=(
        "/data/checkpoint",
        "/data/checkpoint --apply",
        "s3://bucket/checkpoint --leaks-only --older-than 7d --apply --json",
    ),
)
@click.option("--apply/--dry-run", "apply", default=False, help="Do it. Default: say what would be done.")
@click.option(
    "--older-than",
    "older_than_ms",
    default="24h",
    show_default=True,
    metavar="AGE",
    callback=_age_ms,
    help="Younger files are not removed: somebody may be at work on them. At least 1h.",
)
@click.option("--leaks-only", is_flag=True, help="Read no file for damage; only remove what nothing needs.")
@click.option(
    "--discard",
    is_flag=True,
    help="Also remove damaged files that cannot be mended, where the version committed last needs none.",
)
@stores_option("worked on")
def repair(
    checkpoint: str,
    chosen: Filter,
    as_json: bool,
    apply: bool,
    older_than_ms: int,
    leaks_only: bool,
    discard: bool,
    stores: int,
) -> int:
    """Remove what nothing needs, and make damaged snapshots anew.

    Looks at every file as verify does. A snapshot that is damaged, or of which a file is damaged or gone, is
    made anew, as a full checkpoint of the same version, where an older snapshot and the deltas after it can
    make that version. Files that no version needs which can be restored, leases and tombstones of the dead
    and unfinished writes are removed once they are old. No version that can be restored goes. A damaged file
    that cannot be mended stays, since a copy may be put in its place; --discard removes it.

    Without --apply nothing is written. Works beside a running query, by the rules of its own clean-ups. Needs
    disk as full does where a snapshot is made anew. Exits with 1 where something is damaged that this does
    not mend, or, without --apply, would not mend.
    """
    query = Query.open(checkpoint)
    keys = query.stores(chosen)
    resources = share(stores)
    with Meter("repaired" if apply else "looked at", len(keys)) as meter:
        repairs = query.for_each(
            keys,
            lambda key, storage: repair_store(
                key,
                storage,
                lambda: query.committed().get(key),
                apply=apply,
                older_than_ms=older_than_ms,
                leaks_only=leaks_only,
                discard=discard,
                open_files=resources.open_files,
                meter=meter,
            ),
            at_once=resources.stores,
            meter=meter,
        )
    left = [one for repair in repairs for one in repair.left]
    if as_json:
        found: dict[str, Any] = {"checkpoint": query.location, "applied": apply, "ok": not left}
        print_json(found | {"stores": [repair.to_json() for repair in repairs]})
    else:
        _print(repairs, apply=apply)
    return exit_codes.of_findings(one.kind for one in left)


def _print(repairs: list[Repair], *, apply: bool) -> None:
    steps = [(repair.key, step) for repair in repairs for step in repair.steps]
    print_table(
        _COLUMNS,
        ((key, step.action, step.file, size(step.size_bytes), step.why) for key, step in steps),
    )
    for repair in repairs:
        if repair.skipped is not None:
            output().print(f"store {repair.key}: nothing is removed: {repair.skipped}")
    left = [one for repair in repairs for one in repair.left]
    if left:
        output().print()
        print_table(_LEFT_COLUMNS, ((one.key, one.file, one.what) for one in left))
    removed = sum(step.size_bytes for _, step in steps if step.action != REBUILD)
    done = f"{len(steps)} steps, {size(removed)} to remove"
    output().print(f"\n{done}: {'done' if apply else 'nothing was written; --apply does it'}")
