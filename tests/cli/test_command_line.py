"""The command line as such: help, examples, completion, progress, and what happens without its packages."""

from __future__ import annotations

import io
import itertools
import json
import os
import shlex
import subprocess
import sys
from collections import Counter

import click
import pytest
from click.shell_completion import BashComplete
from dataset.golden_states import checkpoint
from query_directory import QueryDirectory, rows
from rich.console import Console
from terminal import on_terminal

import state_store
from state_store.cli import copies, output, process
from state_store.cli.commands import GROUPS, NAMES, load, state_store_command
from state_store.cli.main import main
from state_store.cli.output import Meter
from state_store.cli.process import ExitCode
from state_store.core.storage import open_storage
from state_store.data.query.progress import MeteredStorage
from state_store.errors import KINDS, as_store_error

COMMANDS = sorted(NAMES)


def help_of(capsys, *arguments: str) -> str:
    assert main([*arguments, "--help"]) == ExitCode.OK
    return capsys.readouterr().out


def examples(text: str) -> list[list[str]]:
    return [shlex.split(line)[1:] for line in text.splitlines() if line.startswith("    state-store ")]


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_examples_that_its_arguments_allow(capsys, command):
    found = examples(help_of(capsys, command))
    assert found
    for words in found:
        assert words[0] == command
        words = list(itertools.takewhile(lambda word: word not in ("|", ">"), words))
        with click.Context(state_store_command, info_name="state-store") as parent:
            load(command).make_context(command, words[1:], parent=parent)


@pytest.mark.parametrize("command", COMMANDS)
def test_help_has_no_escape_sequences(capsys, command):
    assert "\\" not in help_of(capsys, command)


def test_the_help_has_exit_codes_and_all_commands(capsys):
    text = help_of(capsys)
    assert all(f"\n  {command} " in text for command in COMMANDS)
    codes = {ExitCode.OK, ExitCode.PROBLEM, *map(ExitCode.of_kind, KINDS)}
    assert all(f"\n    {code}  " in text for code in codes)
    assert len(examples(text)) >= 3


def test_every_kind_of_error_has_an_exit_code():
    assert process._CODES.keys() == set(KINDS)
    assert all(process._CODES.values())


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_completion_script_is_for_the_shell(capsys, shell):
    assert main(["completion", shell]) == ExitCode.OK
    out = capsys.readouterr().out
    assert f"_STATE_STORE_COMPLETE={shell}_complete" in out


@pytest.mark.parametrize(
    ("typed", "offered"),
    [
        ("ver", {"verify"}),
        ("verify --all", {"--all-versions"}),
        ("options memoryB", {"memoryBudget"}),
        ("full --compression ", {"none", "lz4"}),
    ],
)
def test_the_shell_completes(typed, offered):
    *before, last = typed.split(" ")
    shell = BashComplete(state_store_command, {}, "state-store", "_STATE_STORE_COMPLETE")
    assert {completion.value for completion in shell.get_completions(before, last)} == offered


def test_the_process_answers_a_shell_that_completes():
    typed = {"_STATE_STORE_COMPLETE": "bash_complete", "COMP_WORDS": "state-store ver", "COMP_CWORD": "1"}
    done = subprocess.run(
        [sys.executable, "-c", "from state_store.cli.main import run; run()"],
        env={**os.environ, **typed},
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert done.stdout == "plain,verify\n"


@pytest.mark.parametrize("package", ["click", "rich"])
def test_without_its_packages_the_command_says_in_one_line_what_to_install(package):
    code = f"import sys; sys.modules['{package}'] = None; from state_store.cli.main import main; "
    code += "sys.exit(main(['options']))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=240)
    assert done.returncode == ExitCode.USAGE
    assert done.stderr.count("\n") == 1
    assert f"'{package}'" in done.stderr
    assert "(the extra 'cli' of incremental-state-store has it)" in done.stderr


def test_the_agent_and_the_package_need_no_package_of_the_command_line():
    code = (
        "import sys; sys.modules.update(click=None, rich=None); "
        "import state_store.agent.__main__, state_store.session.configuration; "
        "import state_store.data.embedded"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=240)


def test_a_file_is_no_checkpoint_directory(tmp_path, capsys):
    (tmp_path / "file").touch()
    assert main(["verify", str(tmp_path / "file")]) == ExitCode.USAGE
    assert "is a file" in capsys.readouterr().err


def shown(meter_of, *, terminal: bool = True) -> str:
    """Return the text that a terminal, or a file, shows of a meter while `meter_of(console)` is under way."""
    file = io.StringIO()
    meter_of(Console(file=file, force_terminal=terminal, width=120))
    return file.getvalue()


def test_progress_shows_bytes_rate_and_time_left(monkeypatch):
    monkeypatch.setattr(output, "SHOWN_AFTER_S", 0.0)

    def work(console):
        with Meter("verified", 3, console=console) as meter:
            meter.expect(5_000_000)
            meter.expect(7_000_000)
            meter.moved(1_000_000)
            meter.moved(3_000_000)
            meter.store_done()
            meter.shown.wait(240)

    text = shown(work)
    assert "verified 1/3 stores" in text
    assert "4.0/18.0 MB" in text  # the third store is not known yet: it counts as the average of two
    assert "MB/s" in text or "?" in text


def test_progress_shows_rows_alone_as_long_as_nobody_knows_how_many_there_are(monkeypatch):
    monkeypatch.setattr(output, "SHOWN_AFTER_S", 0.0)

    def work(console):
        with Meter("copied", 4, unit="rows", console=console) as meter:
            meter.moved(12_345)
            meter.shown.wait(240)

    text = shown(work)
    assert "12,345 rows" in text
    assert "0:00:00" not in text, "no time is left, it says"


def test_progress_shows_all_rows_once_a_store_has_told(monkeypatch):
    monkeypatch.setattr(output, "SHOWN_AFTER_S", 0.0)

    def work(console):
        with Meter("copied", 4, unit="rows", console=console) as meter:
            meter.expect(20_000)
            meter.moved(12_345)
            meter.shown.wait(240)

    assert "12,345/80,000 rows" in shown(work)


def test_progress_is_gone_before_the_first_rows_are_printed(monkeypatch):
    monkeypatch.setattr(output, "SHOWN_AFTER_S", 0.0)

    def work(console):
        with Meter("read", 1, console=console) as meter:
            assert meter.shown.wait(240)
            for line in meter.hidden_before(["a row", "another"]):
                console.print(line)
                meter.moved(1)

    text = shown(work)
    assert "read 0/1 stores" in text
    assert "stores" not in text[text.index("a row") :]


@pytest.mark.parametrize(("words", "code"), [(("get", "nobody"), 3), (("diff", "9"), 3)])
def test_an_error_on_a_terminal_breaks_between_words(tmp_path, words, code):
    """In a pipe it is a line; a terminal would break it within words."""
    state = checkpoint("flights", tmp_path).rename(tmp_path / ("a directory with a long name " * 3))
    command, *others = words
    found, printed = on_terminal(command, state, *others, columns=60, errors=True)
    assert found == code
    lines = printed.splitlines()
    assert len(lines) > 1 or len(lines[0]) <= 60
    assert max(map(len, lines)) <= 60
    assert " ".join(line.strip() for line in lines).startswith("state-store: there is no ")


def test_short_work_shows_no_progress():
    def work(console):
        with Meter("verified", 1, console=console) as meter:
            meter.expect(1)
            meter.moved(1)
            meter.store_done()

    assert shown(work) == ""
    assert shown(work, terminal=False) == ""


def test_a_metered_storage_tells_what_is_moved(tmp_path):
    calls = []

    class Noted(Meter):
        def moved(self, size_bytes):
            calls.append(size_bytes)

    storage = MeteredStorage(open_storage(str(tmp_path / "store")), Noted("x", 1).moved)
    (tmp_path / "local").write_bytes(b"12345")
    storage.upload(tmp_path / "local", "shared/file")
    storage.download("shared/file", tmp_path / "again")
    assert calls == [5, 5]
    storage.write("shared/other", b"1")
    assert [entry.name for entry in storage.list_files("shared")] == ["file", "other"]
    storage.delete("shared/other")
    assert not storage.exists("shared/other")
    assert storage.read("shared/file", 1, 2) == b"23"


def test_tables_fit_a_narrow_terminal_and_lose_nothing(tmp_path):
    query = QueryDirectory(tmp_path / "checkpoint", tmp_path / "scratch", partitions=1)
    query.commit(rows(0, 3))
    columns = 70
    code, printed = on_terminal("files", query.root, columns=columns, environment={"NO_COLOR": "1"})
    assert code == 0
    lines = click.unstyle(printed).splitlines()
    assert max(map(len, lines)) <= columns
    number, own, parent, _ = next(path.stem for path in query.files(query.keys[0])).split("_")
    rejoined = "".join(line[13:].split("  ")[0].strip() for line in lines)
    assert f"{int(number)}_{own[:8]}_{parent[:8]}" in rejoined


@pytest.mark.parametrize(
    ("command", "words"),
    [
        ("get", ("C1",)),
        ("history", ("C1",)),
        ("history", ("C1", "--format", "csv")),
        ("export", ("TARGET",)),
        ("show", ("--limit", "0", "--format", "csv", "--output", "TARGET")),
        ("stats", ("--exact",)),
        ("diff", ("1", "--output", "TARGET")),
        ("repartition", ("TARGET", "--partitions", "2")),
        ("import", ("ROWS", "TARGET")),
    ],
)
def test_readings_of_a_state_tell_how_far_they_are(tmp_path, monkeypatch, command, words):
    """Every partition is begun and done, and as many bytes are fetched as were expected."""
    calls = []

    class Noted(Meter):
        def __init__(self, done, stores):
            super().__init__(done, stores)
            calls.append(("stores", stores))

        def expect(self, amount):
            calls.append(("expected", amount))

        def moved(self, amount):
            calls.append(("moved", amount))

        def store_done(self):
            calls.append(("done", 1))

    for module in (output, copies):
        monkeypatch.setattr(module, "Meter", Noted)
    directory = checkpoint("flights", tmp_path)
    places = {name: str(tmp_path / name) for name in ("TARGET", "ROWS")}
    with state_store.open(str(directory)) as state:
        state.export(places["ROWS"])
    given = [places.get(word, word) for word in words]
    assert main([command, str(directory), *given]) == ExitCode.OK
    sums = Counter()
    for kind, number in calls:
        sums[kind] += number
    assert sums["stores"] == sums["done"] == (1 if "C1" in words else 2)
    assert sums["moved"] == sums["expected"] > 0


def test_an_error_of_the_operating_system_is_a_sentence():
    error = as_store_error(PermissionError(13, "Permission denied", "/data/x"))
    assert error.message == "cannot use '/data/x': Permission denied"
    assert error.file == "/data/x"
    assert as_store_error(OSError("no file")).message == "no file"


@pytest.mark.tier("more")
@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"])
@pytest.mark.parametrize(("words", "code"), [("checkpoints", 0), ("get C99", 3)])
def test_streams_that_are_closed_do_no_harm(tmp_path, closed, words, code):
    name, *others = words.split()
    command = [name, str(checkpoint("flights", tmp_path)), *others]
    shell = f'exec "$0" -m state_store.cli "$@" {closed}'
    done = subprocess.run(
        ["sh", "-c", shell, sys.executable, *command], capture_output=True, text=True, timeout=240
    )
    assert done.returncode == code
    assert (done.stdout == "") == (" >&-" in f" {closed}" or code != 0)
    assert (done.stderr == "") == ("2>&-" in closed or code == 0)


def imported_by(*arguments: str) -> set[str]:
    """Return the modules that a process of the command line has imported when it ends."""
    code = (
        "import json, sys\nfrom state_store.cli.main import run\n"
        "try:\n    run(sys.argv[1:])\nexcept SystemExit as end:\n    assert not end.code, end.code\n"
        "print('\\n' + json.dumps([name for name, module in sys.modules.items() if module]))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, *arguments], capture_output=True, text=True, timeout=240, check=True
    )
    return set(json.loads(done.stdout.splitlines()[-1]))


def test_the_help_imports_no_command():
    imported = imported_by("--help")
    assert sum(name.startswith("state_store") for name in imported) < 15
    assert imported.isdisjoint({"rich", "pyarrow", "numpy", "asyncio", "importlib.metadata"})


@pytest.mark.parametrize(("of_user", "kept"), [(None, "1"), ("3", "3")])
def test_numpy_starts_no_threads_unless_the_user_says_so(of_user, kept):
    """On two cores these threads took a fifth of the CPU of `show`."""
    environment = {name: value for name, value in os.environ.items() if name != "OPENBLAS_NUM_THREADS"}
    environment |= {"OPENBLAS_NUM_THREADS": of_user} if of_user else {}
    code = (
        "import atexit, os\nfrom state_store.cli.main import run\n"
        "atexit.register(lambda: print(os.environ['OPENBLAS_NUM_THREADS']))\nrun(['--version'])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=240, check=True, env=environment
    )
    assert done.stdout.splitlines()[-1] == kept


@pytest.mark.tier("more")
@pytest.mark.parametrize("words", [["show"], ["get", "C1"], ["sql", "from state"]])
def test_commands_about_rows_import_no_pandas(tmp_path, words):
    imported = imported_by(words[0], str(checkpoint("flights", tmp_path)), *words[1:])
    assert imported.isdisjoint({"pandas", "pyspark", "duckdb"} - {words[0] == "sql" and "duckdb"})
    assert "pyarrow" in imported
    if words[0] == "show":  # without a filter; its functions of arrays take a seventh of the CPU of a command
        assert "pyarrow.compute" not in imported
    assert sum(name.startswith("state_store") for name in imported) < 150


@pytest.mark.parametrize("command", NAMES)
def test_the_list_has_the_first_sentence_of_each_help(capsys, command):
    (sentence,) = [group[command] for group in GROUPS.values() if command in group]
    assert (load(command).help or "").split("\n\n")[0].replace("\n", " ") == sentence
    (line,) = [line for line in help_of(capsys).splitlines() if line.startswith(f"  {command} ")]
    assert line.split(maxsplit=1)[1] == sentence
    assert len(line) <= 80


@pytest.mark.parametrize("command", NAMES)
def test_sentences_of_the_help_fit_a_terminal(capsys, command):
    """A terminal would break longer lines within words; examples are to be copied as they are."""
    lines = [line for line in help_of(capsys, command).splitlines() if "state-store " not in line]
    assert max(map(len, lines)) <= 80


def test_the_list_of_commands_fits_a_terminal(capsys):
    assert max(map(len, help_of(capsys).splitlines())) <= 80


@pytest.mark.parametrize("command", NAMES)
def test_help_has_no_bounds_that_nobody_reaches(capsys, command):
    assert "<=x" not in help_of(capsys, command)


@pytest.mark.parametrize(
    ("word", "said"),
    [
        ("shw", "No such command 'shw'. The nearest is 'show'."),
        ("checkpoint", "No such command 'checkpoint'. The nearest is 'checkpoints'."),
        ("/data", "No such command '/data'.\n"),
    ],
)
def test_a_misspelt_command_is_answered_with_the_nearest(word, said, capsys):
    assert main([word, "DIR"]) == ExitCode.USAGE
    assert said in capsys.readouterr().err
