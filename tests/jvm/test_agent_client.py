"""The JVM's side of an agent that misbehaves."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import quick_java
import scala_jars

MAIN = "org.apache.spark.sql.execution.streaming.state.incremental.agent.AgentClient"


def test_the_log_is_read_after_any_error_and_the_first_call_is_bounded(tmp_path: Path) -> None:
    command = ["java", "-Xmx256m", *quick_java.probe_options(), f"-Djava.io.tmpdir={tmp_path}"]
    command += ["--add-opens=java.base/java.nio=ALL-UNNAMED", "--add-opens=java.base/sun.nio.ch=ALL-UNNAMED"]
    command += ["-cp", scala_jars.probes_class_path(), MAIN]
    command += [sys.executable, str(Path(__file__).parent / "fake_agent.py")]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=600)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "the log was read, the call bounded" in ran.stdout
