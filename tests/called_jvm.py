"""A JVM whose classes a test calls: a service of Java runs in it, with its own jars."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

SMALL = ("-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
"""Options of a JVM that lives for a test."""


@contextmanager
def called_jvm(
    directory: Path, class_path: Iterable[Path | str], options: Sequence[str] = SMALL
) -> Iterator[Any]:
    """Run a JVM that executes calls from here, and ends with the context or with this process.

    Args:
        directory: its working directory. Its output is in the file `log` there.
        class_path: the jars of the service.
        options: of the JVM.

    Yields:
        The gateway of py4j: `gateway.jvm` has the classes.
    """
    import maven_jars
    from py4j.java_gateway import GatewayParameters, JavaGateway, launch_gateway

    java = str(Path(os.environ["JAVA_HOME"], "bin", "java")) if "JAVA_HOME" in os.environ else "java"
    with open(directory / "log", "w") as log:
        port, token, process = launch_gateway(
            jarpath=str(next(maven_jars.SPARK_JARS.glob("py4j-*.jar"))),
            classpath=os.pathsep.join(map(str, class_path)),
            javaopts=list(options),
            die_on_exit=True,
            enable_auth=True,
            redirect_stdout=log,
            redirect_stderr=log,
            cwd=str(directory),
            java_path=java,
            return_proc=True,
        )
        parameters = GatewayParameters(port=port, auth_token=token, auto_convert=True)
        gateway = JavaGateway(gateway_parameters=parameters, java_process=process)
        try:
            yield gateway
        finally:
            gateway.shutdown()
            process.kill()
            process.wait()
