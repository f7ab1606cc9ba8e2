"""Medians with spread, and statistics of a driver's events by case, step and provider."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

Event = Mapping[str, Any]
_PER_BATCH = ("cpu_jvm_s", "cpu_children_s", "written_bytes", "written_files")
_NOT_MEASURED = ("version",)


def spread(values: Sequence[float]) -> dict[str, float]:
    """Return count, median, quartiles, extremes and the 99th percentile."""
    array = np.asarray(values, dtype=float)
    low, middle, high, p99 = np.percentile(array, [25, 50, 75, 99])
    return {
        "n": len(array),
        "median": _short(middle),
        "q1": _short(low),
        "q3": _short(high),
        "min": _short(array.min()),
        "max": _short(array.max()),
        "p99": _short(p99),
    }


def by_case(events: Iterable[Event]) -> dict[str, Any]:
    """Return `{case: {step label: {subject: statistics}}}` of the driver's events."""
    groups: dict[tuple[str, str, str], list[Event]] = defaultdict(list)
    for event in events:
        groups[event["case"], event["label"], event["subject"]].append(event)
    result: dict[str, Any] = {}
    for (case, label, subject), members in groups.items():
        result.setdefault(case, {}).setdefault(label, {})[subject] = _statistics(members)
    return result


def _statistics(events: list[Event]) -> dict[str, Any]:
    kinds: dict[str, list[Event]] = defaultdict(list)
    for event in events:
        kinds[event["kind"]].append(event)
    result: dict[str, Any] = {}
    for kind, members in kinds.items():
        if kind in ("error", "maintenance-error"):
            result[kind] = [{"message": e["message"], "stack": e["stack"]} for e in members[:3]]
        elif kind == "batch":
            result.update(_batches(_by_segment(events)))
        elif kind == "segment":
            result["segments"] = _segments([e for e in members if not e["warmup"]])
        else:
            result[kind] = _numbers(members)
    return result


def _by_segment(events: list[Event]) -> list[list[Event]]:
    """Return the batches of each segment except the warm-up; a segment's own event follows its batches."""
    segments: list[list[Event]] = []
    current: list[Event] = []
    for event in events:
        if event["kind"] == "batch":
            current.append(event)
        elif event["kind"] == "segment":
            if not event["warmup"]:
                segments.append(current)
            current = []
    return segments


def _batches(segments: list[list[Event]]) -> dict[str, Any]:
    batches = [batch for segment in segments for batch in segment]
    if not batches:
        return {}
    result = {"batch": _numbers(batches)}
    result["batch"]["row_us"] = spread([b["rows_ms"] * 1000 / max(1, b["operations"]) for b in batches])
    for name, overlapped in (("with_maintenance", True), ("without_maintenance", False)):
        walls = [batch["wall_ms"] for batch in batches if batch["overlapped"] is overlapped]
        if walls:
            result[name] = spread(walls)
    return result


def _segments(segments: list[Event]) -> dict[str, Any]:
    """Return CPU and written bytes per batch, storage and memory at the end, mean custom metrics."""
    if not segments:
        return {}
    batches = sum(segment["batches"] for segment in segments)
    result: dict[str, Any] = {
        name: spread([segment[name] / segment["batches"] for segment in segments]) for name in _PER_BATCH
    }
    result["batches"] = batches
    result["total"] = {name: _short(sum(segment[name] for segment in segments)) for name in _PER_BATCH}
    result["drain_ms"] = spread([segment["drain_ms"] for segment in segments])
    last = segments[-1]
    result["last"] = {
        name: last[name] for name in ("storage_bytes", "storage_files", "reported_bytes", "reported_keys")
    }
    result["peak"] = {
        name: max(segment["resident"].get(name, 0) for segment in segments) for name in last["resident"]
    }
    names = sorted({name for segment in segments for name in segment["custom"]})
    result["custom"] = {
        name: _short(sum(segment["custom"].get(name, 0) for segment in segments) / batches) for name in names
    }
    return result


def _numbers(events: list[Event]) -> dict[str, Any]:
    """Return the spread of every number in the events; nested numbers (custom metrics) as medians."""
    result: dict[str, Any] = {}
    for name in dict.fromkeys(name for event in events for name in event):
        values = [event[name] for event in events if name in event]
        if name in _NOT_MEASURED or isinstance(values[0], (str, bool)):
            continue
        if isinstance(values[0], Mapping):
            inner = sorted({key for value in values for key in value})
            result[name] = {key: _short(float(np.median([v.get(key, 0) for v in values]))) for key in inner}
        else:
            result[name] = spread(values)
    return result


def _short(value: float) -> float:
    """Round to five significant digits: enough for every reader, and half the file."""
    return float(f"{float(value):.5g}")
