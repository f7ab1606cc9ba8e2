"""Views: at each version, as variables come and go at restarts; and without columns that say nothing."""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping
from pathlib import Path

import pyarrow as pa
import pytest

import state_store
from dataset.golden_states import checkpoint, expected, in_order, shown, stored
from state_store.data.dataset.columns import Columns
from state_store.data.dataset.views import FamilySchema, View, _with_own_names
from state_store.data.query import Operator
from state_store.data.rows.decoder import KeyLayout
from state_store.data.rows.encoder import encode
from state_store.errors import MissingError

KEY = {"fields": [{"name": "key", "type": "string", "nullable": True}]}
ENCODER = '{"keyStateEncoderType": "NoPrefixKeyStateEncoderSpec"}'
VARIABLES: Mapping[int, tuple[str, ...]] = {0: ("kept",), 2: ("kept", "late"), 3: ("kept",)}
"""The variables of the query, by the batch of the restart that introduced them."""


def text(value: str) -> bytes:
    """Return a text as Java's `DataOutputStream.writeUTF` writes it."""
    return struct.pack(">H", len(value)) + value.encode()


def text_in_parts(value: str) -> bytes:
    return struct.pack(">i", 1) + text(value)


def schemas(names: tuple[str, ...]) -> bytes:
    found = text("v3") + struct.pack(">i", len(names))
    for name in names:
        value = {"fields": [{"name": f"n_{name}", "type": "long", "nullable": True}]}
        found += (
            text(name)
            + text_in_parts(json.dumps(KEY))
            + text_in_parts(json.dumps(value))
            + text_in_parts(ENCODER)
        )
        found += struct.pack(">i", 0)
    return found


@pytest.fixture
def directory(tmp_path) -> str:
    """Make a query of four batches whose operator has column families, as Spark describes them."""
    root = checkpoint("flights", tmp_path)
    (root / "state/0/_metadata/metadata").unlink()
    files: list[str] = []
    for batch, names in VARIABLES.items():
        path = f"state/0/_stateSchema/default/{batch}_id"
        files.append(f"file:{root}/{path}")
        _write(root / path, schemas(names))
        store = {"storeName": "default", "numPartitions": 2, "stateSchemaFilePaths": list(files)}
        operator = {"operatorId": 0, "operatorName": "transformWithStateExec"}
        described = {"operatorInfo": operator, "stateStoreInfo": [store], "operatorPropertiesJson": "{}"}
        _write(root / f"state/0/_metadata/v2/{batch}", f"v2\n{json.dumps(described)}".encode())
    return str(root)


def _write(path: Path, data: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)


@pytest.mark.parametrize("version", [1, 2, 3, 4])
def test_each_version_has_the_variables_that_the_query_had_then(directory, version):
    with state_store.open(directory, store="kept", version=version) as state:
        assert state.schema.names == ["key", "n_kept", "partition_id"]
    if version == 3:
        with state_store.open(directory, store="late", version=version) as state:
            assert state.schema.names == ["key", "n_late", "partition_id"]
        return
    with pytest.raises(MissingError, match=r"there are: kept; it is there from version 3 to 3$"):
        state_store.open(directory, store="late", version=version)
    with pytest.raises(MissingError, match=r"no store 'other'; there are: kept$"):
        state_store.open(directory, store="other", version=version)


def test_a_late_variable_exists_since_its_batch(directory):
    (Path(directory) / "state/0/_metadata/v2/3").unlink()
    with pytest.raises(MissingError, match=r"it is there from version 3 on$"):
        state_store.open(directory, store="late", version=2)


def test_the_oldest_description_counts_if_spark_has_forgotten_the_batch(directory):
    (Path(directory) / "state/0/_metadata/v2/0").unlink()
    with state_store.open(directory, store="late", version=1) as state:
        assert state.schema.names == ["key", "n_late", "partition_id"]


def test_messages_call_an_operator_by_what_it_does(tmp_path):
    described = checkpoint("flights", tmp_path) / "state/0/_metadata/metadata"
    text = described.read_text("utf-8")
    name = json.loads(text.splitlines()[1])["operatorInfo"]["operatorName"]
    for spark, words in (("dedupe", "deduplication"), ("ofALaterSpark", "ofALaterSpark")):
        described.write_text(text.replace(name, spark), "utf-8")
        with pytest.raises(MissingError, match=rf"there are: 0 \({words}\)$"):
            state_store.open(tmp_path / "flights", operator=3)


TIME = pa.timestamp("us", "UTC")
WINDOW = pa.struct([("start", TIME), ("end", TIME)])
WITHOUT_CONTENT = {
    "deduplication": (
        "dedupe",
        [("user", pa.string())],
        [("__dummy__", pa.null())],
        ["user", "partition_id"],
        [{"__dummy__": None}, {"__dummy__": None}],
    ),
    "a session, which counts under the name of its key": (
        "sessionWindowStateStoreSaveExec",
        [("count", pa.string()), ("sessionStartTime", TIME)],
        [("count", pa.string()), ("session_window", WINDOW), ("count", pa.int64())],
        ["count", "sessionStartTime", "session_window", "value_count", "partition_id"],
        [("a", {"start": 1, "end": 2}, 3), ("b", {"start": 5, "end": 9}, None)],
    ),
    "another operator, whose value has a name of the key": (
        "stateStoreSave",
        [("count", pa.string())],
        [("count", pa.string())],
        ["count", "value_count", "partition_id"],
        [("x",), (None,)],
    ),
}


@pytest.mark.parametrize("kind", WITHOUT_CONTENT)
def test_columns_are_those_with_content_and_rows_stay_as_they_are(kind: str) -> None:
    operator, key, value, names, values = WITHOUT_CONTENT[kind]
    keys = [("a", 0), ("b", 5)] if len(key) == 2 else [("a",), ("b",)]
    view = View(
        "default",
        Operator(0, operator, {"default": 1}),
        "default",
        FamilySchema("default", pa.schema(key), pa.schema(value), KeyLayout(())),
    )
    stored_keys = encode(_arrays(key, keys), 2).to_pylist()
    rows = [tuple(v.values()) if isinstance(v, dict) else v for v in values]
    stored_values = encode(_arrays(value, rows), 2).to_pylist()
    columns = Columns(view)
    assert columns.schema.names == names
    batch = columns.decode([b"\0\0" + key for key in stored_keys], stored_values, 0)
    batch.validate(full=True)
    again = columns.encode(batch)[:2]
    assert [column.to_pylist() for column in again] == [stored_keys, stored_values]


def _arrays(fields: list, rows: list) -> list[pa.Array]:
    return [pa.array([row[at] for row in rows], kind) for at, (_, kind) in enumerate(fields)]


def test_columns_of_a_key_that_have_the_same_name_are_told_apart(tmp_path):
    """Spark calls all expressions by which a query groups `_groupingexpression`."""
    source = checkpoint("types", tmp_path)
    path = source / "state/0/0/_metadata/schema"
    for name in (b"k_flag", b"k_tags"):
        path.write_bytes(path.read_bytes().replace(b'"%s"' % name, b'"k_text"'))
    others = {"k_flag": "k_text_2", "k_tags": "k_text_3"}
    rows = [{others.get(name, name): value for name, value in row.items()} for row in expected("types", 4)]
    with state_store.open(str(source)) as state:
        assert in_order(shown(row) for row in state.to_arrow().to_pylist()) == in_order(rows)
        key = {name: rows[0][name] for name in state.columns.key_names}
        assert {"k_text", "k_text_2", "k_text_3"} < {*key}
        assert state.get(key)["count"] == rows[0]["count"]
        assert len(state.history(key)) == 4
        assert [*state.diff(0).read_all().column_names][1:4] == ["k_text", "k_number", "k_text_2"]
        state.export(tmp_path / "exported")
    state_store.import_state(source, tmp_path / "exported", tmp_path / "imported")
    assert stored(str(tmp_path / "imported")) == stored(str(source))
    assert state_store.sql(str(source), "select k_text_2 from state").num_rows == len(rows)


def test_a_session_has_the_columns_of_its_key_in_its_value():
    key = pa.schema([("a", pa.string()), ("a", pa.int64()), ("a_2", pa.int64()), ("sessionStartTime", "i8")])
    value = pa.schema([("a", pa.string()), ("a", pa.int64()), ("a_2", pa.int64()), ("count", pa.int64())])
    operator = Operator(0, "sessionWindowStateStoreSaveExec", {"default": 1})
    schema = _with_own_names(FamilySchema("default", key, value, KeyLayout((0,))), operator)
    assert schema.key.names == ["a", "a_3", "a_2", "sessionStartTime"]
    assert schema.value.names == ["a", "a_3", "a_2", "count"]
    columns = Columns(View("default", operator, "default", schema))
    assert columns.schema.names == ["a", "a_3", "a_2", "sessionStartTime", "count", "partition_id"]
