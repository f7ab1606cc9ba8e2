"""The JVM's side of an agent that misbehaves."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import quick_java
import scala_jars

MAIN = "org.apache.spark.sql.execution.streaming.state.incremental.agent.AgentClient"


@pytest.mark.tier("more")
@pytest.mark.parametrize("inside", [True, False])
def test_the_socket_is_in_the_directory_of_a_container(tmp_path: Path, inside: bool) -> None:
    """A container of YARN works in a directory whose path is too long for a socket, and may be killed.

    Its temporary directory is below it, and goes with it. A JVM that works elsewhere has its socket in a
    directory with a short path.
    """
    container = tmp_path / ("container-" * 10)
    temporary = container / "tmp"
    temporary.mkdir(parents=True)
    command = ["java", "-Xmx256m", *quick_java.probe_options(), f"-Djava.io.tmpdir={temporary}"]
    command += ["-cp", scala_jars.probes_class_path(), MAIN.replace("AgentClient", "SocketPlace")]
    ran = subprocess.run(
        command, capture_output=True, text=True, timeout=600, cwd=container if inside else tmp_path
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    place, is_there = ran.stdout.split()[-2:]
    assert is_there == "true", "a socket cannot be bound there"
    assert place.startswith("tmp/state-store-") == inside
    assert inside or len(place) < 107


def test_a_missing_field_of_an_answer_is_an_error_that_names_it() -> None:
    command = ["java", "-Xmx256m", *quick_java.probe_options()]
    command += ["-cp", scala_jars.probes_class_path(), MAIN.replace("AgentClient", "MissingFields")]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=600)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "each missing field is named" in ran.stdout


def test_a_killed_agent_counts_as_ended_although_its_process_is_still_there() -> None:
    """A killed process may take longer to end on a busy machine than four attempts of a call."""
    command = ["java", "-Xmx256m", *quick_java.probe_options()]
    command += ["-cp", scala_jars.probes_class_path(), MAIN.replace("AgentClient", "SlowDeaths")]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=600)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "an agent that was killed counts as ended" in ran.stdout


@pytest.mark.tier("more")
def test_deltas_are_stored_without_the_agent_or_left_to_it(tmp_path: Path) -> None:
    command = ["java", "-Xmx256m", *quick_java.probe_options(), f"-Djava.io.tmpdir={tmp_path}"]
    command += ["--add-opens=java.base/java.nio=ALL-UNNAMED", "--add-opens=java.base/sun.nio.ch=ALL-UNNAMED"]
    main = MAIN.replace("AgentClient", "DeltaLinkCases")
    command += ["-cp", scala_jars.probes_class_path(), main, str(tmp_path), sys.executable]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=600)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "deltas were stored, or left to the agent" in ran.stdout


@pytest.mark.tier("more")
def test_the_log_is_read_after_any_error_and_the_first_call_is_bounded(tmp_path: Path) -> None:
    command = ["java", "-Xmx256m", *quick_java.probe_options(), f"-Djava.io.tmpdir={tmp_path}"]
    command += ["--add-opens=java.base/java.nio=ALL-UNNAMED", "--add-opens=java.base/sun.nio.ch=ALL-UNNAMED"]
    command += ["-cp", scala_jars.probes_class_path(), MAIN]
    command += [sys.executable, str(Path(__file__).parent / "fake_agent.py")]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=600)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "the log was read, the call bounded" in ran.stdout
