"""Each command has a function with the same arguments at the root of the package."""

from __future__ import annotations

import inspect
import re
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import click
import pytest
import rich.progress
import tqdm.auto
from dataset.golden_states import checkpoint

import state_store
from state_store.cli.commands import NAMES, load
from state_store.data.query import progress as progress_
from state_store.errors import OptionError

FUNCTIONS = {
    "doctor": ("doctor",),
    "serve": ("serve",),
    "checkpoints": ("checkpoints",),
    "chain": ("chain",),
    "files": ("files",),
    "full": ("full_checkpoint",),
    "verify": ("verify",),
    "repair": ("repair",),
    "show": ("show",),
    "sql": ("sql",),
    "get": ("get",),
    "diff": ("diff",),
    "history": ("history",),
    "stats": ("stats",),
    "estimate": ("measure", "Workload", "estimate"),
    "export": ("export",),
    "cp": ("copy",),
    "import": ("import_state",),
    "repartition": ("repartition",),
    "migrate": ("migrate",),
    "jar": ("jar_path", "build_jar"),
    "options": ("options",),
}
"""The functions of each command."""

PRINTED = {"as_json", "form", "guard", "wide"}
PRINTED_BY = {
    "get": {"target"},
    "history": {"target"},
    "show": {"target"},
    "sql": {"target", "limit"},
    "diff": {"target", "limit"},
    "checkpoints": {"each"},
    "files": {"by_reason"},
    "options": {"markdown", "conf"},
    "jar": {"action"},
    "full": {"url", "query_name", "trigger_id", "token_file"},
}
"""Parameters of commands that say how results are printed; those of `full` ask a service, whose interface
for programs is the REST API.
"""

RENAMED = {
    ("show", "keys"): "key",
    ("diff", "older"): "since",
    ("diff", "newer"): "version",
    ("stats", "exact"): "sample",
    ("estimate", "update_share"): "updates_per_batch",
    ("estimate", "fetch_rate"): "cost",
    ("estimate", "full_every"): "options",
    ("estimate", "objective"): "options",
    ("migrate", "source"): "checkpoint",
    **{(name, "master"): "spark" for name in FUNCTIONS},
}
"""Parameters of commands whose functions take them under another name, or in another form."""

SHELL_ALONE = {"completion"}

LONG = [
    *("checkpoints", "chain", "files", "full_checkpoint", "verify", "repair", "show", "sql", "get", "diff"),
    *("history", "stats", "measure", "estimate", "export", "copy", "import_state", "repartition", "migrate"),
]


def parameters(command: str) -> set[str]:
    """Return the parameters of a command that its functions have to take, under the functions' names."""
    declared = load(command).params
    names = {str(parameter.name) for parameter in declared if parameter.expose_value}
    names -= PRINTED | PRINTED_BY.get(command, set())
    return {RENAMED.get((command, name), name) for name in names}


def arguments(command: str) -> set[str]:
    """Return the arguments of a command's functions."""
    functions = (getattr(state_store, name) for name in FUNCTIONS[command])
    return {name for function in functions for name in inspect.signature(function).parameters}


def test_every_command_has_a_function() -> None:
    assert FUNCTIONS.keys() | SHELL_ALONE == set(NAMES)


@pytest.mark.parametrize("command", FUNCTIONS)
def test_a_function_takes_the_arguments_of_its_command(command: str) -> None:
    assert parameters(command) <= arguments(command)


@pytest.mark.parametrize("name", LONG)
def test_long_functions_report_their_progress(name: str) -> None:
    assert "progress" in inspect.signature(getattr(state_store, name)).parameters


@pytest.mark.parametrize("command", FUNCTIONS)
def test_defaults_are_those_of_the_command(command: str) -> None:
    """Compare defaults that are numbers or texts; a function's None may be a command's missing option."""
    defaults = {
        name: parameter.default
        for function in FUNCTIONS[command]
        for name, parameter in inspect.signature(getattr(state_store, function)).parameters.items()
    }
    for parameter in load(command).params:
        name = str(parameter.name)
        if isinstance(parameter, click.Option) and name not in PRINTED and name in defaults:
            given = parameter.default
            if isinstance(given, (bool, int, float, str)) and not (given is False and defaults[name] == ()):
                assert defaults[name] == given, name


def test_the_page_of_the_api_has_every_public_name(checkout: Path) -> None:
    named = set(re.findall(r"^::: state_store\.(\w+)$", (checkout / "docs/api.md").read_text(), re.MULTILINE))
    assert named == set(state_store.__all__) - {"__version__"}


@pytest.fixture(scope="module")
def flights(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(checkpoint("flights", tmp_path_factory.mktemp("states")))


RESULTS = {
    "checkpoints": r"Checkpoints\(2 stores, 8 that can be restored, versions 1 to 4\)",
    "chain": r"Chains\(2 stores, the largest is store 0/\d/default, version 4: from .*\)",
    "files": r"Files\(2 stores: \d+ files, \d+ bytes\)",
    "full_checkpoint": r"FullCheckpoints\(2 stores, \d+ bytes\)",
    "verify": r"Verification\(2 stores: no problem\)",
    "repair": r"Repairs\(2 stores: .*\)",
    "stats": r"Statistics\(version 4: \d+ rows in 2 partitions, \d+ bytes in files\)",
    "measure": r"Measured\(operator 0, store default, version 4: \d+ keys, .*\)",
    "doctor": r"Examination\(\w+: .*\)",
    "open": r"State\(operator 0 \(applyInPandasWithState\), store default, version 4, 2 partitions: .*\)",
}


@pytest.mark.parametrize("name", RESULTS)
def test_results_say_what_they_are(name: str, flights: str, tmp_path: Path) -> None:
    shown = repr(getattr(state_store, name)(flights))
    assert re.fullmatch(RESULTS[name], shown), shown


def test_results_of_other_arguments_say_what_they_are(flights: str, tmp_path: Path) -> None:
    assert re.fullmatch(
        r"Copied\(version=4, files=\d+, .*\)", repr(state_store.copy(flights, tmp_path / "copy"))
    )
    written = state_store.repartition(flights, tmp_path / "three", 3)
    assert re.fullmatch(r"Rewritten\(version=4, rows=\d+, size_bytes=\d+, is_complete=True\)", repr(written))
    (first, *_) = state_store.history(flights, "C1")
    assert repr(first).startswith("KeyVersion(1, wrote it: {")
    workload = state_store.Workload(keys=1000, key_bytes=16, value_bytes=16, updates_per_batch=10)
    assert repr(state_store.estimate(workload, batches=50)).startswith("Estimate(")


@pytest.mark.parametrize("name", ["checkpoints", "chain", "files", "show", "stats", "measure", "verify"])
def test_progress_counts_every_store(name: str, flights: str) -> None:
    updates: list[Any] = []
    getattr(state_store, name)(flights, progress=updates.append)
    assert updates[-1].stores_done == updates[-1].stores == 2


@pytest.mark.parametrize("installed", ["rich", "tqdm"])
@pytest.mark.parametrize("name", ["verify", "show", "export"])
def test_progress_is_a_bar_of_rich_or_of_tqdm(
    name: str, installed: str, flights: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The one that is installed; it is removed at the end."""
    bars = noted_bars(monkeypatch)
    monkeypatch.setattr(progress_, "_is_installed", lambda package: package == installed)
    target = [tmp_path / "target"] if name == "export" else []
    getattr(state_store, name)(flights, *target, progress=True)
    (bar,) = bars
    assert type(bar).__module__.partition(".")[0] == installed
    assert bar.done() > 0 and bar.said().endswith("2/2 stores")


def test_a_notebook_gets_a_bar_of_tqdm(flights: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rich needs `ipywidgets` there."""
    bars = noted_bars(monkeypatch)
    kernel = SimpleNamespace(get_ipython=lambda: SimpleNamespace(config={"IPKernelApp": {}}))
    monkeypatch.setitem(sys.modules, "IPython", kernel)
    state_store.verify(flights, progress=True)
    assert [type(bar).__module__.partition(".")[0] for bar in bars] == ["tqdm"]


def test_progress_without_a_package_for_bars_is_refused(
    flights: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(progress_, "_is_installed", lambda _: False)
    with pytest.raises(OptionError, match="rich or tqdm"):
        state_store.verify(flights, progress=True)


def noted_bars(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Return the bars that are made from now on, each with what was done and said when it ended."""
    bars: list[Any] = []
    rich_exit, tqdm_close = rich.progress.Progress.__exit__, tqdm.auto.tqdm.close

    def leave(bar: Any, *error: Any) -> Any:
        (task,) = bar.tasks
        bar.done, bar.said = (lambda: task.completed), (lambda: task.description)
        bars.append(bar)
        return rich_exit(bar, *error)

    def close(bar: Any) -> Any:
        if not hasattr(bar, "said"):  # otherwise its end as garbage
            done, said = bar.n, str(bar.desc).rstrip(": ")
            bar.done, bar.said = (lambda: done), (lambda: said)
            bars.append(bar)
        return tqdm_close(bar)

    monkeypatch.setattr(rich.progress.Progress, "__exit__", leave)
    monkeypatch.setattr(tqdm.auto.tqdm, "close", close)
    return bars


def test_progress_of_a_query_in_sql_comes_while_rows_are_read(flights: str) -> None:
    updates: list[Any] = []
    rows = state_store.sql(flights, "select count(*) as n from state", progress=updates.append)
    assert rows.num_rows == 1
    assert updates[-1].done > 0


def test_an_estimate_reports_its_batches() -> None:
    updates: list[Any] = []
    workload = state_store.Workload(keys=1000, key_bytes=16, value_bytes=16, updates_per_batch=10)
    found = state_store.estimate(workload, batches=50, progress=updates.append)
    assert updates[-1].done >= found.batches
    assert updates[-1].unit == "batches"


def test_show_is_the_table_that_a_state_gives(flights: str) -> None:
    with state_store.open(flights) as state:
        everything = state.to_arrow()
    rows = state_store.show(flights)
    assert rows.equals(everything)
    assert state_store.show(flights, limit=3).equals(everything.slice(0, 3))
    assert state_store.show(flights, limit=0).num_rows == 0
    assert state_store.show(flights, key="C1").num_rows == 1
    ordered = state_store.show(flights, order_by="flights desc", limit=2, columns=["flights"])
    assert ordered["flights"].to_pylist() == sorted(everything["flights"].to_pylist(), reverse=True)[:2]
    kept = state_store.show(flights, where="flights > 8")["flights"].to_pylist()
    assert kept and all(flights_ > 8 for flights_ in kept)
    with pytest.raises(OptionError, match="where"):
        state_store.show(flights, where="flights >")


def test_options_are_declared_and_checked() -> None:
    assert len(state_store.options()) > 20
    (found,) = state_store.options("restoreObjective=5s")
    assert found.name == "restoreObjective"
    for wrong in ("nope", "restoreObjective=soon", 5):
        with pytest.raises(OptionError):
            state_store.options(wrong)  # type: ignore[arg-type]


def test_single_things_are_counted_in_the_singular(tmp_path: Path) -> None:
    """Shown results of a state with one partition, which has one row in one file."""
    directory = checkpoint("flights", tmp_path)
    with state_store.open(directory) as state:
        rows = state.scan(key="C1").read_all()
    state_store.import_state(directory, rows, tmp_path / "five")
    single = tmp_path / "single"
    state_store.repartition(tmp_path / "five", single, 1)
    functions = (state_store.checkpoints, state_store.chain, state_store.files, state_store.verify)
    shown = [
        repr(function(single)) for function in (*functions, state_store.repair, state_store.full_checkpoint)
    ]
    shown += [
        repr(state_store.open(single)),
        repr(state_store.stats(single)),
        repr(state_store.measure(single)),
    ]
    assert not [text for text in shown if re.search(r"\b1 (stores|partitions|rows|files|deltas)\b", text)]
    assert sum(len(re.findall(r"\b1 (?:store|partition|row|file|delta)\b", text)) for text in shown) >= 9
