"""`state-store show` and `get`, on the checkpoint of a real query."""

from __future__ import annotations

import csv
import datetime
import io
import json

import pyarrow as pa
import pyarrow.parquet
import pytest
from dataset.golden_states import VERSIONS, checkpoint, expected

from state_store.cli import exit_codes
from state_store.cli.main import main
from state_store.cli.rows.where import condition
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


def test_a_table_has_the_rows_and_says_of_which_version(flights, capsys):
    text = run(capsys, "show", flights)
    assert all(row["carrier"] in text for row in ROWS)
    assert f"{len(ROWS)} rows of version {VERSIONS[-1]}" in text
    assert "1 rows of version 2 (the first 1; --limit 0 shows all)" in run(
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
        capsys, "show", types, "--format", "parquet", "--output", str(target), code=exit_codes.RETRY
    )
    assert "--output" in run(capsys, "show", types, "--format", "parquet", code=exit_codes.USAGE)


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


def test_one_key(flights, capsys):
    (row,) = [row for row in ROWS if row["carrier"] == "C1"]
    assert json.loads(run(capsys, "get", flights, "C1", "--json")) == row
    assert "C1" in run(capsys, "get", flights, "carrier=C1")
    assert "no key nobody in version" in run(capsys, "get", flights, "nobody", code=exit_codes.NOT_FOUND)


def test_mistakes_are_named(flights, capsys):
    assert "no column 'speed'" in run(capsys, "show", flights, "--where", "speed > 1", code=exit_codes.USAGE)
    assert "no column 'speed'" in run(
        capsys, "show", flights, "--columns", "speed", code=exit_codes.NOT_FOUND
    )
    assert "is no condition" in run(capsys, "show", flights, "--where", "flights >", code=exit_codes.USAGE)
    assert "no version 9" in run(capsys, "show", flights, "--version", "9", code=exit_codes.NOT_FOUND)
    assert "there are: default" in run(capsys, "show", flights, "--store", "left", code=exit_codes.NOT_FOUND)


TABLE = pa.table(
    {
        "n": pa.array([1, 2, None], pa.int32()),
        "name": ["a", "b = <>", None],
        "day": [datetime.date(2024, 1, 1), datetime.date(2024, 2, 1), None],
        "at": [{"x": 1.5}, {"x": None}, None],
        "ok": [True, False, None],
    }
)


@pytest.mark.parametrize(
    ("text", "rows"),
    [
        ("n = 1", [1]),
        ("n == 1", [1]),
        ("n <> 1", [2]),
        ("N > 1".lower(), [2]),
        ("1 <= n < 2", [1]),
        ("n = 1 or name = 'b = <>'", [1, 2]),
        ("n in (1, 2) AND NOT n = 1", [2]),
        ("name in ('a')", [1]),
        ("name not in ('a', 'c') and name is not null", [2]),
        ("n is null", [None]),
        ("day >= '2024-01-15'", [2]),
        ("at.x > 1", [1]),
        ("at.x is null and n is not NULL", [2]),
        ("ok", [1]),
        ("not ok", [2]),
        ("ok = true", [1]),
        ("n > -1.5 and n < 1.5", [1]),
    ],
)
def test_conditions(text, rows):
    assert TABLE.filter(condition(text, TABLE.schema))["n"].to_pylist() == rows


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("__import__('os')", "cannot stand in a condition"),
        ("n + 1 > 2", "cannot stand"),
        ("at.y = 1", "has no field 'y'"),
        ("day = 'soon'", "cannot be compared with date32"),
        ("n is 1", "cannot stand"),
        ("n in 5 +", "is no condition"),
        ("'a", "is no condition"),
    ],
)
def test_conditions_that_are_none(text, why):
    with pytest.raises(OptionError, match=why):
        condition(text, TABLE.schema)
