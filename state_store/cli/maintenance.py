"""Commands that keep a state whole: `verify`, `full` and `repair`.

`full` works on the files itself, or asks a REST API: that of a driver, or of `state-store serve`.
"""

from __future__ import annotations

import json
import textwrap
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click
from rich.text import Text

from state_store.cli import output
from state_store.cli.command import QueryStores, changing, query_command, spark_option, stores_option
from state_store.cli.process import ExitCode
from state_store.data.dataset.checkpoints import runs
from state_store.data.maintenance.full_checkpoints import COMPRESSIONS, FullCheckpoint, full_checkpoint
from state_store.data.maintenance.repair import REBUILD, Repair
from state_store.data.maintenance.repair import repair as repair_state
from state_store.data.maintenance.verification import Finding, Verdict
from state_store.data.maintenance.verification import verify as verify_state
from state_store.data.query.arguments import counted
from state_store.errors import BusyError, ErrorFields, MissingError, OptionError, StorageError, from_json

_VERDICT_COLUMNS = (
    output.text_column("store"),
    output.number_column("files"),
    output.number_column("bytes"),
    output.number_column("restored"),
    output.number_column("keys"),
    output.text_column("restorable"),
    output.text_column("verdict"),
)


_WIDTH = 80


_FINDING_COLUMNS = (output.text_column("store"), output.text_column("file"), output.text_column("problem"))


@query_command(
    "verify",
    examples=(
        "/data/checkpoint",
        "/data/checkpoint --all-versions --partition 0",
        "s3://bucket/checkpoint --json",
    ),
)
@click.option("--all-versions", is_flag=True, help="Restore every restorable version, not only the newest.")
@stores_option("read")
@spark_option
@click.option(
    "--leave-result/--no-leave-result",
    default=True,
    show_default=True,
    help="Leave the result in the checkpoint directory (_verified.json), where `doctor` and `serve` find it.",
)
def verify(
    selection: QueryStores,
    as_json: bool,
    all_versions: bool,
    stores: int,
    spark: Any,
    leave_result: bool,
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
    with selection.meter("verified") as meter:
        verification = verify_state(
            *selection,
            all_versions=all_versions,
            stores=stores,
            spark=spark,
            progress=meter,
            leave_result=leave_result,
        )
    if as_json:
        output.print_json(verification.to_json())
    else:
        _print_verdicts(verification.verdicts, verification.findings)
        if verification.not_left is not None:
            output.say(f"The result could not be left for `doctor` and `serve`: {verification.not_left}")
    return ExitCode.of_findings(finding.kind for finding in verification.findings)


def _print_verdicts(verdicts: Sequence[Verdict], findings: Sequence[Finding]) -> None:
    rows = (
        (
            verdict.key,
            verdict.files,
            output.size(verdict.bytes),
            verdict.restored.number if verdict.restored else "-",
            verdict.keys,
            runs(sorted({version.number for version in verdict.restorable})) or "-",
            _summary(verdict),
        )
        for verdict in verdicts
    )
    output.print_table(_VERDICT_COLUMNS, rows)
    for finding in () if output.is_wide() else findings:
        output.say(f"\n{finding.key or 'of Spark'}  {output.short_names(finding.file)}")
        output.say(_indented(output.short_names(finding.sentence())))
    if findings and output.is_wide():
        output.say()
        output.print_table(
            _FINDING_COLUMNS,
            ((finding.key or "of Spark", finding.file, finding.sentence()) for finding in findings),
        )
    output.say(f"\n{counted(len(findings), 'problem')}" if findings else "\nno problem found")


def _indented(text: str) -> str:
    return textwrap.fill(text, _WIDTH, initial_indent="  ", subsequent_indent="  ", break_long_words=False)


def _summary(verdict: Verdict) -> Text:
    if not verdict.findings:
        return Text("good", "green")
    if any(finding.is_bad for finding in verdict.findings):
        return Text("damaged", "red")
    return Text("not read", "yellow")


_FULL_COLUMNS = (
    output.text_column("store"),
    output.number_column("version"),
    output.number_column("keys"),
    output.number_column("files"),
    output.number_column("bytes"),
    output.number_column("chain"),
    output.number_column("its bytes"),
    output.number_column("ms"),
)


_REMOTE_COLUMNS = (
    output.text_column("store"),
    output.text_column("outcome"),
    output.number_column("version"),
    output.number_column("files"),
    output.number_column("bytes"),
    output.number_column("ms"),
    output.text_column("failure"),
)


@query_command(
    "full",
    optional=True,
    examples=(
        "/data/checkpoint",
        "hdfs://namenode/checkpoint --operator 0 --partition 1",
        "s3://bucket/checkpoint --stores 8 --compression lz4 --json",
        "--url http://driver:4040 --query flights",
    ),
)
@stores_option("worked on")
@spark_option
@click.option(
    "--compression",
    type=click.Choice(COMPRESSIONS),
    help="The option snapshotCompression of the query. Default: that of the newest snapshot.",
)
@click.option("--url", metavar="URL", help="Ask the driver (http://driver:4040) or a `serve` instead of DIR.")
@click.option("--query", "query_name", metavar="NAME", help="With --url: the query, if there are several.")
@click.option(
    "--trigger-id", metavar="ID", help="With --url: an id of your own; repeating it repeats no request."
)
@click.option(
    "--token-file",
    type=click.Path(path_type=Path),
    help="With --url: file with the token of `state-store serve`.",
)
def full(
    selection: QueryStores,
    as_json: bool,
    stores: int,
    compression: str | None,
    url: str | None,
    query_name: str | None,
    trigger_id: str | None,
    token_file: Path | None,
    spark: Any,
) -> int:
    """Make a full checkpoint now, which depends on no older file.

    The checkpoint is of the version that Spark committed last. All of its files are new, so later
    checkpoints depend on nothing older. It works beside the running query, which goes on from it, and on a
    stopped one. It needs disk space for twice the state of a partition in the directory of temporary files
    (TMPDIR), for each store worked on at once. A store that fails does not stop the others; the exit code is
    then that of its error.
    """
    if (not selection.checkpoint) == (url is None):
        raise OptionError("give either DIR or --url", option="--url")
    if url is not None:
        if compression is not None:
            raise OptionError("--compression is the query's own with --url", option="--compression")
        return _full_by_service(url, query_name, selection, trigger_id, token_file, as_json=as_json)
    if query_name or trigger_id or token_file:
        raise OptionError("--query, --trigger-id and --token-file belong to --url", option="--url")
    changing(if_interrupted="stores that were done keep their full checkpoints; the same command makes all")
    with selection.meter("full checkpoints") as meter:
        outcomes = full_checkpoint(
            *selection,
            stores=stores,
            compression=compression,
            on_failure="report",
            spark=spark,
            progress=meter,
        )
    if as_json:
        output.print_json(outcomes.to_json())
    else:
        if outcomes.made:
            output.print_table(_FULL_COLUMNS, map(_full_row, outcomes.made))
        for failure in outcomes.failed:
            output.print_error(failure.error, as_json=False)
    return ExitCode.of_kind(outcomes.failed[0].error.kind) if outcomes.failed else ExitCode.OK


def _full_row(checkpoint: FullCheckpoint) -> tuple[object, ...]:
    return (
        checkpoint.key,
        checkpoint.version.number,
        checkpoint.keys,
        checkpoint.files,
        output.size(checkpoint.bytes),
        counted(checkpoint.chain_files, "file"),
        output.size(checkpoint.chain_bytes),
        checkpoint.ms,
    )


def _full_by_service(
    url: str,
    query: str | None,
    selection: QueryStores,
    trigger_id: str | None,
    token_file: Path | None,
    *,
    as_json: bool,
) -> int:
    token = None
    if token_file is not None:
        try:
            token = token_file.read_text(encoding="utf-8").strip()
        except (OSError, UnicodeDecodeError) as error:
            raise OptionError(f"the token cannot be read: {error}", option="--token-file") from None
    service = RemoteService(url, token)
    changing(if_interrupted="what the service was asked for goes on there")
    operation = service.full(service.query(query), selection, trigger_id)
    if as_json:
        output.print_json(operation)
    else:
        output.print_table(_REMOTE_COLUMNS, map(_remote_row, operation["stores"]))
        if "failure" in operation:
            output.print_error(from_json(operation["failure"]), as_json=False)
    return ExitCode.PROBLEM if "failure" in operation else ExitCode.OK


def _remote_row(outcome: dict[str, Any]) -> tuple[object, ...]:
    failure = outcome.get("failure")
    return (
        f"{outcome['operator']}/{outcome['partition']}/{outcome['store']}",
        outcome["outcome"],
        outcome.get("version", "-"),
        outcome.get("files", "-"),
        output.size(outcome["bytes"]) if "bytes" in outcome else "-",
        outcome.get("duration_ms", "-"),
        failure["message"] if failure else "",
    )


PLACES = ("/v1", "/checkpoints/api/v1")
"""Places of the API below an address: of `serve`, and of a driver."""


POLL_S = 0.5


POLL_PATIENCE_S = 60.0
"""Seconds for which a request that was accepted is asked about although nothing answers."""


REQUEST_TIMEOUT_S = 30.0


class RemoteService:
    """A client of the REST API.

    Args:
        url: address of the program (`http://driver:4040`), or of its API.
        token: the token of `state-store serve`, if it has one.

    Raises:
        OptionError: the address is not one of HTTP, or the service needs a token.
        MissingError: no such API is there.
        StorageError: nothing answers.
    """

    def __init__(self, url: str, token: str | None = None) -> None:
        if urllib.parse.urlsplit(url).scheme not in ("http", "https"):
            raise OptionError(f"'{url}' is not an address such as http://driver:4040", option="--url")
        self._token = token
        base = url.rstrip("/")
        for place in ("", *PLACES) if base.endswith("/v1") else PLACES:
            try:
                description = self._ask("GET", base + place)
            except MissingError:
                continue
            if isinstance(description, dict) and description.get("api") == "v1":
                self._base = base + place
                return
        raise MissingError(f"no REST API of this state store answers at {url}")

    def query(self, name: str | None) -> str:
        """Return the name of the query that is meant; without one, that of the only query.

        Raises:
            OptionError: there are several queries, and no name was given.
            MissingError: there is none.
        """
        names = [member["name"] for member in self._ask("GET", f"{self._base}/queries")["queries"]]
        if name is not None:
            return name
        if len(names) == 1:
            return str(names[0])
        if not names:
            raise MissingError("no query with this state store is known there")
        raise OptionError(
            f"there are several queries: choose one with --query: {', '.join(names)}", option="--query"
        )

    def full(self, query: str, selection: QueryStores, trigger_id: str | None = None) -> dict[str, Any]:
        """Request a full checkpoint and wait until it has ended.

        Args:
            query: name of the query.
            selection: the stores.
            trigger_id: the caller's own id, which makes the request idempotent.

        Returns:
            The operation, as docs/rest.md has it.

        Raises:
            MissingError: there is no such query or store, or the program has forgotten the request.
            OptionError: the user may not request it.
            StorageError: nothing answers, for a minute if the request was accepted.
        """
        fields = {
            "checkpointType": "FULL",
            "operator": selection.operator,
            "partition": selection.partition,
            "store": selection.name,
            "triggerId": trigger_id,
        }
        body = {name: value for name, value in fields.items() if value is not None}
        address = f"{self._base}/queries/{urllib.parse.quote(query, safe='')}/checkpoints"
        request_id = self._ask("POST", address, body)["request-id"]
        heard_s = time.monotonic()
        while True:
            try:
                operation = self._ask("GET", f"{address}/triggers/{urllib.parse.quote(request_id, safe='')}")
            except (StorageError, BusyError) as error:
                if time.monotonic() - heard_s > POLL_PATIENCE_S:
                    raise StorageError(
                        f"request {request_id} was accepted, but its outcome is not known: {error.message}"
                    ) from error
            else:
                heard_s = time.monotonic()
                if operation["status"]["id"] == "COMPLETED":
                    return dict(operation)
            time.sleep(POLL_S)

    def _ask(self, method: str, url: str, body: dict[str, Any] | None = None) -> Any:
        request = urllib.request.Request(url, method=method)
        if self._token is not None:
            request.add_header("Authorization", f"Bearer {self._token}")
        data = None
        if body is not None:
            request.add_header("Content-Type", "application/json")
            data = json.dumps(body).encode()
        try:
            with urllib.request.urlopen(request, data, timeout=REQUEST_TIMEOUT_S) as answer:
                return json.loads(answer.read())
        except urllib.error.HTTPError as error:
            raise _problem(error, url) from None
        except (OSError, urllib.error.URLError) as error:
            raise StorageError(f"{url} does not answer: {error}") from error
        except ValueError:
            raise MissingError(f"{url} answers with something that is not JSON") from None


def _problem(error: urllib.error.HTTPError, url: str) -> Exception:
    try:
        document = json.loads(error.read())
        detail, kind = str(document["detail"]), str(document["kind"])
    except (OSError, ValueError, KeyError, TypeError):
        detail = f"{url} answers {error.code}"
        kind = {401: "option", 403: "option", 404: "missing"}.get(error.code, "storage")
        if kind == "option":
            detail += ": this user may not ask there"
    fields: ErrorFields = {"kind": kind, "message": detail}
    return from_json(fields)


_STEP_COLUMNS = (
    output.text_column("store"),
    output.text_column("action"),
    output.text_column("file"),
    output.number_column("bytes"),
    output.text_column("why"),
)


_LEFT_COLUMNS = (
    output.text_column("store"),
    output.text_column("file"),
    output.text_column("problem that stays"),
)


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
    selection: QueryStores,
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
    with selection.meter("repaired" if apply else "examined") as meter:
        repairs = repair_state(
            *selection,
            apply=apply,
            older_than=older_than,
            leaks_only=leaks_only,
            discard=discard,
            stores=stores,
            spark=spark,
            progress=meter,
        )
    if as_json:
        output.print_json(repairs.to_json())
    else:
        _print_repairs(repairs.repairs, apply=apply)
    return ExitCode.of_findings(finding.kind for finding in repairs.left)


def _print_repairs(repairs: Sequence[Repair], *, apply: bool) -> None:
    steps = [(repair.key, step) for repair in repairs for step in repair.steps]
    if steps:
        output.print_table(
            _STEP_COLUMNS,
            ((key, step.action, step.file, output.size(step.size_bytes), step.why) for key, step in steps),
        )
    for repair in repairs:
        if repair.skipped is not None:
            output.say(f"store {repair.key}: nothing is removed: {repair.skipped}")
        if repair.undecided is not None:
            output.say(f"store {repair.key}: nothing is discarded: {repair.undecided}")
    findings = [finding for repair in repairs for finding in repair.left]
    if findings:
        output.print_table(
            _LEFT_COLUMNS, ((finding.key, finding.file, finding.sentence()) for finding in findings)
        )
        output.say(f"\n{_ADVICE_DAMAGED if any(finding.is_bad for finding in findings) else _ADVICE_UNREAD}")
    if not steps:
        output.say("nothing can be done" if findings else "nothing to do")
        return
    removed = sum(step.size_bytes for _, step in steps if step.action != REBUILD)
    done = f"{counted(len(steps), 'step')}, {output.size(removed)} to remove"
    output.say(f"\n{done}: {'done' if apply else 'nothing was written; --apply does it'}")
