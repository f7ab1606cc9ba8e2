"""A query runs in environments that are seldom seen, as a user who may write in its own directories alone."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
import quick_java
from environments import ORDINARY, as_ordinary_user

from state_store.core.settings.option import PREFIX

pytestmark = [pytest.mark.spark]

PROGRAM = "tests/packaging/small_query.py"
SHARED = ("/tmp", "/var/tmp", "/dev/shm", "/run/lock", "/")
"""Directories of the machine in which anybody, or root, may write."""


@dataclass
class Environment:
    """An environment of a program: its directories below `root`, variables, Spark's configuration."""

    root: Path
    work: Path
    temporary: Path
    variables: dict[str, str] = field(default_factory=dict)
    conf: dict[str, str] = field(default_factory=dict)
    umask: int = 0o022
    java: list[str] = field(default_factory=list)

    @classmethod
    def usual(cls, root: Path) -> Environment:
        """Return an environment with nothing odd in environment."""
        home = root / "home"
        variables = {"PATH": os.environ["PATH"], "HOME": str(home), "LANG": "C.UTF-8"}
        variables["SPARK_LAUNCHER_OPTS"] = "-XX:-UsePerfData"  # or the JVM writes to /tmp
        variables |= {name: os.environ[name] for name in ("JAVA_HOME",) if name in os.environ}
        home.mkdir()
        return cls(root, root / "work", root / "tmp", variables)

    def run(self, checkout: Path) -> subprocess.CompletedProcess[str]:
        """Run the program in the directory `work`."""
        for directory in (self.work, self.temporary):
            directory.mkdir(parents=True, exist_ok=True)
        command = [sys.executable, str(checkout / PROGRAM), str(self.work)]
        if os.getuid() == 0:
            command = [*as_ordinary_user(), *command]
            for path in (self.root, *self.root.rglob("*")):
                os.chown(path, ORDINARY, ORDINARY)
        java = f"{quick_java.QUICK_START} -XX:-UsePerfData -Djava.io.tmpdir='{self.temporary}'"
        java = " ".join([java, *self.java])
        words = [f"--conf '{key}={value}'" for key, value in self.conf.items()]
        submit = " ".join([*words, f'--driver-java-options "{java}"', "pyspark-shell"])
        return subprocess.run(
            command,
            cwd=self.work,
            env={"TMPDIR": str(self.temporary), "PYSPARK_SUBMIT_ARGS": submit, **self.variables},
            umask=self.umask,
            capture_output=True,
            text=True,
            timeout=600,
            check=False,
        )


def blanks(environment: Environment) -> None:
    environment.work, environment.temporary = environment.root / "my work", environment.root / "tmp of mine"
    environment.conf["spark.local.dir"] = str(environment.root / "local files")


def private_files(environment: Environment) -> None:
    environment.umask = 0o077


def no_home(environment: Environment) -> None:
    del environment.variables["HOME"]
    environment.variables["LANG"] = environment.variables["LC_ALL"] = "C"


def optimized(environment: Environment) -> None:
    environment.variables["PYTHONOPTIMIZE"] = "2"


def long_paths(environment: Environment) -> None:
    environment.temporary = environment.root / ("t" * 100) / ("u" * 100)
    environment.conf[PREFIX + "localDir"] = str(environment.root / ("l" * 120) / ("m" * 120))


def modules_of_the_same_name(environment: Environment) -> None:
    """Put a module of the agent's there; one of the standard library stops Spark's own Python workers."""
    environment.work.mkdir()
    (environment.work / "rocksdict.py").write_text("raise ImportError('a module of the working directory')\n")


def a_missing_disk(environment: Environment) -> None:
    environment.conf["spark.local.dir"] = f"/nowhere/disk,{environment.root / 'disk'}"


def german(environment: Environment) -> None:
    """Numbers have a comma and points."""
    environment.java += ["-Duser.language=de", "-Duser.country=DE"]
    environment.variables["LANG"] = environment.variables["LC_ALL"] = "de_DE.UTF-8"


def turkish(environment: Environment) -> None:
    """The upper case of i is not I."""
    environment.java += ["-Duser.language=tr", "-Duser.country=TR"]
    environment.variables["LANG"] = environment.variables["LC_ALL"] = "tr_TR.UTF-8"


def arabic(environment: Environment) -> None:
    """Numbers have other digits."""
    environment.java += ["-Duser.language=ar", "-Duser.country=EG", "-Duser.extensions=u-nu-arab"]


ODD: tuple[Callable[[Environment], None], ...] = (
    blanks,
    private_files,
    no_home,
    optimized,
    long_paths,
    modules_of_the_same_name,
    a_missing_disk,
    german,
    turkish,
    arabic,
)


@pytest.fixture
def environment() -> Iterator[Environment]:
    """A usual environment in a directory of its own, which others may pass through."""
    before = _entries()
    root = Path(tempfile.mkdtemp(prefix="odd-", dir="/tmp")).resolve()
    root.chmod(0o755)
    try:
        yield Environment.usual(root)
        strangers = [path for path in _entries() - before - {root} if _owner(path) == ORDINARY]
        assert not strangers, "something was written outside of the program's directories"
    finally:
        shutil.rmtree(root, ignore_errors=True)


def _entries() -> set[Path]:
    return {path for directory in SHARED if Path(directory).is_dir() for path in Path(directory).iterdir()}


def _owner(path: Path) -> int | None:
    try:
        return path.lstat().st_uid
    except FileNotFoundError:  # of another program, which removed it
        return None


@pytest.mark.parametrize("odd", ODD, ids=[change.__name__ for change in ODD])
def test_a_query_runs(environment: Environment, odd: Callable[[Environment], None], checkout: Path) -> None:
    odd(environment)
    done = environment.run(checkout)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
    printed = json.loads(done.stdout.strip().splitlines()[-1])
    assert printed["counted"] == {"state": 3, "store": 2}
    assert len(printed["files"]["delta"]) == 6
    assert Path(printed["package"]).is_relative_to(checkout)
    modes = {path.stat().st_mode & 0o777 for path in (environment.work / "checkpoint/state").rglob("*.sst")}
    assert modes and all(not mode & environment.umask for mode in modes)
