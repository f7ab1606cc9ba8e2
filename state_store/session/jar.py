"""The choice of the jar for a session: the package's own, or one that is compiled on first use and kept.

A wheel from `make wheel` carries the jars for all supported releases of Spark. A wheel that was built without
pyspark carries only the sources. The first call of `jar_path` then compiles them with the compiler inside the
installed pyspark, which takes about a minute, reports it on stderr, and keeps the jar below `XDG_CACHE_HOME`
(`~/.cache`), or below the directory for temporary files if the cache cannot be written.
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
from state_store.session.releases import (
    BuildError,
    installed_pyspark,
    installed_spark,
    is_supported,
    jar_name,
    jars_of,
    minor_of,
    spark_version,
    supported_sparks,
)

_NAME = "incremental-state-store"


def build_jar(out: str | os.PathLike[str] | None = None) -> Path:
    """Compile the jar for the installed pyspark, unless one in the directory is up to date; return its path.

    A release of Spark that is not supported is tried with the sources for the newest one before it. Nothing
    is downloaded; Java 17, 21 or 25 is needed. Any thread may call it.

    Args:
        out: the directory that the jar is written to. Default: that of the package.

    Raises:
        OptionError: Java or pyspark is missing, the sources do not compile, or `out` is not a path.
    """
    if out is not None and not isinstance(out, (str, os.PathLike)):
        raise OptionError(f"out is a path, not {out!r}", option="out")
    force = not is_supported(installed_spark())
    directory = build.JAR_DIRECTORY if out is None else Path(out)
    return build.build(installed_pyspark(), directory, force=force)[0]


def jar_path(spark: str | None = None) -> Path:
    """Return the jar for a version of Spark; compile it if the package does not carry it.

    If several threads and processes call this at once, one compiles and the others wait.

    Args:
        spark: the version, such as `4.2.0`. Default: that of the installed pyspark.

    Raises:
        OptionError: there is no jar, and it cannot be compiled; the message says what is missing.
    """
    if spark is not None and not isinstance(spark, str):
        raise OptionError(f"spark is a version such as '4.2.0', not {spark!r}", option="spark")
    version = spark or installed_spark()
    carried = build.JAR_DIRECTORY / jar_name(version)
    if carried.is_file() and not (sources.is_checkout() and is_supported(version)):
        return carried
    if not is_supported(version):
        raise OptionError(
            f"there is no jar for Spark {version}: Spark {supported_sparks()} are supported. "
            "`state-store jar --build` tries to compile one for the installed pyspark."
        )
    try:
        pyspark = installed_pyspark()
        installed = spark_version(jars_of(pyspark))
        if minor_of(installed) != minor_of(version):
            raise BuildError(
                f"the installed pyspark is {installed}. Install pyspark {minor_of(version)} to compile it."
            )
        return _compiled_once(pyspark, installed)
    except BuildError as error:
        if carried.is_file():
            return carried
        raise OptionError(
            f"this package carries no jar for Spark {version}, and it cannot be compiled here: {error}"
        ) from error


def _compiled_once(pyspark: Path, version: str) -> Path:
    stamp = build.current(version)
    roots = list(_caches())
    directories = [build.JAR_DIRECTORY] if sources.is_checkout() else []
    directories += [root / stamp.digest[:16] for root in roots]
    for directory in directories:
        if build.stamped(directory / jar_name(version)) == stamp:
            return directory / jar_name(version)
    directory = next(filter(_is_writable, directories), None) or Path(tempfile.mkdtemp(prefix=f"{_NAME}-"))
    with _alone(directory):
        if build.stamped(directory / jar_name(version)) != stamp:
            print(
                f"state_store: compiling the jar for Spark {version}, once; this takes about a minute. "
                f"It is kept in {directory}",
                file=sys.stderr,
                flush=True,
            )
        return build.build(pyspark, directory)[0]


def _caches() -> Iterator[Path]:
    """Yield the directories that may keep compiled jars, in order of preference."""
    with contextlib.suppress(RuntimeError):  # a user without a home directory
        yield Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / _NAME / "jars"
    shared = Path(tempfile.gettempdir()) / f"{_NAME}-{os.getuid()}"
    if _is_own(shared):
        yield shared


def _is_own(directory: Path) -> bool:
    """Return True if nobody else can put a jar there, though anybody may make directories beside it."""
    try:
        status = directory.lstat()
    except FileNotFoundError:
        return True
    return stat.S_ISDIR(status.st_mode) and status.st_uid == os.getuid() and not status.st_mode & 0o022


def _is_writable(directory: Path) -> bool:
    """Make the directory, and return True if files can be written there."""
    try:
        directory.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        directory.mkdir(mode=0o700, exist_ok=True)
    except OSError:
        return False
    return os.access(directory, os.W_OK | os.X_OK)


@contextlib.contextmanager
def _alone(directory: Path) -> Iterator[None]:
    """Keep other processes from compiling into this directory meanwhile, if its file system has locks."""
    with (directory / ".lock").open("w") as lock:
        with contextlib.suppress(OSError):
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield
