"""The installed Spark: pyspark's version and jars, found without importing it."""

from __future__ import annotations

import importlib.util
import re
import sys
from importlib import metadata
from pathlib import Path

from state_store.errors import OptionError


class BuildError(OptionError):
    """The jar cannot be built; the message says why and what to do."""


class NoSpark(BuildError):
    """Pyspark with Spark's jars is missing, or its release is not supported."""


def installed_spark() -> str:
    """Return the version of the installed pyspark, such as 4.3.0. Raises OptionError without pyspark."""
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
    """Return the package directory of the installed pyspark. Raises BuildError without pyspark."""
    spec = importlib.util.find_spec("pyspark")
    if spec is None or spec.origin is None:
        raise NoSpark(
            f"pyspark is not installed in {sys.executable}: run `pip install 'pyspark>=4.0,<4.4'`, "
            "or name a directory with --pyspark"
        )
    return Path(spec.origin).parent


def jars_of(pyspark: Path) -> Path:
    """Return the directory of Spark's jars.

    Args:
        pyspark: a pyspark package directory, one in a Spark distribution, or a virtual environment.

    Raises:
        BuildError: there are no jars.
    """
    candidates = [
        pyspark / "jars",
        *([pyspark.parent.parent / "jars"] if pyspark.parent.name == "python" else []),
        *sorted(pyspark.glob("lib/python3*/site-packages/pyspark/jars")),
    ]
    for jars in candidates:
        if jars.is_dir():
            return jars
    raise NoSpark(f"{pyspark} is not a pyspark package directory: it has no jars directory")


def spark_version(jars: Path) -> str:
    """Return the version of the Spark whose jars these are, such as 4.3.0."""
    names = [
        match[1]
        for path in jars.iterdir()
        if (match := re.fullmatch(r"spark-sql_2\.13-(.+)\.jar", path.name))
    ]
    if len(names) != 1:
        raise NoSpark(f"{jars} has no spark-sql_2.13 jar: is it the jars directory of a Spark 4?")
    return names[0]
