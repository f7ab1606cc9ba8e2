"""The error for a missing or wrong Java or Python has the fix; `make help` lists all targets."""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from state_store.session.releases import RELEASES


def run(*command: Path | str, **environment: str) -> subprocess.CompletedProcess[str]:
    texts = [str(word) for word in command]
    return subprocess.run(texts, env=environment, capture_output=True, text=True, timeout=240)


def program(directory: Path, name: str, *lines: str) -> Path:
    """Make an executable shell script."""
    directory.mkdir(parents=True, exist_ok=True)
    path = directory / name
    path.write_text("\n".join(["#!/bin/sh", *lines, ""]))
    path.chmod(0o755)
    return path


def java(directory: Path, version: str) -> str:
    program(directory / "bin", "java", f"echo 'openjdk version \"{version}\" 2025-01-01' >&2")
    return str(directory)


@pytest.mark.parametrize("version", ["17.0.15", "21.0.2", "21", "25.0.3"])
def test_supported_javas_pass(checkout, tmp_path, version):
    home = java(tmp_path, version)
    assert run(checkout / "scripts/check-java", JAVA_HOME=home, PATH=os.environ["PATH"]).returncode == 0


@pytest.mark.parametrize(
    ("version", "named"), [("11.0.2", "Java 11"), ("1.8.0_302", "Java 1"), ("24", "Java 24")]
)
def test_other_javas_are_named_with_the_command_that_helps(checkout, tmp_path, version, named):
    home = java(tmp_path, version)
    done = run(checkout / "scripts/check-java", JAVA_HOME=home, PATH=os.environ["PATH"])
    assert done.returncode == 1
    assert named in done.stderr
    assert home in done.stderr
    assert "apt-get install openjdk-17-jdk-headless" in done.stderr


def test_the_error_for_a_missing_java_has_the_command(checkout, tmp_path):
    for tool in ("sh", "sed", "head", "cat", "echo"):
        (tmp_path / tool).symlink_to(f"/bin/{tool}" if Path(f"/bin/{tool}").exists() else f"/usr/bin/{tool}")
    done = run(checkout / "scripts/check-java", PATH=str(tmp_path))
    assert done.returncode == 1
    assert "cannot be run" in done.stderr
    assert "apt-get install openjdk-17-jdk-headless" in done.stderr


def test_a_suitable_python_is_found(checkout):
    done = run(checkout / "scripts/find-python", PYTHON=sys.executable, PATH=os.environ["PATH"])
    assert done.stdout.strip() == sys.executable


def test_the_error_for_an_unsuitable_python_names_the_found_ones(checkout, tmp_path):
    old = program(tmp_path, "python3", "test \"$1\" = --version && echo 'Python 3.9.2' && exit 0", "exit 1")
    done = run(checkout / "scripts/find-python", PYTHON=str(old), PATH=os.environ["PATH"])
    assert done.returncode == 1
    assert f"{old}: Python 3.9.2, without the module ensurepip" in done.stderr
    assert "apt-get install python3 python3-venv" in done.stderr


def test_make_help_lists_every_target(checkout):
    makefile = (checkout / "Makefile").read_text(encoding="utf-8").replace("\\\n", " ")
    phony = re.findall(r"^\.PHONY: (.*)$", makefile, re.MULTILINE)[0]
    done = subprocess.run(
        ["make", "--no-print-directory", "help"],
        cwd=checkout,
        capture_output=True,
        text=True,
        timeout=240,
        check=True,
    )
    listed = {line.split()[1] for line in done.stdout.splitlines()}
    assert listed == set(phony.split())


def test_make_demo_makes_its_environment_and_runs_the_demo(checkout):
    done = subprocess.run(
        ["make", "--no-print-directory", "-n", "demo"],
        cwd=checkout,
        capture_output=True,
        text=True,
        timeout=240,
    )
    made, started = done.stdout.splitlines()[-2:]
    assert made.endswith("scripts/environment.py newest")
    assert started == ".venv/bin/python examples/demo.py"


def test_the_ci_script_runs_every_check(checkout):
    script = (checkout / ".ci/run").read_text(encoding="utf-8")
    made = {word for line in re.findall(r"^step .* make (.*)$", script, re.M) for word in line.split()}
    assert {"setup", "lint", "docs", "test", "test-more"} <= made


def test_packages_come_from_where_pip_takes_them(checkout, tmp_path):
    """A company's index, which pip reads from a file or from variables, is that of the environments, too."""
    configuration = tmp_path / "pip.conf"
    configuration.write_text(
        "[global]\nindex-url = https://mirror.example/simple\nextra-index-url = https://a.example https://b.example\n"
        "[install]\nfind-links = /wheels\n"
    )
    done = run(
        sys.executable,
        "-c",
        "import environment, sys; print(environment.index_of(sys.executable))",
        PATH=os.environ["PATH"],
        PYTHONPATH=str(checkout / "scripts"),
        SSL_CERT_FILE="/own.pem",
        PIP_CONFIG_FILE=str(configuration),
        PIP_FIND_LINKS="/others",
        UV_INDEX="https://c.example",
    )
    assert ast.literal_eval(done.stdout) == {
        "UV_DEFAULT_INDEX": "https://mirror.example/simple",
        "UV_FIND_LINKS": "/others",
    }, done.stderr


def test_each_release_of_spark_has_an_environment(checkout):
    done = subprocess.run(
        [sys.executable, checkout / "scripts/environment.py", "none"],
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert done.returncode == 2
    named = done.stderr.split(": ")[1].strip().split(", ")
    assert {"newest", "all", "docs", *(release.minor for release in RELEASES if release.runs_here())} <= set(
        named
    )
