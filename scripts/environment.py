"""Make the environments of this checkout.

    python scripts/environment.py NAME...

The names, and where they lie:

    newest   `.venv`, with the newest Spark that this Python supports, and all tools of development
    4.2      `.venv-4.2`, with that Spark; so for each other release (`.venv` if it is the newest)
    all      all of them
    docs     `.venv-docs`, with what builds the site
    audit    `.venv-audit`, with what compares packages with advisories
    flink    `.venv-flink`, with PyFlink (850 MB), for `benchmarks.engines`; so `.venv-bytewax` and
             `.venv-quix`, with Quix Streams
    agent    `.venv-agent-3.x`, with what an executor has, and the tests of the agent

The packages come from where pip takes them, by its settings. An environment is made if it is missing or
older than `pyproject.toml`; one with a Spark gets its jar, if that is missing or its sources changed. Two are
made at a time. Exits with 1 if one cannot be made.
"""

from __future__ import annotations

import ast
import os
import subprocess
import sys
import tempfile
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

HERE = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(HERE))

from state_store.session.releases import RELEASES, Release  # noqa: E402 -- it needs the path

AT_A_TIME = 2

RUNNABLE = [release for release in reversed(RELEASES) if release.runs_here()]
NEWEST = RUNNABLE[0]

OTHERS = {
    "docs": (".venv-docs", ["--editable", ".[docs]"]),
    "audit": (".venv-audit", ["pip-audit"]),
    "flink": (".venv-flink", ["apache-flink==2.3.0"]),
    "bytewax": (".venv-bytewax", ["bytewax==0.21.1"]),
    "quix": (".venv-quix", ["quixstreams==3.28.1"]),
    "agent": (
        f".venv-agent-{sys.version_info[0]}.{sys.version_info[1]}",
        [
            "--editable",
            ".[arrow,hdfs]",
            "pytest",
            "pytest-timeout",
            "hypothesis",
            "greenlet",
            "psutil",
            "moto[s3]",
            "flask",
        ],
    ),
}
"""Environments without Spark: the directory, and what is installed there."""

UV_VARIABLES = {
    "index-url": "UV_DEFAULT_INDEX",
    "extra-index-url": "UV_INDEX",
    "find-links": "UV_FIND_LINKS",
    "trusted-host": "UV_INSECURE_HOST",
    "cert": "SSL_CERT_FILE",
}
"""Settings of pip, and the variables of uv that say the same."""

_printing = threading.Lock()


def main(names: list[str]) -> int:
    """Make the environments of these names; return the exit code."""
    releases = {"newest": [NEWEST], "all": RUNNABLE, **{release.minor: [release] for release in RUNNABLE}}
    unknown = [name for name in names if name not in releases and name not in OTHERS]
    if unknown or not names:
        print(
            f"no environment is called {unknown or 'nothing'}: {', '.join([*releases, *OTHERS])}",
            file=sys.stderr,
        )
        return 2
    sparks = list(dict.fromkeys(release for name in names for release in releases.get(name, ())))
    makers = [lambda release=release: make_with_spark(release) for release in sparks]
    makers += [lambda name=name: make(*OTHERS[name]) for name in names if name in OTHERS]
    (HERE / "build").mkdir(exist_ok=True)
    # On the disk of the environments, so that files are links; not kept, as it has each Spark three times;
    # not shared, because `make --jobs` runs this twice at a time.
    with tempfile.TemporaryDirectory(dir=HERE / "build", prefix="uv-") as cache:
        os.environ.setdefault("UV_CACHE_DIR", cache)
        with ThreadPoolExecutor(AT_A_TIME) as pool:
            return 0 if all(list(pool.map(lambda maker: maker(), makers))) else 1


def make_with_spark(release: Release) -> bool:
    """Make the environment and the jar of a release of Spark; return True if that succeeded."""
    extras = "test,lint,benchmark" if release is NEWEST else "test"
    # Spark's own applyInPandasWithState fails with pyarrow 26 on these releases (docs/compatibility.md).
    pins = ["pyarrow<26"] if release.minor in ("4.0", "4.1") else []
    directory = ".venv" if release is NEWEST else f".venv-{release.minor}"
    packages = ["--editable", f".[{extras}]", f"pyspark=={release.tested}", *pins]
    news = f"Installing pyspark {release.tested} into {directory}: about 450 MB the first time"
    return make(directory, packages, news=news, needs_java=True) and run(
        python_of(directory), "-m", "state_store.session.build", is_quiet=True
    )


def make(directory: str, packages: list[str], *, news: str = "", needs_java: bool = False) -> bool:
    """Make an environment, unless it is newer than `pyproject.toml`; return True if that succeeded."""
    stamp = HERE / directory / ".ready"
    if stamp.exists() and stamp.stat().st_mtime >= (HERE / "pyproject.toml").stat().st_mtime:
        return True
    if needs_java and not run("scripts/check-java"):
        return False
    _say(news or f"Installing into {directory}")
    python = python_of(directory)
    if not Path(python).exists() and not run(sys.executable, "-m", "venv", directory):
        return False
    # uv takes a third of pip's time, and compiles nothing: Python does when it imports it, which is a tenth
    # of what is installed.
    if not run(
        python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-compile", "uv"
    ):
        return False
    if not run(
        python, "-m", "uv", "--quiet", "pip", "install", "--python", python, *packages, **index_of(python)
    ):
        return False
    stamp.touch()
    return True


def python_of(directory: str) -> str:
    """Return the interpreter of an environment."""
    return str(HERE / directory / "bin/python")


def index_of(python: str) -> dict[str, str]:
    """Return the variables by which uv takes packages from where the settings of pip say."""
    listed = subprocess.run(
        [python, "-m", "pip", "config", "list"], cwd=HERE, stdout=subprocess.PIPE, text=True
    )
    values = dict(line.split("=", 1) for line in listed.stdout.splitlines())
    settings = {
        variable: ",".join(ast.literal_eval(values[f"{section}.{name}"]).split())
        for section in ("global", "install", ":env:")  # the last that has a value wins
        for name, variable in UV_VARIABLES.items()
        if f"{section}.{name}" in values
    }
    return {variable: value for variable, value in settings.items() if variable not in os.environ}


def run(*command: str, is_quiet: bool = False, **variables: str) -> bool:
    """Run a command in the checkout; show what it says if it fails; return True if it succeeded.

    Args:
        command: the program and its arguments.
        is_quiet: nothing is shown if it says that all is up to date.
        variables: of its environment, beside those of this process.
    """
    done = subprocess.run(
        command,
        cwd=HERE,
        env={**os.environ, **variables},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    if done.returncode:
        _say(f"{' '.join(command)} failed (exit {done.returncode}):\n{done.stdout}")
    elif done.stdout and not (is_quiet and "up to date" in done.stdout):
        _say(done.stdout.rstrip())
    return done.returncode == 0


def _say(text: str) -> None:
    with _printing:
        print(text, flush=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
