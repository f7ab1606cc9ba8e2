"""Configuration that a session has though the program does not set it: of `spark-submit`, and of files.

A value that a builder sets replaces that of `spark-submit --jars`, of PYSPARK_SUBMIT_ARGS or of
`spark-defaults.conf`. Code that adds to a list, such as `spark.jars`, therefore has to know these.
"""

from __future__ import annotations

import os
import re
import shlex
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

from state_store.session.releases import BuildError, installed_pyspark


def inherited() -> dict[str, str]:
    """Return the configuration of the JVM if there is one, else the one with which pyspark will start it.

    Starts no JVM. In a program that `spark-submit` started, the JVM is there before Python.
    """
    if _has_jvm():
        from pyspark import SparkConf, SparkContext

        SparkContext._ensure_initialized()
        return dict(SparkConf().getAll())
    arguments, files = _arguments(os.environ.get("PYSPARK_SUBMIT_ARGS", ""))
    defaults: dict[str, str] = {}
    for file in files or _default_files():
        defaults |= properties(file)
    return {**defaults, **arguments}


def runs_without(name: str) -> bool:
    """Return True if there is a JVM, and it cannot load a class."""
    context = sys.modules.get("pyspark.core.context")
    jvm = context.SparkContext._jvm if context is not None else None
    return jvm is not None and not jvm.org.apache.spark.util.Utils.classIsLoadable(name)


def properties(file: Path) -> dict[str, str]:
    """Return the properties of a file in Java's format, with keys that begin with `spark.`."""
    try:
        text = file.read_text(encoding="utf-8", errors="replace")
    except OSError:  # Spark itself says so, if the file is needed
        return {}
    values = {}
    for line in re.sub(r"\\\r?\n\s*", "", text).splitlines():
        if match := re.match(r"\s*(spark\.[^\s=:]+)(?:\s*[=:]\s*|\s+)(.*?)\s*$", line):
            values[match[1]] = match[2]
    return values


def _has_jvm() -> bool:
    """Return True if a JVM runs to which pyspark is connected or will connect."""
    context = sys.modules.get("pyspark.core.context")
    return "PYSPARK_GATEWAY_PORT" in os.environ or (
        context is not None and context.SparkContext._gateway is not None
    )


def _arguments(text: str) -> tuple[Mapping[str, str], list[Path]]:
    """Return the configuration in arguments of `spark-submit`, and the files of properties that they name."""
    conf: dict[str, str] = {}
    jars, files = "", []
    for option, value in _options(text):
        if option == "--jars":
            jars = value
        elif option == "--properties-file":
            files = [Path(value)]
        elif option in ("--conf", "-c"):
            key, _, setting = value.partition("=")
            conf[key.strip()] = setting
    return {**conf, **({"spark.jars": jars} if jars else {})}, files


def _options(text: str) -> Iterator[tuple[str, str]]:
    try:
        words = shlex.split(text)
    except ValueError:  # Spark's launcher refuses it
        return
    for word, following in zip(words, [*words[1:], ""]):
        option, equals, value = word.partition("=")
        if option.startswith("-"):
            yield option, value if equals else following


def _default_files() -> list[Path]:
    """Return the path of `spark-defaults.conf`, if it can be known."""
    if directory := os.environ.get("SPARK_CONF_DIR"):
        return [Path(directory, "spark-defaults.conf")]
    try:
        home = Path(os.environ.get("SPARK_HOME") or installed_pyspark())
    except BuildError:
        return []
    return [home / "conf" / "spark-defaults.conf"]
