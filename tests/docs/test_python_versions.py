"""The workflow, programs and the jar name the versions of Python, Java and Spark that are supported."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest
import yaml

from state_store.session import releases

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

Version = tuple[int, int]


def version(text: str) -> Version:
    major, minor = text.split(".")
    return int(major), int(minor)


@pytest.fixture(scope="module")
def supported(checkout: Path) -> list[Version]:
    """Return the versions of the classifiers, in order."""
    project = tomllib.loads((checkout / "pyproject.toml").read_text("utf-8"))["project"]
    of_classifiers = re.findall(r"Python :: (\d+\.\d+)", "\n".join(project["classifiers"]))
    least, end = re.fullmatch(r">=(\d+\.\d+),<(\d+\.\d+)", project["requires-python"]).groups()  # type: ignore[union-attr]
    versions = [version(text) for text in of_classifiers]
    assert versions == [(3, minor) for minor in range(version(least)[1], version(end)[1])]
    return versions


def jobs(checkout: Path) -> list[tuple[Version, str]]:
    """Return the Python and the target of each job of the workflow that has a matrix."""
    workflow = yaml.safe_load((checkout / ".github/workflows/ci.yml").read_text("utf-8"))
    return [
        (version(entry["python"]), entry["target"])
        for job in workflow["jobs"].values()
        for entry in job.get("strategy", {}).get("matrix", {}).get("include", ())
    ]


def test_the_workflow_runs_each_supported_python_and_no_other(
    checkout: Path, supported: list[Version]
) -> None:
    assert sorted({python for python, _ in jobs(checkout)}) == supported
    text = (checkout / ".github/workflows/ci.yml").read_text("utf-8")
    named = re.findall(r"python(?:-version)?: \"(\d+\.\d+)\"", text)
    assert {version(name) for name in named} == set(supported)


def test_the_workflow_runs_the_agent_on_the_oldest_python(checkout: Path, supported: list[Version]) -> None:
    assert [python for python, target in jobs(checkout) if target == "test-agent"] == supported[:1]


def test_the_workflow_runs_each_spark_on_a_python_that_it_takes(
    checkout: Path, supported: list[Version]
) -> None:
    of_spark = {release.minor: release.min_python for release in releases.RELEASES}
    runs = [(target.partition("SPARK=")[2], python) for python, target in jobs(checkout)]
    assert {spark for spark, _ in runs if spark} == of_spark.keys()
    for spark, python in runs:
        if spark:
            assert python >= of_spark[spark], spark


def test_the_workflow_runs_each_supported_java_and_no_other(checkout: Path) -> None:
    text = (checkout / ".github/workflows/ci.yml").read_text("utf-8")
    named = re.findall(r"java(?:-version)?: \"(\d+)\"", text)
    assert sorted({int(name) for name in named}) == list(releases.SUPPORTED_JAVAS)


def test_programs_that_choose_or_refuse_a_python_name_the_same(
    checkout: Path, supported: list[Version]
) -> None:
    oldest, newest = supported[0], supported[-1]
    finder = (checkout / "scripts/find-python").read_text("utf-8")
    assert f"<= (3, {newest[1]}))" in finder
    tried = re.findall(r"python(3\.\d+)", finder.partition("PYTHON:-")[2].partition("}")[0])
    assert sorted(map(version, tried)) == supported
    for path in ("jvm_bridge/resources/state-store-agent.py", "state_store/__init__.py"):
        text = (checkout / path).read_text("utf-8")
        assert re.findall(r"sys\.version_info < \((\d+), (\d+)\)", text) == [tuple(map(str, oldest))], path
        assert f"{oldest[0]}.{oldest[1]}" in text, path
