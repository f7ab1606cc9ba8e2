"""Rows of a table as the state of a query, byte for byte like Spark's if they are the same rows."""

from __future__ import annotations

import errno
import json
import os
import re
import shutil
from pathlib import Path

import numpy
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import state_store
from dataset.golden_states import VERSIONS, checkpoint, expected, in_order, shown, stored
from state_store.cli.main import main
from state_store.cli.process import ExitCode
from state_store.data.dataset.columns import Columns, _normalized, _typed
from state_store.data.dataset.rewriting import importing
from state_store.data.dataset.rewriting.importing import import_state
from state_store.data.dataset.views import FamilySchema, View
from state_store.data.query import Operator
from state_store.data.rows.decoder import KeyLayout
from state_store.data.rows.encoder import encode_keys
from state_store.errors import MissingError, OptionError, StorageError

JOIN = Path(__file__).resolve().parents[2] / "golden" / "release-0.2.0" / "ids"


@pytest.mark.parametrize(
    ("given", "kind", "is_void"),
    [
        (pa.array([None, None], pa.int32()), pa.null(), True),
        (pa.array([None, 1], pa.int32()), pa.null(), False),
        (pa.array([{"a": 1, "b": None}, None]), pa.struct([("a", pa.int64()), ("b", pa.null())]), True),
        (pa.array([{"a": 1, "b": 2}, None]), pa.struct([("a", pa.int64()), ("b", pa.null())]), False),
    ],
)
def test_nulls_of_any_type_are_those_of_void(given, kind, is_void):
    """Parquet has no type for them: Spark reads such a column as integers."""
    if pa.types.is_struct(kind):
        given = given.cast(pa.struct([("a", pa.int64()), ("b", pa.int32())]))
    batch = pa.record_batch({"column": given})
    if is_void:
        found = _typed(batch, pa.field("column", kind))
        assert (found.type, found.to_pylist()) == (kind, given.to_pylist())
    else:
        with pytest.raises(OptionError, match=f"has type {re.escape(str(given.type))}, not"):
            _typed(batch, pa.field("column", kind))


@pytest.mark.parametrize("name", ["types", "flights"])
def test_the_same_rows_make_the_same_state(name, tmp_path):
    source, target = str(checkpoint(name, tmp_path)), str(tmp_path / "target")
    with state_store.open(source) as state:
        done = import_state(source, state, target)
    assert (done.version, done.rows) == (VERSIONS[-1], len(expected(name, VERSIONS[-1])))
    assert stored(target) == stored(source)
    assert main(["verify", target]) == 0


def test_slices_of_batches_make_the_same_state(tmp_path):
    """As Spark's `createDataFrame` cuts a table: structs with offsets and columns of nulls within."""
    source, target = str(checkpoint("types", tmp_path)), str(tmp_path / "target")
    with state_store.open(source) as state:
        (batch,) = state.to_arrow().combine_chunks().to_batches()
    slices = [batch.slice(at, 3) for at in range(0, batch.num_rows, 3)]
    import_state(source, pa.Table.from_batches(slices), target)
    assert stored(target) == stored(source)


def test_rows_of_a_file_replace_all(tmp_path, capsys):
    source, target = str(checkpoint("flights", tmp_path)), tmp_path / "target"
    rows = [
        {**row, "carrier": f"N{number}", "flights": number}
        for number, row in enumerate(expected("flights", 2))
    ]
    with state_store.open(source) as state:
        pq.write_table(
            pa.Table.from_pylist(rows, state.schema).drop_columns("partition_id"), tmp_path / "rows"
        )
    assert main(["import", source, str(tmp_path / "rows"), str(target), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["rows"] == len(rows)
    with state_store.open(str(target)) as state:
        found = [shown(row) for row in state.to_arrow().to_pylist()]
        assert [{**row, "partition_id": 0} for row in in_order(found)] == [
            {**row, "partition_id": 0} for row in rows
        ]
        assert all(state.get(row["carrier"]) is not None for row in rows)
    for log in ("offsets", "sources"):
        assert {path.name for path in (Path(source) / log).glob("[0-9]*")} == {
            path.name for path in (target / log).glob("[0-9]*")
        }


def test_both_sides_of_a_join_are_imported_at_once(tmp_path, capsys):
    source, target = str(shutil.copytree(JOIN, tmp_path / "join")), str(tmp_path / "target")
    arguments = []
    for side in ("left", "right"):
        with state_store.open(source, store=side) as state:
            state.export(tmp_path / side)
        arguments.append(f"{side}={tmp_path / side}")
    assert main(["import", source, *arguments, target, "--json"]) == 0
    assert [sorted(partition) for partition in stored(target)] == [
        sorted(partition) for partition in stored(source)
    ]
    assert sides(target) == sides(source)
    assert json.loads(capsys.readouterr().out)["rows"] == sum(map(len, stored(source)))
    other = str(tmp_path / "other")
    for wrong, why in [
        ([arguments[0], str(tmp_path / "right")], "give NAME=ROWS for each"),
        ([arguments[0], f"{tmp_path}/side=right"], "give NAME=ROWS for each"),
        ([arguments[0], arguments[0]], "Give each name once"),
        ([*arguments, "--store", "left"], "for rows without a name"),
    ]:
        assert main(["import", source, *wrong, other]) == ExitCode.USAGE
        assert why in " ".join(capsys.readouterr().err.split())
    folder = tmp_path / "side=left"
    (tmp_path / "left").rename(folder)
    assert main(["import", source, str(folder), target + "-2", "--store", "left", "--json"]) == 0
    assert sides(target + "-2") == sides(source)


def sides(checkpoint: str) -> list[list[dict]]:
    found = []
    for side in ("left", "right"):
        with state_store.open(checkpoint, store=side) as state:
            found.append(in_order(state.to_arrow().to_pylist()))
    return found


def test_rows_that_do_not_fit_are_refused(tmp_path):
    source, target = str(checkpoint("flights", tmp_path)), str(tmp_path / "target")
    with state_store.open(source) as state:
        table = state.to_arrow()
    with pytest.raises(MissingError, match="no column 'delay'"):
        import_state(source, table.drop_columns("delay"), target)
    with pytest.raises(OptionError, match="column 'worst' of the rows has type"):
        wrong = pa.array(["x"] * len(table))
        import_state(source, table.set_column(table.schema.get_field_index("worst"), "worst", wrong), target)
    with pytest.raises(OptionError, match="a key twice"):
        import_state(source, pa.concat_tables([table, table.slice(0, 1)]), target)
    with pytest.raises(MissingError, match="there is no"):
        import_state(source, str(tmp_path / "nothing"), target)
    assert not (tmp_path / "target" / "commits").exists()


def test_no_directory_of_the_rows_is_left_out(tmp_path, monkeypatch):
    source, target = str(checkpoint("flights", tmp_path)), str(tmp_path / "target")
    rows, elsewhere = tmp_path / "rows", tmp_path / "elsewhere"
    for directory in (rows / "a", rows / "b", elsewhere):
        directory.mkdir(parents=True)
    (rows / "c").symlink_to(elsewhere)
    with state_store.open(source) as state:
        table = state.to_arrow().drop_columns("partition_id")
    for number, directory in enumerate((rows / "a", rows / "b", elsewhere)):
        pq.write_table(table.slice(number, None if number == 2 else 1), directory / "part.parquet")
    assert import_state(source, str(rows), target).rows == len(table)
    scandir = os.scandir

    def denied(path):
        if str(path).endswith("/b"):
            raise PermissionError(errno.EACCES, "Permission denied", str(path))
        return scandir(path)

    monkeypatch.setattr(os, "scandir", denied)
    with pytest.raises(StorageError, match=r"cannot list '.*rows/b'.*Permission denied"):
        import_state(source, str(rows), str(tmp_path / "other"))


def test_a_writer_of_spark_connect_cannot_be_bootstrapped(tmp_path):
    with pytest.raises(OptionError, match="not of Spark Connect"):
        state_store.bootstrap(object(), str(tmp_path / "target"), pa.table({}))
    assert list(tmp_path.iterdir()) == []


@pytest.fixture(params=["local", "remote"])
def where(request, monkeypatch) -> str:
    """Let tables be found where they are, or as those in another storage."""
    if request.param == "remote":
        monkeypatch.setattr(importing, "local_path", lambda location: None)
    return str(request.param)


def _split(source: str, directory: Path) -> pa.Table:
    """Write the rows of a state to two files in directories of their own, and return them."""
    with state_store.open(source) as state:
        table = state.to_arrow()
    for name, part in (("a/x=1/one", table.slice(0, 2)), ("b/two", table.slice(2))):
        file = directory / f"{name}.parquet"
        file.parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(part, file)
    return table


def test_files_in_directories_below_are_read(tmp_path, where):
    source, rows = str(checkpoint("flights", tmp_path)), tmp_path / "rows"
    _split(source, rows)
    import_state(source, str(rows), tmp_path / "target")
    assert stored(str(tmp_path / "target")) == stored(source)


def test_files_that_spark_does_not_read_are_not_read(tmp_path, where):
    source, rows = str(checkpoint("flights", tmp_path)), tmp_path / "rows"
    table = _split(source, rows)
    for hidden in (".spark-staging-1/a/part.parquet", "_backup/part.parquet", "a/.part.parquet"):
        (rows / hidden).parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(table, rows / hidden)
    import_state(source, str(rows), tmp_path / "target")
    assert stored(str(tmp_path / "target")) == stored(source)


@pytest.mark.parametrize("is_seen_by_arrow", [True, False])
def test_damaged_pages_of_an_export_are_not_read_as_rows(is_seen_by_arrow, tmp_path, where):
    """Arrow takes many of them for other rows, unless it is told to look at the checksums of pages."""
    source = checkpoint("flights", tmp_path)
    exported, target = tmp_path / "exported", tmp_path / "target"
    state_store.export(source, exported)
    file = max(exported.glob("*.parquet"), key=lambda path: path.stat().st_size)
    content = file.read_bytes()
    chunk = pq.read_metadata(file).row_group(0).column(0)
    start = chunk.dictionary_page_offset or chunk.data_page_offset

    def is_read(at):
        file.write_bytes(content[:at] + bytes([content[at] ^ 1]) + content[at + 1 :])
        try:
            return pq.read_table(file).num_rows > 0
        except OSError:
            return False

    next(
        at for at in range(start + 20, start + chunk.total_compressed_size) if is_read(at) != is_seen_by_arrow
    )
    with pytest.raises(OptionError, match=f"{file}' is a damaged Parquet file"):
        import_state(source, str(exported), target)
    assert not target.exists()


@pytest.mark.parametrize(
    ("file", "why"),
    [
        ("_temporary/0/part.parquet", "a write that is not finished"),
        ("_delta_log/00000000000000000000.json", "is a Delta table"),
        ("_spark_metadata/0", "is a file sink's output"),
        ("a/notes.txt", "is not a Parquet file"),
    ],
)
def test_directories_whose_files_may_not_count_are_refused(tmp_path, where, file, why):
    source, rows = str(checkpoint("flights", tmp_path)), tmp_path / "rows"
    _split(source, rows)
    (rows / file).parent.mkdir(parents=True, exist_ok=True)
    (rows / file).write_text("v1")
    with pytest.raises(OptionError, match=why):
        import_state(source, str(rows), tmp_path / "target")
    assert not (tmp_path / "target").exists()


def test_a_uri_with_a_column_and_its_value_is_no_name_of_a_store(tmp_path, capsys):
    source, rows = str(checkpoint("flights", tmp_path)), tmp_path / "day=2024-02-29"
    _split(source, rows)
    assert main(["import", source, f"file://{rows}", str(tmp_path / "target")]) == 0
    assert main(["import", source, f"{rows}/none", str(tmp_path / "other")]) == ExitCode.NOT_FOUND
    assert f"there is no '{rows}/none'" in capsys.readouterr().err


@pytest.mark.parametrize("bits", [0x8000000000000000, 0x7FF8000000000001, 0xFFF8000000000000])
def test_keys_are_the_numbers_that_an_aggregation_looks_for(tmp_path, bits):
    """Spark makes 0.0 of -0.0, and one NaN of all, before it groups or joins."""
    source = str(checkpoint("types", tmp_path))
    given = numpy.array([bits], numpy.uint64).view(float)
    plain = numpy.array([float("nan") if numpy.isnan(given[0]) else 0.0])
    with state_store.open(source) as state:
        rows = state.to_arrow()
    tables = []
    for name, number in (("given", given), ("plain", plain)):
        at = rows.column_names.index("k_ratio")
        numbers = pa.array(numpy.repeat(number, len(rows)))
        tables.append(rows.set_column(at, rows.schema.field(at), numbers))
        import_state(source, tables[-1], tmp_path / name)
    assert stored(str(tmp_path / "given")) == stored(str(tmp_path / "plain"))
    with pytest.raises(OptionError, match="a key twice"):
        import_state(source, pa.concat_tables(tables), tmp_path / "doubled")


def test_keys_are_normalized_within_other_values():
    minus = numpy.array([-0.0, 1.0, -0.0])
    column = pa.array(
        [None, {"a": None, "b": []}, {"a": -0.0, "b": [None, -0.0, 2.5]}, {"a": -0.0, "b": None}],
        pa.struct([("a", pa.float32()), ("b", pa.list_(pa.float64()))]),
    )[1:]
    found = _normalized(column)
    assert (found.type, found.to_pylist()) == (column.type, column.to_pylist())
    assert "-0.0" not in repr(found.to_pylist())
    assert repr(_normalized(pa.array(minus)).to_pylist()) == "[0.0, 1.0, 0.0]"


def test_rows_of_a_join_and_their_count_have_the_same_key():
    key = pa.schema([("field0", pa.float64()), ("index", pa.int64())])
    for name, minus in (("symmetricHashJoin", "[0.0]"), ("applyInPandasWithState", "[-0.0]")):
        operator = Operator(0, name, {"default": 1})
        schema = FamilySchema("default", key, pa.schema([("n", pa.int64())]), KeyLayout())
        columns = Columns(View("default", operator, "default", schema))
        batch = pa.record_batch({"field0": [-0.0], "index": [0], "n": [1]})
        encoded, _, keys = columns.encode(batch)
        assert repr(keys[0].to_pylist()) == minus
        assert encoded == encode_keys(keys, 1, schema.layout)
