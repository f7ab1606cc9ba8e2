"""State as tables equals Spark's `statestore` source, for every operator, and every command takes it."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import late_workers
import pyarrow.parquet as pq
import pytest
from dataset.golden_states import flattened, in_order
from golden.write_states import KEY_TYPES, KEYS, TYPES
from queries.scenarios import records
from queries.scenarios.catalogue import SCENARIOS
from queries.scenarios.scenario import Scenario
from queries.small.flow import session_options

import state_store
from state_store.cli.commands import NAMES
from state_store.cli.main import main
from state_store.data.dataset.views import View, views
from state_store.data.query import Query
from state_store.data.rows.decoder import decode
from state_store.data.rows.encoder import encode, partitions_of
from state_store.data.rows.types import schema_of

pytestmark = [pytest.mark.spark, pytest.mark.older(long=("4.2", "4.1")), pytest.mark.tier("more")]

BATCHES = 4
FEW = ["session-window-append", "pandas-event-time", "limit", "chained-join"]
NO_KEYS = ("folded", "by_name", "by_day", "any", "calendar")
"""Columns by which Spark does not partition, or not by their bytes."""

VARIABLES = {"sums", "ids", "counts"}
EXPIRES = {
    "aggregation-append": "window",
    "session-window-append": "session_window",
    "drop-duplicates-within-watermark": "expiresAtMicros",
    "pandas-event-time": "timeoutTimestamp",
}
"""Columns that say when rows expire."""


@pytest.fixture(scope="module")
def rows(spark):
    """Return rows of every Spark type in Spark's memory format, and their schema."""
    kinds = {**{name: kind.format(keys=KEYS) for name, kind in KEY_TYPES.items()}, **TYPES}
    kinds["calendar"] = "make_interval(1, 2, 3, cast(value as int), 5, 6, 7.5)"
    names = [
        f"if(value % 13 = {number % 13}, null, {kind}) as {name}"
        for number, (name, kind) in enumerate(kinds.items())
    ]
    frame = spark.range(60).selectExpr("id as value").selectExpr("value", *names)
    plan = frame._jdf.queryExecution().executedPlan()
    found = [b"\0" + bytes(row.getBytes()) for row in plan.executeCollect()]
    return frame, found, schema_of(frame._jdf.schema().json(), file="frame")


def test_rows_of_every_type_are_spark_s(rows):
    frame, found, schema = rows
    batch = decode(found, schema)
    batch.validate(full=True)
    left_out = (
        "calendar",
        "any",
        "term",
        "place",
        "by_day",
        "k_place",
    )  # Spark cannot return all of these
    shown = frame.drop(*left_out)
    others = [name for name in schema.names if name not in left_out]
    assert batch.select(others).to_pylist() == shown.toArrow().to_pylist()
    terms = frame.selectExpr("cast(term as int) as term").toArrow()["term"].to_pylist()
    assert batch["term"].to_pylist() == terms
    calendar = [row and tuple(row) for row in batch["calendar"].to_pylist()]
    assert calendar[20] == (14, 21 + 20, (5 * 3600 + 6 * 60 + 7.5) * 1e9)
    # If an interval is null, Spark leaves old bytes of its buffer in the 16 bytes of its room.
    with_value = [place for place, row in enumerate(calendar) if row is not None]
    assert len(with_value) < len(found)
    again = encode(batch.columns, len(found)).to_pylist()
    assert [again[place] for place in with_value] == [found[place] for place in with_value]


def test_every_key_is_in_spark_s_partition(rows):
    frame, found, schema = rows
    batch = decode(found, schema)
    keys = {name: [name] for name in schema.names if name not in NO_KEYS} | {"all": list(KEY_TYPES)}
    asked = {f"{name}_{count}": (names, count) for name, names in keys.items() for count in (1, 7, 200)}
    places = frame.selectExpr(
        *(f"pmod(hash({', '.join(names)}), {count}) as {place}" for place, (names, count) in asked.items())
    ).toArrow()
    for place, (names, count) in asked.items():
        columns, fields = [batch[name] for name in names], [schema.field(name) for name in names]
        assert partitions_of(columns, fields, count).tolist() == places[place].to_pylist(), place


@pytest.fixture(scope="module")
def checkpoints(spark, tmp_path_factory, request) -> Iterator[dict[str, Path]]:
    """Make a checkpoint of each scenario of the chosen tests, side by side."""
    root = tmp_path_factory.mktemp("operators")
    names = {
        item.callspec.params["name"]
        for item in request.session.items
        if item.module is request.module and "name" in getattr(item, "callspec", _NoParameters).params
    }
    for stream, seed in (("events", 5), ("answers", 6)):
        records.write(root / stream, records.batches(seed, BATCHES)[:BATCHES])
    starts = [partial(_start, spark, SCENARIOS[name], root) for name in sorted(names)]
    late_workers.run_all(starts, _wait_until_all_is_read)
    yield {name: root / name for name in names}


class _NoParameters:
    params: dict[str, str] = {}  # noqa: RUF012


def _start(spark, scenario: Scenario, root: Path):
    with session_options(spark, scenario.conf):
        events, answers = (
            spark.readStream.schema(records.SCHEMA).option("maxFilesPerTrigger", 1).json(str(root / stream))
            for stream in ("events", "answers")
        )
        writer = scenario.query(events, answers).writeStream.outputMode(scenario.mode)
        writer = writer.option("checkpointLocation", str(root / scenario.name)).trigger(availableNow=True)
        return writer.foreachBatch(lambda frame, _batch: frame.count()).start()


def _wait_until_all_is_read(query) -> None:
    """Wait for the end of a query; stop one whose processing-time timeouts make batches for ever."""
    while not query.awaitTermination(0.2):
        if query.lastProgress and query.lastProgress["batchId"] >= BATCHES:
            query.stop()


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=() if name in FEW else pytest.mark.tier("long")) for name in SCENARIOS]
)
def test_the_state_of_an_operator_equals_spark_s_reading(spark, checkpoints, name):
    directory = checkpoints[name]
    query = Query.open(str(directory))
    compared = 0
    for operator in query.operators:
        if operator.name.startswith("transformWithState"):
            compared += _compared_variables(spark, str(directory), operator.id)
            continue
        for side in ("left", "right") if operator.name == "symmetricHashJoin" else (None,):
            reader = spark.read.format("statestore").option("operatorId", operator.id)
            if side is not None:
                reader = reader.option("joinSide", side)
            frame = _with_own_names(reader.load(str(directory)))
            expected = in_order(flattened(row) for row in frame.toArrow().to_pylist())
            with state_store.open(str(directory), operator.id, side or "default") as state:
                names = [column for column in state.schema.names if column != "matched"]
                found = in_order(state.to_arrow(names).to_pylist())
                assert found == expected
                if side is None:
                    keys = list(state.columns.key_names)
                    assert all(state.get({key: row[key] for key in keys}) == row for row in expected[:5])
            compared += len(expected)
    assert compared or SCENARIOS[name].until_state_is_empty
    if name in EXPIRES:
        _check_expired(str(directory), EXPIRES[name])


LEFT_OUT = {
    "completion": "has no checkpoint",
    "jar": "has no checkpoint",
    "options": "has no checkpoint",
    "serve": "does not end; tests/observe asks it",
    "import": "needs tables; tests/data/dataset/test_importing.py has them",
    "migrate": "moves every operator in tests/spark/migration",
}
OTHER_SHAPES = ("drop-duplicates-within-watermark", "processor-pandas-event-time")
OF_QUERY: dict[str, list[str]] = {
    **{
        name: []
        for name in ("doctor", "checkpoints", "chain", "files", "estimate", "verify", "full", "repair")
    },
    "sql": ["select count(*) as n from state"],
    "cp": ["TARGET"],
    "repartition": ["TARGET", "--partitions", "3"],
}
OF_STATE: dict[str, list[str]] = {
    **{name: [] for name in ("show", "stats")},
    "get": ["KEY"],
    "history": ["KEY"],
    "diff": ["BEFORE"],
    "export": ["TARGET"],
}


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=() if name in (*FEW, *OTHER_SHAPES) else pytest.mark.tier("long"))
        for name in SCENARIOS
    ],
)
def test_every_command_takes_every_operator(checkpoints, name, tmp_path, capsys):
    """A command that is new has to say here what it is given."""
    assert {*LEFT_OUT, *OF_QUERY, *OF_STATE} == {*NAMES}
    directory = shutil.copytree(checkpoints[name], tmp_path / name)

    def answer(command: str, words: list[str]) -> Any:
        filled = {"TARGET": str(tmp_path / command), "BEFORE": str(newest - 1)}
        given = [filled.get(word, word) for word in words]
        code, printed = main([command, str(directory), *given, "--json"]), capsys.readouterr()
        assert code == 0, f"{command} {given}: {printed.err}"
        return json.loads(printed.out)

    query = Query.open(str(directory))
    with state_store.open(str(directory)) as state:
        newest = state.version
    for operator in query.operators:
        for store, view in views(query, operator).items():
            place = ["--operator", str(operator.id), "--store", store]
            with state_store.open(str(directory), operator.id, store) as state:
                count = state.to_arrow().num_rows
            shown = answer("show", [*place, "--limit", "0"])
            assert len(shown) == count
            keys = [_as_words(row, view) for row in shown[:1]]
            for command in sorted({*OF_STATE} - {"show"}):
                for key in keys if OF_STATE[command] == ["KEY"] else [OF_STATE[command]]:
                    answer(command, [*key, *place])
            assert pq.ParquetDataset(tmp_path / "export").read().num_rows == count
            shutil.rmtree(tmp_path / "export")
    answers = {command: answer(command, words) for command, words in OF_QUERY.items()}
    with state_store.open(str(directory)) as state:
        assert answers["sql"] == [{"n": state.to_arrow().num_rows}]
    for copy in ("cp", "repartition"):
        with state_store.open(str(tmp_path / copy)) as of_copy, state_store.open(str(directory)) as state:
            assert of_copy.to_arrow().num_rows == state.to_arrow().num_rows


def _as_words(row: dict[str, Any], view: View) -> list[str]:
    """Return the key of a row as the arguments of a command, NAME=VALUE for each column."""
    columns = {name: row[name] for name in view.schema.key.names if name in row}
    return [
        f"{name}={value if isinstance(value, str) else json.dumps(value)}" for name, value in columns.items()
    ]


def _check_expired(directory: str, column: str) -> None:
    """Compare the expired rows of `stats` at each version with another count."""

    def is_over(value, at_ms: int) -> bool:
        if isinstance(value, dict):
            return value["end"].timestamp() * 1000 <= at_ms
        return 0 <= value < at_ms if column == "timeoutTimestamp" else value <= at_ms * 1000

    expired = 0
    for batch in range(Query.open(directory).committed_batch() + 1):
        with state_store.open(directory, batch=batch) as state:
            reported, rows = state.stats(sample=None).expired, state.to_arrow([column])[column].to_pylist()
        assert (reported.column, reported.clock) == (column, "watermark")
        over = sum(is_over(value, reported.at_ms) for value in rows)
        assert (reported.rows, reported.looked_at) == (over, len(rows))
        expired += over
    assert expired or column == "timeoutTimestamp"  # every key of that query is active


def _with_own_names(frame):
    """Rename fields: buffers of several functions may have one name, which Spark does not pass to pyarrow."""
    from pyspark.sql import functions as F
    from pyspark.sql.types import StructField, StructType

    names: list[str] = []
    for name in frame.schema["value"].dataType.names:
        while name in names:
            name = f"value_{name}"
        names.append(name)
    kinds = [field.dataType for field in frame.schema["value"].dataType.fields]
    renamed = StructType([StructField(name, kind) for name, kind in zip(names, kinds, strict=True)])
    return frame.withColumn("value", F.col("value").cast(renamed))


def _compared_variables(spark, directory: str, operator: int) -> int:
    """Compare state variables of each kind, lists and maps with a row for each element."""
    compared = 0
    known = views(Query.open(directory), Query.open(directory).operators[operator])
    for variable in sorted(VARIABLES & known.keys()):
        reader = spark.read.format("statestore").option("operatorId", operator)
        reader = reader.option("stateVarName", variable).option("flattenCollectionTypes", "true")
        expected = in_order(_leaves(row) for row in reader.load(directory).toArrow().to_pylist())
        with state_store.open(directory, operator, variable) as state:
            assert in_order(_leaves(row) for row in state.to_arrow().to_pylist()) == expected
            _check_over_time(directory, state)
        compared += len(expected)
    return compared


def _check_over_time(directory: str, state: state_store.State) -> None:
    """The last version but one with the last changes is the state; a single key has the same rows."""
    names, view = list(state.columns.key_names), state.view
    rows = _by_key(state.to_arrow().to_pylist(), names)
    with state_store.open(directory, view.operator.id, view.name, state.version - 1) as older:
        known = _by_key(older.to_arrow().to_pylist(), names)
    for row in state.diff(state.version - 1).read_all().to_pylist():
        key = {name: row[name] for name in names}
        before, after = (
            value if isinstance(value, list) else [value] for value in (row["before"], row["after"])
        )
        had = known.pop(repr(list(key.values())), [])
        fields = state.columns.value_fields
        assert [{field.name: value[field.name] for field in fields} for value in had] == [
            value for value in before if value
        ]
        if row["change"] != "removed":
            known[repr(list(key.values()))] = [
                {**key, **value, "partition_id": row["partition_id"]} for value in after
            ]
    assert known == rows
    for found in list(rows.values())[:3]:
        key = {name: found[0][name] for name in names}
        assert state.rows_of(key).to_pylist() == found
        assert all(value.rows == found for value in state.history(key)[-1:])  # empty if its delta is gone


def _by_key(rows: list[dict], names: list[str]) -> dict[str, list[dict]]:
    found: dict[str, list[dict]] = {}
    for row in rows:
        found.setdefault(repr([row[name] for name in names]), []).append(row)
    return found


def _leaves(value: object) -> list[object]:
    return (
        [leaf for inner in value.values() for leaf in _leaves(inner)] if isinstance(value, dict) else [value]
    )
