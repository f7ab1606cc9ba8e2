"""Blocks of the pages run with the packages that the lines above them install, and with no others.

They run as an ordinary user, in a directory with blanks in its name.
"""

from __future__ import annotations

import contextlib
import os
import re
import shlex
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from dataset.golden_states import checkpoint
from environments import NEWEST, ORDINARY, Environment, as_ordinary_user, of_a_small_query, run

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

pytestmark = [pytest.mark.packaging]

BLOCK = re.compile(r"^(<!-- with Spark -->\n)?```(\w*)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
LOOKS = ("checkpoints", "files", "show", "verify")
"""The commands of README.md that end by themselves and write nothing."""


def blocks(page: Path, language: str) -> list[str]:
    """Return the blocks in this language, without those of a page on state that need Spark."""
    found = BLOCK.findall(page.read_text(encoding="utf-8"))
    return [code for with_spark, named, code in found if named == language and not with_spark]


def installed_by(checkout: Path, page: str) -> list[str]:
    """Return the extras that the lines of a page install."""
    lines = re.findall(
        r"^    pip install '\.\[([\w,]+)\]'", (checkout / page).read_text("utf-8"), re.MULTILINE
    )
    return [extra for line in lines for extra in line.split(",")]


def distributions(checkout: Path, extras: list[str]) -> set[str]:
    """Return the distributions that pip installs for these extras, without the package itself."""
    project = tomllib.loads((checkout / "pyproject.toml").read_text("utf-8"))["project"]
    requirements, names = list(project["dependencies"]), set()
    for extra in extras:
        requirements += project["optional-dependencies"][extra]
    while requirements:
        name, more = re.match(r"([\w.-]+)(?:\[([\w,]+)\])?", requirements.pop()).groups()  # type: ignore[union-attr]
        if name != "incremental-state-store":
            names.add(name)
            continue
        for extra in more.split(","):
            requirements += project["optional-dependencies"][extra]
    return names


@dataclass
class Reader:
    """Somebody who has installed what a page says, and works in an empty directory."""

    environment: Environment
    directory: Path

    def run(self, *command: str) -> str:
        """Return what a command prints; it must succeed."""
        before = [] if os.getuid() else as_ordinary_user()
        words = [*before, self.environment.directory / "bin" / command[0], *command[1:]]
        variables = {
            "HOME": str(self.directory),
            "PATH": f"{self.environment.directory}/bin:{os.environ['PATH']}",
        }
        return run(*words, cwd=self.directory, **variables, **of_a_small_query(NEWEST)).stdout

    def owns(self) -> None:
        """Give the directory, with what is in it, to the ordinary user."""
        if os.getuid() == 0:
            for path in (self.directory, *self.directory.rglob("*")):
                os.chown(path, ORDINARY, ORDINARY)


@pytest.fixture
def reader(checkout: Path, wheel: Path, tmp_path: Path) -> Iterator[Callable[[list[str]], Reader]]:
    """Yield a function that installs some extras, into an environment of their packages alone."""

    def made(extras: list[str]) -> Reader:
        environment = Environment(tmp_path / "env", *distributions(checkout, extras))
        environment.pip_install(wheel, cwd=tmp_path)
        place = Path(
            stack.enter_context(tempfile.TemporaryDirectory(dir="/tmp", prefix="documented-")), "my work"
        )
        place.mkdir()
        place.parent.chmod(0o755)  # Hadoop asks by access(2), for which no capability counts
        person = Reader(environment, place)
        person.owns()
        return person

    with contextlib.ExitStack() as stack:
        yield made


def test_frames_need_the_smallest_extra_that_the_page_on_state_names(checkout, reader):
    """Without pandas in this extra, the first block of the page ends with a missing module."""
    person = reader(["arrow"])
    checkpoint("flights", person.directory).rename(person.directory / "checkpoint")
    person.owns()
    first = blocks(checkout / "docs/state.md", "python")[0]
    assert "to_pandas" in first
    printed = person.run("python", "-c", first.replace('"/data/', f'"{person.directory}/'))
    assert "keys after batch" in printed


def test_blocks_of_the_page_on_state_run(checkout, reader):
    person = reader([*installed_by(checkout, "docs/state.md"), "polars"])
    checkpoint("flights", person.directory).rename(person.directory / "checkpoint")
    person.owns()
    codes = [
        code.replace('"/data/', f'"{person.directory}/')
        for code in blocks(checkout / "docs/state.md", "python")
    ]
    assert len(codes) >= 8
    (person.directory / "page.py").write_text("\n".join(codes), encoding="utf-8")
    assert "C1" in person.run("python", "page.py")


def test_commands_of_the_readme_run(checkout, reader):
    person = reader(installed_by(checkout, "README.md"))
    checkpoint("flights", person.directory).rename(person.directory / "DIR")
    person.owns()
    text = (checkout / "README.md").read_text("utf-8")
    commands = [shlex.split(line) for line in re.findall(r"^    (state-store [^#\n]*)", text, re.MULTILINE)]
    looks = [command for command in commands if command[1] in LOOKS]
    assert [command[1] for command in looks] == list(LOOKS)
    for command in looks:
        assert person.run(*command)


@pytest.mark.spark
def test_the_example_of_the_readme_runs(checkout, reader):
    person = reader(installed_by(checkout, "README.md"))
    (code,) = blocks(checkout / "README.md", "python")
    (person.directory / "example.py").write_text(code, encoding="utf-8")
    printed = person.run("python", "example.py")
    table = printed[printed.rindex("partition_id") :].strip().splitlines()
    assert len(table) == 11  # a heading and ten users


@pytest.mark.spark
@pytest.mark.tier("long")
def test_the_tutorial_runs(checkout, reader):
    person = reader(installed_by(checkout, "docs/install.md"))
    program, *others = BLOCK.findall((checkout / "docs/tutorial.md").read_text("utf-8"))
    (person.directory / "count.py").write_text(program[-1], encoding="utf-8")
    printed = []
    for _, language, code in others:
        if language == "python":
            printed.append(person.run("python", "-c", code))
        elif language == "sh":
            printed += [person.run(*shlex.split(line)) for line in code.splitlines()]
    assert len(printed) >= 6
    assert "full" in printed[-1].strip().splitlines()[-1]
