"""Wrong arguments of commands and functions are refused with a sentence, and nothing is written.

Each command gets values of all kinds for each of its parameters, in one process; so does each public function
of the package. `make test` draws some hundred examples, `make test-long` ten thousand of each.
"""

from __future__ import annotations

import contextlib
import datetime
import inspect
import io
import math
import os
import tempfile
import warnings
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import click
import pyarrow as pa
import pytest
from dataset.golden_states import checkpoint
from hypothesis import HealthCheck, given, note, settings
from hypothesis import strategies as st

import state_store
from state_store.cli.commands import NAMES, load
from state_store.cli.main import main
from state_store.cli.process import ExitCode
from state_store.data import migration
from state_store.errors import InternalError, OptionError, StateStoreError
from state_store.session import build
from state_store.session import jar as jars

_ROOM = tempfile.TemporaryDirectory(prefix="fuzzing-", ignore_cleanup_errors=True)
NOWHERE = Path(_ROOM.name) / "nowhere"
"""A directory that no test makes beforehand; a command may make it."""

SOME, MANY = 400, 10_000
DIR, TARGET, FILE, EMPTY, ROWS = "<DIR>", "<TARGET>", "<FILE>", "<EMPTY>", "<ROWS>"
"""Places that the examples name before there are any."""

WRONG_TEXTS = st.one_of(
    st.sampled_from(
        [
            *(
                "",
                " ",
                "0",
                "1",
                "2",
                "-1",
                "5",
                "1e309",
                "nan",
                "inf",
                "-inf",
                "1e15",
                "10**3",
                "0x10",
                "1_0",
            ),
            *("99999999999999999999", "9223372036854775808", "2147483648", "³", "一", "\u202e", "\x1b[31m"),
            *("\ud800", "\0", "a\0b", "\n", "a\nb", "'", '"', "a'b", "--", "-", "=", "x=", "=x", "x=y", "%s"),
            *(
                "2024-02-29",
                "2023-02-29",
                "2 hours ago",
                "now",
                "batch:1",
                "batch:",
                "1s",
                "10 parsecs",
                "1g",
            ),
            *("512m", "lz4", "none", "C1", "carrier", "carrier=C1", "flights", "left", "default", "*", "."),
            *("select 1", "select", "drop table state", "from state", "select * from state_at(99)", "1; 2"),
            *("flights > 1", "flights >", "flights = 'x'", "count(*)", "nope = 1", "flights desc", "--where"),
            *("restoreObjective", "restoreObjective=soon", "{", "[", "{}", "null", "true", "/", "//", "/."),
            *(
                str(NOWHERE / "at/all"),
                "file:",
                "file:///",
                "ftp://a/b",
                "hdfs://",
                "s3://",
                "s3:///",
                "x://y",
            ),
            *("~", "a" * 5000, "http://127.0.0.1:1", "http://", "127.0.0.1", "256.256.256.256", "3.9"),
            *(DIR, TARGET, FILE, EMPTY, ROWS, f"{DIR}/inside", f"{DIR}/..", f"x={DIR}", f"default={ROWS}"),
        ]
    ),
    st.text(max_size=20),
    st.integers().map(str),
    st.floats().map(str),
)
"""Texts that may be wrong for any parameter, and right for some."""

SAFE = settings(
    deadline=None,
    database=None,
    suppress_health_check=list(HealthCheck),
    print_blob=True,
    max_examples=SOME,
    derandomize=True,
)
LONG = settings(SAFE, max_examples=MANY, derandomize=False)


@pytest.fixture(scope="module")
def sandbox(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Yield a directory with a checkpoint and rows, where nothing compiles, listens or needs a JVM."""
    root = tmp_path_factory.mktemp("fuzzing")
    checkpoint("flights", root)
    state_store.export(root / "flights", root / "rows")
    (root / "file").write_text("no directory")
    (root / "empty").mkdir()
    (root / "work").mkdir()
    program = pytest.importorskip("state_store.observe.program")

    def no_jvm(*_: object, **__: object) -> Any:
        raise OptionError("Java is not run here")

    with pytest.MonkeyPatch.context() as patches:
        patches.chdir(root / "work")
        patches.setenv("HOME", str(root / "work"))
        patches.setenv("SPARK_LOCAL_IP", "127.0.0.1")
        patches.setattr(migration, "JvmProgram", no_jvm)
        patches.setattr(build, "build", lambda *_, **__: (root / "jar", False))
        patches.setattr(jars, "_compiled_once", lambda *_: root / "jar")
        patches.setattr(program.Program, "run", lambda _: None)
        patches.setattr(program, "bound_socket", no_jvm)
        yield root


def placed(value: str, root: Path) -> str:
    """Return a text with the places that it names."""
    places = {DIR: "flights", TARGET: "work/target", FILE: "file", EMPTY: "empty", ROWS: "rows"}
    for name, path in places.items():
        value = value.replace(name, str(root / path))
    return value


def files_below(root: Path) -> dict[str, int]:
    """Return the files below a directory with their sizes, and its directories that hold no file."""
    found = {}
    for path in root.rglob("*"):
        if path.is_file():
            found[str(path)] = path.stat().st_size
    return found


@st.composite
def arguments(draw: st.DrawFn) -> list[str]:
    """Draw a command with arguments, most of its required ones right and the others of any kind."""
    name = draw(st.sampled_from(sorted(NAMES)))
    command = load(name)
    words = [name]
    for parameter in command.params:
        right = draw(st.booleans())
        if isinstance(parameter, click.Argument):
            if not (parameter.required or draw(st.booleans())):
                continue
            good = {
                "checkpoint": DIR,
                "source": DIR,
                "checkpoints": DIR,
                "target": TARGET,
                "rows": ROWS,
                "key": "C1",
                "older": "1",
                "newer": "2",
                "query": "select count(*) as n from state",
                "shell": "bash",
            }
            positional = good.get(str(parameter.name), "restoreObjective") if right else draw(WRONG_TEXTS)
            words.append(positional)
        elif draw(st.integers(0, 5)) == 0 or parameter.required:
            option = draw(st.sampled_from(parameter.opts))
            if isinstance(parameter, click.Option) and parameter.is_flag:
                words.append(option)
            elif isinstance(parameter.type, click.Choice) and right:
                words += [option, draw(st.sampled_from(list(parameter.type.choices)))]
            elif (name, parameter.name) == ("repartition", "partitions"):
                words += [option, draw(st.sampled_from(["3", "0", "-1", "x", "", "nan", "1e3", "100001"]))]
            else:
                words += [option, "2" if right else draw(WRONG_TEXTS)]
    return words


def check_command(root: Path, words: list[str]) -> None:
    """Run a command: it ends with a code for a mistake and a sentence, or does its work."""
    given_words = [placed(word, root) for word in words]
    before = files_below(root)
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = main(given_words)
    shown = err.getvalue()
    note(f"{given_words} -> {code}: {shown}")
    assert code in (
        ExitCode.OK,
        ExitCode.PROBLEM,
        ExitCode.USAGE,
        ExitCode.NOT_FOUND,
        ExitCode.RETRY,
    )
    assert "Traceback" not in shown and "defect" not in shown
    if code in (ExitCode.USAGE, ExitCode.NOT_FOUND, ExitCode.RETRY):
        assert shown.strip(), "an error without a sentence"
        assert len(shown) < 6000, "a sentence is longer than a page"
        assert files_below(root) == before, "a refused command has written"
    for path, size_bytes in files_below(root).items():
        if path not in before or before[path] != size_bytes:
            inside = Path(path).is_relative_to(root / "flights" / "state")
            assert words[0] in ("full", "repair") or not inside, "a checkpoint was changed"
    remove_new(root, before)


def remove_new(root: Path, before: dict[str, int]) -> None:
    """Remove what an example has written outside of the checkpoint."""
    for path in files_below(root).keys() - before.keys():
        if not Path(path).is_relative_to(root / "flights"):
            Path(path).unlink()
    for directory, _, _ in os.walk(root, topdown=False):
        if Path(directory) not in (root, root / "work", root / "empty") and not any(
            Path(directory).iterdir()
        ):
            Path(directory).rmdir()


@SAFE
@given(words=arguments())
@pytest.mark.tier("more")
def test_no_argument_makes_a_traceback(sandbox: Path, words: list[str]) -> None:
    check_command(sandbox, words)


@pytest.mark.tier("long")
@LONG
@given(words=arguments())
def test_no_argument_of_many_makes_a_traceback(sandbox: Path, words: list[str]) -> None:
    check_command(sandbox, words)


WRONG = (
    *(None, True, False, -1, 0, 1, 2, 10**30, -(10**30), 2**31, 2**63),
    *(0.5, -0.0, 1.0, math.nan, math.inf, -math.inf, 1e308, Decimal(1), Decimal("NaN"), 1j),
    *((), [], {}, set(), [None], ["x"], [0], [-1], (1, 2), ["C1"], range(2), b"bytes", object()),
    *({"carrier": "C1"}, {"x": 1}, {1: 2}, {"restoreObjective": "5s"}, {"nope": 1}),
    *(datetime.date(2024, 2, 29), datetime.datetime.min, datetime.datetime.max),
    datetime.datetime(1, 1, 1, tzinfo=datetime.timezone(datetime.timedelta(hours=14))),
    lambda *given_values: None,
    pa.table({"carrier": ["C1"]}),
    NOWHERE,
)
WRONG_VALUES = st.one_of(st.sampled_from(WRONG), WRONG_TEXTS.filter(lambda text: not text.startswith("http")))
"""Values of all kinds of types."""

RIGHT = {
    "checkpoint": DIR,
    "checkpoints": DIR,
    "target": TARGET,
    "key": "C1",
    "since": 1,
    "query": "select count(*) as n from state",
    "rows": ROWS,
    "partitions": None,
    "to": "rocksdb",
    "keys": 1000,
    "key_bytes": 16,
    "value_bytes": 16,
    "updates_per_batch": 10,
    "directory": TARGET,
}
"""Values of arguments that a function needs."""

CALLED = sorted(
    name
    for name in state_store.__all__
    if not name.startswith("_")
    and name not in ("vectorized", "per_group", "accelerate", "configure", "bootstrap")
    and not (inspect.isclass(getattr(state_store, name)) and name not in ("Workload",))
)
"""Functions that are called. Decorators and what needs a session of Spark have tests of their own."""

NEVER = {"runtime", "settings"}
"""Arguments for tests, and the options of a session, which `test_configure.py` has."""


def right_values(name: str) -> dict[str, Any]:
    """Return the arguments that a public function needs, all of them right."""
    values: dict[str, Any] = {}
    for argument, parameter in inspect.signature(getattr(state_store, name)).parameters.items():
        if parameter.kind is inspect.Parameter.VAR_POSITIONAL or argument in NEVER:
            continue
        if argument == "workload":
            values[argument] = state_store.Workload(1000, 16, 16, 10)
        elif parameter.default is inspect.Parameter.empty:
            values[argument] = 2 if (name, argument) == ("repartition", "partitions") else RIGHT[argument]
        elif argument == "batches":
            values[argument] = 20
    return values


def arguments_of(name: str) -> list[str]:
    """Return the names of the arguments of a public function that get wrong values."""
    return [
        argument
        for argument, parameter in inspect.signature(getattr(state_store, name)).parameters.items()
        if parameter.kind is not inspect.Parameter.VAR_POSITIONAL and argument not in NEVER
    ]


@st.composite
def calls(draw: st.DrawFn) -> tuple[str, dict[str, Any]]:
    """Draw a public function with arguments, of which about one is wrong."""
    name = draw(st.sampled_from(CALLED))
    wrong = {argument: draw(WRONG_VALUES) for argument in arguments_of(name) if draw(st.integers(0, 3)) == 0}
    return name, {**right_values(name), **wrong}


def check_call(root: Path, name: str, given_values: dict[str, Any]) -> None:
    """Call a function: it returns, or raises an error of this package for a mistake."""
    values = {
        argument: placed(value, root) if isinstance(value, str) else value
        for argument, value in given_values.items()
    }
    before = files_below(root)
    try:
        with warnings.catch_warnings(), contextlib.redirect_stderr(io.StringIO()):
            warnings.simplefilter("ignore")
            result = getattr(state_store, name)(**values)
        if hasattr(result, "read_all"):
            result.read_all()
        if hasattr(result, "close"):
            result.close()
        assert len(repr(result)) > 0
    except StateStoreError as error:
        assert not isinstance(error, InternalError), error
        assert error.message.strip() and len(error.message) < 6000
        assert files_below(root) == before, "a refused call has written"
    remove_new(root, before)


@pytest.mark.tier("long")
@pytest.mark.parametrize("name", CALLED)
def test_no_wrong_value_of_an_argument_raises_an_inner_error(sandbox: Path, name: str) -> None:
    """Call a function with each wrong value of each argument, the others right: 9,000 calls in all."""
    for argument in arguments_of(name):
        for value in WRONG:
            check_call(sandbox, name, {**right_values(name), argument: value})


@SAFE
@given(call=calls())
@pytest.mark.tier("more")
def test_no_value_raises_an_inner_error(sandbox: Path, call: tuple[str, dict[str, Any]]) -> None:
    check_call(sandbox, *call)


@pytest.mark.tier("long")
@LONG
@given(call=calls())
def test_no_value_of_many_raises_an_inner_error(sandbox: Path, call: tuple[str, dict[str, Any]]) -> None:
    check_call(sandbox, *call)


METHODS = {
    "scan": {},
    "to_arrow": {},
    "to_pandas": {},
    "get": {"key": "C1"},
    "rows_of": {"key": "C1"},
    "history": {"key": "C1"},
    "history_rows": {"key": "C1"},
    "diff": {"since": 1},
    "changes": {"since": 1},
    "sql": {"query": "select 1 as n"},
    "ordered": {"order_by": "flights"},
    "stats": {},
    "export": {"target": TARGET},
}
"""Methods of a state with the arguments that they need."""


@st.composite
def method_calls(draw: st.DrawFn) -> tuple[str, dict[str, Any]]:
    """Draw a method of a state with arguments, of which about one is wrong."""
    name = draw(st.sampled_from(sorted(METHODS)))
    given_values: dict[str, Any] = dict(METHODS[name])
    names = list(inspect.signature(getattr(state_store.State, name)).parameters)[1:]
    for argument in names:
        if draw(st.integers(0, 2)) == 0:
            given_values[argument] = draw(WRONG_VALUES)
    return name, given_values


def check_method(root: Path, name: str, given_values: dict[str, Any]) -> None:
    """Call a method of a state: it returns, or raises an error of this package for a mistake."""
    with state_store.open(root / "flights") as state:
        values = {
            argument: placed(value, root) if isinstance(value, str) else value
            for argument, value in given_values.items()
        }
        before = files_below(root)
        try:
            with contextlib.redirect_stderr(io.StringIO()):
                result = getattr(state, name)(**values)
                if hasattr(result, "read_all"):
                    result.read_all()
        except StateStoreError as error:
            assert not isinstance(error, InternalError), error
            assert files_below(root) == before, "a refused call has written"
        remove_new(root, before)


@settings(SAFE, max_examples=SOME // 2)
@given(call=method_calls())
@pytest.mark.tier("more")
def test_no_value_of_a_method_raises_an_inner_error(sandbox: Path, call: tuple[str, dict[str, Any]]) -> None:
    check_method(sandbox, *call)


@pytest.mark.tier("long")
@LONG
@given(call=method_calls())
def test_no_value_of_many_of_a_method_raises_an_inner_error(
    sandbox: Path, call: tuple[str, dict[str, Any]]
) -> None:
    check_method(sandbox, *call)
