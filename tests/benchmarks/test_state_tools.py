"""Tests of the comparison of tools: executors have cores of their own, and the driver's time is told."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.comparisons import state_tools

JAVA = """#!/bin/sh
''':'
exec "{python}" "$0" "$@"
'''
import json, os, sys
print(json.dumps([sorted(os.sched_getaffinity(0)), os.environ["JAVA_HOME"], sys.argv[1:]]))
"""


def started(java: Path, *words: str) -> list:
    run = subprocess.run([java / "bin/java", *words], capture_output=True, text=True, check=True)
    return json.loads(run.stdout)


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="pins by Linux's calls")
def test_an_executor_has_a_core_of_its_own_and_what_it_starts_the_real_java(tmp_path, monkeypatch):
    python = tmp_path / "a python"
    python.symlink_to(sys.executable)
    monkeypatch.setattr(sys, "executable", str(python))
    real = tmp_path / "real/bin/java"
    real.parent.mkdir(parents=True)
    real.write_text(JAVA.format(python=sys.executable))
    real.chmod(0o755)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "real"))
    pinned = state_tools._pinned_java(tmp_path)
    cores = sorted(os.sched_getaffinity(0))
    for executor in (0, 1, 2):
        words = ["-Xmx512m", "Backend", "--executor-id", str(executor), "--cores", "1"]
        core = cores[executor % 2 % len(cores)]
        assert started(pinned, *words) == [[core], str(tmp_path / "real"), words]
    assert started(pinned, "Migration") == [cores, str(tmp_path / "real"), ["Migration"]]


def test_time_without_tasks_is_that_between_them():
    tasks = [("1", 3.0, 4.5), ("0", 0.0, 2.0), ("1", 1.0, 3.0), ("0", 7.0, 8.0), ("1", 7.0, 7.5)]
    assert state_tools._covered_s(tasks) == pytest.approx(5.5)
    assert state_tools._covered_s([]) == 0


def test_a_tool_that_writes_into_its_checkpoint_gets_a_copy(tmp_path):
    checkpoint = tmp_path / "own"
    (checkpoint / "state").mkdir(parents=True)
    for name in state_tools.WORK:
        target = tmp_path / f"target-{name}"
        source = state_tools._source(name, checkpoint, target)
        assert (source == target) == (name == "full") == (target / "state").is_dir()
