"""The merge alone: its cost by kind and by number of deltas, without Spark, agent or uploads.

One base and one run of deltas are made. Each kind then takes the base through all deltas, this many a merge;
each merge starts from the database of the last. The content of the final database is compared with a dict.
"""

from __future__ import annotations

import os
import resource
import shutil
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.medians import spread
from benchmarks.scenarios.store_level import Extent
from state_store.core.checkpoint.stored_documents import META_KEY, DeltaMetadata
from state_store.core.engine.database import Database, DatabaseSettings, tidy, write_delta
from state_store.core.snapshots.merge import KINDS

_SIZES = {
    "quick": {"keys": 10_000, "changes": 500, "deltas": 20, "groups": (1, 10)},
    "standard": {"keys": 500_000, "changes": 20_000, "deltas": 40, "groups": (1, 5, 10, 20, 40)},
    "full": {"keys": 2_000_000, "changes": 20_000, "deltas": 100, "groups": (1, 5, 10, 20, 50, 100)},
}
_VALUE_BYTES = 104
_HALF = _VALUE_BYTES // 2


class ContentError(AssertionError):
    """A merge lost, kept or changed a row; the message says which kind of merge."""


def run(extent: Extent) -> dict[str, Any]:
    """Return statistics by kind and number of deltas a merge."""
    sizes = _SIZES[extent.name]
    with tempfile.TemporaryDirectory(prefix="state-store-merges-") as name:
        work = Path(name)
        inputs = _Inputs(work, sizes)
        groups = {
            kind: {str(group): _through_all(work, inputs, kind, group) for group in sizes["groups"]}
            for kind in KINDS
        }
    return {"sizes": {**sizes, "value_bytes": _VALUE_BYTES}, "kinds": groups}


class _Inputs:
    """Files of a base and the deltas after it, and the content after all of them."""

    def __init__(self, work: Path, sizes: dict[str, Any]) -> None:
        random = np.random.default_rng(1)
        self.settings = DatabaseSettings()
        self.changes = sizes["changes"]
        numbers = np.arange(sizes["keys"])
        self.content: dict[bytes, bytes] = {}
        self.base = work / "base"
        self._write(work / "base.sst", numbers, 1, random)
        with Database(self.base, self.settings, create=True) as database:
            database.ingest([work / "base.sst"])
            database.compact_all()
            self.base_bytes = sum(file.size_bytes for file in database.files())
            tables = {file.name for file in database.files()}
        tidy(self.base, tables)
        self.deltas = []
        for version in range(2, sizes["deltas"] + 2):
            path = work / f"delta-{version}.sst"
            drawn = np.unique(random.choice(numbers, self.changes))
            self._write(path, drawn, version, random)
            self.deltas.append(path)

    def _write(self, path: Path, numbers: np.ndarray, version: int, random: np.random.Generator) -> None:
        rows = {
            _key(number): random.bytes(_HALF) + bytes(_VALUE_BYTES - _HALF) for number in numbers.tolist()
        }
        self.content.update(rows)
        metadata = DeltaMetadata(version, None, None, keys=len(self.content), puts=len(rows), removes=0)
        write_delta(path, sorted(rows.items()), metadata, self.settings)


def _key(number: int) -> bytes:
    return ((number * 0x9E3779B97F4A7C15) % (1 << 64)).to_bytes(16, "big")


def _through_all(work: Path, inputs: _Inputs, kind: str, group: int) -> dict[str, Any]:
    base, merges = inputs.base, []
    directories = []
    for start in range(0, len(inputs.deltas), group):
        target = work / f"{kind}-{group}-{start}"
        merges.append(_merge(base, inputs.deltas[start : start + group], target, kind, inputs.settings))
        directories.append(target)
        base = target
    _check(base, inputs, f"{kind}, {group} deltas")
    for directory in directories:
        shutil.rmtree(directory)
    change = sum(delta.stat().st_size for delta in inputs.deltas)
    seconds = sum(merge["seconds"] for merge in merges)
    rewritten = sum(merge["rewritten_bytes"] for merge in merges)
    records = inputs.changes * len(inputs.deltas)
    return {
        "merge_ms": spread([merge["seconds"] * 1000 for merge in merges]),
        "cpu_ms": spread([merge["cpu_seconds"] * 1000 for merge in merges]),
        "records_per_s": records / seconds,
        "bytes_per_s": change / seconds,
        "cpu_us_per_record": sum(merge["cpu_seconds"] for merge in merges) / records * 1e6,
        "rewritten_per_changed_byte": rewritten / change,
        "files": merges[-1]["files"],
        "space_amplification": merges[-1]["bytes"] / inputs.base_bytes,
    }


def _merge(
    base: Path, deltas: list[Path], target: Path, kind: str, settings: DatabaseSettings
) -> dict[str, Any]:
    """Make a merge in a directory of hard links, as the agent does."""
    links = target.with_suffix(".links")
    links.mkdir()
    started, cpu = time.perf_counter(), _cpu_seconds()
    target.mkdir()
    for path in base.iterdir():
        if path.suffix == ".sst":
            os.link(path, target / path.name)
        else:
            shutil.copy(path, target / path.name)
    for delta in deltas:
        os.link(delta, links / delta.name)
    with Database(target, settings) as database:
        before = {file.name for file in database.files()}
        ingested = database.ingest([links / delta.name for delta in deltas])
        if kind == "incremental":
            database.compact_runs()
        elif kind == "full":
            database.compact_all()
        files = database.files()
    tidy(target, {file.name for file in files})
    links.rmdir()
    new_files = [file for file in files if file.name not in before and file.name not in ingested]
    return {
        "seconds": time.perf_counter() - started,
        "cpu_seconds": _cpu_seconds() - cpu,
        "rewritten_bytes": sum(file.size_bytes for file in new_files),
        "files": len(files),
        "bytes": sum(file.size_bytes for file in files),
    }


def _check(directory: Path, inputs: _Inputs, case: str) -> None:
    with Database(directory, inputs.settings) as database:
        rows = {key: value for key, value in database.scan() if key != META_KEY}
    if rows != inputs.content:
        raise ContentError(f"merge ({case}) does not have the rows written: {len(rows)} rows")


def _cpu_seconds() -> float:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime
