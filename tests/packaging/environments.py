"""Clean environments that borrow packages of the tests' own instead of installing them again."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import venv
from pathlib import Path

import pytest
import quick_java

from state_store.session.releases import RELEASES, jar_name

DIST_VARIABLE = "STATE_STORE_TEST_DIST"
"""Variable that names a directory with the artefacts of a release, which are then tested, with all Sparks."""

CHECKOUT = Path(__file__).resolve().parents[2]
NEWEST = next(release.minor for release in reversed(RELEASES) if release.runs_here())


def environment_of(checkout: Path, spark: str) -> Path:
    """Return the Python of the checkout's environment for that Spark."""
    name = ".venv" if spark == NEWEST else f".venv-{spark}"
    return checkout / name / "bin" / "python"


_OLDEST = RELEASES[0].minor
SPARKS = [
    release.minor
    for release in RELEASES
    if release.runs_here()
    and (
        DIST_VARIABLE in os.environ
        or (release.minor != _OLDEST and environment_of(CHECKOUT, release.minor).exists())
    )
]
"""The releases whose jars are in the wheel: all in the artefacts of a release, otherwise those that have an
environment here (`make setup SPARKS=...`), without the oldest, whose jar is the stale one."""

STALE_JAR = f"state_store/jars/{jar_name(_OLDEST)}"
"""A jar that is in the tree of the wheel, but is not made of its sources."""

LEFT_OVER = "state_store/renamed_since.py"
"""A module that was built from that tree once, and is not in it any more."""

ORDINARY = 65_534
"""The user and the group that run programs if the tests run as root."""

SITE = f"lib/python{sys.version_info[0]}.{sys.version_info[1]}/site-packages"


def of_a_small_query(spark: str) -> dict[str, str]:
    """Variables of the process that runs it, on that Spark.

    The tests' own environment has lent its Spark; under its own path, the archive of classes fits.
    """
    if spark != NEWEST:
        return {"JAVA_TOOL_OPTIONS": quick_java.QUICK_START}
    return {"JAVA_TOOL_OPTIONS": quick_java.spark_options(), "SPARK_HOME": str(quick_java.SPARK_HOME)}


def run(
    *command: object, cwd: Path, timeout_s: int = 900, check: bool = True, **environment: str
) -> subprocess.CompletedProcess[str]:
    """Return a command without the variables that could lead it back to the tests' environment."""
    clean = {name: text for name, text in os.environ.items() if not name.startswith(("PYSPARK_", "PYTHON"))}
    done = subprocess.run(
        [str(part) for part in command],
        cwd=cwd,
        env={**clean, **environment},
        capture_output=True,
        text=True,
        timeout=timeout_s,
    )
    if check and done.returncode:
        pytest.fail(f"{command} exited with {done.returncode}\n{done.stdout[-4000:]}\n{done.stderr[-6000:]}")
    return done


def as_ordinary_user() -> list[str]:
    """Return the words before a command that may read what root may, and write as an ordinary user."""
    if shutil.which("setpriv") is None:
        pytest.fail("these tests run as root with 'setpriv', of the package util-linux")
    reading = "-all,+dac_read_search"
    user = [f"--reuid={ORDINARY}", f"--regid={ORDINARY}", "--clear-groups", "--no-new-privs"]
    return ["setpriv", *user, f"--inh-caps={reading}", f"--ambient-caps={reading}"]


class Environment:
    """A virtual environment in which the named distributions can be imported, and nothing else.

    borrowed: distributions of `python`'s environment, with what they depend on.
    """

    def __init__(self, directory: Path, *borrowed: str, python: Path = Path(sys.executable)) -> None:
        venv.create(directory, symlinks=True)
        self.directory = directory
        self.python = directory / "bin" / "python"
        self.site = directory / SITE
        if borrowed:
            self._borrow(python, borrowed)

    def pip_install(self, *requirements: object, cwd: Path, **environment: str) -> None:
        """Install without an index: neither dependencies nor build requirements are fetched."""
        pip = [sys.executable, "-m", "pip", "--python", self.python, "install", "-q", "--no-index"]
        options = ["--disable-pip-version-check", "--no-deps", "--no-build-isolation"]
        run(*pip, *options, *requirements, cwd=cwd, **environment)

    def run(self, program: str, *arguments: object, cwd: Path, check: bool = True, **environment: str):
        """Return the path of a program in its `bin`."""
        return run(self.directory / "bin" / program, *arguments, cwd=cwd, check=check, **environment)

    def _borrow(self, python: Path, names: tuple[str, ...]) -> None:
        listed = run(
            python, Path(__file__).with_name("borrow.py"), *names, cwd=self.directory
        ).stdout.splitlines()
        for path in map(Path, listed):
            (self.site / path.name).symlink_to(path)


def spark_environment(checkout: Path, spark: str, directory: Path, *more: str) -> Environment:
    """Make an environment with that Spark and a query's requirements, without this package."""
    needed = ("pyspark", "pandas", "pyarrow", "rocksdict", "click", "rich", *more)
    return Environment(directory, *needed, python=environment_of(checkout, spark))


def built_wheel(builder: Environment, tree: Path) -> Path:
    """Build the wheel of a tree by the hook that every frontend calls."""
    code = "import sys; from setuptools import build_meta; build_meta.build_wheel(sys.argv[1])"
    run(builder.python, "-c", code, tree / "dist", cwd=tree)
    (built,) = (tree / "dist").glob("*.whl")
    return built


def built_sdist(builder: Environment, tree: Path, out: Path) -> Path:
    """Build the source archive of a tree by the hook that every frontend calls."""
    code = "import sys; from setuptools import build_meta; build_meta.build_sdist(sys.argv[1])"
    run(builder.python, "-c", code, out, cwd=tree)
    (built,) = out.glob("*.tar.gz")
    return built
