"""`state-store doctor`: the verdict on a query in one look, worst finding first."""

from __future__ import annotations

import click

from state_store.cli import exit_codes
from state_store.cli.command import DIRECTORY, command, directory_argument, json_option
from state_store.cli.output import print_json, say
from state_store.observe.doctor import doctor as examine
from state_store.observe.model.declared import to_json
from state_store.observe.model.rules import FINE, NOTE


@command(
    "doctor",
    examples=("/data/checkpoint", "s3://bucket/checkpoint --restore-objective 30s --json"),
    note=DIRECTORY,
)
@directory_argument
@click.option(
    "--restore-objective",
    metavar="TIME",
    help="The longest acceptable restore, with which predictions are compared; 0: none. Default: the query's "
    "restoreObjective, as its newest merge found it.",
)
@json_option
def doctor(checkpoint: str, restore_objective: str | None, as_json: bool) -> int:
    """Say what is wrong with a query's checkpoints, and what to do.

    Findings come worst first. Looks at listings, at archives of snapshots and at what `verify` found last;
    `verify` reads every file. Exits with 1 if something is wrong; notes do not count. Works beside the
    running query and on a stopped one, of which it warns after 15 minutes without a checkpoint.
    """
    examination = examine(checkpoint, restore_objective=restore_objective)
    verdict, look = examination.verdict, examination.look
    if as_json:
        shown = {"checkpoint": checkpoint, "verdict": to_json(verdict)}
        if look is not None:
            shown["batch"] = look.batch
            shown["verified"] = look.verified.to_json()
            shown["stores"] = to_json(list(look.stores))
        print_json(shown)
    else:
        is_fine = verdict.severity == FINE
        say(verdict.sentence if is_fine else f"{checkpoint}:")
        for finding in verdict.findings:
            say(f"\n{finding.severity}: {finding.sentence}\n  {finding.remedy}\n  See {finding.link}")
    return exit_codes.OK if verdict.severity in (FINE, NOTE) else exit_codes.PROBLEM
