"""Instruments of the chaos runs: faults hit the processes that they should, and verdicts find wrong rows."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from chaos import comparison, processes, sink
from chaos.processes import MARK, Process


@pytest.fixture
def sleeper(tmp_path) -> Iterator[subprocess.Popen]:
    """Yield a process of that mark, and one that it has started."""
    code = "import subprocess, time; subprocess.Popen(['sleep', '60']); print(flush=True); time.sleep(60)"
    environment = {**os.environ, MARK: str(tmp_path)}
    with subprocess.Popen([sys.executable, "-c", code], env=environment, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        yield process
        for left in processes.marked(str(tmp_path)):
            left.kill()


def test_processes_are_found_by_their_mark_stopped_resumed_and_killed(sleeper, tmp_path):
    def sleeping() -> Process:
        return next(process for process in processes.marked(str(tmp_path)) if process.pid == sleeper.pid)

    # That a program is started is told before its environment, which has the mark, can be read.
    _await(lambda: len(processes.marked(str(tmp_path))) == 2)
    found = processes.marked(str(tmp_path))
    assert {process.pid for process in processes.family(found, sleeper.pid)} == {
        process.pid for process in found
    }
    assert len(found) == 2
    assert not sleeping().stopped
    assert sleeping().stop()
    _await(lambda: sleeping().stopped)
    assert sleeping().resume()
    _await(lambda: not sleeping().stopped)
    last = sleeping()
    assert last.kill()
    sleeper.wait()
    assert not last.kill(), "it is gone, and whoever has its number now is not meant"
    assert processes.marked(str(tmp_path / "another")) == []


def test_a_starved_process_opens_nothing_until_it_is_resumed(tmp_path):
    code = """if True:
        import sys
        for line in sys.stdin:
            try:
                open("/dev/null", "rb").close()
                print("opened", flush=True)
            except OSError as error:
                print(error.errno == 24, flush=True)
    """
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    environment = {**os.environ, MARK: str(tmp_path)}
    with subprocess.Popen([sys.executable, "-c", code], env=environment, **pipes) as process:

        def answer() -> str:
            process.stdin.write("open\n")
            process.stdin.flush()
            return process.stdout.readline().strip()

        assert answer() == "opened"
        (found,) = processes.marked(str(tmp_path))
        assert found.starve()
        assert answer() == "True"
        assert found.resume()
        assert answer() == "opened"
        process.stdin.close()
    assert not found.starve()


def test_the_directory_of_a_listening_socket_is_cleaned(tmp_path):
    with tempfile.TemporaryDirectory(prefix="chaos-", ignore_cleanup_errors=True) as room:
        place = Path(room) / f"{processes.SOCKETS}1"
        place.mkdir()
        with socket.socket(socket.AF_UNIX) as listening:
            listening.bind(str(place / "s"))
            listening.listen()
            (own,) = [process for process in [processes._read(os.getpid())] if process]
            assert own.clean()
        assert not place.exists()
        assert Path(room).exists()


def _await(condition) -> None:
    until = time.monotonic() + 10
    while not condition():
        assert time.monotonic() < until
        time.sleep(0.01)


@pytest.mark.parametrize(
    ("arguments", "java", "role"),
    [
        (
            "java -cp x org.apache.spark.executor.CoarseGrainedExecutorBackend --driver-url y",
            True,
            "executor",
        ),
        ("java org.apache.spark.deploy.worker.Worker --cores 2", True, "worker"),
        ("python /tmp/a/agent.py /tmp/a/state_store_agent.zip 1", False, "agent"),
        ("python -m pyspark.daemon pyspark.worker", False, "python"),
        ("python -m prepared_workers pyspark.worker", False, "python"),
        ("python -m chaos.query_process plan.json", False, "driver"),
        ("sleep 60", False, ""),
    ],
)
def test_the_role_of_a_process_is_recognised(arguments, java, role):
    assert Process(1, 0, 0, False, arguments, java).role == role


def test_a_batch_that_is_run_again_must_say_the_same(tmp_path):
    out = str(tmp_path)
    write = sink.batch_writer(out, ["out"])
    write(_frame([("a", 1), ("b", None)]), 0)
    write(_frame([("b", None), ("a", 1)]), 0)
    assert sink.read_batches(out, "out") == [[("a", 1), ("b", None)]]
    assert sink.repeated(out, "out") == []
    with pytest.raises(AssertionError, match=r"batch out/000000 was .* and run again it is"):
        write(_frame([("a", 2), ("b", None)]), 0)
    assert len(sink.repeated(out, "out")) == 1
    assert sink.read_batches(out, "out") == [[("a", 1), ("b", None)]]


def test_each_action_of_a_batch_has_rows_of_its_own_that_must_be_the_same(tmp_path):
    out = str(tmp_path)
    names = sink.outputs_of("out", 2)
    write = sink.batch_writer(out, names)
    write(_frame([("a", 1)], [("a", 1)]), 0)
    assert [sink.read_batches(out, name) for name in names] == [[[("a", 1)]]] * 2
    write(_frame([("a", 2)], [("a", 3)]), 1)
    assert [sink.read_batches(out, name)[1] for name in names] == [[("a", 2)], [("a", 3)]]
    with pytest.raises(AssertionError, match=r"batch out-2/000000 was .* and run again it is"):
        write(_frame([("a", 1)], [("a", 2)]), 0)
    assert [len(sink.repeated(out, name)) for name in names] == [0, 1]


def _frame(rows: list[tuple], *rows_of_more_actions: list[tuple]) -> SimpleNamespace:
    runs = iter([rows, *rows_of_more_actions])
    return SimpleNamespace(collect=lambda: next(runs), isEmpty=lambda: not rows)


@pytest.mark.parametrize(
    ("actual", "says"),
    [
        ([("a", 1), ("a", 1), ("b", 2)], []),
        ([("a", 1), ("b", 2)], ["0 rows too many", "1 too few"]),
        ([("a", 1), ("a", 1), ("b", 2), ("b", 2)], ["1 rows too many", "0 too few"]),
        ([("a", 1), ("a", 1), ("b", 3)], ["1 rows too many", "1 too few", "('b', 3)", "('b', 2)"]),
    ],
)
def test_every_row_counts(actual, says):
    found = comparison.difference("output", actual, [("a", 1), ("a", 1), ("b", 2)])
    assert bool(found) == bool(says)
    assert all(word in found[0] for word in says)
