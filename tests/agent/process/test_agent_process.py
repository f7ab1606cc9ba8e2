"""Start, life and death of the agent process."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from waiting import awaited, paths_below

from agent.harness import PATIENCE_S, ROOT, AgentClient, AgentProcess, Job
from state_store.agent.__main__ import PROTOCOL
from state_store.agent.calls import Calls, Server
from state_store.core.storage.hadoop import MAX_HEADER_BYTES, FileConnections, read_frame, write_frame
from state_store.errors import InternalError, OptionError


def test_the_end_of_standard_input_ends_it_at_once_and_nothing_remains() -> None:
    with AgentProcess() as agent:
        job = Job(agent.connect(), agent.home / "state")
        job.commit({b"\0\0a": b"1"})
        job.merge()
        assert list(agent.directory.iterdir())
        agent.process.stdin.close()
        agent.process.wait(PATIENCE_S)
        assert agent.process.returncode == 0
        assert not agent.directory.exists()
        assert not agent.socket.parent.exists()


def test_it_ends_in_the_middle_of_a_merge(tmp_path: Path) -> None:
    with AgentProcess() as agent:
        job = Job(agent.connect(), tmp_path / "state", mergeRateLimit="4k")
        for number in range(3):
            job.commit({b"\0\0%d-%05d" % (number, row): os.urandom(60) for row in range(8000)})
        from threading import Thread

        def merge() -> None:
            with pytest.raises((ConnectionError, OSError)):
                job.merge("full")

        thread = Thread(target=merge)
        thread.start()
        awaited(lambda: paths_below(agent.directory, "base-*"), "the merge has begun")
        assert thread.is_alive()
        agent.process.stdin.close()
        agent.process.wait(PATIENCE_S)
        thread.join(PATIENCE_S)
        assert not agent.directory.exists()
    assert not list((tmp_path / "state").glob("snapshot/*"))


def test_it_survives_signals_that_a_terminal_sends_to_the_whole_group() -> None:
    with AgentProcess() as agent:
        for number in (signal.SIGINT, signal.SIGHUP):
            agent.process.send_signal(number)
            assert agent.connect().call("ping")["pid"] == agent.process.pid
    assert agent.process.returncode == 0, "it ended for a signal, and not with the JVM"


def test_the_agent_says_its_version_and_process() -> None:
    with AgentProcess() as agent:
        assert agent.ready["ready"] is True
        assert agent.ready["pid"] == agent.process.pid
        answer = agent.connect().call("ping")
        assert answer["version"] == agent.ready["version"]
        assert 1 << 20 < answer["memory_bytes"] < 1 << 30


def test_without_rocksdict_it_names_the_interpreter_and_the_fix(tmp_path: Path) -> None:
    paths = {"socket": str(tmp_path / "s"), "directory": str(tmp_path / "d")}
    start = {"protocol": PROTOCOL, "token": "t", **paths}
    code = (
        "import sys, runpy; sys.modules['rocksdict'] = None\nimport importlib.util as u\nfind = u.find_spec\n"
    )
    code += "u.find_spec = lambda name, *rest: None if name == 'rocksdict' else find(name, *rest)\n"
    code += "runpy.run_module('state_store.agent', run_name='__main__')"
    result = subprocess.run(
        [sys.executable, "-c", code],
        input=json.dumps(start) + "\n",
        capture_output=True,
        text=True,
        cwd=ROOT,
        timeout=PATIENCE_S,
    )
    answer = json.loads(result.stdout)
    assert result.returncode == 3
    assert answer["ready"] is False
    assert sys.executable in answer["error"]["message"]
    assert "pip install rocksdict" in answer["error"]["message"]


def test_another_protocol_is_refused(tmp_path: Path) -> None:
    result = subprocess.run(
        [sys.executable, "-m", "state_store.agent"],
        input='{"protocol": 1}\n',
        capture_output=True,
        text=True,
        cwd=ROOT,
        timeout=PATIENCE_S,
    )
    assert result.returncode == 3
    assert "protocol 1" in json.loads(result.stdout)["error"]["message"]


def test_strangers_are_refused() -> None:
    with AgentProcess() as agent:
        with pytest.raises(InternalError, match="token"):
            AgentClient(agent.socket, "guess")
        assert oct(agent.socket.stat().st_mode)[-3:] == "600"
        assert any("refused" in record["message"] for record in agent.log())


def test_garbage_closes_the_connection_and_nothing_else() -> None:
    with AgentProcess() as agent:
        good = agent.connect()
        for garbage in (b"GET / HTTP/1.1\r\n\r\n", (MAX_HEADER_BYTES + 1).to_bytes(4, "big") + bytes(4)):
            with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as channel:
                channel.settimeout(10)
                channel.connect(str(agent.socket))
                channel.sendall(garbage)
                channel.shutdown(socket.SHUT_WR)
                with contextlib.suppress(ConnectionResetError):
                    assert channel.recv(1) == b""
        assert good.call("ping")


def test_unknown_calls_and_missing_arguments_are_named() -> None:
    with AgentProcess() as agent:
        client = agent.connect()
        with pytest.raises(InternalError, match="'fly'"):
            client.call("fly")
        with pytest.raises(InternalError, match="'store'"):
            client.call("open")


def test_a_misspelt_option_names_the_nearest(tmp_path: Path) -> None:
    with AgentProcess() as agent, pytest.raises(OptionError, match="maxDeltas") as failure:
        Job(agent.connect(), tmp_path / "state", maxDelta="7")
    assert failure.value.option.endswith("incremental.maxDelta")


def test_log_records_are_json_with_level_and_store(tmp_path: Path) -> None:
    with AgentProcess() as agent:
        job = Job(agent.connect(), tmp_path / "state")
        job.commit({b"\0\0a": b"1"})
        job.merge("full")
        assert {"INFO"} == {record["level"] for record in agent.log()}
        assert {"0/0/default"} == {record["store"] for record in agent.log()}


def test_a_connection_is_for_calls_or_files() -> None:
    with AgentProcess() as agent:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as channel:
            channel.connect(str(agent.socket))
            write_frame(channel, {"token": agent.token, "for": "fun"})
            answer, _ = read_frame(channel)
        assert "'fun'" in answer["error"]["message"]


def test_debug_explains_why_a_merge_is_made_or_not(tmp_path: Path) -> None:
    with AgentProcess(log_level="DEBUG") as agent:
        job = Job(agent.connect(), tmp_path / "state", maxDeltas="2", retain=2)
        for number in range(3):
            job.commit({b"\0\0a": b"%d" % number})
        job.events()
        job.restore()
        job.cleanup()
        job.cleanup()
        texts = [record["message"] for record in agent.log() if record["level"] == "DEBUG"]
    for said in ("no merge is due", "merge is due, 2 deltas (maxDeltas)", "restored version", "clean-up at"):
        assert any(said in text for text in texts), (said, texts)


def test_accepting_goes_on_when_descriptors_run_out(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    server = Server(str(tmp_path / "s"), "token", Calls(tmp_path), FileConnections())
    real, failures = server._socket.accept, iter([OSError(24, "Too many open files")] * 2)

    class Socket:
        def accept(self) -> object:
            for failure in failures:
                raise failure
            return real()

    monkeypatch.setattr(server, "_socket", Socket())
    threading.Thread(target=server.serve, daemon=True).start()
    assert AgentClient(tmp_path / "s", "token").call("ping")["file_connections"] == 0
