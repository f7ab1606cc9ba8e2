"""Long keys and values beside short ones: all readers take memory by the bytes, not by the longest."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from traced_memory import bounded_memory

import state_store
from dataset.golden_states import checkpoint
from state_store.data.dataset.rewriting.importing import import_state
from state_store.data.rows.encoder import partitions_of

LENGTHS = (100, 1_000, 16_000, 100_000, 1 << 20)
SHORT = 200
SPARE_BYTES = 48 << 20
MAX_COPIES = 12


def long_rows(schema: pa.Schema, lengths: tuple[int, ...]) -> pa.Table:
    """Return rows whose key, value or both have each of these lengths, among short ones."""
    texts = [f"{number:06}" for number in range(SHORT)]
    keys, values = [f"k{text}" for text in texts], [f"v{text}" for text in texts]
    for length in lengths:
        keys += [f"a{length}" + "k" * length, f"a{length}", f"b{length}" + "k" * length]
        values += ["v", "v" * length, "v" * length]
    count = len(keys)
    given = {
        "carrier": keys,
        "day": values,
        "flights": list(range(count)),
        "delay": [0.5] * count,
        "worst": [None] * count,
        "timeoutTimestamp": [-1] * count,
    }
    return pa.table({name: pa.array(column, schema.field(name).type) for name, column in given.items()})


def imported_rows(root: Path, lengths: tuple[int, ...]) -> tuple[str, pa.Table]:
    """Return the checkpoint of a query with such rows, and the rows."""
    source = str(checkpoint("flights", root))
    with state_store.open(source) as state:
        rows = long_rows(state.schema, lengths)
    import_state(source, rows, str(root / "target"))
    return str(root / "target"), rows


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    return imported_rows(tmp_path_factory.mktemp("long"), LENGTHS)


def texts_of(table) -> set[tuple[str, str]]:
    return set(zip(table["carrier"].to_pylist(), table["day"].to_pylist(), strict=True))


def opened(directory, rows, root):
    with state_store.open(directory) as state:
        assert texts_of(state.to_arrow()) == texts_of(rows)


def shown(directory, rows, root):
    longest = max(rows["carrier"].to_pylist(), key=len)
    assert texts_of(state_store.show(directory, order_by="carrier")) == texts_of(rows)
    assert state_store.get(directory, longest)["carrier"] == longest


def counted(directory, rows, root):
    assert state_store.stats(directory).rows == len(rows)


def exported(directory, rows, root):
    with state_store.open(directory) as state:
        state.export(root / "rows.parquet")


def imported(directory, rows, root):
    import_state(directory, rows, str(root / "again"))


def verified(directory, rows, root):
    assert state_store.verify(directory).ok


def compared(directory, rows, root):
    differing = state_store.diff(directory, 0)
    assert differing["change"].unique().to_pylist() == ["added"]
    assert {day["day"] for day in differing["after"].to_pylist()} == set(rows["day"].to_pylist())
    assert set(differing["carrier"].to_pylist()) == set(rows["carrier"].to_pylist())


def remembered(directory, rows, root):
    longest = max(rows["carrier"].to_pylist(), key=len)
    (written,) = state_store.history(directory, longest)
    assert written.found["carrier"].to_pylist() == [longest]


def queried(directory, rows, root):
    assert texts_of(state_store.sql(directory, "select carrier, day from state")) == texts_of(rows)


def repartitioned(directory, rows, root):
    state_store.repartition(directory, root / "parts", 3)
    with state_store.open(root / "parts") as state:
        assert len(state.partitions) == 3
        assert texts_of(state.to_arrow()) == texts_of(rows)


READS = [
    opened,
    shown,
    counted,
    exported,
    imported,
    verified,
    compared,
    remembered,
    queried,
    repartitioned,
]


def check(directory, rows, root, read):
    with bounded_memory(SPARE_BYTES + MAX_COPIES * rows.nbytes):
        read(directory, rows, root)


@pytest.mark.parametrize("read", READS)
@pytest.mark.tier("more")
def test_memory_is_by_the_bytes(made, tmp_path, read):
    check(*made, tmp_path, read)


@pytest.mark.tier("long")
def test_memory_is_by_the_bytes_of_keys_and_values_of_64_mib(tmp_path):
    directory, rows = imported_rows(tmp_path, (*LENGTHS, 64 << 20))
    for read in READS:
        check(directory, rows, tmp_path, read)


@pytest.mark.parametrize("length", [1023, 1024, 1025, 1026, 1027, 5000])
def test_long_texts_are_hashed_like_short_ones(monkeypatch, length):
    fields = [pa.field("a", pa.string()), pa.field("b", pa.string())]
    columns = [pa.array(["x", "ä" * length + "y", None]), pa.array(["z" * length, "w", "é" * length])]
    found = partitions_of(columns, fields, 1 << 30)
    monkeypatch.setattr("state_store.data.rows.encoder._LONG_SLICE", 1 << 40)
    assert found.tolist() == partitions_of(columns, fields, 1 << 30).tolist()
