"""The jar for a session, and programs of it in a JVM of their own.

`jar_path` chooses the package's own jar, or one that is compiled on first use and kept. A wheel from `make
wheel` carries the jars for all supported releases of Spark. A wheel that was built without pyspark carries
only the sources. The first call of `jar_path` then compiles them with the compiler inside the installed
pyspark, which takes about a minute, reports it on stderr, and keeps the jar below `XDG_CACHE_HOME`
(`~/.cache`), or below the directory for temporary files if the cache cannot be written.

A `JvmProgram` runs with the classes of the installed Spark. It reads one JSON object and writes its events as
JSON objects, one a line. It ends when this process ends.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any

from state_store.core.runtime import ScratchDirectory
from state_store.errors import InternalError, OptionError
from state_store.session import build, releases
from state_store.session.build import java, java_version

_NAME = "incremental-state-store"

OPENED = (
    "java.lang",
    "java.lang.invoke",
    "java.lang.reflect",
    "java.io",
    "java.net",
    "java.nio",
    "java.util",
    "java.util.concurrent",
    "java.util.concurrent.atomic",
    "jdk.internal.ref",
    "sun.nio.ch",
    "sun.nio.cs",
    "sun.security.action",
    "sun.util.calendar",
)
"""Packages of Java that Spark accesses by reflection."""

LOG = """\
rootLogger.level = warn
rootLogger.appenderRef.stderr.ref = stderr
appender.stderr.type = Console
appender.stderr.name = stderr
appender.stderr.target = SYSTEM_ERR
appender.stderr.layout.type = PatternLayout
appender.stderr.layout.pattern = %d{HH:mm:ss} %p %c{1}: %m%n%ex
"""
"""Configuration of log4j: warnings, to standard error."""

_LOG_OPTIONS = ("-Xlog:disable", "-Xlog:all=warning:stderr")
"""Java writes its own warnings, and what JAVA_TOOL_OPTIONS asks for, among the events otherwise."""

_TOLD_LINES = 20

_OUT_OF_MEMORY = 3
"""Exit code of Java with `ExitOnOutOfMemoryError`."""


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
    force = not releases.is_supported(releases.installed_spark())
    directory = build.JAR_DIRECTORY if out is None else Path(out)
    return build.build(releases.installed_pyspark(), directory, force=force)[0]


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
    version = spark or releases.installed_spark()
    carried = build.JAR_DIRECTORY / releases.jar_name(version)
    if carried.is_file() and not (build.is_checkout() and releases.is_supported(version)):
        return carried
    if not releases.is_supported(version):
        raise OptionError(
            f"there is no jar for Spark {version}: Spark {releases.supported_sparks()} are supported. "
            "`state-store jar --build` tries to compile one for the installed pyspark."
        )
    try:
        pyspark = releases.installed_pyspark()
        installed = releases.spark_version(releases.jars_of(pyspark))
        if releases.minor_of(installed) != releases.minor_of(version):
            raise releases.BuildError(
                f"the installed pyspark is {installed}. Install pyspark {releases.minor_of(version)} to "
                "compile it."
            )
        return _compiled_once(pyspark, installed)
    except releases.BuildError as error:
        if carried.is_file():
            return carried
        raise OptionError(
            f"this package carries no jar for Spark {version}, and it cannot be compiled here: {error}"
        ) from error


def _compiled_once(pyspark: Path, version: str) -> Path:
    stamp = build.current(version)
    roots = list(_caches())
    directories = [build.JAR_DIRECTORY] if build.is_checkout() else []
    directories += [root / stamp.digest[:16] for root in roots]
    for directory in directories:
        if build.stamped(directory / releases.jar_name(version)) == stamp:
            return directory / releases.jar_name(version)
    directory = next(filter(_is_writable, directories), None) or Path(tempfile.mkdtemp(prefix=f"{_NAME}-"))
    with _alone(directory):
        if build.stamped(directory / releases.jar_name(version)) != stamp:
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


class JvmProgram:
    """A context manager whose end stops the JVM and removes its temporary files. One thread at a time."""

    def __init__(self, main: str, request: Mapping[str, object], *, memory: str | None = None) -> None:
        """Start the program.

        Args:
            main: its class.
            request: the JSON object that it reads.
            memory: the size of the heap, such as `4g`; None is Java's default.

        Raises:
            OptionError: Java, Spark or the jar is missing.
        """
        java_version()
        self._jars = [str(jar_path()), f"{releases.jars_of(releases.installed_pyspark())}{os.sep}*"]
        self._main, self._asked, self._memory = main, request, memory
        self._scratch = ScratchDirectory("state-store-")
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> JvmProgram:
        scratch = Path(self._scratch.name)
        (scratch / "log4j2.properties").write_text(LOG)
        with open(scratch / "log", "wb") as log:
            self._process = subprocess.Popen(
                self._command(scratch), stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log
            )
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        process = self._process
        if process is not None:
            if error is not None:
                process.kill()
            for pipe in (process.stdin, process.stdout):
                assert pipe is not None
                with contextlib.suppress(BrokenPipeError):
                    pipe.close()
            process.wait()
        self._scratch.cleanup()

    def events(self) -> Iterator[dict[str, Any]]:
        """Yield its events until it ends.

        Raises:
            OptionError: its heap was too small.
            InternalError: it failed in another way.
        """
        process = self._process
        assert process is not None and process.stdin is not None and process.stdout is not None
        with contextlib.suppress(BrokenPipeError):  # the exit code has the reason
            process.stdin.write(json.dumps(self._asked).encode() + b"\n")
            process.stdin.flush()
        for line in process.stdout:
            yield json.loads(line)
        code = process.wait()
        if code == _OUT_OF_MEMORY:
            heap = f"a heap of {self._memory}" if self._memory else "Java's default heap"
            raise OptionError(
                f"{heap} is too small: raise memory, or lower the number of threads", option="memory"
            )
        if code:
            raise InternalError(f"the JVM ended with {code}:\n{self.log()}")

    def log(self) -> str:
        """Return the end of its log."""
        lines = (Path(self._scratch.name) / "log").read_text(errors="replace").splitlines()
        return "\n".join(lines[-_TOLD_LINES:])

    def _command(self, scratch: Path) -> list[str]:
        conf = [os.environ[name] for name in ("SPARK_CONF_DIR", "HADOOP_CONF_DIR") if os.environ.get(name)]
        return [
            java(),
            *([f"-Xmx{self._memory}"] if self._memory else []),
            "-XX:+IgnoreUnrecognizedVMOptions",
            "-XX:+ExitOnOutOfMemoryError",
            *_LOG_OPTIONS,
            "--enable-native-access=ALL-UNNAMED",
            *(f"--add-opens=java.base/{package}=ALL-UNNAMED" for package in OPENED),
            f"-Dlog4j2.configurationFile={scratch}/log4j2.properties",
            f"-Djava.io.tmpdir={scratch}",
            "-cp",
            os.pathsep.join([*conf, *self._jars]),
            self._main,
        ]
