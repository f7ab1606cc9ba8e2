"""The Spark that is here: the installed pyspark, its version and its jars. Imports nothing of it."""

from __future__ import annotations

import importlib.util
import re
import sys
from importlib import metadata
from pathlib import Path

from state_store.errors import OptionError


class BuildError(OptionError):
    """What keeps the jar from being built, and what to do about it."""


class NoSpark(BuildError):
    """There is no pyspark with Spark's jars, or none of a supported release."""


def installed_spark() -> str:
    """The version of the installed pyspark, such as 4.3.0; raises OptionError when there is none."""
    for distribution in ("pyspark", "pyspark-client", "pyspark-connect"):
        try:
            return metadata.version(distribution)
        except metadata.PackageNotFoundError:
            continue
    try:
        return spark_version(jars_of(installed_pyspark()))
    except BuildError:
        raise OptionError(
            f"pyspark is not installed in {sys.executable}, so its version is not known. "
            "Install pyspark, or name the version of Spark."
        ) from None


def installed_pyspark() -> Path:
    """The package directory of the installed pyspark; raises BuildError when there is none."""
    spec = importlib.util.find_spec("pyspark")
    if spec is None or spec.origin is None:
        raise NoSpark(
            f"pyspark is not installed in {sys.executable}: run `pip install 'pyspark>=4.0,<4.4'`, "
            "or name a directory with --pyspark"
        )
    return Path(spec.origin).parent


def jars_of(pyspark: Path) -> Path:
    """Spark's jars: those of a pyspark package directory, of the Spark distribution around it, or of a
    virtual environment; raises BuildError where there are none.
    """
    candidates = [
        pyspark / "jars",
        *([pyspark.parent.parent / "jars"] if pyspark.parent.name == "python" else []),
        *sorted(pyspark.glob("lib/python3*/site-packages/pyspark/jars")),
    ]
    for jars in candidates:
        if jars.is_dir():
            return jars
    raise NoSpark(f"{pyspark} is no pyspark package directory: it has no jars directory")


def spark_version(jars: Path) -> str:
    """The version of the Spark whose jars these are, such as 4.3.0."""
    names = [
        match[1]
        for path in jars.iterdir()
        if (match := re.fullmatch(r"spark-sql_2\.13-(.+)\.jar", path.name))
    ]
    if len(names) != 1:
        raise NoSpark(f"{jars} has no spark-sql_2.13 jar: is it the jars directory of a Spark 4?")
    return names[0]
