"""Signals end a command although a call into a library holds its main thread, or it tidies up for ever."""

from __future__ import annotations

import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from dataset.golden_states import checkpoint
from owned_processes import ENDED_S, line_of, started

from state_store.cli.process import ExitCode

PROGRAM = """
import ctypes, sys, threading, time
from pathlib import Path
from state_store.cli import main, process
{imported}

def held(*_, **__):
    mutex, library = ctypes.create_string_buffer(64), ctypes.CDLL(None)
    library.pthread_mutex_lock(mutex)
    call = Path(f"/proc/self/task/{{threading.get_native_id()}}/syscall")

    def say_when_it_waits():
        while hex(ctypes.addressof(mutex)) not in call.read_text():
            time.sleep(0.01)
        print("held", flush=True)

    threading.Thread(target=say_when_it_waits, daemon=True).start()
    library.pthread_mutex_lock(mutex)

def tidying(*_, **__):
    try:
        print("held", flush=True)
        time.sleep(2**20)
    finally:
        time.sleep(2**20)

process.NOTICED_S = {noticed_s}
{patched}
main.run(sys.argv[1:])
"""
"""A command, a step of which is a call of C that no signal interrupts, or tidies up for ever."""

READING = ("from state_store.data.query import Query", "Query.open = held")
WRITING = ("from state_store.cli import formats", "formats._write_texts = held")
COPYING = (
    "from state_store.data.dataset.rewriting import copying",
    # The removal of files waits until a command that a second signal interrupts once more would have ended.
    """copying.copy_logs = tidying
process.runtime.remove_unfinished = lambda: threading.main_thread().join(1)""",
)
NEVER_S = 10**6


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return checkpoint("flights", tmp_path_factory.mktemp("source"))


@contextmanager
def held(step: tuple[str, str], noticed_s: float, *words: object) -> Iterator[subprocess.Popen[str]]:
    """Run a command until it is held."""
    code = PROGRAM.format(imported=step[0], patched=step[1], noticed_s=noticed_s)
    command = [sys.executable, "-c", code, *map(str, words)]
    with started(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        line_of(process.stdout, "held")
        yield process


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_command_that_cannot_notice_a_signal_ends(source: Path, number: signal.Signals) -> None:
    with held(READING, 0.05, "show", source) as process:
        process.send_signal(number)
        assert process.communicate(timeout=ENDED_S)[1] == "state-store: interrupted: nothing was written\n"
    assert process.returncode == 128 + number


def test_a_second_signal_ends_a_command_and_removes_its_files(source: Path, tmp_path: Path) -> None:
    target = tmp_path / "rows.csv"
    words = ("sql", source, "from state", "--format", "csv", "--output", target)
    with held(WRITING, NEVER_S, *words) as process:
        assert target.exists()
        process.send_signal(signal.SIGINT)
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=ENDED_S)
    assert process.returncode in (128 + signal.SIGINT, 128 + signal.SIGTERM)  # they may come together
    assert not target.exists()


def test_a_command_that_tidies_up_says_what_ends_it(source: Path, tmp_path: Path) -> None:
    with held(COPYING, 0.05, "cp", source, tmp_path / "target") as process:
        process.send_signal(signal.SIGINT)
        assert process.stderr is not None
        line_of(process.stderr, "Ctrl-C ends this at once")
        assert process.poll() is None
        process.send_signal(signal.SIGINT)
        said = process.communicate(timeout=ENDED_S)[1]
    assert process.returncode == ExitCode.INTERRUPTED
    assert f"interrupted: '{tmp_path / 'target'}' may not be complete: " in said


SILENT = """
import sys
from state_store.cli import main
from state_store.core.storage import open as opening
opening.FIRST_ANSWER_S = {limit_s}
main.run(["checkpoints", "s3://bucket/query"])
"""


NAMES = {"AWS_ACCESS_KEY_ID": "a", "AWS_SECRET_ACCESS_KEY": "b", "AWS_EC2_METADATA_DISABLED": "true"}


@pytest.fixture
def silent(monkeypatch: pytest.MonkeyPatch) -> Iterator[socket.socket]:
    """Yield the socket of a service that never answers."""
    with socket.create_server(("127.0.0.1", 0)) as service:
        address = f"http://127.0.0.1:{service.getsockname()[1]}"
        for name, value in {**NAMES, "AWS_ENDPOINT_URL": address}.items():
            monkeypatch.setenv(name, value)
        yield service


@contextmanager
def asking(limit_s: float) -> Iterator[subprocess.Popen[str]]:
    """Run a command on the service."""
    command = [sys.executable, "-c", SILENT.format(limit_s=limit_s)]
    with started(command, stderr=subprocess.PIPE, text=True) as process:
        yield process


@pytest.mark.usefixtures("silent")
def test_a_service_that_does_not_answer_is_named() -> None:
    with asking(0.5) as process:
        said = process.communicate(timeout=ENDED_S)[1]
    assert said.startswith("state-store: 's3://bucket/query' did not answer within 0.5 s: see if its service")
    assert process.returncode == ExitCode.RETRY


def test_a_command_that_waits_for_a_service_is_interrupted(silent: socket.socket) -> None:
    with asking(NEVER_S) as process:
        silent.settimeout(ENDED_S)
        with silent.accept()[0]:
            process.send_signal(signal.SIGTERM)
            assert (
                process.communicate(timeout=ENDED_S)[1] == "state-store: interrupted: nothing was written\n"
            )
    assert process.returncode == ExitCode.INTERRUPTED
