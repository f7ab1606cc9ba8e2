"""A program of the jar in its own JVM, with the classes of the installed Spark.

It reads one JSON object and writes its events as JSON objects, one a line. It ends when this process ends.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any

from state_store.core.runtime import ScratchDirectory
from state_store.errors import InternalError, OptionError
from state_store.session.compiler import java, java_version
from state_store.session.jar import jar_path
from state_store.session.releases import installed_pyspark, jars_of

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
_TOLD_LINES = 20
_OUT_OF_MEMORY = 3
"""Exit code of Java with `ExitOnOutOfMemoryError`."""


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
        self._jars = [str(jar_path()), f"{jars_of(installed_pyspark())}{os.sep}*"]
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
            "--enable-native-access=ALL-UNNAMED",
            *(f"--add-opens=java.base/{package}=ALL-UNNAMED" for package in OPENED),
            f"-Dlog4j2.configurationFile={scratch}/log4j2.properties",
            f"-Djava.io.tmpdir={scratch}",
            "-cp",
            os.pathsep.join([*conf, *self._jars]),
            self._main,
        ]
