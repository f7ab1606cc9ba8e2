"""Run the same stateful Python on several engines, in turns on one machine, and compare them.

    python -m benchmarks.engines.side_by_side --json OUT [--quick] [--keep] [--engines FORM,...]
        [--workloads counter,frames,sessions] [--keys 20000] [--rows-per-key 2,20] [--batches 16]
        [--max-rows N] [--turns 1]
        [--figures speed,recovery,latency] [--rates 1000,10000] [--seconds 20]

Each engine runs in an environment of its own: `python scripts/environment.py flink bytewax quix` makes those
of PyFlink, Bytewax and Quix Streams, beside which a Kafka runs. First each form runs small jobs whose outputs
have to have the same checksum; `--quick` does that alone, with the forms on Spark.

`measurements` says how speed, recovery and latency are measured. There is one partition. Slow forms get fewer
rows, the same number a key and batch of fewer keys, and fewer batches, because each of theirs takes longer.
`--keep` puts the figures among those that pages are made of (`benchmarks/measured/engines.json`).
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import statistics
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from benchmarks.engines import engine_job, measurements
from benchmarks.engines.engine_job import FORMS, installed
from benchmarks.engines.workloads import COUNTER, FRAMES, SESSIONS
from benchmarks.environment import machine_facts

WORKLOADS = (COUNTER, FRAMES, SESSIONS)
FIGURES = ("speed", "recovery", "latency")
KINDS = ("runs", "recovery", "latency")
FILE = Path(__file__).resolve().parents[1] / "measured/engines.json"
Found = dict[str, Any]


@dataclasses.dataclass(frozen=True)
class Task:
    """A measurement of a form: what it is of, and what makes its figures."""

    kind: str
    facts: Found
    work: Callable[..., Found]
    words: tuple[Any, ...]

    @property
    def order(self) -> tuple[int, float]:
        """Return what puts the same size of all forms together."""
        return KINDS.index(self.kind), self.facts.get("rows_a_key", self.facts.get("rate", 0))


def tasks(asked: argparse.Namespace, workload: str, name: str) -> Iterator[Task]:
    """Yield all measurements of a form; those of restarts and waits are of the counter alone."""
    form, facts = FORMS[name], {"form": name, "workload": workload, "asked_keys": asked.keys}
    for each in asked.rows_per_key if "speed" in asked.figures else ():
        keys, rows = form.fitting(asked.keys, each, asked.max_rows)
        batches = min(asked.batches, form.max_batches)
        size = (keys, rows, batches)
        sizes = {"keys": keys, "rows": rows, "rows_a_key": each, "batches": batches}
        yield Task("runs", {**facts, **sizes}, measurements.speed, (workload, size))
    if workload == COUNTER and "recovery" in asked.figures:
        keys, rows = form.fitting(asked.keys, 2)
        yield Task("recovery", {**facts, "keys": keys, "rows": rows}, measurements.recovery, ((keys, rows),))
    for rate in asked.rates if workload == COUNTER and "latency" in asked.figures else ():
        size = (asked.keys, rate, asked.seconds)
        yield Task("latency", {**facts, "keys": asked.keys, "rate": rate}, measurements.latency, (size,))


def measure(asked: argparse.Namespace, names: list[str]) -> Found:
    """Compare the outputs of forms in small jobs, and measure each in turns.

    Args:
        asked: the options of the command line.
        names: forms, as `FORMS` names them.
    """
    checks: dict[str, dict[str, Found]] = {}
    failed: dict[str, str] = {}
    entries_of: dict[str, list[Found]] = {kind: [] for kind in KINDS}

    def attempted(name: str, work: Callable[..., Found], *words: Any) -> Found | None:
        """Return the figures of a job, or keep the reason for which it failed: the others go on."""
        try:
            return work(name, *words)
        except RuntimeError as error:
            failed[name] = str(error)
            print(error, file=sys.stderr, flush=True)
            return None

    with engine_job.broker_for(names) as broker:
        pairs = [(load, name) for load in asked.workloads for name in names if load in FORMS[name].workloads]
        for workload, name in pairs:
            if (sums := attempted(name, measurements.outputs, workload, broker)) is not None:
                checks.setdefault(workload, {})[name] = sums
        for turn in range(asked.turns):
            first = turn * len(pairs) // asked.turns
            turned = [task for pair in pairs[first:] + pairs[:first] for task in tasks(asked, *pair)]
            for task in sorted(turned, key=lambda task: task.order):
                name = task.facts["form"]
                if name in failed or (figures := attempted(name, task.work, *task.words, broker)) is None:
                    continue
                entries_of[task.kind].append({**task.facts, **figures, "load": round(os.getloadavg()[0], 1)})
                print(json.dumps(entries_of[task.kind][-1]), flush=True)
    return {
        "load": os.getloadavg(),
        "outputs": checks,
        "failed": failed,
        "outputs_equal": are_equal(checks),
        **{kind: medians(entries) for kind, entries in entries_of.items()},
    }


def medians(runs: list[Found]) -> list[Found]:
    """Return a form's runs of one size as one, with the median of each figure."""
    groups: dict[tuple[Any, ...], list[Found]] = {}
    for run in runs:
        groups.setdefault(identity(run), []).append(run)
    return [
        {
            name: statistics.median(run[name] for run in group if name in run)
            if isinstance(value, (int, float)) and not isinstance(value, bool)
            else min(run[name] for run in group)
            for name, value in group[0].items()
        }
        | {"turns": len(group)}
        for group in groups.values()
    ]


def identity(entry: dict[str, Any]) -> tuple[Any, ...]:
    """Return what is the same in entries of which the later replaces the earlier."""
    return tuple(entry.get(name) for name in ("workload", "form", "asked_keys", "rows_a_key", "rate"))


def are_equal(outputs: dict[str, dict[str, dict[str, int]]]) -> bool:
    """Return True if there are outputs, and all forms of a workload have the same; frames count as well."""
    sums: dict[str, set[tuple[int, ...]]] = {}
    for workload, forms in outputs.items():
        same = COUNTER if workload == FRAMES else workload
        sums.setdefault(same, set()).update(tuple(each.values()) for each in forms.values())
    return bool(sums) and all(len(different) == 1 for different in sums.values())


def keep(result: dict[str, Any], words: list[str], file: Path = FILE) -> None:
    """Put the figures of a run into a file, in place of those of the same sizes.

    Args:
        result: what `side_by_side` found.
        words: its command line.
        file: gets the figures, and has those of other sizes.

    Raises:
        ValueError: outputs differ from those of forms that were measured before.
    """
    machine = machine_facts.describe()
    machine["command"] = f"python -m benchmarks.engines.side_by_side {' '.join(words)}"
    earlier = json.loads(file.read_text(encoding="utf-8")) if file.exists() else {}
    engines = earlier.get("engines", {})
    for kind in KINDS:
        new = {identity(entry): {**entry, "commit": machine["commit"]} for entry in result[kind]}
        engines[kind] = list({**{identity(entry): entry for entry in engines.get(kind, [])}, **new}.values())
    outputs = engines.get("outputs", {})
    for workload, sums in result["outputs"].items():
        outputs[workload] = {**outputs.get(workload, {}), **sums}
    if not are_equal(outputs):
        raise ValueError(f"outputs differ from those that are kept: {outputs}")
    engines |= {"outputs": outputs, "load": result["load"], "outputs_equal": True, "failed": result["failed"]}
    commands = [*earlier.get("commands", []), machine["command"]]
    result_file = {"scenario": "engines", "bench": "standard", "machine": machine, "ours": True}
    result_file |= {"commands": list(dict.fromkeys(commands)), "engines": engines}
    file.write_text(json.dumps(result_file, indent=1) + "\n", encoding="utf-8")


def main(arguments: list[str] | None = None) -> int:
    """Run what the command line asks for; return 1 if outputs differ or a job failed."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.engines.side_by_side")
    several = {"type": lambda text: text.split(",")}
    numbers = {
        "type": lambda text: [int(word) if word.isdigit() else float(word) for word in text.split(",")]
    }
    parser.add_argument("--json", type=Path, required=True, metavar="OUT", help="file for the result")
    parser.add_argument("--quick", action="store_true", help="compare outputs alone, on Spark")
    parser.add_argument("--keep", action="store_true", help="keep the figures for the pages")
    parser.add_argument("--engines", **several, help="forms to run (default: all that are installed)")
    parser.add_argument("--workloads", **several, default=list(WORKLOADS))
    parser.add_argument("--figures", **several, default=["speed"], help=", ".join(FIGURES))
    parser.add_argument("--keys", type=int, default=20_000)
    parser.add_argument("--rows-per-key", **numbers, default=[2, 20], help="in a batch; each by itself")
    parser.add_argument("--batches", type=int, default=16, help="batches; the first half does not count")
    parser.add_argument("--rates", **numbers, default=[1000, 10_000], help="rows a second, for latency")
    parser.add_argument("--seconds", type=int, default=20, help="time of the rows, for latency")
    parser.add_argument("--max-rows", type=int, help="rows of a batch at most (default: each form's bound)")
    parser.add_argument("--turns", type=int, default=1, help="measurements of each size")
    asked = parser.parse_args(arguments)
    names = asked.engines or installed()
    for words, names_there in ((names, FORMS), (asked.workloads, WORKLOADS), (asked.figures, FIGURES)):
        if unknown := [word for word in words if word not in names_there]:
            parser.error(f"there is no {', '.join(unknown)}; there are {', '.join(names_there)}")
    if asked.quick:
        names, asked.turns = [name for name in names if FORMS[name].environment is None], 0
    result = measure(asked, names)
    asked.json.write_text(json.dumps(result, indent=1))
    if not result["outputs_equal"]:
        print(f"outputs differ: {result['outputs']}", file=sys.stderr)
    elif asked.keep:
        keep(result, arguments or sys.argv[1:])
    return 0 if result["outputs_equal"] and not result["failed"] else 1


if __name__ == "__main__":
    sys.exit(main())
