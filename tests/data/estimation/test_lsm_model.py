"""Computed sorted runs, against those of RocksDB."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from state_store.core.checkpoint.registry import StoredFile
from state_store.core.checkpoint.stored_documents import ColumnFamily, DeltaMetadata
from state_store.core.engine.database import Database, DatabaseSettings, write_delta
from state_store.data.estimation.estimate import DEEPEST, Run, compact_runs, file_sizes, ingested
from state_store.data.estimation.workload import table_size

SETTINGS = DatabaseSettings(threads=2, file_bytes=64 << 10)
VALUE_BYTES = 100


def stored(size_bytes: int) -> StoredFile:
    return StoredFile("shared/1", size_bytes, 1)


class Model:
    """The runs of a database, computed from numbers of records."""

    def __init__(self) -> None:
        self.runs: list[Run] = []
        self.table = table_size(16, VALUE_BYTES, 1000)

    def ingest(self, records: Sequence[int]) -> None:
        runs = ingested(self.runs, [stored(self.table.of(count)) for count in records])
        newest = [run._replace(batches=count) for run, count in zip(runs, reversed(records), strict=False)]
        self.runs = [*newest, *runs[len(newest) :]]

    def merged(self, runs: Sequence[Run], level: int) -> Run:
        records = sum(run.batches for run in runs)
        sizes = file_sizes(self.table.of(records), level, SETTINGS, self.table.file_bytes)
        return Run(records, level, [stored(size_bytes) for size_bytes in sizes])

    def compact(self) -> None:
        self.runs = compact_runs(self.runs, SETTINGS, self.merged)


@pytest.fixture
def database(tmp_path: Path) -> Iterator[Database]:
    (tmp_path / "db").mkdir()
    with Database(tmp_path / "db", SETTINGS, create=True) as opened:
        yield opened


@pytest.mark.tier("more")
@pytest.mark.parametrize("seed", range(4))
def test_runs_are_merged_as_rocksdb_merges_them(database: Database, tmp_path: Path, seed: int) -> None:
    """All keys differ, so that only the choice of runs decides their sizes."""
    chance, model, version, merged = random.Random(seed), Model(), 0, 0
    sizes = [30, 300] if seed % 2 else [30, 60, 300, 3000]
    bound = 24 if seed > 1 else 7
    for _ in range(8):
        paths = []
        counts = [chance.choice(sizes) + chance.randrange(20) for _ in range(chance.randrange(1, bound))]
        for records in counts:
            version += 1
            rows = {
                b"\0\0" + bytes(8) + chance.randbytes(8): chance.randbytes(VALUE_BYTES)
                for _ in range(records)
            }
            families = {"default": ColumnFamily(0)}
            metadata = DeltaMetadata(version, f"v{version}", None, 0, records, 0, families, "test")
            paths.append(tmp_path / f"{version}.sst")
            write_delta(paths[-1], sorted(rows.items()), metadata)
        database.ingest(paths)
        model.ingest(counts)
        before = len(model.runs)
        model.compact()
        merged += before - len(model.runs)
        expected = [run.level for run in model.runs]
        for _ in range(50):  # on a busy machine a merge may begin late
            database.compact_runs()
            found = [(run[0].level, sum(file.size_bytes for file in run)) for run in database.runs()]
            if [level for level, _ in found] == expected:
                break
        assert [level for level, _ in found] == expected
        for (_, size_bytes), run in zip(found, model.runs, strict=True):
            assert size_bytes == pytest.approx(run.size_bytes, rel=0.03)
        files, computed = len(database.files()), sum(len(run.files) for run in model.runs)
        assert computed == pytest.approx(files, rel=0.1, abs=2)
    assert merged > 10
    database.compact_all()
    run = model.merged(model.runs, DEEPEST)
    assert len(run.files) == pytest.approx(len(database.files()), rel=0.1, abs=2)
