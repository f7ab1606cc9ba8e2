"""SQL over state: conditions, queries, other versions, and the bounds of the database."""

from __future__ import annotations

import datetime
import gc
import tempfile
from decimal import Decimal
from pathlib import Path

import duckdb
import pyarrow
import pyarrow.compute as pc
import pytest
from hypothesis import given
from hypothesis import strategies as st

import state_store
from dataset.golden_states import VERSIONS, checkpoint, expected
from state_store.data.dataset import partitions
from state_store.data.dataset import state as states
from state_store.data.dataset.opening import sql_batches
from state_store.data.dataset.sql import Condition, Connection, key_of, memory_bytes, pruned
from state_store.errors import DamagedError, MissingError, OptionError

ROWS = expected("flights", VERSIONS[-1])


@pytest.fixture(scope="module")
def directory(tmp_path_factory) -> str:
    return str(checkpoint("flights", tmp_path_factory.mktemp("states")))


@pytest.fixture(scope="module")
def flights(directory):
    with state_store.open(directory) as state:
        yield state


def carriers(state, condition: str) -> list[str]:
    return sorted(state.scan(["carrier"], condition).read_all()["carrier"].to_pylist())


@pytest.mark.parametrize(
    ("condition", "kept"),
    [
        ("flights > 8", lambda row: row["flights"] > 8),
        ("flights <> 8", lambda row: row["flights"] != 8),
        ("not flights = 8", lambda row: row["flights"] != 8),
        ("flights not in (8)", lambda row: row["flights"] != 8),
        ("flights = null", lambda row: False),
        ("flights is not null", lambda row: True),
        ("FLIGHTS > 8.5", lambda row: row["flights"] > 8.5),
        ("flights > 99999999999999999999", lambda row: False),
        ("flights between 3 and 9", lambda row: 3 <= row["flights"] <= 9),
        ("carrier = 'C1'", lambda row: row["carrier"] == "C1"),
        ("carrier = 'O''Brien'", lambda row: False),
        (
            "carrier = 'C1' or flights > 8 -- a comment",
            lambda row: row["carrier"] == "C1" or row["flights"] > 8,
        ),
        ("carrier like 'C%'", lambda row: True),
        ("worst.delay >= 28", lambda row: row["worst"]["delay"] >= 28),
        ("partition_id = 0", lambda row: row["partition_id"] == 0),
        (
            "partition_id = 0 and carrier = 'C1'",
            lambda row: row["partition_id"] == 0 and row["carrier"] == "C1",
        ),
        ("1 = 1", lambda row: True),
        ("false", lambda row: False),
        ("null", lambda row: False),
    ],
)
def test_conditions_keep_matching_rows(flights, condition, kept):
    assert carriers(flights, condition) == sorted(row["carrier"] for row in ROWS if kept(row))


@pytest.mark.parametrize(
    ("condition", "why"),
    [
        ("", "filter is empty"),
        ("  ", "filter is empty"),
        ("flights >", "syntax error"),
        ("flights > 8) or (1 = 1", "syntax error"),
        ("flights > 8; drop table state", "more than one statement"),
        ("speed > 1", 'Referenced column "speed" not found'),
        ("carrier > 5", "Cannot compare"),
        ("max(flights) > 1", "aggregate"),
        ("flights > (select avg(flights) from state)", "cannot contain a query"),
        ("exists (from state)", "cannot contain a query"),
        ("__import__('os')", "does not exist"),
        ("worst.nope = 1", "nope"),
        ("carrier::int > 1", "Could not convert"),
    ],
)
def test_a_wrong_condition_is_an_error_of_one_line(flights, condition, why):
    with pytest.raises(OptionError, match=why) as raised:
        flights.scan(filter=condition).read_all()
    assert "\n" not in raised.value.message


def test_a_condition_keeps_schema_and_order_of_a_scan(flights):
    everything = flights.scan().read_all()
    some = flights.scan(filter="flights > 3").read_all()
    assert some.schema == everything.schema
    assert some.to_pylist() == [row for row in everything.to_pylist() if row["flights"] > 3]
    assert flights.scan(["delay", "carrier"], "flights > 3").schema.names == ["delay", "carrier"]
    assert flights.to_arrow(filter="flights > 3").num_rows == some.num_rows


def test_types_of_spark_pass_through_a_condition(tmp_path):
    with state_store.open(str(checkpoint("types", tmp_path))) as state:
        everything = state.to_arrow()
        assert state.to_arrow(filter="1 = 1") == everything
        assert state.to_arrow(filter="count >= 0").schema == everything.schema


MIDNIGHT = datetime.datetime(1970, 1, 1).astimezone()
"""A date is its midnight in the local zone."""

LEAP_DAY = datetime.date(2024, 2, 29)


@pytest.mark.parametrize(
    ("condition", "kept"),
    [
        ("k_price > 1", lambda row: row["k_price"] > 1),
        ("k_price in (1.00, 2.5)", lambda row: row["k_price"] in (Decimal(1), Decimal("2.5"))),
        ("k_fortune >= 0.1", lambda row: row["k_fortune"] >= Decimal("0.1")),
        ("k_number < 99999999999999999999", lambda row: True),
        ("k_day >= '2024-02-29'", lambda row: row["k_day"] >= LEAP_DAY),
        ("k_moment > '1970-01-01'", lambda row: row["k_moment"] > MIDNIGHT),
        ("k_moment > date '1970-01-01'", lambda row: row["k_moment"] > MIDNIGHT),
        ("k_moment <= '1970-01-01T01:00:00.000001+01:00'", lambda row: row["k_moment"].microsecond <= 1),
        ("k_flag", lambda row: row["k_flag"]),
        ("not k_flag", lambda row: not row["k_flag"]),
    ],
)
def test_numbers_and_moments_are_compared_by_value(types, condition, kept):
    rows = types.to_arrow().to_pylist()
    names = ("k_price", "k_fortune", "k_number", "k_day", "k_moment", "k_flag")
    complete = [row for row in rows if all(row[name] is not None for name in names)]
    assert complete
    is_complete = " and ".join(f"{name} is not null" for name in names)
    found = types.to_arrow(filter=f"({condition}) and {is_complete}").to_pylist()
    assert found == [row for row in complete if kept(row)]


@pytest.fixture(scope="module")
def types(tmp_path_factory):
    with state_store.open(checkpoint("types", tmp_path_factory.mktemp("states"))) as state:
        yield state


NULLS = pyarrow.table(
    {
        "n": pyarrow.array([1, 2, None], pyarrow.int32()),
        "first name": ["a", None, "c"],
        "class": [None, "x", "y"],
    }
)


@pytest.mark.tier("more")
@given(st.integers(-3, 3), st.sampled_from(["=", "<>", "<", ">=", "is distinct from"]), st.booleans())
def test_nulls_are_as_in_sql(number, sign, negated):
    """Compare with plain DuckDB, without the steps of this package."""
    condition = f"{'not ' if negated else ''}n {sign} {number}"
    with Connection() as connection:
        connection.register("state", NULLS)
        ours = connection.rows(f"SELECT n FROM state WHERE ({condition})").read_all()["n"].to_pylist()
    theirs = duckdb.sql(f"select n from NULLS where {condition}").fetchall()
    assert ours == [row[0] for row in theirs]


def test_a_key_is_looked_up_and_not_scanned(directory, monkeypatch):
    with state_store.open(directory) as state:
        for module in (partitions, states):
            monkeypatch.setattr(module, "decoded", lambda *_: pytest.fail("all rows were read"))
        assert carriers(state, "carrier = 'C1'") == ["C1"]
        assert state.sql("select flights from state where carrier = 'C1'").read_all().num_rows == 1


def test_a_partition_is_read_and_not_all(directory, monkeypatch):
    read = []
    with state_store.open(directory) as state:
        decoded = partitions.decoded

        def noted(partitions, needed, number, rows):
            read.append(number)
            return decoded(partitions, needed, number, rows)

        for module in (partitions, states):
            monkeypatch.setattr(module, "decoded", noted)
        list(state.scan(filter="partition_id = 1"))
        list(state.sql("from state where partition_id in (1, 7)"))
    assert read == [1, 1]


def test_partitions_are_pruned_by_any_expression(flights):
    field = pc.field("partition_id")
    assert pruned(field == 1, flights.view, (0, 1)) == (1,)
    assert pruned(field.isin([0, 7]), flights.view, (0, 1)) == (0,)
    assert pruned((field == 1) | (pc.field("flights") > 3), flights.view, (0, 1)) == (0, 1)
    assert pruned(pc.field("flights") > 3, flights.view, (0, 1)) == (0, 1)


def test_a_key_is_found_in_an_expression_only_if_it_is_complete():
    fields = [pyarrow.field("a", pyarrow.string()), pyarrow.field("b", pyarrow.int64())]
    both = (pc.field("a") == "x") & (pc.field("b") == 3)
    assert key_of(both & (pc.field("c") > 1), fields) == {"a": "x", "b": 3}
    assert key_of(pc.field("a") == "x", fields) is None
    assert key_of(both | (pc.field("a") == "y"), fields) is None
    assert key_of(pc.field("f") == 1.5, [pyarrow.field("f", pyarrow.float64())]) is None
    assert key_of(both & (pc.field("c", "d") == 1), fields) is None


@pytest.mark.parametrize(
    ("condition", "is_kept"),
    [
        ("worst.number = 21", lambda row: row["worst"] and row["worst"]["number"] == 21),
        ("21 = worst.number and carrier = 'C1'", lambda row: row["carrier"] == "C1"),
        ("worst.number in (21, 22)", lambda row: row["worst"] and row["worst"]["number"] in (21, 22)),
        ("worst.delay between 20 and 30", lambda row: row["worst"] and 20 <= row["worst"]["delay"] <= 30),
        ("worst.delay is not null", lambda row: row["worst"] and row["worst"]["delay"] is not None),
        (
            "worst.delay = 23 or partition_id = 1",
            lambda row: row["partition_id"] == 1 or (row["worst"] and row["worst"]["delay"] == 23),
        ),
        (
            "worst.number = 21 and partition_id = 0",
            lambda row: row["partition_id"] == 0 and row["worst"] and row["worst"]["number"] == 21,
        ),
    ],
)
def test_fields_of_structs_are_compared(flights, condition, is_kept):
    wanted = sorted(row["carrier"] for row in ROWS if is_kept(row))
    assert sorted(flights.to_arrow(filter=condition)["carrier"].to_pylist()) == wanted
    found = flights.sql(f"select carrier from state where {condition}").read_all()
    assert sorted(found["carrier"].to_pylist()) == wanted


def test_a_state_joins_itself(flights):
    found = flights.sql("select sum(a.flights) as n from state a join state b using (carrier)").read_all()
    assert found["n"].to_pylist() == [sum(row["flights"] for row in ROWS)]


@pytest.mark.tier("more")
def test_a_query_has_all_stores_and_other_versions(directory):
    assert state_store.sql(directory, "select count(*) as n from state")["n"].to_pylist() == [len(ROWS)]
    for table in ("state", "operator_0.state", '"default"', f"state_at({VERSIONS[-1]})"):
        found = state_store.sql(directory, f"select carrier from {table}")
        assert sorted(found["carrier"].to_pylist()) == [row["carrier"] for row in ROWS]
    for version in VERSIONS:
        rows = expected("flights", version)
        for found in (
            state_store.sql(directory, f"from state_at({version}) select carrier"),
            state_store.sql(directory, f"from operator_0.state_at('{version}') select carrier"),
            state_store.sql(directory, "from state select carrier", version=version),
            state_store.sql(directory, "from state select carrier", batch=version - 1),
        ):
            assert sorted(found["carrier"].to_pylist()) == [row["carrier"] for row in rows]


def test_versions_of_a_query_are_compared(directory):
    query = "select a.flights - b.flights as more from state_at(2) a join state_at(1) b using (carrier)"
    assert state_store.sql(directory, query).num_rows == len(expected("flights", 1))


@pytest.mark.parametrize(
    ("query", "error", "why"),
    [
        ("from state_at(99)", MissingError, "no version 99"),
        ("from state_at('soon')", OptionError, "'soon' is not a moment"),
        ("from state_at('1999-01-01')", MissingError, "the oldest batch"),
        ("from elsewhere", OptionError, "elsewhere"),
        ("select 1; select 2", OptionError, "not one SELECT"),
        ("", OptionError, "not one SELECT"),
        ("create table t as from state", OptionError, "not one SELECT"),
        ("set memory_limit = '1TB'", OptionError, "not one SELECT"),
        ("from read_text('/etc/hostname')", OptionError, "disabled by configuration"),
        ("from '/etc/hostname'", OptionError, "does not exist"),
        ("copy state to '/tmp/x'", OptionError, "not one SELECT"),
        ("install httpfs", OptionError, "not one SELECT"),
        ("from directory", OptionError, "directory"),
    ],
)
def test_a_query_only_reads_state(directory, query, error, why):
    with pytest.raises(error, match=why) as raised:
        state_store.sql(directory, query)
    assert "\n" not in raised.value.message


def test_the_database_cannot_be_unlocked():
    with Connection() as connection:
        for statement in (
            "SET enable_external_access = true",
            "SET memory_limit = '99GB'",
            "SET lock_configuration = false",
            "LOAD httpfs",
            "INSTALL httpfs",
            "ATTACH '/tmp/other.db'",
            "COPY (SELECT 1) TO '/tmp/other.csv'",
        ):
            with pytest.raises(OptionError, match=r"configuration|disabled"):
                connection.execute(statement)


@pytest.mark.tier("more")
def test_memory_is_bounded_and_the_rest_is_spilled(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with Connection("128m") as connection:
        many = "SELECT range AS n FROM range(12000000) ORDER BY hash(n)"
        with connection.translated():
            assert sum(batch.num_rows for batch in connection.rows(many)) == 12_000_000
        with pytest.raises(OptionError, match="needs more memory than 128m"), connection.translated():
            list(connection.rows("SELECT list(range) FROM range(100000000)"))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("text", ["", "abc", "1k", "-1", "0", None, 5])
def test_a_bound_of_memory_is_a_size(text):
    with pytest.raises(OptionError, match="memory"):
        memory_bytes(text)


def test_damage_is_reported_as_by_a_scan(tmp_path):
    directory = checkpoint("flights", tmp_path)
    for path in Path(directory).glob("state/0/1/**/*.sst"):
        path.write_bytes(path.read_bytes()[:-1] + b"x")
    with pytest.raises(DamagedError, match="partition 1 of store 'default'"):
        state_store.sql(str(directory), "select sum(flights) from state")


def test_a_collected_reader_releases_its_files(tmp_path, monkeypatch):
    directory, scratch = checkpoint("flights", tmp_path), tmp_path / "scratch"
    scratch.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(scratch))
    reader = sql_batches(str(directory), "from state")
    next(iter(reader))
    del reader
    gc.collect()
    assert list(scratch.iterdir()) == []
    assert not list(Path(directory).rglob("lease/*"))


def test_names_are_quoted_as_in_sql():
    with Connection() as connection:
        connection.register("state", NULLS)
        kept = "\"first name\" = 'a' or \"class\" = 'x'"
        assert connection.rows(f"SELECT n FROM state WHERE {kept}").read_all()["n"].to_pylist() == [1, 2]


@pytest.mark.parametrize("order", ["", "  "])
def test_an_order_that_is_empty_is_refused(flights, order):
    with pytest.raises(OptionError, match="--order-by is empty"):
        flights.ordered(order)


def test_columns_that_differ_in_case_alone_are_not_confused(tmp_path):
    source = checkpoint("types", tmp_path)
    schema = source / "state/0/0/_metadata/schema"
    schema.write_bytes(schema.read_bytes().replace(b'"k_flag"', b'"K_TEXT"'))
    with state_store.open(str(source)) as state:
        count = state.count()
        for wrong in ("K_TEXT", "k_text is null", '"K_TEXT" is null'):
            with pytest.raises(OptionError, match="--where cannot tell the columns k_text and K_TEXT apart"):
                state.to_arrow(filter=Condition(wrong, state.view, option="--where"))
        for names in (["K_TEXT"], ["k_number", "k_text"], None):
            with pytest.raises(OptionError, match="--order-by cannot tell the columns k_text and K_TEXT"):
                state.ordered("k_number", names)
        assert len(state.ordered("k_number", ["k_number"]).read_all()) == count
        assert len(state.to_arrow(filter=Condition("k_number >= 0 or k_number is null", state.view))) == count
    rows = state_store.sql(str(source), "select k_text_1 from state")
    assert {*rows.column(0).to_pylist()} <= {True, False, None}
