"""Computed sorted runs, against those of RocksDB."""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path

import pytest

from state_store.core.checkpoint.lineage import ChainDelta
from state_store.core.checkpoint.names import DeltaName, SharedName
from state_store.core.checkpoint.stored_documents import ColumnFamily, DeltaMetadata
from state_store.core.engine.database import Database, DatabaseSettings, write_delta
from state_store.data.estimation.estimate import DEEPEST, Run, compact_runs, file_sizes, ingested
from state_store.data.estimation.workload import table_size

SETTINGS = DatabaseSettings(threads=2, file_bytes=64 << 10)
VALUE_BYTES = 100
TABLE = table_size(16, VALUE_BYTES, 1000)


def merged(runs: Sequence[Run], level: int) -> Run:
    """Merge runs that have no key in common: the records of their files add up."""
    sizes = [file.size_bytes - TABLE.file_bytes for run in runs for file in run.files]
    files = file_sizes(TABLE, (sum(sizes) / TABLE.put_bytes, 0.0), level, SETTINGS)
    return Run.of(1, level, [(size_bytes, SharedName(1, 0, 1)) for size_bytes in files])


def delta(version: int, records: int, chance: random.Random, path: Path) -> ChainDelta:
    """Write a delta of new keys to `path`, and return the one that is computed."""
    rows = {b"\0\0" + bytes(8) + chance.randbytes(8): chance.randbytes(VALUE_BYTES) for _ in range(records)}
    families = {"default": ColumnFamily(0)}
    metadata = DeltaMetadata(version, f"v{version}", None, 0, records, 0, families, "test")
    write_delta(path, sorted(rows.items()), metadata)
    return ChainDelta(DeltaName(version, f"v{version}", "parent", 0), TABLE.of(records))


@pytest.mark.tier("more")
@pytest.mark.parametrize("seed", range(4))
def test_runs_are_merged_as_rocksdb_merges_them(tmp_path: Path, seed: int) -> None:
    """All keys differ, so that only the choice of runs decides their sizes."""
    chance, merges, paths = random.Random(seed), 0, [tmp_path]
    sizes = [30, 300] if seed % 2 else [30, 60, 300, 3000]
    bound = 24 if seed > 1 else 7
    runs: list[Run] = []
    (tmp_path / "db").mkdir()
    with Database(tmp_path / "db", SETTINGS, create=True) as database:
        for _ in range(8):
            deltas, first = [], len(paths)
            for _ in range(chance.randrange(1, bound)):
                records = chance.choice(sizes) + chance.randrange(20)
                paths.append(tmp_path / f"{len(paths)}.sst")
                deltas.append(delta(len(paths), records, chance, paths[-1]))
            database.ingest(paths[first:])
            before = ingested(runs, deltas)
            runs = compact_runs(before, SETTINGS, merged)
            merges += len(before) - len(runs)
            expected = [run.level for run in runs]
            for _ in range(50):  # on a busy machine a merge may begin late
                database.compact_runs()
                levels = [run[0].level for run in database.runs()]
                if levels == expected:
                    break
            assert levels == expected
            for files, run in zip(database.runs(), runs, strict=True):
                assert sum(file.size_bytes for file in files) == pytest.approx(run.size_bytes, rel=0.03)
            computed = sum(len(run.files) for run in runs)
            assert computed == pytest.approx(len(database.files()), rel=0.1, abs=2)
        assert merges > 10
        database.compact_all()
        computed = len(merged(runs, DEEPEST).files)
        assert computed == pytest.approx(len(database.files()), rel=0.1, abs=2)
