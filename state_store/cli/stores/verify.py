"""`state-store verify`: check that all files are whole, and that checkpoints can be restored."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from typing import Any

import click
from rich.text import Text

from state_store.cli import exit_codes
from state_store.cli.command import query_command, stores_option
from state_store.cli.output import (
    number_column,
    print_json,
    print_table,
    say,
    short_names,
    size,
    text_column,
    wide_option,
)
from state_store.cli.progress_display import Meter
from state_store.cli.spark_session import spark_option
from state_store.data.maintenance.files import runs
from state_store.data.maintenance.verification import verify as verify_state
from state_store.data.maintenance.verified import Finding, Verdict
from state_store.data.query import Filter, Query
from state_store.data.query.arguments import counted

_COLUMNS = (
    text_column("store"),
    number_column("files"),
    number_column("bytes"),
    number_column("restored"),
    number_column("keys"),
    text_column("restorable"),
    text_column("verdict"),
)
_WIDTH = 80
_FINDING_COLUMNS = (text_column("store"), text_column("file"), text_column("problem"))


@query_command(
    "verify",
    examples=(
        "/data/checkpoint",
        "/data/checkpoint --all-versions --partition 0",
        "s3://bucket/checkpoint --json",
    ),
)
@click.option("--all-versions", is_flag=True, help="Restore every restorable version, not only the newest.")
@wide_option
@stores_option("read")
@spark_option
@click.option(
    "--leave-result/--no-leave-result",
    default=True,
    show_default=True,
    help="Leave the result in the checkpoint directory (_verified.json), where `doctor` and `serve` find it.",
)
def verify(
    checkpoint: str,
    chosen: Filter,
    as_json: bool,
    all_versions: bool,
    stores: int,
    spark: Any,
    leave_result: bool,
    wide: bool,
) -> int:
    """Check all files and restore the newest checkpoint.

    Reads every file of the state, compares it with its checksum, checks that full checkpoints share nothing
    with older ones, and restores the version that Spark committed last into a temporary directory. The exit
    code is 1 if anything is wrong, and 4 if nothing but the storage failed. A problem is shown with shortened
    names of files; --wide shows them whole, in a table. Beside a running
    query, a file that a clean-up removed meanwhile is looked for again before it is called a problem. The
    command needs disk for the state of a partition in the directory of temporary files (TMPDIR), for each
    store read at once. It writes one file to checkpoint storage, the result; a user who may not write there
    is told so and loses nothing else.
    """
    with Meter("verified", len(Query.open(checkpoint).stores(chosen))) as meter:
        verification = verify_state(
            checkpoint,
            chosen.operator,
            chosen.partition,
            chosen.name,
            all_versions=all_versions,
            stores=stores,
            spark=spark,
            progress=meter,
            leave_result=leave_result,
        )
    if as_json:
        print_json(verification.to_json())
    else:
        _print(verification.verdicts, verification.findings, wide=wide)
        if verification.not_left is not None:
            say(f"The result could not be left for `doctor` and `serve`: {verification.not_left}")
    return exit_codes.of_findings(finding.kind for finding in verification.findings)


def _print(verdicts: Sequence[Verdict], findings: Sequence[Finding], *, wide: bool) -> None:
    rows = (
        (
            verdict.key,
            verdict.files,
            size(verdict.bytes),
            verdict.restored.number if verdict.restored else "-",
            verdict.keys,
            runs(sorted({version.number for version in verdict.restorable})) or "-",
            _summary(verdict),
        )
        for verdict in verdicts
    )
    print_table(_COLUMNS, rows)
    for finding in () if wide else findings:
        say(f"\n{finding.key or 'of Spark'}  {short_names(finding.file)}")
        say(_indented(short_names(finding.sentence())))
    if findings and wide:
        say()
        print_table(
            _FINDING_COLUMNS,
            ((finding.key or "of Spark", finding.file, finding.sentence()) for finding in findings),
        )
    say(f"\n{counted(len(findings), 'problem')}" if findings else "\nno problem found")


def _indented(text: str) -> str:
    return textwrap.fill(text, _WIDTH, initial_indent="  ", subsequent_indent="  ", break_long_words=False)


def _summary(verdict: Verdict) -> Text:
    if not verdict.findings:
        return Text("good", "green")
    if any(finding.is_bad for finding in verdict.findings):
        return Text("damaged", "red")
    return Text("not read", "yellow")
