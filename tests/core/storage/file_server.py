"""A JVM that lends connections for file requests, as an executor's lends them to its agent."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

import quick_java
import scala_jars

from state_store.core.storage.hadoop import FileConnections, StoreFiles, read_frame, write_frame

CONNECTIONS = 4

_WRITER = """
import json, sys
from pathlib import Path
from core.storage.file_server import serving
from state_store.core.storage.hadoop import HadoopStorage
from state_store.testing.storage import write_again_and_again
uri, configuration, jars = json.loads(sys.argv[1])
with serving(uri, configuration=configuration and Path(configuration), jars=list(map(Path, jars))) as jvm:
    write_again_and_again(HadoopStorage(uri, jvm))
"""

_MAIN = "org.apache.spark.sql.execution.streaming.state.incremental.probe.FileServer"
_START_TIMEOUT_S = 300


def writer(uri: str, *, configuration: Path | None = None, jars: Sequence[Path] = ()) -> list[str]:
    """Return the command of a process that replaces a file at `uri` again and again, by a JVM of its own."""
    tests = str(Path(__file__).resolve().parents[2])
    arguments = json.dumps([uri, configuration and str(configuration), list(map(str, jars))])
    return [sys.executable, "-c", f"import sys; sys.path.insert(0, {tests!r})\n{_WRITER}", arguments]


@contextmanager
def serving(
    root: str,
    *,
    configuration: Path | None = None,
    jars: Sequence[Path] = (),
    environment: Mapping[str, str] | None = None,
    connections: int = CONNECTIONS,
) -> Iterator[StoreFiles]:
    """A JVM that serves the files at `root`, with the Hadoop configuration of a directory and more jars."""
    with ExitStack() as opened:
        directory = opened.enter_context(tempfile.TemporaryDirectory(prefix="bridge-"))
        listener = opened.enter_context(socket.socket(socket.AF_UNIX))
        path = f"{directory}/s"
        listener.bind(path)
        listener.listen(connections)
        listener.settimeout(_START_TIMEOUT_S)
        class_path = [scala_jars.probes_class_path(), *([str(configuration)] if configuration else [])]
        command = ["java", "-Xmx512m", *quick_java.probe_options()]
        command += ["-cp", os.pathsep.join([*class_path, *map(str, jars)])]
        command += [_MAIN, path, "token", root, str(connections)]
        log = opened.enter_context(open(f"{directory}/log", "w+b"))
        process = subprocess.Popen(command, stdout=log, stderr=log, env={**os.environ, **(environment or {})})
        opened.callback(process.wait)
        opened.callback(process.kill)
        lent = FileConnections()
        with ExitStack() as channels:
            for _ in range(connections):
                channel = channels.enter_context(listener.accept()[0])
                assert read_frame(channel) == ({"token": "token", "for": "files"}, b"")
                write_frame(channel, {"ok": {}})
                lent.lend(channel)
            yield StoreFiles(lent, 1)
        process.wait(240)
