"""Sessions of development. The Makefile and the workflows call them; `nox --list` names them all.

Each release of Spark has an environment of its own, which the sessions share: `.venv` for the newest that
the running Python supports, `.venv-4.2` and so on for the others. An environment is made when a session first
needs it, and again when `pyproject.toml` changes.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import nox

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))

from state_store.session import releases  # noqa: E402 -- it needs the path; no package but Python's is imported

nox.needs_version = ">=2025.2.9"
nox.options.default_venv_backend = "none"  # sessions share environments, which nox's own cannot be

HERE_RELEASES = [release for release in reversed(releases.RELEASES) if release.runs_here()]
NEWEST = HERE_RELEASES[0]
LANES = os.environ.get("LANES") or "3"
SUITES_SPARK = "4.2.0"
"""The newest release of Spark whose test classes are published."""

_PREPARED: set[releases.Release] = set()
"""The releases that this process has prepared."""


def python_of(release: releases.Release = NEWEST) -> str:
    """Return the interpreter of the environment for a release of Spark."""
    return str(HERE / (".venv" if release is NEWEST else f".venv-{release.minor}") / "bin/python")


def install(session: nox.Session, python: str, *packages: str) -> None:
    """Install packages into the environment of `python`, which is made first if it is missing."""
    if not Path(python).exists():
        session.run(sys.executable, "-m", "venv", str(Path(python).parents[1]))
    session.run(python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *packages)


def prepare(session: nox.Session, release: releases.Release = NEWEST) -> None:
    """Make the environment and the jar for a release of Spark, unless both are there and up to date."""
    if release in _PREPARED:
        return
    _PREPARED.add(release)
    python = python_of(release)
    stamp = Path(python).parents[1] / ".ready"
    if not stamp.exists() or stamp.stat().st_mtime < (HERE / "pyproject.toml").stat().st_mtime:
        session.run("scripts/check-java")
        session.log("Installing pyspark %s: about 450 MB the first time", release.tested)
        extras = "test,lint,benchmark" if release is NEWEST else "test"
        # Spark's own applyInPandasWithState fails with pyarrow 26 on these releases (docs/compatibility.md).
        pins = ["pyarrow<26"] if release.minor in ("4.0", "4.1") else []
        spark = f"pyspark=={release.tested}"
        install(session, python, "--no-compile", "--editable", f".[{extras}]", spark, *pins)
        stamp.touch()
    session.run(python, "-m", "state_store.session.build")


def run(session: nox.Session, *arguments: str, release: releases.Release = NEWEST, **options: Any) -> None:
    """Run Python with `arguments` in the environment for a release of Spark."""
    prepare(session, release)
    session.run(python_of(release), *arguments, **options)


def _setup(release: releases.Release) -> None:
    @nox.session(name=f"setup-{release.minor}")
    def setup(session: nox.Session) -> None:
        prepare(session, release)

    @nox.session(name=f"spark-{release.minor}")
    def spark(session: nox.Session) -> None:
        tier = "every" if release is NEWEST else "more"
        chosen = session.posargs or ["tests/spark"]
        run(session, "-m", "pytest", "--tier", tier, *chosen, release=release)

    setup.__doc__ = f"Make the environment and the jar for Spark {release.minor}."
    spark.__doc__ = f"Run the tests that Spark {release.minor} has to pass."


for _release in HERE_RELEASES:
    _setup(_release)


@nox.session
def demo(session: nox.Session) -> None:
    """Run a real query: commit, merge, cut the chain, get killed, restart, compare."""
    run(session, "examples/demo.py", *session.posargs)


@nox.session
def test(session: nox.Session) -> None:
    """Run the tests of `make test`; with arguments, `pytest ARGUMENTS`."""
    parts = ["tests/parts.py", "--lanes", LANES]
    run(session, *(["-m", "pytest", *session.posargs] if session.posargs else parts))


@nox.session
def agent(session: nox.Session) -> None:
    """Run the agent's tests with the running Python, which may be 3.9, as on executors of Spark 4.0."""
    python = str(HERE / f".venv-agent-{sys.version_info[0]}.{sys.version_info[1]}/bin/python")
    install(
        session,
        python,
        "--editable",
        ".[arrow,hdfs]",
        "pytest",
        "pytest-timeout",
        "hypothesis",
        "moto[s3]",
        "flask",
    )
    session.run(python, "-m", "pytest", "tests/agent", *session.posargs)


@nox.session(name="test-tier")
def test_tier(session: nox.Session) -> None:
    """Run the tests of a tier: `nox -s test-tier -- more`. The environments of older Sparks must be there."""
    run(session, "tests/parts.py", "--tier", *session.posargs, "--lanes", LANES)


@nox.session
def lint(session: nox.Session) -> None:
    """Check formatting, style, types and dead code."""
    run(session, "-m", "ruff", "format", "--check", ".")
    run(session, "-m", "ruff", "check", ".")
    run(session, "-m", "mypy")
    run(session, "-m", "vulture")
    scala = [*sorted((HERE / "jvm_bridge").glob("scala*")), HERE / "benchmarks", HERE / "tests"]
    run(session, "scripts/check_scala.py", *map(str, scala))
    run(session, "scripts/format_scala.py", "--check")


@nox.session
def pages(session: nox.Session) -> None:
    """Write the pages of options and metrics, and `conf/spark-defaults.conf`, from the declarations."""
    run(session, "-m", "state_store.core.settings.option_pages")
    run(session, "scripts/metrics_page.py")
    run(session, "-m", "state_store.observe.model.documents")
    run(session, "-m", "state_store.observe.monitoring.generated_files")


@nox.session
def docs(session: nox.Session) -> None:
    """Build the site into `build/site`; a broken link fails (`-- serve` shows it while you write)."""
    python = str(HERE / ".venv-docs/bin/python")
    install(session, python, "--editable", ".[docs]")
    session.run(python, "-m", "mkdocs", *(session.posargs or ["build", "--strict"]))


@nox.session
def mutants(session: nox.Session) -> None:
    """Break the code in one line after the other: tests must see each (`-- --sample 5` tries some)."""
    run(session, "tests/mutants/run.py", *session.posargs)


@nox.session(name="generated-mutants")
def generated_mutants(session: nox.Session) -> None:
    """Break rooms of the store in every way that mutmut knows (`-- planning --sample 150`)."""
    prepare(session)
    install(session, python_of(), "mutmut==3.8.1")
    run(session, "tests/mutants/generated.py", *session.posargs)


@nox.session
def chaos(session: nox.Session) -> None:
    """Kill and stop processes of a cluster at random (`-- --faults 500`): are its queries right?"""
    run(session, "-m", "chaos", *session.posargs, env={"PYTHONPATH": "tests"})


@nox.session
def suites(session: nox.Session) -> None:
    """Run Spark's own suites against the provider (`-- --spark 4.1.1 --only joins`)."""
    run(session, "tests/suites/published_suites.py", *(session.posargs or ["--spark", SUITES_SPARK]))


@nox.session
def benchmark(session: nox.Session) -> None:
    """Compare with Spark's own stores (`-- quick`, `-- standard`, `-- full`)."""
    run(session, "-m", "benchmarks", *(session.posargs or ["standard"]))


@nox.session
def wheel(session: nox.Session) -> None:
    """Build the wheel and the source archive into `dist/`. The jars of all Sparks must be there."""
    run(session, "-c", "import shutil; shutil.rmtree('dist', ignore_errors=True)")
    run(session, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", "dist", ".")
    run(session, "-c", "from setuptools import build_meta; build_meta.build_sdist('dist')", silent=True)
    run(session, "-m", "twine", "check", "--strict", *sorted(map(str, (HERE / "dist").iterdir())))


@nox.session
def release(session: nox.Session) -> None:
    """Test the artefacts in `dist/` with each Spark, and print how to publish them."""
    run(session, "-m", "pytest", "tests/packaging", env={"STATE_STORE_TEST_DIST": "dist"})
    run(session, "scripts/release_steps.py", "dist")


@nox.session
def audit(session: nox.Session) -> None:
    """Compare the installed packages with the advisories of PyPI; needs the network."""
    python = str(HERE / ".venv-audit/bin/python")
    install(session, python, "pip-audit")
    prepare(session)
    packages = next((HERE / ".venv/lib").glob("python3*")) / "site-packages"
    chosen = ["--strict", "--skip-editable", "--path", str(packages)]
    session.run(python, "-m", "pip_audit", "--progress-spinner", "off", *chosen)
