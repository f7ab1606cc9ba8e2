"""Which jar fits a session: the one that the package carries, or else one compiled on first use and kept.

A wheel from `make wheel` carries the jars for all supported releases of Spark. One that was built where
there is no pyspark carries the sources alone; the first call of `jar_path` then compiles them with the
compiler inside the installed pyspark, which takes about a minute, says so on stderr, and keeps the jar below
`XDG_CACHE_HOME` (`~/.cache`), or below the directory for temporary files where that cannot be written.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import stat
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from state_store.errors import OptionError
from state_store.session import build, sources
from state_store.session.installed import (
    BuildError,
    installed_pyspark,
    installed_spark,
    jars_of,
    spark_version,
)
from state_store.session.releases import is_supported, jar_name, minor_of, supported_sparks

_NAME = "incremental-state-store"


def jar_path(spark: str | None = None) -> Path:
    """The jar for a version of Spark, by default that of the installed pyspark; compiles it where it has to.

    Several threads and processes may ask at once: one compiles, the others wait for it.

    Raises OptionError where there is none and it cannot be compiled, saying what is missing.
    """
    version = spark or installed_spark()
    carried = build.JAR_DIRECTORY / jar_name(version)
    if carried.is_file() and not (sources.is_checkout() and is_supported(version)):
        return carried
    if not is_supported(version):
        raise OptionError(
            f"there is no jar for Spark {version}: Spark {supported_sparks()} are supported. "
            "`state-store jar --build` tries to compile one for the pyspark that is installed."
        )
    try:
        pyspark = installed_pyspark()
        here = spark_version(jars_of(pyspark))
        if minor_of(here) != minor_of(version):
            raise BuildError(
                f"the installed pyspark is {here}. Install pyspark {minor_of(version)} to compile it."
            )
        return _compiled_once(pyspark, here)
    except BuildError as error:
        if carried.is_file():
            return carried
        raise OptionError(
            f"this package carries no jar for Spark {version}, and it cannot be compiled here: {error}"
        ) from error


def _compiled_once(pyspark: Path, version: str) -> Path:
    stamp = build.current(version)
    roots = list(_caches())
    places = [build.JAR_DIRECTORY] if sources.is_checkout() else []
    places += [root / stamp.digest[:16] for root in roots]
    for place in places:
        if build.stamped(place / jar_name(version)) == stamp:
            return place / jar_name(version)
    place = next(filter(_is_writable, places), None) or Path(tempfile.mkdtemp(prefix=f"{_NAME}-"))
    with _alone(place):
        if build.stamped(place / jar_name(version)) != stamp:
            print(
                f"state_store: compiling the jar for Spark {version}, once; this takes about a minute. "
                f"It is kept in {place}",
                file=sys.stderr,
                flush=True,
            )
        return build.build(pyspark, place)[0]


def _caches() -> Iterator[Path]:
    """Where compiled jars may be kept, in order of preference."""
    with contextlib.suppress(RuntimeError):  # a user without a home directory
        yield Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / _NAME / "jars"
    shared = Path(tempfile.gettempdir()) / f"{_NAME}-{os.getuid()}"
    if _is_own(shared):
        yield shared


def _is_own(directory: Path) -> bool:
    """Whether nobody else can put a jar there, in a place where anybody can make directories."""
    try:
        status = directory.lstat()
    except FileNotFoundError:
        return True
    return stat.S_ISDIR(status.st_mode) and status.st_uid == os.getuid() and not status.st_mode & 0o022


def _is_writable(directory: Path) -> bool:
    """Whether files can be written there; makes the directory."""
    try:
        directory.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        directory.mkdir(mode=0o700, exist_ok=True)
    except OSError:
        return False
    return os.access(directory, os.W_OK | os.X_OK)


@contextlib.contextmanager
def _alone(directory: Path) -> Iterator[None]:
    """Keeps other processes that compile into this directory waiting, where its file system has locks."""
    with (directory / ".lock").open("w") as lock:
        with contextlib.suppress(OSError):
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield
