"""A real Kafka on the loopback: a process that is broker and controller, in a temporary directory."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from benchmarks.environment.s3_service import of_tests

_OPTIONS = ("-Xmx1g", "-Xms1g", "-XX:+UseG1GC")
"""Options of the JVM, as Kafka's own script sets them."""


@contextlib.contextmanager
def started() -> Iterator[tuple[str, int]]:
    """Run a broker for the `with` block; yield its address and the id of its process."""
    with of_tests("minikafka").running(_OPTIONS) as kafka:
        yield kafka.address, kafka.jvm.java.lang.ProcessHandle.current().pid()
