"""The figures of engines that pages are made of, and the runs that they are of."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from benchmarks.engines.workloads import COUNTER, FRAMES
from benchmarks.environment import machine_facts

FILE = Path(__file__).resolve().parents[1] / "measured/engines.json"
KINDS = ("runs", "recovery", "latency")


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
    known = json.loads(file.read_text(encoding="utf-8")) if file.exists() else {}
    engines = known.get("engines", {})
    for kind in KINDS:
        new = {identity(entry): {**entry, "commit": machine["commit"]} for entry in result[kind]}
        engines[kind] = list({**{identity(entry): entry for entry in engines.get(kind, [])}, **new}.values())
    outputs = engines.get("outputs", {})
    for workload, sums in result["outputs"].items():
        outputs[workload] = {**outputs.get(workload, {}), **sums}
    if not are_equal(outputs):
        raise ValueError(f"outputs differ from those that are kept: {outputs}")
    engines |= {"outputs": outputs, "load": result["load"], "outputs_equal": True, "failed": {}}
    commands = [*known.get("commands", []), machine["command"]]
    kept = {"scenario": "engines", "bench": "standard", "machine": machine, "ours": True}
    kept |= {"commands": list(dict.fromkeys(commands)), "engines": engines}
    file.write_text(json.dumps(kept, indent=1) + "\n", encoding="utf-8")
