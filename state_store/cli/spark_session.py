"""`--master`: the Spark session whose executors do the work of a command.

A program that was started by spark-submit has one without the option.
"""

from __future__ import annotations

import functools
import os
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import click

from state_store.errors import OptionError

_SUBMITTED = "PYSPARK_GATEWAY_PORT"
"""Variable of the environment that spark-submit gives to a program in Python."""

_MASTER = re.compile(r"local(-cluster)?(\[[^\[\]]+\])?|yarn|[a-z][a-z0-9+.-]*://\S+")
"""Names of masters, those of other cluster managers included; a JVM takes seconds to refuse other words."""


def spark_option(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add `--master` to a command, whose function gets `spark`: a session, or None."""

    @functools.wraps(function)
    def with_session(*given: Any, master: str | None, **others: Any) -> Any:
        with _session(master) as spark:
            return function(*given, spark=spark, **others)

    return click.option(
        "--master",
        metavar="URL",
        help="Let the executors of this Spark master work (spark://HOST:PORT, yarn, k8s://..., local[4]), a "
        "task a store; spark-submit needs no --master here.",
    )(with_session)


@contextmanager
def _session(master: str | None) -> Iterator[Any]:
    if master is None and _SUBMITTED not in os.environ:
        yield None
        return
    if master is not None and not _MASTER.fullmatch(master):
        raise OptionError(
            f"'{master}' is not a Spark master: give spark://HOST:PORT, yarn, k8s://..., local or local[4]",
            option="--master",
        )
    try:
        from pyspark.sql import SparkSession
    except ImportError as error:
        raise OptionError("--master needs the Python package pyspark", option="--master") from error
    existing = SparkSession.getActiveSession()
    builder = SparkSession.builder.appName("state-store").config("spark.ui.showConsoleProgress", "false")
    if master is not None:
        builder = builder.master(master)
        if master.startswith("local"):
            os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    try:
        session = builder.getOrCreate()
    except Exception as error:
        place = "of spark-submit" if master is None else master
        raise OptionError(f"no session on the Spark master {place}: {error}", option="--master") from error
    try:
        yield session
    finally:
        if existing is None:
            session.stop()
