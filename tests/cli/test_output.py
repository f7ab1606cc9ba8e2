"""Texts of others never act on a terminal; tables fit it; programs get all of the values."""

from __future__ import annotations

import csv
import datetime
import io
import json
import math
import os
import re
import subprocess
import sys
import unicodedata
from decimal import Decimal

import click
import pyarrow as pa
import pytest
from dataset.golden_states import VERSIONS, checkpoint, expected
from hypothesis import given, settings
from hypothesis import strategies as st
from owned_processes import ENDED_S, started
from terminal import on_terminal

import state_store
from state_store.cli import formats, output
from state_store.cli.formats import FORMATS, GUARDED, RowTexts, cell, cells, differing, plain, print_rows
from state_store.cli.main import main
from state_store.cli.output import Heading, print_table
from state_store.cli.process import ExitCode, visible, visible_json
from state_store.data.query.arguments import counted
from state_store.session.jar import jar_path

pytestmark = pytest.mark.tier("more")

VISIBLE_MARKS = {
    *range(0x600, 0x606),
    *(0x6DD, 0x70F, 0x890, 0x891, 0x8E2, 0x110BD, 0x110CD),
}
"""Characters of the category of formats that have a shape of their own: signs before Arabic and Kaithi
numbers.
"""


def test_no_character_acts_on_a_terminal_or_hides():
    """All characters that Unicode calls controls, formats, surrogates and separators of lines."""
    acting = {"Cc", "Cf", "Cs", "Zl", "Zp"}
    for code in range(sys.maxunicode + 1):
        character = chr(code)
        if unicodedata.category(character) in acting and code not in VISIBLE_MARKS:
            assert visible(character).isascii(), hex(code)


@given(st.text())
def test_a_visible_text_stays_visible(text):
    assert visible(visible(text)) == visible(text)
    assert "\n" not in visible(text)
    assert visible(text, lines=True).count("\n") == text.count("\n")


@given(st.recursive(st.text() | st.integers() | st.none(), st.lists))
def test_json_has_the_same_value_when_it_is_visible(value):
    text = visible_json(json.dumps(value, ensure_ascii=False))
    assert json.loads(text) == value
    assert visible(text, lines=True) == text


def test_names_and_letters_of_all_scripts_stay():
    for text in ("Zoë", "李雷", "ключ", "état", "😀", "नमस्ते", "a b"):
        assert visible(text) == text


@pytest.fixture(scope="module")
def flights(tmp_path_factory):
    return checkpoint("flights", tmp_path_factory.mktemp("states"))


HOSTILE = "\x1b]0;owned\x07\x1b[31m\u202e\u200b\x9b1m"


ACTING = ("\x1b]", "\x1b[31m", "\x07", "\u202e", "\u200b", "\x9b")


@pytest.mark.parametrize(
    "words",
    [
        ("show", "DIR", "--where", f"carrier <> '{HOSTILE}'", "--columns", HOSTILE),
        ("get", "DIR", HOSTILE),
        ("sql", "DIR", f"select '{HOSTILE}' as \"{HOSTILE}\""),
        ("sql", "DIR", f"select '{HOSTILE}' as a", "--json"),
        ("verify", f"/tmp/{HOSTILE}"),
        ("options", HOSTILE),
        (HOSTILE,),
        ("show", "DIR", "--limit", HOSTILE),
        ("show", "DIR", "--store", HOSTILE),
    ],
)
def test_state_names_and_paths_are_shown_escaped(flights, capsys, words):
    main([str(flights) if word == "DIR" else word for word in words])
    captured = capsys.readouterr()
    for text in (captured.out, captured.err):
        assert not any(sign in text for sign in ACTING)
    assert any(escape in captured.out + captured.err for escape in ("\\x1b]", "\\u001B]", "\\u001b]"))


@pytest.mark.parametrize("form", [(), ("--json",), ("--format", "csv")])
@pytest.mark.dear("stands for the output of commands")
def test_a_terminal_gets_no_escape_of_the_state(flights, form):
    _, shown = on_terminal("sql", flights, f"select '{HOSTILE}' as a", *form)
    assert not any(sign in shown for sign in ACTING)


@pytest.mark.parametrize("words", [("jar",), ("completion", "bash")])
def test_a_text_that_a_shell_takes_is_never_folded(words, monkeypatch, capsys):
    """`--jars "$(state-store jar)"` of a shell that exports COLUMNS has a path without a line break."""
    printed = []
    for columns in ("0", "20"):
        monkeypatch.setenv("COLUMNS", columns)
        assert main([*words]) == 0
        printed.append(capsys.readouterr().out)
    assert printed[0] == printed[1]
    assert words != ("jar",) or printed[0] == f"{jar_path()}\n"


def test_an_address_is_never_folded(flights, monkeypatch, capsys):
    monkeypatch.setenv("COLUMNS", "40")
    main(["doctor", str(flights)])
    printed = capsys.readouterr().out.splitlines()
    assert [line for line in printed if line.startswith("  See file:///") and line.endswith("nocheckpoint")]
    assert max(len(line) for line in printed if "file:" not in line) <= 40
    assert [line for line in printed if line != line.rstrip()] == []


def test_piped_output_is_not_cut_and_has_no_colours(flights, capsys):
    assert main(["sql", str(flights), "select repeat('x', 5000) as a"]) == 0
    assert "x" * 5000 in capsys.readouterr().out
    _, shown = on_terminal("sql", flights, "select repeat('x', 5000) as a, 1 as b")
    assert max(map(len, click.unstyle(shown).splitlines())) <= 80
    assert "…" in shown


@pytest.mark.parametrize("columns", [40, 80])
@pytest.mark.parametrize("words", [("show",), ("checkpoints",), ("diff", "1")])
@pytest.mark.tier("more")
def test_tables_fit_the_terminal(flights, columns, words):
    code, shown = on_terminal(words[0], flights, *words[1:], columns=columns, environment={"NO_COLOR": "1"})
    lines = click.unstyle(shown).splitlines()
    assert code == 0
    if columns >= 80:
        assert max(map(len, lines)) <= columns


ROW = re.compile(r" *\d+  \d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d{3}  \w.*  \w.*  \d.*B(?:  +\d.*B)?")


def rows_at(columns: int, directory, *words: str) -> list[str]:
    _, shown = on_terminal("checkpoints", directory, *words, columns=columns)
    _, _, headings, rule, *lines = click.unstyle(shown).rstrip().splitlines()
    assert headings.startswith("version  committed (+") and set(rule) == {"-", " "}
    assert max(map(len, lines)) <= columns
    return lines


def test_each_checkpoint_is_one_line_at_80_columns(flights):
    lines = rows_at(80, flights, "--partition", "0")
    assert len(lines) == len(VERSIONS)
    assert all(map(ROW.fullmatch, lines)), lines


def test_each_checkpoint_of_several_partitions_is_one_line_at_80_columns(flights):
    lines = rows_at(80, flights)
    assert len(lines) == len(VERSIONS)
    assert all(map(ROW.fullmatch, lines)), lines


def test_printed_times_keep_their_milliseconds_and_name_their_versions(tmp_path):
    directory = checkpoint("flights", tmp_path)
    for number in range(4):
        os.utime(directory / f"commits/{number}", (1000 + number / 8, 1000 + number / 8))
    times = {line.split()[0]: " ".join(line.split()[1:3]) for line in rows_at(80, directory, "--utc")}
    assert [time[-12:] for time in times.values()] == [f"00:16:40.{number * 125:03}" for number in range(4)]
    for version, time in times.items():
        with state_store.open(directory, at=f"{time}Z") as state:
            assert state.version == int(version)


@pytest.mark.parametrize(
    ("words", "cell_text"),
    [
        (("checkpoints",), "  files"),
        (("files",), f"{1:020}_"),
        (("diff", "1"), "}"),
        (("sql", "select repeat('x', 100) as a, 'it' as b"), "x" * 100),
    ],
)
def test_tables_fit_a_pipe_of_80_columns_or_are_wide(flights, capsys, monkeypatch, words, cell_text):
    monkeypatch.setenv("COLUMNS", "80")
    command = [words[0], str(flights), *words[1:]]
    assert main(command) == 0
    assert max(map(len, capsys.readouterr().out.splitlines())) <= 80
    assert main([*command, "--wide"]) == 0
    wide = capsys.readouterr().out
    assert cell_text in wide
    if words[0] != "diff":
        assert max(map(len, wide.splitlines())) > 80


def test_a_number_of_rows_ends_without_a_blank(flights, capsys):
    assert main(["sql", str(flights), "select 1 as a"]) == 0
    assert capsys.readouterr().out.endswith("\n1 row\n")


def test_no_color_is_obeyed(flights):
    _, shown = on_terminal("verify", flights, environment={"NO_COLOR": "1"})
    assert "\x1b[32m" not in shown and "good" in shown
    _, shown = on_terminal("verify", flights)
    assert "\x1b[32mgood" in shown


@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "utf-8"])
@pytest.mark.parametrize("form", [("--json",), ("--format", "csv"), ()])
@pytest.mark.tier("more")
def test_output_is_written_in_the_encoding_of_the_terminal(flights, encoding, form):
    query = "select 'Zoë 李雷 😀' as name"
    done = subprocess.run(
        [sys.executable, "-m", "state_store.cli", "sql", str(flights), query, *form],
        capture_output=True,
        timeout=240,
        env={"PYTHONIOENCODING": encoding, "PATH": "/usr/bin:/bin"},
    )
    assert (done.returncode, done.stderr) == (0, b"")
    text = done.stdout.decode(encoding)
    if form == ("--json",):
        assert json.loads(text) == [{"name": "Zoë 李雷 😀"}]
    elif encoding == "ascii":
        assert "Zo\\u00eb \\u674e\\u96f7 \\ud83d\\ude00" in text


@pytest.mark.parametrize("form", [("--json",), ("--format", "csv"), ("--limit", "0")])
def test_a_reader_that_has_seen_enough_is_no_error(flights, form):
    command = [sys.executable, "-m", "state_store.cli", "sql", str(flights), "from range(100000)", *form]
    with started(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        process.stdout.read(10)
        process.stdout.close()
        assert process.stderr.read() == b""
        assert process.wait(ENDED_S) == 0


@pytest.mark.parametrize("words", [("show",), ("chain",), ("checkpoints", "--json"), ("history", "C1")])
def test_standard_output_that_cannot_be_written_is_named(flights, words):
    with open("/dev/full", "wb") as full:
        done = subprocess.run(
            [sys.executable, "-m", "state_store.cli", words[0], str(flights), *words[1:]],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            timeout=240,
        )
    assert done.returncode == ExitCode.RETRY
    assert "cannot write standard output: No space left on device" in done.stderr


def test_null_empty_and_blank_look_different():
    shown = [cell(value).plain for value in (None, "", " ", "null", "a ", "a", "never")]
    assert shown == ["null", "''", "' '", "'null'", "'a '", "a", "never"]


def test_windows_show_their_end():
    start = datetime.datetime(2024, 2, 29, 23, 50, tzinfo=datetime.timezone.utc)
    window = {"start": start, "end": start + datetime.timedelta(minutes=20)}
    same_day = {"start": start - datetime.timedelta(hours=1), "end": start}
    assert cell(window).plain.count("2024") == 2
    assert cell(same_day).plain.count("2024") in (1, 2)  # the local zone may have midnight in between
    assert " to " in cell([window]).plain


def test_moments_in_numbers_are_shown_as_moments():
    assert "2024-02-29" in cell(1_709_205_540_000, "ms").plain
    assert cell(1_709_205_540_000, "ms").plain == cell(1_709_205_540_000_000, "us").plain
    assert cell(-1, "ms").plain == "never"
    assert cell(2**62, "ms").plain == str(2**62)


@pytest.mark.parametrize(
    "words",
    [
        *(("show",), ("get", "C1"), ("history", "C1"), ("diff", "1"), ("diff", "1", "--feed")),
        ("sql", "from state"),
    ],
    ids=lambda words: " ".join(words),
)
def test_time_outs_are_moments_in_every_table(flights, words, capsys):
    assert main([words[0], str(flights), *words[1:], "--utc"]) == 0
    shown = capsys.readouterr().out
    (row,) = [row for row in expected("flights", VERSIONS[-1]) if row["carrier"] == "C1"]
    moment = datetime.datetime.fromtimestamp(row["timeoutTimestamp"] / 1000, datetime.timezone.utc)
    assert f"{moment:%Y-%m-%d %H:%M:%S}+00:00" in shown
    assert str(row["timeoutTimestamp"]) not in shown


def test_rows_in_a_cell_show_their_moments():
    row = {"n": 5, "timeoutTimestamp": 1_709_205_540_000, "until": -1}
    shown = cell([row, None], {"timeoutTimestamp": "ms", "until": "us"}).plain
    assert "2024-02-29" in shown and "never" in shown and "1709205540000" not in shown
    assert json.loads(cell(row, {}).plain) == row


@pytest.mark.parametrize("form", [("--json",), ("--format", "json"), ("--format", "csv")])
@pytest.mark.parametrize("command", ["show", "diff"])
def test_rows_for_programs_are_made_by_columns(flights, command, form, capsys, monkeypatch):
    """No row passes through Python: a state of some hundred thousand rows is printed in seconds."""
    for name in ("rows_as_values", "plain", "cell"):
        monkeypatch.setattr(formats, name, lambda *_: pytest.fail("a row in Python"))
    assert main([command, str(flights), *(["1"] if command == "diff" else []), *form]) == 0
    assert "C1" in capsys.readouterr().out


def test_a_changed_row_shows_the_values_that_differ():
    row = {"change": "changed", "key": 1, "before": {"a": 1, "b": 2}, "after": {"a": 1, "b": 3}}
    assert differing(row) == {**row, "before": {"b": 2}, "after": {"b": 3}}
    assert differing({**row, "change": "added", "before": None})["after"] == {"a": 1, "b": 3}


def test_numbers_and_nouns_agree():
    assert [counted(count, "row") for count in (0, 1, 2)] == ["0 rows", "1 row", "2 rows"]


def test_plain_tables_have_no_blanks_at_the_end(capsys):
    headings = [Heading("name", False), Heading("n", True), Heading("other", False)]
    print_table(headings, [("a", 1, "b"), ("李", 22, "")])
    assert capsys.readouterr().out == "name   n  other\n----  --  -----\na      1  b\n李    22\n"


def test_rows_of_a_table_are_written_together(capsys, monkeypatch):
    """No row passes through rich: a state of some hundred thousand rows is a table in seconds."""
    written = []
    monkeypatch.setattr(output, "write", written.append)
    monkeypatch.setattr(output, "_print_row", lambda *_, **__: pytest.fail("a row through rich"))
    batch = pa.record_batch({"n": pa.array(range(2500)), "text": ["a", None] * 1250})
    assert print_rows(iter([batch]), batch.schema, "table", None) == 2500
    lines = "".join(written).splitlines()
    assert (lines[0], lines[2], lines[-1]) == ("   n  text", "   0  a", "2499  null")
    assert (len(lines), len(written)) == (2502, 3)


VALUES = {
    pa.bool_(): st.booleans(),
    pa.int8(): st.integers(-128, 127),
    pa.int64(): st.integers(-(2**63), 2**63 - 1),
    pa.float32(): st.floats(width=32),
    pa.float64(): st.floats(),
    pa.string(): st.text(st.characters(exclude_categories=["Cs"])),
    pa.binary(): st.binary(),
    pa.decimal128(20, 3): st.decimals(-(10**15), 10**15, places=3),
    pa.date32(): st.dates(),
    pa.timestamp("us", "UTC"): st.datetimes(timezones=st.just(datetime.timezone.utc)),
    pa.timestamp("us"): st.datetimes(),
    pa.duration("us"): st.timedeltas(datetime.timedelta(-(10**6)), datetime.timedelta(10**6)),
}


def nested(kinds: st.SearchStrategy) -> st.SearchStrategy:
    return st.one_of(
        kinds.map(lambda kind: pa.list_(kind)),
        st.lists(kinds, min_size=1, max_size=3).map(
            lambda inner: pa.struct(
                [("it's", inner[0]), *((f"f{n}", kind) for n, kind in enumerate(inner[1:]))]
            )
        ),
        kinds.map(lambda kind: pa.map_(pa.string(), kind)),
    )


KINDS = st.recursive(st.sampled_from(sorted(VALUES, key=str)), nested, max_leaves=4)


def values_of(kind: pa.DataType) -> st.SearchStrategy:
    if kind in VALUES:
        found = VALUES[kind]
    elif pa.types.is_list(kind):
        found = st.lists(values_of(kind.value_type), max_size=3)
    elif pa.types.is_map(kind):
        keys = st.text(st.characters(exclude_categories=["Cs"]))
        pairs = st.dictionaries(keys, values_of(kind.item_type), max_size=3)
        found = pairs.map(lambda pairs: list(pairs.items()))
    else:
        fields = [kind.field(place) for place in range(kind.num_fields)]
        found = st.fixed_dictionaries({field.name: values_of(field.type) for field in fields})
    return st.none() | found


@settings(max_examples=60)
@given(st.data())
def test_cells_of_a_column_are_those_of_its_values(data):
    kind = data.draw(KINDS)
    values = data.draw(st.lists(values_of(kind), max_size=4))
    unit = data.draw(st.sampled_from([None, "ms", "us"]) if kind == pa.int64() else st.none())
    wanted = [cell(value, unit) for value in [*values, *values]]
    found = [output.Text(shown) if isinstance(shown, str) else shown for shown in cells(values * 2, unit)]
    assert [(text.plain, text.style) for text in found] == [(text.plain, text.style) for text in wanted]


@st.composite
def columns(draw):
    kind = draw(KINDS)
    return pa.array(draw(st.lists(values_of(kind), max_size=5)), kind)


QUICK = settings(max_examples=40)


@QUICK
@given(columns(), st.sampled_from(["a", "it's", 'a"b', "ключ", "a\nb", "\u202e"]))
def test_json_by_columns_is_that_of_python(column, name):
    batch = pa.RecordBatch.from_arrays([column], [name])
    with RowTexts(batch.schema) as texts:
        found = [json.loads(text) for text in texts.json(batch)]
    wanted = [plain({name: value}) for value in column.to_pylist()]
    assert found == json.loads(json.dumps(wanted))


@QUICK
@given(columns())
def test_csv_by_columns_has_the_values(column):
    batch = pa.RecordBatch.from_arrays([column, pa.array(range(len(column)))], ["a", "n"])
    with RowTexts(batch.schema) as texts:
        rows = list(csv.reader(io.StringIO(texts.csv_header() + texts.csv(batch), newline="")))
    assert rows[0] == ["a", "n"]
    assert [row[1] for row in rows[1:]] == [str(place) for place in range(len(column))]
    for (shown, _), value in zip(rows[1:], column.to_pylist(), strict=True):
        wanted = plain(value)
        if value is None:
            assert shown == ""
        elif isinstance(value, float):
            assert float(shown) == value or math.isnan(value)
        elif isinstance(wanted, (dict, list)):
            assert json.loads(shown) == json.loads(json.dumps(wanted))
        elif isinstance(value, bool):
            assert shown == str(value).lower()
        elif isinstance(value, datetime.datetime):
            assert datetime.datetime.fromisoformat(shown) == value
        elif isinstance(value, Decimal):
            assert Decimal(shown) == value
        else:
            assert shown == str(wanted)


def test_columns_that_differ_in_case_keep_their_names():
    batch = pa.RecordBatch.from_arrays([pa.array([1]), pa.array([2])], ["a", "A"])
    with RowTexts(batch.schema) as texts:
        assert [json.loads(text) for text in texts.json(batch)] == [{"a": 1, "A": 2}]


@pytest.mark.parametrize("sign", ["=", "+", "-", "@", "\t", "\r", "＝"])
def test_formulas_are_guarded_when_it_is_asked_for(flights, capsys, sign):
    query = f"select '{sign}1+1' as a, -5 as n, 'x{sign}' as b"
    assert main(["sql", str(flights), query, "--format", "csv", "--guard-formulas"]) == 0
    guarded = list(csv.reader(io.StringIO(capsys.readouterr().out, newline="")))[1]
    assert guarded == [f"'{sign}1+1", "-5", f"x{sign}"]
    assert main(["sql", str(flights), query, "--format", "csv"]) == 0
    assert list(csv.reader(io.StringIO(capsys.readouterr().out, newline="")))[1][0] == f"{sign}1+1"
    assert main(["sql", str(flights), query, "--guard-formulas"]) == 2
    assert "--guard-formulas is for --format csv" in capsys.readouterr().err


@pytest.mark.parametrize("form", [*FORMATS[1:], GUARDED])
def test_no_file_is_left_when_rows_cannot_be_read(tmp_path, form):
    schema = pa.schema([("n", pa.int64())])

    def failing():
        yield pa.record_batch([pa.array([1])], schema)
        raise OSError("the disk is gone")

    with pytest.raises(OSError, match="the disk is gone"):
        print_rows(failing(), schema, form, str(tmp_path / "rows"))
    assert list(tmp_path.iterdir()) == []


def by_flights(row):
    return -row["flights"], row["carrier"]


def test_rows_come_in_the_order_that_is_asked_for(flights, capsys):
    rows = sorted(expected("flights", VERSIONS[-1]), key=by_flights)
    words = ["show", str(flights), "--order-by", "flights desc, carrier", "--json"]
    assert main(words) == 0
    assert json.loads(capsys.readouterr().out) == rows
    assert main([*words, "--limit", "2", "--where", "flights < 9", "--columns", "carrier"]) == 0
    carriers = [{"carrier": row["carrier"]} for row in rows if row["flights"] < 9]
    assert json.loads(capsys.readouterr().out) == carriers[:2]
    assert main([*words[:2], "--order-by", "speed"]) == 2
    assert '--order-by is wrong: Referenced column "speed"' in capsys.readouterr().err


def test_types_of_spark_pass_through_an_order(tmp_path, capsys):
    directory = str(checkpoint("types", tmp_path))
    assert main(["show", directory, "--json"]) == 0
    unordered = json.loads(capsys.readouterr().out)
    assert main(["show", directory, "--json", "--order-by", "count, k_text"]) == 0
    assert sorted(json.loads(capsys.readouterr().out), key=repr) == sorted(unordered, key=repr)
