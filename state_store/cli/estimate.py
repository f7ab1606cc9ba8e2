"""`state-store estimate`: what a store is going to take, of a query that runs or of one that is planned."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import click
from rich.console import Console

from state_store.cli.command import DIRECTORY, command, json_option
from state_store.cli.output import number_column, output, print_json, print_table, size, text_column
from state_store.cli.parameters import OptionValue
from state_store.cli.progress import Meter
from state_store.core.planning.cost import CostModel, Transfers
from state_store.core.settings.option_types import BYTES, DURATION
from state_store.data.dataset.packages import require_arrow
from state_store.data.estimation.estimate import HIT_RATIO, RETAIN, Estimate, estimate
from state_store.data.estimation.measured import DEFAULT_INTERVAL_MS, Measured, measure
from state_store.data.estimation.workload import PARTITIONS, Workload
from state_store.data.query import DEFAULT_NAME, Filter, Query
from state_store.errors import OptionError

_COLUMNS = (text_column(""), number_column("now"), number_column("on average"), number_column("at most"))
_MIB = 1 << 20
_NOTE = f"""\
{DIRECTORY} Without it,
--keys, --key-bytes, --value-bytes and --updates-per-batch or --update-share say what a query is going to
write. Numbers are those of all partitions together; a restore is that of one of them."""


@dataclass(frozen=True)
class Planned:
    """The numbers of a query that has not run, as they were given."""

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
        """Raises OptionError where one is missing."""
        updates = self.updates
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
            self.interval_ms or DEFAULT_INTERVAL_MS,
            self.partitions or PARTITIONS,
            self.new or 0.0,
            zipf=self.zipf or 0.0,
        )

    def check_unused(self) -> None:
        """Raises OptionError where one is given, because the files of a checkpoint say it."""
        given = [name for name, value in asdict(self).items() if value is not None]
        if given:
            raise OptionError(f"the checkpoint says what the query writes: leave out {', '.join(given)}")


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
@click.option("--keys", type=float, metavar="N", help="Keys that are there all the time.")
@click.option("--key-bytes", type=float, metavar="N", help="Of an encoded key; a long has 16.")
@click.option("--value-bytes", type=float, metavar="N", help="Of an encoded value; a long has 16.")
@click.option("--updates-per-batch", "updates", type=float, metavar="N", help="Keys that a batch writes.")
@click.option(
    "--update-share", "share", type=float, metavar="SHARE", help="The same, as a share of the keys."
)
@click.option(
    "--new-per-batch", "new", type=float, metavar="N", help="Of these, keys that were not there before."
)
@click.option("--zipf", type=float, metavar="S", help="Exponent of Zipf's law by which keys are written.")
@click.option(
    "--interval", "interval_ms", type=OptionValue(DURATION), help="From batch to batch; default: 10s."
)
@click.option(
    "--partitions", type=click.IntRange(min=1), metavar="N", help=f"Partitions; default: {PARTITIONS}."
)
@click.option("--operator", type=int, default=0, show_default=True, metavar="N", help="The operator in DIR.")
@click.option(
    "--store",
    default=DEFAULT_NAME,
    show_default=True,
    metavar="NAME",
    help="The store in DIR, as Spark names it.",
)
@click.option(
    "--retain",
    type=click.IntRange(min=1),
    metavar="N",
    help=f"Spark's minBatchesToRetain; default: as many as DIR has, or {RETAIN}.",
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
    help="Of look-ups that are to find their row in memory.",
)
@click.option(
    "--executors",
    type=click.IntRange(min=1),
    default=1,
    show_default=True,
    metavar="N",
    help="Among which the partitions are.",
)
@click.option(
    "--fetch-rate",
    type=OptionValue(BYTES),
    help="Bytes a second from storage; default: 200m, or what DIR shows.",
)
@json_option
@click.argument("checkpoint", metavar="[DIR]", required=False, type=click.Path(file_okay=False))
def estimate_command(
    checkpoint: str | None,
    operator: int,
    store: str,
    retain: int | None,
    full_every: str | None,
    objective: str | None,
    options: Sequence[str],
    hit_ratio: float,
    executors: int,
    fetch_rate: int | None,
    as_json: bool,
    **planned: Any,
) -> None:
    """Say what a store is going to take.

    Says how many bytes and files a query in its stride has in checkpoint storage, what it uploads, how often
    it merges, what a restore takes and how much memory it needs: a query that is planned, by its numbers, or
    one that has run, by its files, with the defaults of all options but those that are given. It makes the
    agent's decisions, for as many batches as it takes until they repeat themselves.
    """
    numbers, measured = Planned(**planned), None
    if checkpoint is not None:
        numbers.check_unused()
        require_arrow()
        stores = Query.open(checkpoint).stores(Filter(operator, None, store))
        with Meter("looked at", len(stores)) as meter:
            measured = measure(checkpoint, operator, store, progress=meter)
    cost = None if measured is None else measured.cost
    if fetch_rate:
        cost = CostModel(transfers=Transfers(0.5, 1000 * _MIB / fetch_rate))
    workload = numbers.workload() if measured is None else measured.workload
    with Console(stderr=True).status("going through thousands of batches"):
        estimated = estimate(
            workload,
            _options(options, fullAfterDeltas=full_every, restoreObjective=objective),
            retain=retain or (measured and measured.retained) or RETAIN,
            hit_ratio=hit_ratio,
            executors=executors,
            cost=cost,
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
    told = None
    if measured is not None:
        told = {name: getattr(measured, name) for name in _NOW}
    return {"measured": told, "workload": workload, **fields}


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
    output().print(
        f"{work.keys:.0f} keys of {work.key_bytes:.0f} bytes with values of {work.value_bytes:.0f} in "
        f"{work.partitions} partitions; a batch every {work.interval_ms / 1000:g} s writes "
        f"{work.updates_per_batch:.0f} of them, {work.new_per_batch:.0f} new, and removes "
        f"{work.removals_per_partition * work.partitions:.0f}; {estimated.retain} versions retained\n"
    )
    print_table(_COLUMNS, _rows(estimated, measured))
    span = (
        "whole cycles between full checkpoints"
        if estimated.is_steady
        else "no two full checkpoints among them"
    )
    output().print(f"\nfrom {estimated.batches} batches, {span}")
    if measured is not None:
        output().print(
            f"measured at version {measured.version}: deltas of {measured.deltas} batches and restores "
            f"of partitions {', '.join(map(str, measured.sampled))}"
        )


def _rows(estimated: Estimate, measured: Measured | None) -> Iterator[tuple[object, ...]]:
    now = {} if measured is None else {name: getattr(measured, name) for name in _NOW}
    for name, label, shown in _SHOWN:
        value = getattr(estimated, name)
        present = shown(now[name]) if name in now else ""
        if hasattr(value, "most"):
            yield label, present, shown(value.average), shown(value.most)
        else:
            yield label, present, shown(value), ""
    label = f"memoryBudget that serves {estimated.hit_ratio:.0%} of look-ups"
    yield label, "", size(estimated.memory_bytes), ""


def _number(value: float) -> str:
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
