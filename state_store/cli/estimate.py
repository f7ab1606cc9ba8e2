"""`state-store estimate`: storage, merges, restores and memory of a query that runs or is planned."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, astuple
from typing import Any

import click

from state_store.cli import command as declare
from state_store.cli.output import Meter, number_column, print_json, print_table, say, size, text_column
from state_store.core.planning.cost import CostModel, Transfers
from state_store.core.settings.option import BYTES, DURATION
from state_store.data.estimation.estimate import HIT_RATIO, RETAIN, Estimate, Prices, estimate, in_time
from state_store.data.estimation.workload import PARTITIONS, Measured, Workload, measure
from state_store.data.query import Filter, Query
from state_store.data.query.arguments import counted, require_arrow
from state_store.errors import OptionError

_COLUMNS = (text_column(""), *map(number_column, ("now", "on average", "at most")))
_TOOL_NUMBERS = ("one core", "tasks", "the job", "memory a task", "TMPDIR a task")
_INNER = {"workload", "cost", "delta_table", "merged_table", "touches"}
_PRICES_HELP = "Dollars for 1,000 PUT or LIST requests, for 1,000 GET requests, and for a GB a month."
_INTERVAL, _RATE = declare.OptionValue(DURATION, 1, 366 * 86_400_000), declare.OptionValue(BYTES, 1, 1 << 50)
_RETAIN, _CORES = declare.WholeNumber(1, 100_000), declare.WholeNumber(1, 1_024)
_RATIO, _DOLLARS = declare.Number(1e-9, 1), (declare.Number(0, 1e9),) * 3
_NOTE = f"""\
{declare.DIRECTORY} Without it,
--keys, --key-bytes, --value-bytes and --updates-per-batch or --update-share describe the writes of a query
that is planned. Numbers are those of all partitions together; a restore is that of one of them. They have the
names that they have in JSON and in Python: `memory bytes` are the memoryBudget that serves the share `hit
ratio` of look-ups, and `memory overhead bytes` the memoryOverhead with it, without Python workers."""


def _option(names: str, type_: Any, help_: str, metavar: str = "N", default: Any = None) -> Any:
    more = {"multiple": True} if metavar == "NAME=VALUE" else {"default": default, "show_default": True}
    return click.option(*names.split(), type=type_, help=help_, metavar=metavar, **more)


@declare.command(
    "estimate",
    examples=(
        "/data/checkpoint",
        "/data/checkpoint --retain 5 --full-every 50 --objective 5s",
        "--keys 50e6 --key-bytes 24 --value-bytes 120 --update-share 0.01 --interval 30s",
        "--keys 1e6 --key-bytes 16 --value-bytes 8 --updates-per-batch 5e4 --zipf 1 --json",
    ),
    note=_NOTE,
)
@_option("--keys", declare.Number(1, 1e13), "Number of keys in the state at any time.")
@_option("--key-bytes", declare.Number(0, 1 << 30), "Bytes of an encoded key; a long has 16.")
@_option("--value-bytes", declare.Number(0, 1 << 30), "Bytes of an encoded value; a long has 16.")
@_option("--updates-per-batch", declare.Number(0, 1e13), "Keys that a batch writes.")
@_option("--update-share", declare.Number(0, 1), "Keys that a batch writes, as a share of all.", "SHARE")
@_option("--new-per-batch", declare.Number(0, 1e13), "Keys among these that were not there before.")
@_option("--zipf", declare.Number(0, 10), "Exponent of Zipf's law by which keys are written.", "S")
@_option("--interval interval_ms", _INTERVAL, "Time from batch to batch; default: 10s.", "DURATION")
@_option("--partitions", declare.WholeNumber(1, 1_000_000), f"Partitions; default: {PARTITIONS}.")
@_option("--operator", declare.NUMBER, "The operator in DIR.", default=0)
@declare.store_option(
    "The store in DIR. Default: the only one, left, or the first variable, "
    "which stands for all of its operator."
)
@_option("--retain", _RETAIN, f"Spark's minBatchesToRetain; default: that of DIR, or {RETAIN}.")
@_option("--full-every", str, "The option fullAfterDeltas.")
@_option("--objective", str, "The option restoreObjective.", "TIME")
@_option("--option options", str, "Any option of the store.", "NAME=VALUE")
@_option("--hit-ratio", _RATIO, "The share of look-ups that find their row in memory.", "SHARE", HIT_RATIO)
@_option("--executors", declare.WholeNumber(1, 1_000_000), "Executors that share the partitions.", default=1)
@_option("--executor-cores", _CORES, "Cores of each executor, on which tools run as jobs.", default=1)
@_option("--fetch-rate", _RATE, "Bytes a second from storage; default: 200m, or as measured in DIR.", "SIZE")
@_option("--prices", _DOLLARS, _PRICES_HELP, "PUT GET GB", astuple(Prices()))
@declare.json_option
@click.argument("checkpoint", metavar="[DIR]", required=False, type=declare.Location())
def estimate_command(
    checkpoint: str | None,
    operator: int,
    store: str | None,
    fetch_rate: int | None,
    options: Sequence[str],
    prices: Sequence[float],
    as_json: bool,
    **numbers: Any,
) -> None:
    """Estimate storage, memory and restore times of a query.

    Estimates the bytes and files that a query has in checkpoint storage in the long run, its uploads, its
    merges, the time of a restore, the memory that it needs, and the time that the tools on state take as jobs
    of its executors. Describe a planned query by its numbers, or
    give the DIR of a query that has run, which is measured by its files. All options have their defaults
    unless they are given. The estimate simulates the decisions of the agent batch by batch, until they
    repeat.
    """
    texts = {"fullAfterDeltas": numbers.pop("full_every"), "restoreObjective": numbers.pop("objective")}
    how = {name: numbers.pop(name) for name in ("retain", "hit_ratio", "executors", "executor_cores")}
    planned = {name: value for name, value in numbers.items() if value is not None}
    measured, cost = None, None
    if checkpoint is None:
        workload = _planned(**planned)
    elif planned:
        raise OptionError(f"the files of DIR have these numbers: leave out {', '.join(planned)}")
    else:
        require_arrow()
        with Meter("measured", len(Query.open(checkpoint).stores(Filter(operator)))) as meter:
            measured = measure(checkpoint, operator, store, progress=meter)
        workload, cost = measured.workload, measured.cost
    how["retain"] = how["retain"] or (measured and measured.retained) or RETAIN
    if fetch_rate:
        cost = CostModel(transfers=Transfers(0.5, (1000 << 20) / fetch_rate))
    for text in options:
        name, equals, texts[name] = text.partition("=")
        if not equals:
            raise OptionError(f"--option takes NAME=VALUE, not '{text}'", option="--option")
    with Meter("simulated", 1, unit="batches") as meter:
        estimated = estimate(
            workload,
            {name: value for name, value in texts.items() if value is not None},
            cost=cost,
            prices=Prices(*prices),
            progress=meter,
            **how,
        )
    if as_json:
        now = None if measured is None else _outer(measured)
        print_json({"measured": now, **asdict(estimated), "workload": _outer(workload)})
    else:
        _print(estimated, measured)


def _planned(update_share: float | None = None, **numbers: Any) -> Workload:
    """Return the workload of a query that has not run. Raise OptionError if a number is missing."""
    if update_share is not None:
        if "updates_per_batch" in numbers:
            raise OptionError("--updates-per-batch and --update-share are mutually exclusive: give one")
        numbers["updates_per_batch"] = update_share * numbers.get("keys", 0)
    if not numbers.keys() >= {"keys", "key_bytes", "value_bytes", "updates_per_batch"}:
        raise OptionError(
            "without DIR an estimate needs --keys, --key-bytes, --value-bytes, and --updates-per-batch "
            "or --update-share"
        )
    return Workload(**numbers)


def _outer(values: Measured | Workload) -> dict[str, Any]:
    """Return the numbers, without what they are made of."""
    return {name: value for name, value in vars(values).items() if name not in _INNER}


def _print(estimated: Estimate, measured: Measured | None) -> None:
    rows = []
    for name, *numbers in estimated.figures():
        texts = (_text(number, name) for number in (getattr(measured, name, None), *numbers))
        rows.append((name.replace("_", " "), *texts))
    print_table(_COLUMNS, rows)
    if not estimated.is_steady:
        say("\nwithout two full checkpoints among these batches")
    if measured is not None:
        partitions = "partition" if len(measured.sampled) == 1 else "partitions"
        say(
            f"\nmeasured at version {measured.version}: deltas of {counted(measured.deltas, 'version')} and "
            f"restores of {partitions} {', '.join(map(str, measured.sampled))}"
        )
    cores = estimated.executors * estimated.executor_cores
    say(f"\nTools on all of this state, as jobs of Spark on {counted(cores, 'core')}:\n")
    tools = []
    for tool in estimated.tools:
        needs = (size(tool.task_memory_bytes), size(tool.task_disk_bytes))
        tools.append((tool.name, in_time(tool.cpu_s), tool.tasks, in_time(tool.time_s), *needs))
    print_table((text_column("tool"), *map(number_column, _TOOL_NUMBERS)), tools)
    say(f"\nrests on {estimated.tools_rest_on}")


def _text(value: float | None, name: str) -> str:
    if value is None:
        return ""
    if "bytes" in name:
        return size(value)
    if name.endswith("_ms"):
        return f"{value / 1000:.2f} s" if value >= 1000 else f"{value:.0f} ms"
    if 0 < value < 0.01:
        return "< 0.01"
    return f"{value:.0f}" if value >= 100 or value == int(value) else f"{value:.2g}"
