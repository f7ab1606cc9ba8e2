"""`state-store repair`: remove files that nothing needs, and make damaged snapshots anew."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import click

from state_store.cli import exit_codes
from state_store.cli.command import changing, query_command, stores_option
from state_store.cli.output import number_column, print_json, print_table, say, size, text_column
from state_store.cli.progress_display import Meter
from state_store.cli.spark_session import spark_option
from state_store.data.maintenance.repair import REBUILD, Repair
from state_store.data.maintenance.repair import repair as repair_state
from state_store.data.query import Filter, Query
from state_store.data.query.arguments import counted

_COLUMNS = (
    text_column("store"),
    text_column("action"),
    text_column("file"),
    number_column("bytes"),
    text_column("why"),
)
_LEFT_COLUMNS = (text_column("store"), text_column("file"), text_column("problem that stays"))

_ADVICE_DAMAGED = (
    "These problems stay. Put undamaged copies in place of the files if there are any. Otherwise restart the "
    "query from a version that can be restored; --discard removes damaged files that the newest version does "
    "not need."
)
_ADVICE_UNREAD = (
    "The storage did not let these files be read, so nothing is known of them: run this again later."
)


@query_command(
    "repair",
    examples=(
        "/data/checkpoint",
        "/data/checkpoint --apply",
        "s3://bucket/checkpoint --leaks-only --older-than 7d --apply --json",
    ),
)
@click.option(
    "--apply/--dry-run", "apply", default=False, help="Make the changes. Default: print what would be done."
)
@click.option(
    "--older-than",
    default="24h",
    show_default=True,
    metavar="AGE",
    help="Younger files are not removed: somebody may be at work on them. At least 1h.",
)
@click.option(
    "--leaks-only", is_flag=True, help="Read no file for damage; only remove files that nothing needs."
)
@click.option(
    "--discard",
    is_flag=True,
    help="Also remove damaged files that cannot be mended, if the version committed last needs none.",
)
@stores_option("worked on")
@spark_option
def repair(
    checkpoint: str,
    chosen: Filter,
    as_json: bool,
    apply: bool,
    older_than: str,
    leaks_only: bool,
    discard: bool,
    stores: int,
    spark: Any,
) -> int:
    """Remove files that nothing needs, and repair snapshots.

    Looks at every file as verify does. If a snapshot is damaged, or a file of it is damaged or gone, the
    command makes it anew from an older snapshot and the deltas after it, as a full checkpoint of the same
    version. It removes files that no restorable version needs, leases and tombstones of dead processes, and
    unfinished writes, once they are old. It removes no restorable version. A damaged file that cannot be
    mended stays, since a copy may be put in its place; --discard removes it.

    Without --apply nothing is written. The command works beside a running query, by the rules of its own
    clean-ups. To make a snapshot anew it needs as much disk as full does. It exits with 1 if damage remains
    that it does not mend, or, without --apply, would not mend.
    """
    if apply:
        changing(
            if_interrupted="stores that were done stay repaired; the same command goes on with the others"
        )
    with Meter("repaired" if apply else "examined", len(Query.open(checkpoint).stores(chosen))) as meter:
        repairs = repair_state(
            checkpoint,
            chosen.operator,
            chosen.partition,
            chosen.name,
            apply=apply,
            older_than=older_than,
            leaks_only=leaks_only,
            discard=discard,
            stores=stores,
            spark=spark,
            progress=meter,
        )
    if as_json:
        print_json(repairs.to_json())
    else:
        _print(repairs.repairs, apply=apply)
    return exit_codes.of_findings(finding.kind for finding in repairs.left)


def _print(repairs: Sequence[Repair], *, apply: bool) -> None:
    steps = [(repair.key, step) for repair in repairs for step in repair.steps]
    if steps:
        print_table(
            _COLUMNS,
            ((key, step.action, step.file, size(step.size_bytes), step.why) for key, step in steps),
        )
    for repair in repairs:
        if repair.skipped is not None:
            say(f"store {repair.key}: nothing is removed: {repair.skipped}")
        if repair.undecided is not None:
            say(f"store {repair.key}: nothing is discarded: {repair.undecided}")
    left = [finding for repair in repairs for finding in repair.left]
    if left:
        print_table(_LEFT_COLUMNS, ((finding.key, finding.file, finding.sentence()) for finding in left))
        say(f"\n{_ADVICE_DAMAGED if any(finding.is_bad for finding in left) else _ADVICE_UNREAD}")
    if not steps:
        say("nothing can be done" if left else "nothing to do")
        return
    removed = sum(step.size_bytes for _, step in steps if step.action != REBUILD)
    done = f"{counted(len(steps), 'step')}, {size(removed)} to remove"
    say(f"\n{done}: {'done' if apply else 'nothing was written; --apply does it'}")
