"""The wheel in clean environments, without the source tree: contents, a query, command line, compiler."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from jvm_bridge.build import build
from state_store.spark import SUPPORTED_SPARKS, jar_name

pytestmark = [pytest.mark.packaging, pytest.mark.slow, pytest.mark.spark]

MINUTES = 60
ENVIRONMENTS = {"4.2": ".venv-4.2", "4.3": ".venv"}
# pyspark 4.3 cannot be installed on Python 3.10, where both environments have 4.2.
SPARKS = SUPPORTED_SPARKS if sys.version_info >= (3, 11) else ("4.2",)


def run(
    *command: object, cwd: Path, minutes: int = 10, check: bool = True, python: Path | None = None
) -> subprocess.CompletedProcess[str]:
    environment = {
        name: text for name, text in os.environ.items() if not name.startswith(("PYSPARK_", "PYTHONPATH"))
    }
    if python is not None:
        environment["PYSPARK_PYTHON"] = str(python)
    done = subprocess.run(
        [str(part) for part in command],
        cwd=cwd,
        env=environment,
        capture_output=True,
        text=True,
        timeout=minutes * MINUTES,
    )
    if check and done.returncode:
        pytest.fail(f"{command} exited with {done.returncode}\n{done.stdout[-4000:]}\n{done.stderr[-6000:]}")
    return done


@pytest.fixture(scope="session")
def tree(checkout, tmp_path_factory) -> Path:
    """A copy of the checkout, without what git ignores but with the jars."""
    tree = tmp_path_factory.mktemp("tree")
    listed = run("git", "ls-files", "-co", "--exclude-standard", cwd=checkout).stdout.splitlines()
    for name in listed:
        if (checkout / name).is_file():
            (tree / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(checkout / name, tree / name)
    for version in SPARKS:
        build(checkout / ENVIRONMENTS[version], checkout / "state_store/jars")
    shutil.copytree(checkout / "state_store/jars", tree / "state_store/jars")
    return tree


@pytest.fixture(scope="session")
def wheel(tree) -> Path:
    run(sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "-w", tree / "dist", ".", cwd=tree)
    (built,) = (tree / "dist").glob("*.whl")
    return built


@pytest.fixture(scope="session", params=SPARKS)
def environment(request, wheel, tmp_path_factory) -> tuple[str, Path]:
    """A version of Spark and a clean environment with it and the wheel; pip's cache is shared."""
    directory = tmp_path_factory.mktemp(f"clean-{request.param}")
    run(sys.executable, "-m", "venv", directory / "env", cwd=directory)
    bin_directory = directory / "env/bin"
    install = [bin_directory / "python", "-m", "pip", "install", "-q", "--disable-pip-version-check"]
    run(*install, f"{wheel}[spark,cli]", f"pyspark=={request.param}.0", cwd=directory, minutes=15)
    return request.param, bin_directory


def test_the_wheel_carries_jars_sources_and_the_template(wheel, tree):
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
    for version in SPARKS:
        assert f"state_store/jars/{jar_name(version)}" in names
    scala = list((tree / "jvm_bridge").rglob("*.scala"))
    assert {path.relative_to(tree).as_posix() for path in scala} <= names
    resources = [path for path in (tree / "jvm_bridge/resources").rglob("*") if path.is_file()]
    assert {path.relative_to(tree).as_posix() for path in resources} <= names
    python = [path.relative_to(tree).as_posix() for path in (tree / "state_store").rglob("*.py")]
    assert set(python) <= names
    assert "state_store/py.typed" in names
    assert any(name.endswith("data/share/incremental-state-store/spark-defaults.conf") for name in names)
    assert not [name for name in names if name.startswith(("tests/", "benchmarks/", "examples/"))]


def test_a_query_runs_and_goes_on_from_its_checkpoint(environment, tmp_path):
    version, bin_directory = environment
    script = shutil.copy(Path(__file__).with_name("small_query.py"), tmp_path)
    (tmp_path / "work").mkdir()
    done = run(bin_directory / "python", script, tmp_path / "work", cwd=tmp_path)
    found = json.loads(done.stdout.splitlines()[-1])
    assert found["spark"].startswith(version)
    assert found["package"].startswith(str(bin_directory.parent))
    assert len(found["files"]["delta"]) + len(found["files"]["snapshot"]) >= 6
    listed = run(
        bin_directory / "state-store", "checkpoints", tmp_path / "work/checkpoint", "--json", cwd=tmp_path
    )
    (store,) = json.loads(listed.stdout)["stores"]
    assert store["checkpoints"][-1]["version"] == 6
    assert (
        run(bin_directory / "state-store", "verify", tmp_path / "work/checkpoint", cwd=tmp_path).returncode
        == 0
    )


def test_the_command_line_finds_and_compiles_the_jar(environment, tmp_path):
    version, bin_directory = environment
    path = run(bin_directory / "state-store", "jar", "--path", cwd=tmp_path).stdout.strip()
    assert Path(path).name == jar_name(version)
    built = run(
        bin_directory / "state-store", "jar", "--build", "--out", tmp_path, cwd=tmp_path
    ).stdout.strip()
    assert built == str(tmp_path / jar_name(version))
    with zipfile.ZipFile(built) as fresh, zipfile.ZipFile(path) as shipped:
        assert sorted(fresh.namelist()) == sorted(shipped.namelist())
    refused = run(bin_directory / "state-store", "jar", "--spark", "3.5.1", cwd=tmp_path, check=False)
    assert refused.returncode == 2
    assert "Spark 4.2 and 4.3 are supported" in refused.stderr


def test_a_job_needs_the_properties_file_and_the_jar_alone(environment, tmp_path):
    """Runs last in an environment, since it takes the package away."""
    version, bin_directory = environment
    jar = shutil.copy(run(bin_directory / "state-store", "jar", cwd=tmp_path).stdout.strip(), tmp_path)
    template = (bin_directory.parent / "share/incremental-state-store/spark-defaults.conf").read_text()
    properties = tmp_path / "job.conf"
    properties.write_text(re.sub(r"^spark\.jars .*$", f"spark.jars {jar}", template, flags=re.MULTILINE))
    run(
        bin_directory / "python",
        "-m",
        "pip",
        "uninstall",
        "-q",
        "-y",
        "incremental-state-store",
        cwd=tmp_path,
    )
    script = shutil.copy(Path(__file__).with_name("small_query.py"), tmp_path)
    (tmp_path / "work").mkdir()
    submit = [bin_directory / "spark-submit", "--properties-file", properties, "--driver-memory", "1g"]
    done = run(*submit, script, tmp_path / "work", "submitted", cwd=tmp_path, python=bin_directory / "python")
    found = json.loads(done.stdout.splitlines()[-1])
    assert found["spark"].startswith(version)
    assert found["package"] is None
    assert len(found["files"]["delta"]) >= 2


def test_without_pyspark_the_message_says_so(wheel, tmp_path):
    run(sys.executable, "-m", "venv", tmp_path / "env", cwd=tmp_path)
    install = [tmp_path / "env/bin/python", "-m", "pip", "install", "-q", "--disable-pip-version-check"]
    run(*install, wheel, cwd=tmp_path)
    done = run(tmp_path / "env/bin/state-store", "jar", cwd=tmp_path, check=False)
    assert done.returncode == 2
    assert "pyspark is not installed" in done.stderr
    assert "Traceback" not in done.stderr
