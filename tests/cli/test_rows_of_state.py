"""`state-store show` and `get`, on the checkpoint of a real query."""

from __future__ import annotations

import csv
import datetime
import io
import json
import math
import os
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet
import pytest
from dataset.golden_states import VERSIONS, checkpoint, expected

import state_store
from state_store.cli.formats import (
    RowTexts,
    cell,
    columns_as_values,
    csv_of,
    differing,
    lines_of,
    plain,
    rows_as_values,
)
from state_store.cli.main import main
from state_store.cli.process import ExitCode
from state_store.data.dataset.sql import Connection
from state_store.errors import OptionError


@pytest.fixture(scope="module")
def flights(tmp_path_factory) -> str:
    return str(checkpoint("flights", tmp_path_factory.mktemp("states")))


@pytest.fixture(scope="module")
def types(tmp_path_factory) -> str:
    return str(checkpoint("types", tmp_path_factory.mktemp("states")))


def run(capsys, *words: str, code: int = 0) -> str:
    assert main(list(words)) == code
    captured = capsys.readouterr()
    return captured.err if code else captured.out


ROWS = expected("flights", VERSIONS[-1])
GONE = {"carrier": "C4", "partition_id": 1}


def test_a_table_has_the_rows_and_says_of_which_version(flights, capsys):
    text = run(capsys, "show", flights)
    assert all(row["carrier"] in text for row in ROWS)
    assert f"{len(ROWS)} rows of version {VERSIONS[-1]}" in text
    assert "1 row of version 2 (the first 1; --limit 0 shows all)" in run(
        capsys, "show", flights, "--limit", "1", "--version", "2"
    )


def test_json_and_csv_have_all_rows(flights, capsys):
    lines = [json.loads(line) for line in run(capsys, "show", flights, "--format", "json").splitlines()]
    assert sorted(lines, key=repr) == ROWS
    table = list(csv.DictReader(io.StringIO(run(capsys, "show", flights, "--format", "csv"))))
    assert sorted(row["carrier"] for row in table) == [row["carrier"] for row in ROWS]
    assert json.loads(table[0]["worst"]) in [row["worst"] for row in ROWS]


def test_every_type_can_be_printed(types, capsys):
    count = len(expected("types", VERSIONS[-1]))
    assert f"{count} rows" in run(capsys, "show", types)
    assert len(run(capsys, "show", types, "--format", "json").splitlines()) == count
    assert len(list(csv.reader(io.StringIO(run(capsys, "show", types, "--format", "csv"))))) == count + 1


def test_parquet_is_what_the_state_is(types, tmp_path, capsys):
    target = tmp_path / "rows.parquet"
    run(
        capsys,
        "show",
        types,
        "--format",
        "parquet",
        "--output",
        str(target),
        "--columns",
        "k_text,k_price,count",
    )
    rows = expected("types", VERSIONS[-1])
    wanted = sorted(((row["k_text"], row["k_price"], row["count"]) for row in rows), key=repr)
    found = pa.parquet.read_table(target)
    assert found.schema.names == ["k_text", "k_price", "count"]
    assert sorted((tuple(row.values()) for row in found.to_pylist()), key=repr) == wanted
    assert "is not replaced" in run(
        capsys, "show", types, "--format", "parquet", "--output", str(target), code=ExitCode.RETRY
    )
    assert "--output" in run(capsys, "show", types, "--format", "parquet", code=ExitCode.USAGE)


@pytest.mark.parametrize(
    ("name", "form"),
    [
        ("rows.csv", ("--format", "csv")),
        ("rows", ("--format", "csv")),
        ("rows.jsonl", ("--format", "json")),
        ("rows.JSON", ("--json",)),
        ("rows.parquet", ("--format", "parquet")),
    ],
)
def test_a_file_has_all_rows_in_the_format_of_its_name(name, form, flights, tmp_path, capsys, monkeypatch):
    """The first rows alone are for people, who see on the next line that there are more."""
    monkeypatch.setattr("state_store.cli.formats.LIMIT", 2)
    assert len(ROWS) > 2
    for number, words in enumerate(
        (("show", flights), ("sql", flights, "from state"), ("diff", flights, "1"))
    ):
        named, asked = tmp_path / f"{number}{name}", tmp_path / f"{number}-asked"
        assert run(capsys, *words, "--output", str(named)) == ""
        run(capsys, *words, *form, "--output", str(asked))
        assert named.read_bytes() == asked.read_bytes()
    assert run(capsys, "show", flights, "--output", str(tmp_path / f"2-{name}"), "--limit", "2") == ""
    assert (tmp_path / f"2-{name}").read_bytes() != (tmp_path / f"0{name}").read_bytes()
    printed = run(capsys, "show", flights, "--format", "table", "--output", "x", code=ExitCode.USAGE)
    assert "a table is printed" in printed and not Path("x").exists()


def test_rows_are_chosen(flights, capsys):
    def carriers(*words: str) -> list[str]:
        return sorted(
            json.loads(line)["carrier"]
            for line in run(capsys, "show", flights, "--format", "json", *words).splitlines()
        )

    assert carriers("--key", "C1") == carriers("--key", "carrier=C1") == ["C1"]
    assert carriers("--where", "flights > 8") == [row["carrier"] for row in ROWS if row["flights"] > 8]
    assert carriers("--where", "flights > 8", "--key", "C0") == [
        row["carrier"] for row in ROWS if row["flights"] > 8 and row["carrier"] == "C0"
    ]
    assert carriers("--partition", "0") == [row["carrier"] for row in ROWS if row["partition_id"] == 0]
    assert carriers("--batch", "0") == [row["carrier"] for row in expected("flights", 1)]


def test_get_prints_the_state_of_a_single_key(flights, capsys):
    (row,) = [row for row in ROWS if row["carrier"] == "C1"]
    assert json.loads(run(capsys, "get", flights, "C1", "--json")) == row
    assert "C1" in run(capsys, "get", flights, "carrier=C1")
    assert "no key nobody in version" in run(capsys, "get", flights, "nobody", code=ExitCode.NOT_FOUND)
    assert "no key '' in version" in run(capsys, "get", flights, "", code=ExitCode.NOT_FOUND)
    misspelt = run(capsys, "get", flights, "carier=C1", code=ExitCode.NOT_FOUND)
    assert misspelt.rstrip().endswith("; the columns of a key are carrier")


@pytest.mark.parametrize("command", ["show", "get", "diff", "history"])
def test_rows_come_out_in_every_form(command, flights, tmp_path, capsys):
    """The same rows for programs: an object a line, an array, CSV, printed or in a file, and Parquet."""
    words = [command, flights, *{"get": ["C1"], "history": ["C1"], "diff": ["1"]}.get(command, [])]
    lines = [json.loads(line) for line in run(capsys, *words, "--format", "json").splitlines()]
    assert lines and lines[0]["carrier"].startswith("C")
    array = json.loads(run(capsys, *words, "--json"))
    if command == "history":
        assert [entry["row"] for entry in array] == [
            {name: entry[name] for name in ROWS[0]} for entry in lines if entry["change"] == "put"
        ]
        assert [(entry["version"], entry["is_changed"]) for entry in array] == [
            (entry["version"], entry["change"] is not None) for entry in lines
        ]
    else:
        assert array == (lines[0] if command == "get" else lines)
    text = run(capsys, *words, "--format", "csv")
    table = list(csv.DictReader(io.StringIO(text)))
    assert [list(row) for row in table] == [list(row) for row in lines]
    assert [row["carrier"] for row in table] == [row["carrier"] for row in lines]
    run(capsys, *words, "--format", "csv", "--output", str(tmp_path / "rows.csv"))
    assert (tmp_path / "rows.csv").read_text(encoding="utf-8") == text
    run(capsys, *words, "--format", "parquet", "--output", str(tmp_path / "rows.parquet"))
    found = pa.parquet.read_table(tmp_path / "rows.parquet").to_pylist()
    assert [plain(row) for row in found] == lines
    assert "give --output" in run(capsys, *words, "--format", "parquet", code=ExitCode.USAGE)
    assert "exclude each other" in run(capsys, *words, "--format", "csv", "--json", code=ExitCode.USAGE)


def test_values_that_are_no_numbers_are_valid_json():
    """As Spark writes it: JSON has no such numbers."""
    values = {"x": [math.nan, math.inf, -math.inf, 1.5]}
    assert json.dumps(plain(values), allow_nan=False) == '{"x": ["NaN", "Infinity", "-Infinity", 1.5]}'


def test_moments_that_python_has_not_are_texts():
    late = pa.array([1 << 58, None], pa.timestamp("us", "UTC"))
    struct = pa.StructArray.from_arrays([late, pa.array([1, 2])], ["at", "n"], mask=pa.array([False, True]))
    found = rows_as_values(pa.record_batch({"late": late, "struct": struct}))
    assert found[0]["late"] == found[0]["struct"]["at"] == "11103-08-29 17:22:31.711744Z"
    assert found[1] == {"late": None, "struct": None} and found[0]["struct"]["n"] == 1
    with pytest.raises(OptionError, match="write --format parquet"):
        rows_as_values(pa.record_batch({"all": pa.array([[1 << 58]], pa.list_(pa.timestamp("us")))}))


@pytest.mark.parametrize("form", ["json", "csv"])
def test_moments_that_python_has_not_are_texts_beside_intervals(form):
    """DuckDB writes intervals differently, so Python makes the texts of a row that has one."""
    kind = pa.struct([("wait", pa.duration("us")), ("day", pa.date32())])
    batch = pa.record_batch({"n": pa.array([{"wait": 1, "day": 2932897}, None], kind)})
    with RowTexts(batch.schema) as texts:
        found = "".join(text for _, text in {"json": lines_of, "csv": csv_of}[form](texts, iter([batch])))
    assert "10000-01-01" in found
    kind = pa.list_(kind)
    batch = pa.record_batch({"n": pa.array([[{"wait": 1, "day": 2932897}]], kind)})
    with RowTexts(batch.schema) as texts, pytest.raises(OptionError, match="write --format parquet"):
        "".join(text for _, text in {"json": lines_of, "csv": csv_of}[form](texts, iter([batch])))


def test_intervals_of_a_query_are_shown_as_those_of_the_state():
    """DuckDB makes months, days and nanoseconds of intervals."""
    spans = [datetime.timedelta(microseconds=us) for us in (0, -1, 1_500_000, 86_400_000_000, 90_061_000_001)]
    column = pa.array([*spans, None], pa.duration("us"))
    nested = pa.array([[span] for span in [*spans, None]], pa.list_(pa.duration("us")))
    with Connection() as connection:
        connection.register("state", pa.table({"a": column, "b": nested}))
        found = connection.rows("select a, b from state").read_all()
    assert found.schema.field("a").type == pa.month_day_nano_interval()
    before = pa.record_batch({"a": column, "b": nested})
    (after,) = found.to_batches()
    for form in (lines_of, csv_of):
        texts = []
        for batch in (before, after):
            with RowTexts(batch.schema) as made:
                texts.append([text for _, text in form(made, iter([batch]))])
        assert texts[0] == texts[1]
    for left, right in zip(columns_as_values(before), columns_as_values(after), strict=True):
        assert [cell(value) for value in left] == [cell(value) for value in right]


def test_a_changed_row_shows_numbers_that_python_does_not_compare_by_their_bytes():
    before = {"a": math.nan, "b": 0.0, "c": [math.nan], "d": 1, "e": None}
    after = {"a": math.nan, "b": -0.0, "c": [math.nan], "d": 1, "e": math.nan}
    row = differing({"change": "changed", "before": before, "after": after})
    assert repr(row["before"]) == "{'b': 0.0, 'e': None}" and repr(row["after"]) == "{'b': -0.0, 'e': nan}"


@pytest.mark.parametrize(
    ("interval", "text"),
    [
        ((14, 0, 0), "14 months"),
        ((1, -1, 0), "1 month, -1 day"),
        ((0, 2**31 - 1, 1000), "2147483647 days, 0:00:00.000001"),
        ((-1, 0, 3_600_000_000_000), "-1 month, 1:00:00"),
    ],
)
def test_intervals_of_the_calendar_are_texts(interval, text):
    assert plain(pa.scalar(interval, pa.month_day_nano_interval()).as_py()) == text


def test_a_failure_is_json_for_programs(flights, capsys):
    error = run(capsys, "get", flights, "nobody", "--json", code=ExitCode.NOT_FOUND)
    assert json.loads(error)["error"]["kind"] == "missing"


@pytest.mark.parametrize("name", ["get", "history"])
def test_a_document_is_the_same_in_a_file(flights, tmp_path, capsys, name):
    words = [name, flights, "C1", "--json"]
    target = tmp_path / "rows.json"
    printed = run(capsys, *words)
    assert run(capsys, *words, "--output", str(target)) == ""
    assert target.read_text() == printed and json.loads(printed)
    assert "exists already" in run(capsys, *words, "--output", str(target), code=ExitCode.RETRY)


def test_history_shows_versions_that_did_not_write_a_key(flights, capsys):
    """C4 falls silent: the versions after its last row have it, but did not write it, until it is removed."""
    lines = [
        json.loads(line)
        for line in run(capsys, "history", flights, "C4", "--every", "--format", "json").splitlines()
    ]
    assert [row["version"] for row in lines] == list(VERSIONS)
    for row in lines:
        known = [entry for entry in expected("flights", row["version"]) if entry["carrier"] == "C4"]
        assert [{name: row[name] for name in ROWS[0]}] == (known or [{**dict.fromkeys(ROWS[0]), **GONE}])
    assert None in [row["change"] for row in lines]


def test_mistakes_are_named(flights, capsys):
    for words in (("--where", "speed > 1"), ("--order-by", "speed"), ("--order-by", "speed", "--limit", "1")):
        said = run(capsys, "show", flights, *words, code=ExitCode.USAGE)
        assert f'{words[0]} is wrong: Referenced column "speed" not found' in said
        assert f"; there are: {', '.join(ROWS[0])}\n" in said
    assert "no column 'speed'" in run(capsys, "show", flights, "--columns", "speed", code=ExitCode.NOT_FOUND)
    assert "--where is wrong: syntax error" in run(
        capsys, "show", flights, "--where", "flights >", code=ExitCode.USAGE
    )
    assert "no version 9" in run(capsys, "show", flights, "--version", "9", code=ExitCode.NOT_FOUND)
    assert "there are: default" in run(capsys, "show", flights, "--store", "left", code=ExitCode.NOT_FOUND)
    assert "one column (carrier), not 2" in run(capsys, "get", flights, "C1", "C2", code=ExitCode.USAGE)
    assert main(["diff", flights, "older"]) == ExitCode.USAGE
    assert "'older' is not a version: give 41, batch:40 or" in capsys.readouterr().err


def test_a_negative_number_says_where_it_belongs(flights, capsys):
    for command in ("get", "history"):
        said = run(capsys, command, flights, "-5", code=ExitCode.USAGE)
        assert "A value that begins with a minus comes after `--`" in said
        assert "after `--`" not in run(capsys, command, flights, "--kye", "5", code=ExitCode.USAGE)
    assert "no key -5" in run(capsys, "get", flights, "--", "-5", code=ExitCode.NOT_FOUND)


def test_a_directory_may_have_a_name_that_is_not_utf_8(tmp_path, capsys):
    place = Path(os.fsdecode(os.fsencode(tmp_path) + b"/\xff"))
    try:
        place.mkdir()
    except OSError:
        pytest.skip("this file system has no such names")
    state = str(checkpoint("flights", place))
    with state_store.open(state) as opened:
        rows = opened.to_arrow()
    run(capsys, "export", state, f"{place}/exported", "--json")
    run(capsys, "import", state, f"{place}/exported", f"{place}/imported")
    run(capsys, "repartition", state, f"{place}/parted", "--partitions", "3")
    run(capsys, "verify", f"{place}/parted")
    run(capsys, "show", f"{place}/imported", "--format", "parquet", "--output", f"{place}/rows.parquet")
    with open(place / "rows.parquet", "rb") as file:
        assert pyarrow.parquet.read_table(file).cast(rows.schema) == rows
