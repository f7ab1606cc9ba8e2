"""`state-store estimate`: storage, merges, restores and memory of a query that runs or is planned."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import click

from state_store.cli.command import (
    DIRECTORY,
    NUMBER,
    Location,
    Number,
    OptionValue,
    WholeNumber,
    command,
    json_option,
    store_option,
)
from state_store.cli.output import Meter, number_column, print_json, print_table, say, size, text_column
from state_store.core.planning.cost import CostModel, Transfers
from state_store.core.settings.option import BYTES, DURATION
from state_store.data.estimation.estimate import HIT_RATIO, RETAIN, Estimate, ToolTime, estimate, in_time
from state_store.data.estimation.measured import DEFAULT_INTERVAL_MS, Measured, measure
from state_store.data.estimation.simulation import PARTITIONS, Prices, Workload
from state_store.data.query import Filter, Query
from state_store.data.query.arguments import counted, require_arrow
from state_store.errors import OptionError

_COLUMNS = (text_column(""), number_column("now"), number_column("on average"), number_column("at most"))
_TOOL_COLUMNS = (
    text_column("tool"),
    number_column("one core"),
    number_column("tasks"),
    number_column("the job"),
    number_column("memory a task"),
    number_column("TMPDIR a task"),
)
_MIB = 1 << 20
_NOTE = f"""\
{DIRECTORY} Without it,
--keys, --key-bytes, --value-bytes and --updates-per-batch or --update-share describe the writes of a query
that is planned. Numbers are those of all partitions together; a restore is that of one of them."""


@dataclass(frozen=True)
class Planned:
    """The numbers of a query that has not run, as the user gives them."""

    keys: float | None
    key_bytes: float | None
    value_bytes: float | None
    updates: float | None
    share: float | None
    new: float | None
    zipf: float | None
    interval_ms: int | None
    partitions: int | None

    def workload(self) -> Workload:
        """Return the workload. Raise OptionError if a number is missing, or is given twice."""
        updates = self.updates
        if updates is not None and self.share is not None:
            raise OptionError("--updates-per-batch and --update-share are mutually exclusive: give one")
        if updates is None and self.share is not None and self.keys is not None:
            updates = self.share * self.keys
        if self.keys is None or self.key_bytes is None or self.value_bytes is None or updates is None:
            raise OptionError(
                "without DIR an estimate needs --keys, --key-bytes, --value-bytes, and --updates-per-batch "
                "or --update-share"
            )
        return Workload(
            self.keys,
            self.key_bytes,
            self.value_bytes,
            updates,
            DEFAULT_INTERVAL_MS if self.interval_ms is None else self.interval_ms,
            self.partitions or PARTITIONS,
            self.new or 0.0,
            zipf=self.zipf or 0.0,
        )

    def check_unused(self) -> None:
        """Raise OptionError if a number is given, since the files of a checkpoint have it."""
        names = [name for name, value in asdict(self).items() if value is not None]
        if names:
            raise OptionError(f"the files of DIR have these numbers: leave out {', '.join(names)}")


@command(
    "estimate",
    examples=(
        "/data/checkpoint",
        "/data/checkpoint --retain 5 --full-every 50 --objective 5s",
        "--keys 50e6 --key-bytes 24 --value-bytes 120 --update-share 0.01 --interval 30s",
        "--keys 1e6 --key-bytes 16 --value-bytes 8 --updates-per-batch 5e4 --zipf 1 --json",
    ),
    note=_NOTE,
)
@click.option("--keys", type=Number(1, 1e13), metavar="N", help="Number of keys in the state at any time.")
@click.option(
    "--key-bytes", type=Number(0, 1 << 30), metavar="N", help="Bytes of an encoded key; a long has 16."
)
@click.option(
    "--value-bytes", type=Number(0, 1 << 30), metavar="N", help="Bytes of an encoded value; a long has 16."
)
@click.option(
    "--updates-per-batch", "updates", type=Number(0, 1e13), metavar="N", help="Keys that a batch writes."
)
@click.option(
    "--update-share",
    "share",
    type=Number(0, 1),
    metavar="SHARE",
    help="Keys that a batch writes, as a share of all.",
)
@click.option(
    "--new-per-batch",
    "new",
    type=Number(0, 1e13),
    metavar="N",
    help="Keys among these that were not there before.",
)
@click.option(
    "--zipf", type=Number(0, 10), metavar="S", help="Exponent of Zipf's law by which keys are written."
)
@click.option(
    "--interval",
    "interval_ms",
    type=OptionValue(DURATION, 1, 366 * 86_400_000),
    help="Time from batch to batch; default: 10s.",
)
@click.option(
    "--partitions",
    type=WholeNumber(1, 1_000_000),
    metavar="N",
    help=f"Partitions; default: {PARTITIONS}.",
)
@click.option(
    "--operator", type=NUMBER, default=0, show_default=True, metavar="N", help="The operator in DIR."
)
@store_option(
    "The store in DIR. Default: the only one, left, or the first variable, "
    "which stands for all of its operator."
)
@click.option(
    "--retain",
    type=WholeNumber(1, 100_000),
    metavar="N",
    help=f"Spark's minBatchesToRetain; default: that of DIR, or {RETAIN}.",
)
@click.option("--full-every", metavar="N", help="The option fullAfterDeltas.")
@click.option("--objective", metavar="TIME", help="The option restoreObjective.")
@click.option("--option", "options", multiple=True, metavar="NAME=VALUE", help="Any option of the store.")
@click.option(
    "--hit-ratio",
    type=click.FloatRange(0, 1, min_open=True),
    default=HIT_RATIO,
    show_default=True,
    metavar="SHARE",
    help="The share of look-ups that find their row in memory.",
)
@click.option(
    "--executors",
    type=WholeNumber(1, 1_000_000),
    default=1,
    show_default=True,
    metavar="N",
    help="Executors that share the partitions.",
)
@click.option(
    "--executor-cores",
    type=WholeNumber(1, 1_024),
    default=1,
    show_default=True,
    metavar="N",
    help="Cores of each executor, on which tools run as jobs.",
)
@click.option(
    "--fetch-rate",
    type=OptionValue(BYTES, 1, 1 << 50),
    help="Bytes a second from storage; default: 200m, or as measured in DIR.",
)
@click.option(
    "--prices",
    type=(click.FloatRange(0), click.FloatRange(0), click.FloatRange(0)),
    default=(Prices.puts, Prices.gets, Prices.gigabyte_months),
    show_default=True,
    metavar="PUT GET GB",
    help="Dollars for 1,000 PUT or LIST requests, for 1,000 GET requests, and for a GB a month.",
)
@json_option
@click.argument("checkpoint", metavar="[DIR]", required=False, type=Location())
def estimate_command(
    checkpoint: str | None,
    operator: int,
    store: str | None,
    retain: int | None,
    full_every: str | None,
    objective: str | None,
    options: Sequence[str],
    hit_ratio: float,
    executors: int,
    executor_cores: int,
    fetch_rate: int | None,
    prices: tuple[float, float, float],
    as_json: bool,
    **planned: Any,
) -> None:
    """Estimate storage, memory and restore times of a query.

    Estimates the bytes and files that a query has in checkpoint storage in the long run, its uploads, its
    merges, the time of a restore, the memory that it needs, and the time that the tools on state take as jobs
    of its executors. Describe a planned query by its numbers, or
    give the DIR of a query that has run, which is measured by its files. All options have their defaults
    unless they are given. The estimate simulates the decisions of the agent batch by batch, until they
    repeat.
    """
    numbers, measured = Planned(**planned), None
    if checkpoint is not None:
        numbers.check_unused()
        require_arrow()
        with Meter("measured", len(Query.open(checkpoint).stores(Filter(operator)))) as meter:
            measured = measure(checkpoint, operator, store, progress=meter)
    cost = None if measured is None else measured.cost
    if fetch_rate:
        cost = CostModel(transfers=Transfers(0.5, 1000 * _MIB / fetch_rate))
    workload = numbers.workload() if measured is None else measured.workload
    with Meter("simulated", 1, unit="batches") as meter:
        estimated = estimate(
            workload,
            _options(options, fullAfterDeltas=full_every, restoreObjective=objective),
            retain=retain or (measured and measured.retained) or RETAIN,
            hit_ratio=hit_ratio,
            executors=executors,
            executor_cores=executor_cores,
            cost=cost,
            prices=Prices(*prices),
            progress=meter,
        )
    if as_json:
        print_json(_json(estimated, measured))
    else:
        _print(estimated, measured)


def _options(texts: Sequence[str], **short: str | None) -> dict[str, str]:
    options = {name: value for name, value in short.items() if value is not None}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals:
            raise OptionError(f"--option takes NAME=VALUE, not '{text}'", option="--option")
        options[name] = value
    return options


def _json(found: Estimate, measured: Measured | None) -> dict[str, Any]:
    fields = asdict(found)
    workload = {name: value for name, value in fields.pop("workload").items() if name not in _INNER}
    now = None if measured is None else {name: getattr(measured, name) for name in _NOW}
    return {"measured": now, "workload": workload, **fields}


_INNER = ("delta_table", "merged_table", "touches")
_NOW = (
    "operator",
    "store",
    "version",
    "stored_bytes",
    "stored_files",
    "restore_bytes",
    "restore_files",
    "restore_ms",
    "retained",
    "sampled",
    "deltas",
)


def _print(estimated: Estimate, measured: Measured | None) -> None:
    work = estimated.workload
    say(
        f"{work.keys:.0f} keys of {work.key_bytes:.0f} bytes with values of {work.value_bytes:.0f} in "
        f"{counted(work.partitions, 'partition')}; a batch every {work.interval_ms / 1000:g} s writes "
        f"{work.updates_per_batch:.0f} of them, {work.new_per_batch:.0f} new, and removes "
        f"{work.removals_per_partition * work.partitions:.0f}; "
        f"{counted(estimated.retain, 'version')} retained\n"
    )
    print_table(_COLUMNS, _rows(estimated, measured))
    span = (
        "whole cycles between full checkpoints"
        if estimated.is_steady
        else "without two full checkpoints among them"
    )
    say(f"\nfrom {estimated.batches} {'batch' if estimated.batches == 1 else 'batches'}, {span}")
    if measured is not None:
        partitions = "partition" if len(measured.sampled) == 1 else "partitions"
        say(
            f"measured at version {measured.version}: deltas of {counted(measured.deltas, 'version')} and "
            f"restores of {partitions} {', '.join(map(str, measured.sampled))}"
        )
    cores = estimated.executors * estimated.executor_cores
    say(f"\nTools on all of this state, as jobs of Spark on {counted(cores, 'core')}:\n")
    print_table(_TOOL_COLUMNS, map(_tool_row, estimated.tools))
    say(f"\nrests on {estimated.tools_rest_on}")


def _tool_row(tool: ToolTime) -> tuple[object, ...]:
    memory_bytes, disk_bytes = tool.task_memory_bytes, tool.task_disk_bytes
    return (
        tool.name,
        in_time(tool.cpu_s),
        tool.tasks,
        in_time(tool.time_s),
        size(memory_bytes),
        size(disk_bytes),
    )


def _rows(estimated: Estimate, measured: Measured | None) -> Iterator[tuple[object, ...]]:
    now = {} if measured is None else {name: getattr(measured, name) for name in _NOW}
    for name, label, text_of in _SHOWN:
        value = getattr(estimated, name)
        present = text_of(now[name]) if name in now else ""
        if hasattr(value, "maximum"):
            yield label, present, text_of(value.average), text_of(value.maximum)
        else:
            yield label, present, text_of(value), ""
    for reason, (size_bytes, files) in estimated.reasons.items():
        if files:
            yield f"bytes for {reason}", "", size(size_bytes), ""
            yield f"files for {reason}", "", _number(files), ""
    requests = estimated.requests_per_minute
    for label, number in (
        ("PUT requests a minute", requests.puts),
        ("LIST requests a minute", requests.lists),
        ("GET requests a minute", requests.gets),
        ("DELETE requests a minute", requests.deletes),
        ("NameNode operations a minute", estimated.name_node_operations_per_minute),
        ("dollars a month for requests", estimated.requests_dollars_per_month),
        ("dollars a month for storage", estimated.storage_dollars_per_month),
    ):
        yield label, "", _number(number), ""
    label = f"memoryBudget that serves {estimated.hit_ratio:.0%} of look-ups"
    yield label, "", size(estimated.memory_bytes), ""
    yield "memoryOverhead without Python workers", "", size(estimated.memory_overhead_bytes), ""
    yield "heap for look-ahead, each task", "", size(estimated.look_ahead_bytes), ""


def _number(value: float) -> str:
    if 0 < value < 0.01:
        return "< 0.01"
    return f"{value:.0f}" if value >= 100 or value == int(value) else f"{value:.2g}"


def _seconds(ms: float) -> str:
    return f"{ms / 1000:.2f} s" if ms >= 1000 else f"{ms:.0f} ms"


_SHOWN = (
    ("stored_bytes", "bytes in storage", size),
    ("stored_files", "files in storage", _number),
    ("upload_bytes_per_s", "bytes uploaded a second", size),
    ("write_amplification", "bytes uploaded per byte of change", _number),
    ("merges_per_hour", "incremental merges an hour", _number),
    ("full_per_hour", "full checkpoints an hour", _number),
    ("restore_bytes", "bytes that a restore reads", size),
    ("restore_files", "files that a restore reads", _number),
    ("restore_ms", "time of a restore", _seconds),
)
