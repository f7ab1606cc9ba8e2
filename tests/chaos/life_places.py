"""Places of checkpoints and output of a life: the local disk, or a service that can be hit, too."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from unittest import mock

import maven_jars
import minihdfs
import quick_java
from minis3 import S3Server

_TESTS = Path(__file__).resolve().parents[1]
_PROBES = "org.apache.spark.sql.execution.streaming.state.incremental.probe.ProbeFileSystem"
_HDFS_CLIENT = {"ipc.client.rpc-timeout.ms": "6000", "dfs.client.socket-timeout": "6000"}
_S3A_CLIENT = {"fs.s3a.connection.timeout": "5s", "fs.s3a.connection.request.timeout": "5s"}
"""Some stops are shorter than these, so that requests wait, and some are longer, so that they fail."""


@dataclass(frozen=True)
class Checkpoints:
    """`uri` is the directory of everything as Spark has it, `own_uri` as a program without a JVM has it.

    `options` are Spark's, `jars` what it needs besides; `outages` are, for each kind of fault that the
    service has, what gives contexts in which it is out.
    """

    uri: str
    own_uri: str
    options: Mapping[str, str] = field(default_factory=dict)
    jars: Sequence[Path] = ()
    outages: Mapping[str, Callable[[], AbstractContextManager]] = field(default_factory=dict)


def checkpoint_of(uri: str, question: str) -> str:
    """Return the checkpoint of a query below the directory of everything."""
    return f"{uri}/checkpoint/{question}"


def output_of(uri: str) -> str:
    """Return the directory with the output of all queries."""
    return f"{uri}/output"


@contextmanager
def _on_local_disk(room: Path) -> Iterator[Checkpoints]:
    yield Checkpoints(str(room), str(room), quick_java.CHECKPOINT_FILES)


@contextmanager
def _as_if_remote(room: Path) -> Iterator[Checkpoints]:
    """Yield local files that Spark reaches through Hadoop, under the scheme of the probes."""
    scheme = {
        "fs.probe.impl": "org.apache.spark.sql.execution.streaming.state.incremental.probe.ProbeFileSystem"
    }
    yield Checkpoints(f"probe://{room}", str(room), _of_hadoop(scheme))


@contextmanager
def _on_hdfs(room: Path) -> Iterator[Checkpoints]:
    """Yield a NameNode and two DataNodes, in one process."""
    with minihdfs.running() as cluster:
        yield Checkpoints(
            f"{cluster.uri}/chaos",
            cluster.webhdfs("/chaos"),
            _of_hadoop({**minihdfs.CLIENTS, **_HDFS_CLIENT}),
            outages={
                "stop-datanode": cluster.without_a_datanode,
                "stop-storage": lambda: _asleep(cluster.pid),
            },
        )


@contextmanager
def _on_s3(room: Path) -> Iterator[Checkpoints]:
    """Yield a service of one process, through Hadoop's S3A, and through `pyarrow` where there is no JVM."""
    jars = maven_jars.s3a_jars()
    command = [sys.executable, "-m", "minis3"]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, cwd=_TESTS, text=True) as process:
        try:
            assert process.stdout is not None
            server = S3Server(int(process.stdout.readline()))
            with mock.patch.dict(os.environ, server.environment):
                yield Checkpoints(
                    "s3a://bucket/chaos",
                    "s3a://bucket/chaos",
                    _of_hadoop({**server.hadoop_properties, **_S3A_CLIENT}),
                    jars,
                    {
                        "stop-storage": lambda: _asleep(process.pid),
                        "refuse-storage": lambda: _refusing(process),
                    },
                )
        finally:
            process.kill()


STORAGES: Mapping[str, Callable[[Path], AbstractContextManager[Checkpoints]]] = {
    "local": _on_local_disk,
    "remote": _as_if_remote,
    "hdfs": _on_hdfs,
    "s3": _on_s3,
}
"""Functions by the name of a storage: each returns a context with an empty one for the path of a life."""


def _of_hadoop(properties: Mapping[str, str]) -> dict[str, str]:
    return {f"spark.hadoop.{name}": value for name, value in properties.items()}


@contextmanager
def _refusing(process: subprocess.Popen[str]) -> Iterator[None]:
    """Let the service answer `503 Slow Down` to everything for the time of the body."""

    def say(line: str) -> None:
        assert process.stdin is not None
        process.stdin.write(f"{line}\n")
        process.stdin.flush()

    say("refuse")
    try:
        yield
    finally:
        say("serve")


@contextmanager
def _asleep(pid: int) -> Iterator[None]:
    """Stop the process for the time of the body, with its connections open."""
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(pid, signal.SIGCONT)
