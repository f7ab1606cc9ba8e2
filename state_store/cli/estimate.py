"""`state-store estimate`: storage, merges, restores and memory of a query that runs or is planned."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
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
from state_store.data.estimation.estimate import HIT_RATIO, RETAIN, Estimate, Prices, estimate, in_time
from state_store.data.estimation.measured import DEFAULT_INTERVAL_MS, Measured, measure
from state_store.data.estimation.simulation import PARTITIONS, Workload
from state_store.data.query import Filter, Query
from state_store.data.query.arguments import counted, require_arrow
from state_store.errors import OptionError

_COLUMNS = (text_column(""), number_column("now"), number_column("on average"), number_column("at most"))
_TOOL_COLUMNS = (
    text_column("tool"),
    *map(number_column, ("one core", "tasks", "the job", "memory a task", "TMPDIR a task")),
)
_MIB = 1 << 20
_NOTE = f"""\
{DIRECTORY} Without it,
--keys, --key-bytes, --value-bytes and --updates-per-batch or --update-share describe the writes of a query
that is planned. Numbers are those of all partitions together; a restore is that of one of them."""

_INNER = ("delta_table", "merged_table", "touches")
_NOW = (
    *("operator", "store", "version", "stored_bytes", "stored_files"),
    *("restore_bytes", "restore_files", "restore_ms", "retained", "sampled", "deltas"),
)


def _number(
    *names: str, bounds: tuple[float, float], help: str, metavar: str = "N"
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    return click.option(*names, type=Number(*bounds), metavar=metavar, help=help)


def _count(
    name: str, maximum: int, help: str, default: int | None = None
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    return click.option(
        name, type=WholeNumber(1, maximum), default=default, show_default=True, metavar="N", help=help
    )


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
@_number("--keys", bounds=(1, 1e13), help="Number of keys in the state at any time.")
@_number("--key-bytes", bounds=(0, 1 << 30), help="Bytes of an encoded key; a long has 16.")
@_number("--value-bytes", bounds=(0, 1 << 30), help="Bytes of an encoded value; a long has 16.")
@_number("--updates-per-batch", "updates", bounds=(0, 1e13), help="Keys that a batch writes.")
@_number(
    "--update-share",
    "share",
    bounds=(0, 1),
    help="Keys that a batch writes, as a share of all.",
    metavar="SHARE",
)
@_number("--new-per-batch", "new", bounds=(0, 1e13), help="Keys among these that were not there before.")
@_number("--zipf", bounds=(0, 10), help="Exponent of Zipf's law by which keys are written.", metavar="S")
@click.option(
    "--interval",
    "interval_ms",
    type=OptionValue(DURATION, 1, 366 * 86_400_000),
    help="Time from batch to batch; default: 10s.",
)
@_count("--partitions", 1_000_000, f"Partitions; default: {PARTITIONS}.")
@click.option(
    "--operator", type=NUMBER, default=0, show_default=True, metavar="N", help="The operator in DIR."
)
@store_option(
    "The store in DIR. Default: the only one, left, or the first variable, "
    "which stands for all of its operator."
)
@_count("--retain", 100_000, f"Spark's minBatchesToRetain; default: that of DIR, or {RETAIN}.")
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
@_count("--executors", 1_000_000, "Executors that share the partitions.", 1)
@_count("--executor-cores", 1_024, "Cores of each executor, on which tools run as jobs.", 1)
@click.option(
    "--fetch-rate",
    type=OptionValue(BYTES, 1, 1 << 50),
    help="Bytes a second from storage; default: 200m, or as measured in DIR.",
)
@click.option(
    "--prices",
    type=(click.FloatRange(0),) * 3,
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
    measured, cost = None, None
    if checkpoint is None:
        workload = _planned(**planned)
    else:
        names = [name for name, value in planned.items() if value is not None]
        if names:
            raise OptionError(f"the files of DIR have these numbers: leave out {', '.join(names)}")
        require_arrow()
        with Meter("measured", len(Query.open(checkpoint).stores(Filter(operator)))) as meter:
            measured = measure(checkpoint, operator, store, progress=meter)
        workload, cost = measured.workload, measured.cost
    if fetch_rate:
        cost = CostModel(transfers=Transfers(0.5, 1000 * _MIB / fetch_rate))
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
    now = {} if measured is None else {name: getattr(measured, name) for name in _NOW}
    if as_json:
        fields = asdict(estimated)
        writes = {name: value for name, value in fields.pop("workload").items() if name not in _INNER}
        print_json({"measured": now or None, "workload": writes, **fields})
    else:
        _print(estimated, measured, now)


def _planned(
    keys: float | None,
    key_bytes: float | None,
    value_bytes: float | None,
    updates: float | None,
    share: float | None,
    new: float | None,
    zipf: float | None,
    interval_ms: int | None,
    partitions: int | None,
) -> Workload:
    """Return the workload of a query that has not run. Raise OptionError if a number is missing."""
    if updates is not None and share is not None:
        raise OptionError("--updates-per-batch and --update-share are mutually exclusive: give one")
    if share is not None and keys is not None:
        updates = share * keys
    if keys is None or key_bytes is None or value_bytes is None or updates is None:
        raise OptionError(
            "without DIR an estimate needs --keys, --key-bytes, --value-bytes, and --updates-per-batch "
            "or --update-share"
        )
    interval_ms = DEFAULT_INTERVAL_MS if interval_ms is None else interval_ms
    sizes = (keys, key_bytes, value_bytes, updates)
    return Workload(*sizes, interval_ms, partitions or PARTITIONS, new or 0.0, zipf=zipf or 0.0)


def _options(texts: Sequence[str], **short: str | None) -> dict[str, str]:
    options = {name: value for name, value in short.items() if value is not None}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals:
            raise OptionError(f"--option takes NAME=VALUE, not '{text}'", option="--option")
        options[name] = value
    return options


def _print(estimated: Estimate, measured: Measured | None, now: Mapping[str, Any]) -> None:
    work = estimated.workload
    say(
        f"{work.keys:.0f} keys of {work.key_bytes:.0f} bytes with values of {work.value_bytes:.0f} in "
        f"{counted(work.partitions, 'partition')}; a batch every {work.interval_ms / 1000:g} s writes "
        f"{work.updates_per_batch:.0f} of them, {work.new_per_batch:.0f} new, and removes "
        f"{work.removals_per_partition * work.partitions:.0f}; "
        f"{counted(estimated.retain, 'version')} retained\n"
    )
    rows = []
    for figure in estimated.figures():
        numbers = (now.get(figure.name), figure.average, figure.maximum)
        rows.append(
            (figure.label, *("" if number is None else _text(number, figure.unit) for number in numbers))
        )
    print_table(_COLUMNS, rows)
    batches = "1 batch" if estimated.batches == 1 else f"{estimated.batches} batches"
    span = "whole cycles between full checkpoints"
    say(f"\nfrom {batches}, {span if estimated.is_steady else 'without two full checkpoints among them'}")
    if measured is not None:
        partitions = "partition" if len(measured.sampled) == 1 else "partitions"
        say(
            f"measured at version {measured.version}: deltas of {counted(measured.deltas, 'version')} and "
            f"restores of {partitions} {', '.join(map(str, measured.sampled))}"
        )
    cores = estimated.executors * estimated.executor_cores
    say(f"\nTools on all of this state, as jobs of Spark on {counted(cores, 'core')}:\n")
    tools = []
    for tool in estimated.tools:
        needs = (size(tool.task_memory_bytes), size(tool.task_disk_bytes))
        tools.append((tool.name, in_time(tool.cpu_s), tool.tasks, in_time(tool.time_s), *needs))
    print_table(_TOOL_COLUMNS, tools)
    say(f"\nrests on {estimated.tools_rest_on}")


def _text(value: float, unit: str) -> str:
    if unit == "bytes":
        return size(value)
    if unit == "ms":
        return f"{value / 1000:.2f} s" if value >= 1000 else f"{value:.0f} ms"
    if 0 < value < 0.01:
        return "< 0.01"
    return f"{value:.0f}" if value >= 100 or value == int(value) else f"{value:.2g}"
