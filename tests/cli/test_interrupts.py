"""Ctrl-C and SIGTERM while a command writes: exit code 130, one sentence on what is left, no traceback."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from dataset.golden_states import checkpoint
from owned_processes import ENDED_S, line_of, started

import state_store
from state_store.cli.main import main
from state_store.cli.process import ExitCode
from state_store.data import migration
from state_store.data.dataset import export
from state_store.data.dataset.rewriting import copying
from state_store.data.dataset.sql import Connection
from state_store.data.maintenance import full_checkpoints, repair

WRITERS = {
    "export": ((export, "_write"), ()),
    "repartition": ((copying, "copy_logs"), ("--partitions", "3")),
    "import": ((copying, "copy_logs"), ()),
    "migrate": ((migration, "JvmProgram"), ("--to", "rocksdb")),
}
"""Commands that write to a target: a step in the middle of their work, and the arguments that follow."""


@pytest.fixture
def source(tmp_path: Path) -> Path:
    return checkpoint("flights", tmp_path)


def interrupted(
    monkeypatch: pytest.MonkeyPatch,
    place: tuple[Any, str],
    *words: object,
    after: int = 0,
    number: signal.Signals = signal.SIGINT,
) -> None:
    """Run a command that gets a signal in a step of it, after the step was done `after` times."""
    module, name = place
    step: Callable[..., Any] = getattr(module, name)
    calls: list[object] = []

    def press(*given: Any, **named: Any) -> Any:
        calls.append(given)
        if len(calls) > after:
            assert signal.getsignal(number) is not signal.SIG_DFL, "it would end this process"
            os.kill(os.getpid(), number)
            signal.sigtimedwait([], 60)  # the interrupt is raised here
        return step(*given, **named)

    with monkeypatch.context() as patches:
        patches.setattr(module, name, press)
        assert main([str(word) for word in words]) == ExitCode.INTERRUPTED
    assert signal.getsignal(signal.SIGTERM) is signal.getsignal(signal.SIGHUP) is signal.SIG_DFL


def one_line(capsys: pytest.CaptureFixture[str]) -> str:
    (line,) = [line for line in capsys.readouterr().err.splitlines() if "note: batch" not in line]
    return line


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
@pytest.mark.parametrize("command", WRITERS)
def test_nothing_is_left_of_a_command_that_begins_anew(
    source: Path,
    tmp_path: Path,
    command: str,
    number: signal.Signals,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    place, others = WRITERS[command]
    state_store.export(source, tmp_path / "rows")
    rows = [tmp_path / "rows"] if command == "import" else []
    target = tmp_path / "target"
    interrupted(monkeypatch, place, command, source, *rows, target, *others, number=number)
    assert one_line(capsys) == f"state-store: interrupted: nothing is left in '{target}'"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["flights", "rows"]


def test_a_copy_says_how_it_goes_on(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    target = tmp_path / "target"
    interrupted(monkeypatch, (copying, "copy_logs"), "cp", source, target)
    said = one_line(capsys)
    assert said.startswith(f"state-store: interrupted: '{target}' is not complete: ")
    assert "go on" in said or "goes on" in said or "continue" in said
    assert main(["cp", str(source), str(target)]) == 0
    assert main(["verify", str(target)]) == 0


@pytest.mark.parametrize("done", [0, 1])
def test_an_interrupted_full_checkpoint_leaves_a_good_store(
    source: Path, done: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    before = len(list(source.glob("state/0/*/snapshot/*")))
    place = (full_checkpoints, "publish")
    interrupted(monkeypatch, place, "full", source, "--stores", "1", after=done)
    assert "stores that were done keep their full checkpoints" in one_line(capsys)
    assert len(list(source.glob("state/0/*/snapshot/*"))) == before + done
    assert main(["verify", str(source)]) == 0
    assert main(["full", str(source)]) == 0


@pytest.mark.parametrize(
    ("words", "says"), [((), "nothing was written"), (("--apply",), "goes on with the others")]
)
def test_an_interrupted_repair_says_if_it_may_have_written(
    source: Path,
    words: tuple[str, ...],
    says: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    interrupted(monkeypatch, (repair, "repair_store"), "repair", source, *words, "--stores", "1", after=1)
    assert one_line(capsys).endswith(says)


@pytest.mark.tier("more")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_service_ends_in_order(source: Path, number: signal.Signals) -> None:
    command = [sys.executable, "-m", "state_store.cli", "serve", str(source), "--port", "0"]
    with started(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as service:
        assert service.stdout is not None
        line_of(service.stdout, "Serving 1 query")
        service.send_signal(number)
        assert service.communicate(timeout=ENDED_S) == ("", "")
    assert service.returncode == 0


def test_a_service_that_says_that_it_serves_is_ended_by_a_signal(source: Path) -> None:
    code = (
        "import os, signal, sys, state_store\n"
        "signal.signal(signal.SIGINT, signal.SIG_IGN)  # as in the background of a shell\n"
        "state_store.serve(sys.argv[1], port=0, ready=lambda *_: os.kill(os.getpid(), signal.SIGINT))\n"
        "print('ended')\n"
    )
    with started([sys.executable, "-c", code, source], stdout=subprocess.PIPE, text=True) as service:
        assert service.communicate(timeout=ENDED_S)[0] == "ended\n"


@pytest.mark.parametrize(
    "query",
    ["select count(*) from range(1000000) a, range(1000000) b", "from range(1000000) a, range(1000000) b"],
)
def test_a_query_is_interrupted(
    source: Path, query: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    main_thread = threading.main_thread().ident
    assert main_thread is not None
    planned = Connection._reader

    def pressed(connection: Connection, query: str) -> Any:
        signal.pthread_kill(main_thread, signal.SIGINT)
        return planned(connection, query)

    monkeypatch.setattr(Connection, "_reader", pressed)
    assert main(["sql", str(source), query, "--format", "csv"]) == ExitCode.INTERRUPTED
    assert one_line(capsys) == "state-store: interrupted: nothing was written"
