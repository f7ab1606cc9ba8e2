"""Function `state_store.open` on checkpoints of real queries: equal to Spark's reading in every respect."""

from __future__ import annotations

import datetime
import gc
import json
import os
import pydoc
import shutil
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import state_store
from dataset.golden_states import STATES, VERSIONS, checkpoint, clean_up, expected, in_order, shown
from state_store.core.storage.local import LocalStorage
from state_store.data.dataset import partitions
from state_store.errors import DamagedError, FormatError, MissingError, OptionError, StorageError

JOIN = Path(__file__).resolve().parents[2] / "golden" / "release-0.2.0"


@pytest.fixture(scope="module")
def flights(tmp_path_factory) -> str:
    return str(checkpoint("flights", tmp_path_factory.mktemp("states")))


@pytest.mark.parametrize("name", ["types", "flights"])
@pytest.mark.parametrize("version", VERSIONS)
def test_every_version_equals_spark_s_reading(name, version, tmp_path):
    with state_store.open(str(checkpoint(name, tmp_path)), version=version) as state:
        table = state.to_arrow()
        table.validate(full=True)
        assert in_order(map(shown, table.to_pylist())) == expected(name, version)
        assert state.count() == table.num_rows
        assert (state.version, state.batch) == (version, version - 1)


@pytest.mark.parametrize("name", ["types", "flights"])
def test_every_key_is_found_in_spark_s_partition(name, tmp_path):
    with state_store.open(str(checkpoint(name, tmp_path))) as state:
        keys = list(state.columns.key_names)
        for row in expected(name, VERSIONS[-1]):
            found = state.get({key: row[key] for key in keys})
            assert found is not None and shown(found) == row


@pytest.mark.parametrize("package", ["pyarrow", "numpy"])
def test_the_error_for_a_missing_package_names_the_command(package, flights, monkeypatch):
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(OptionError, match=rf"'{package}', which .* lacks: pip install {package} .*'arrow'"):
        state_store.open(flights)


def test_the_error_for_missing_pandas_names_the_command(flights, monkeypatch):
    monkeypatch.setitem(sys.modules, "pandas", None)
    with (
        state_store.open(flights) as state,
        pytest.raises(OptionError, match=r"'pandas', which .* lacks: pip install pandas .*'arrow'"),
    ):
        state.to_pandas()


def test_a_missing_key_is_none_and_a_wrong_one_is_refused(flights):
    with state_store.open(flights) as state:
        assert state.get("no such carrier") is None
        assert state.get(["C0"]) == state.get("C0") == state.get({"carrier": "C0"})
        with pytest.raises(OptionError, match="the columns carrier, not name"):
            state.get({"name": "C0"})
        for wrong in (5, ("C0", "C1")):
            with pytest.raises(OptionError, match="is not a value of column 'carrier'"):
                state.get(wrong)


def test_columns_and_filters_select_what_is_read(flights):
    rows = expected("flights", VERSIONS[-1])
    with state_store.open(flights) as state:
        some = state.to_arrow(["delay", "carrier"], pc.field("flights") > 8)
        assert some.schema.names == ["delay", "carrier"]
        wanted = [{"delay": row["delay"], "carrier": row["carrier"]} for row in rows if row["flights"] > 8]
        assert 0 < len(wanted) < len(rows)
        assert in_order(some.to_pylist()) == in_order(wanted)
        nested = state.to_arrow(filter=pc.field("worst", "delay") >= 28)
        assert in_order(nested.to_pylist()) == [row for row in rows if row["worst"]["delay"] >= 28]
        by_key = state.scan(filter=state.key_filter("C1")).read_all()
        assert by_key.to_pylist() == [row for row in rows if row["carrier"] == "C1"]
        with pytest.raises(MissingError, match="no column 'speed'; there are: carrier, flights"):
            state.scan(["speed"])


def test_batches_are_bounded_and_streams_end(tmp_path):
    with state_store.open(str(checkpoint("types", tmp_path))) as state:
        sizes = [batch.num_rows for batch in state.scan(batch_rows=3)]
        assert max(sizes) == 3 and sum(sizes) == state.count()
        assert sum(batch.num_rows for batch in state.to_batches(["k_text"])) == state.count()
        assert pa.RecordBatchReader.from_stream(state).read_all().num_rows == state.count()
        assert len(state.to_pandas()) == state.count()
        with pytest.raises(OptionError, match="batch_rows is 1 or more"):
            state.scan(batch_rows=0)


def test_duckdb_and_polars_read_a_state(flights):
    import duckdb
    import polars

    with state_store.open(flights) as state:
        total = sum(row["flights"] for row in expected("flights", VERSIONS[-1]))
        assert duckdb.sql("select sum(flights) from state").fetchall() == [(total,)]
        assert polars.DataFrame(state)["flights"].sum() == total


def test_partitions_select_what_is_read(flights):
    rows = expected("flights", VERSIONS[-1])
    with state_store.open(flights, partitions=[1]) as state:
        assert in_order(state.to_arrow().to_pylist()) == [row for row in rows if row["partition_id"] == 1]
        other = next(row["carrier"] for row in rows if row["partition_id"] == 0)
        with pytest.raises(MissingError, match="partition 0, which was not opened"):
            state.get(other)
    with pytest.raises(MissingError, match="no partition 2: the store has 0 to 1"):
        state_store.open(flights, partitions=[2])


@pytest.mark.parametrize("form", ["ids", "no-ids"])
def test_each_side_of_a_join_is_read_as_its_rows(form, tmp_path):
    """Each side has 24 rows of the last 4 batches; older rows were evicted."""
    directory = str(shutil.copytree(JOIN / form, tmp_path / form))
    sides = {}
    for side in ("left", "right"):
        with state_store.open(directory, store=side) as state:
            assert state.schema.names == ["field0", "value", "key", "ts", "matched", "partition_id"]
            sides[side] = state.to_arrow().to_pylist()
            with pytest.raises(OptionError, match="several rows"):
                state.get(1)
            some = state.to_arrow(filter=state.key_filter(1)).to_pylist()
            assert in_order(some) == in_order(row for row in sides[side] if row["field0"] == 1) != []
        with state_store.open(directory, store=f"{side}-keyToNumValues") as counts:
            assert sum(counts.to_arrow()["value"].to_pylist()) == len(sides[side])
        assert {row["key"] for row in sides[side]} == {row["field0"] for row in sides[side]}
    assert len(sides["left"]) > len(sides["right"]) > 0
    with state_store.open(directory) as state:
        assert in_order(state.to_arrow().to_pylist()) == in_order(sides["left"])
    with pytest.raises(MissingError, match=r"no store 'default'; there are: left, right, left-keyTo"):
        state_store.open(directory, store="default")


@pytest.mark.parametrize("form", ["ids", "no-ids"])
@pytest.mark.parametrize("side", ["left", "right"])
def test_the_history_of_a_side_of_a_join_equals_each_version(form, side, tmp_path):
    """At each version a key has the rows that wait then; the version wrote it if they differ."""
    directory = str(shutil.copytree(JOIN / form, tmp_path / form))
    with state_store.open(directory, store=side) as state:
        history = state.history(1)
        table = state.history_rows(1).to_pylist()
        assert [version.version for version in history] == list(range(history[0].version, state.version + 1))
    before = None
    for at in history:
        with state_store.open(directory, store=side, version=at.version) as then:
            found = in_order(then.rows_of(1).to_pylist())
        assert in_order(at.rows) == found
        assert before is None or at.is_changed == (found != before)
        rows_at_version = [row for row in table if row["version"] == at.version]
        assert [row["value"] for row in rows_at_version] == [row["value"] for row in at.rows] or [None]
        before = found
    assert len({len(at.rows) for at in history}) > 1


@pytest.mark.parametrize("form", ["ids", "no-ids"])
def test_a_history_begins_at_the_oldest_restorable_version(form, tmp_path):
    """Nothing is left before the first delta: older rows come from version 4."""
    directory = shutil.copytree(JOIN / form, tmp_path / form)
    for number in (1, 2):
        for file in directory.glob(f"state/0/*/left-keyWithIndexToValue/[ds]*/{number:020}*"):
            file.unlink()
    with state_store.open(str(directory), store="left") as state:
        history = state.history(1)
        assert in_order(history[-1].rows) == in_order(state.rows_of(1).to_pylist()) != []
    assert [version.version for version in history] == [4, 5, 6]
    for at in history:
        with state_store.open(str(directory), store="left", version=at.version) as then:
            assert in_order(at.rows) == in_order(then.rows_of(1).to_pylist())


def test_a_version_is_chosen_by_batch_and_by_time(flights):
    logs = sorted((Path(flights) / "commits").glob("[0-9]*"), key=lambda path: int(path.name))
    for number, path in enumerate(logs):
        os.utime(path, (1_700_000_000 + number, 1_700_000_000 + number))
    moment = datetime.datetime.fromtimestamp(1_700_000_001, datetime.timezone.utc)
    with state_store.open(flights, batch=1) as by_batch, state_store.open(flights, at=moment) as by_time:
        assert by_batch.version == by_time.version == 2
    with state_store.open(flights, at=moment.replace(tzinfo=None)) as utc:
        assert utc.version == 2
    with pytest.raises(MissingError, match="oldest batch"):
        state_store.open(flights, at=datetime.datetime(2001, 1, 1))
    with pytest.raises(OptionError, match="not by several"):
        state_store.open(flights, batch=1, version=2)
    with pytest.raises(MissingError, match=r"no version 9 yet: .* Spark has committed batch 3 last"):
        state_store.open(flights, version=9)


def test_missing_operators_and_checkpoints_are_named(flights, tmp_path):
    with pytest.raises(MissingError, match="no stateful operator 3; there are: 0"):
        state_store.open(flights, operator=3)
    with pytest.raises(MissingError, match="checkpointLocation"):
        state_store.open(str(tmp_path))


def leases(directory: str) -> list[Path]:
    return list((Path(directory) / "state").glob("0/*/lease/*.json"))


def test_a_lease_protects_files_from_clean_ups(tmp_path):
    directory = str(checkpoint("flights", tmp_path))
    with state_store.open(directory, version=2) as state:
        assert len(leases(directory)) == 2
        clean_up(directory)
        assert in_order(state.to_arrow().to_pylist()) == expected("flights", 2)
        assert in_order(state.to_arrow().to_pylist()) == expected("flights", 2)
    assert leases(directory) == []


def test_a_collected_state_releases_its_files(tmp_path):
    directory = str(checkpoint("flights", tmp_path))
    state = state_store.open(directory)
    assert leases(directory)
    del state
    gc.collect()
    assert leases(directory) == []


def test_the_error_for_a_deleted_version_lists_the_others(tmp_path):
    directory = checkpoint("flights", tmp_path)
    for delta in directory.glob(f"state/0/0/delta/{1:020}_*"):
        delta.unlink()
    with pytest.raises(MissingError, match=r"version 1 is not in store 0/0/default any more.*restored: [23]"):
        state_store.open(str(directory), version=1)


def test_a_read_only_storage_has_no_lease(tmp_path, monkeypatch):
    def refused(*_: object, **__: object) -> None:
        raise StorageError("read only")

    monkeypatch.setattr(LocalStorage, "write", refused)
    directory = str(checkpoint("flights", tmp_path))
    with state_store.open(directory) as state:
        assert in_order(state.to_arrow().to_pylist()) == expected("flights", VERSIONS[-1])
    assert leases(directory) == []


@pytest.mark.parametrize(
    ("key", "value", "error", "why"),
    [
        (
            "providerClass",
            "org.apache.spark.Other",
            OptionError,
            "was started with the state store org.apache",
        ),
        ("encodingFormat", "avro", FormatError, "encoded with Avro"),
    ],
)
def test_state_of_an_unknown_form_is_refused_with_the_reason(key, value, error, why, tmp_path):
    directory = checkpoint("flights", tmp_path)
    for path in (directory / "offsets").iterdir():
        lines = path.read_text().split("\n")
        entry = json.loads(lines[1])
        entry["conf"][f"spark.sql.streaming.stateStore.{key}"] = value
        path.write_text("\n".join([lines[0], json.dumps(entry), *lines[2:]]))
    with pytest.raises(error, match=why):
        state_store.open(str(directory))


def test_a_closed_state_raises_an_error(flights):
    state = state_store.open(flights)
    state.close()
    state.close()
    with pytest.raises(OptionError, match="was closed"):
        state.to_arrow()


def test_a_damaged_file_is_named(tmp_path):
    directory = checkpoint("flights", tmp_path)
    for path in (directory / "state/0/0").glob("*/*.sst"):
        data = bytearray(path.read_bytes())
        data[len(data) // 3] ^= 1
        path.write_bytes(bytes(data))
    with state_store.open(str(directory)) as state, pytest.raises(DamagedError, match=r"\.sst' is damaged"):
        state.to_arrow()


def test_a_lost_row_is_an_error(flights, monkeypatch):
    all_rows = partitions.rows
    monkeypatch.setattr(
        partitions, "rows", lambda *place: (page.take(slice(1, None)) for page in all_rows(*place))
    )
    with state_store.open(flights) as state, pytest.raises(DamagedError, match="says that it has"):
        state.to_arrow()


def test_a_damaged_schema_is_named(tmp_path):
    directory = checkpoint("flights", tmp_path)
    path = directory / "state/0/0/_metadata/schema"
    undamaged = path.read_bytes()
    for length in range(0, len(undamaged), 7):
        path.write_bytes(undamaged[:length])
        with pytest.raises(DamagedError, match="_metadata/schema' is damaged"):
            state_store.open(str(directory))


def test_expected_files_are_all_read():
    assert len(list(STATES.glob("*.arrow"))) == 2 * len(VERSIONS)


def test_a_closed_state_says_so(flights):
    with state_store.open(flights) as state:
        assert repr(state).startswith("State(operator 0")
    assert repr(state).startswith("State(closed, operator 0")
    assert "State(closed, " in state._repr_html_()
    with pytest.raises(OptionError, match="was closed"):
        state.to_arrow()


@pytest.mark.parametrize("name", sorted({*state_store.__all__} - {"__version__"}))
def test_the_help_of_a_public_name_shows_no_object_of_a_process(name):
    public = getattr(state_store, name)
    assert " object at 0x" not in pydoc.plain(pydoc.render_doc(public))
