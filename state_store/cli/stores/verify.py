"""`state-store verify`: are all files whole, and can the checkpoints be restored?"""

from __future__ import annotations

import click
from rich.text import Text

from state_store.cli import exit_codes
from state_store.cli.command import query_command
from state_store.cli.output import (
    number_column,
    output,
    print_json,
    print_table,
    runs,
    size,
    text_column,
)
from state_store.cli.progress import Meter
from state_store.cli.stores.at_once import stores_option
from state_store.cli.stores.verification import Finding, Verdict, verify_store
from state_store.data.maintenance.descriptors import share
from state_store.data.query import Filter, Query

_COLUMNS = (
    text_column("store"),
    number_column("files"),
    number_column("bytes"),
    number_column("restored"),
    number_column("keys"),
    text_column("restorable"),
    text_column("verdict"),
)
_FINDING_COLUMNS = (text_column("store"), text_column("file"), text_column("problem"))


@query_command(
    "verify",
    examples=(
        "/data/checkpoint",
        "/data/checkpoint --all-versions --partition 0",
        "s3://bucket/checkpoint --json",
    ),
)
@click.option("--all-versions", is_flag=True, help="Restore every restorable version, not the newest alone.")
@stores_option("read")
def verify(
    checkpoint: str,
    chosen: Filter,
    as_json: bool,
    all_versions: bool,
    stores: int,
) -> int:
    """Check all files and restore the newest checkpoint.

    Reads every file of the state, compares it with its checksum, checks that full checkpoints share nothing
    with older ones, and restores the version that Spark committed last into a temporary directory. Exits with
    1 when anything is wrong, with 4 when all that is wrong is that the storage failed. Beside a running
    query, what a clean-up removed meanwhile is looked at again before it is called a problem. Needs disk for
    the state of a partition in the directory of temporary files (TMPDIR), for each store read at once, and
    writes nothing to checkpoint storage.
    """
    query = Query.open(checkpoint)
    keys = query.stores(chosen)
    resources = share(stores)
    with Meter("verified", len(keys)) as meter:
        verdicts = query.for_each(
            keys,
            lambda key, storage: verify_store(
                key,
                storage,
                lambda: query.committed().get(key),
                every=all_versions,
                open_files=resources.open_files,
                meter=meter,
            ),
            at_once=resources.stores,
            meter=meter,
        )
    findings = [one for verdict in verdicts for one in verdict.findings]
    if as_json:
        found = [verdict.to_json() for verdict in verdicts]
        print_json({"checkpoint": query.location, "ok": not findings, "stores": found})
    else:
        _print(verdicts, findings)
    return exit_codes.of_findings(one.kind for one in findings)


def _print(verdicts: list[Verdict], findings: list[Finding]) -> None:
    rows = (
        (
            one.key,
            one.files,
            size(one.bytes),
            one.restored.number if one.restored else "-",
            one.keys,
            runs(sorted({version.number for version in one.restorable})) or "-",
            Text("damaged", "red") if one.findings else Text("good", "green"),
        )
        for one in verdicts
    )
    print_table(_COLUMNS, rows)
    if findings:
        output().print()
        print_table(_FINDING_COLUMNS, ((one.key, one.file, one.what) for one in findings))
    output().print(f"\n{len(findings)} problems" if findings else "\nno problem found")
