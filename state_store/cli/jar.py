"""`state-store jar`: where the jar for a version of Spark is, or compile it."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from state_store import spark
from state_store.cli import tables
from state_store.cli.arguments import add_json
from state_store.errors import OptionError

HELP = "print the path of the jar for the installed pyspark, or compile it"
DESCRIPTION = """\
Without an argument prints the path of the jar for the installed pyspark, as spark.jars and --jars take
it. --build compiles it with the Scala compiler that pyspark brings; nothing is downloaded, a JDK 17 or 21
is needed."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    what = parser.add_mutually_exclusive_group()
    what.add_argument("--path", action="store_true", help="print the path (the default)")
    what.add_argument("--build", action="store_true", help="compile the jar for the installed pyspark")
    parser.add_argument(
        "--spark", metavar="VERSION", help="the jar for this version instead of the installed one"
    )
    parser.add_argument(
        "--out", type=Path, metavar="DIRECTORY", help="where --build writes (default: the package)"
    )
    add_json(parser)


def run(arguments: argparse.Namespace) -> int:
    path = _build(arguments) if arguments.build else spark.jar_path(arguments.spark)
    print(tables.as_json({"jar": str(path)}) if arguments.json else path)
    return 0


def _build(arguments: argparse.Namespace) -> Path:
    from jvm_bridge import build

    version = spark.installed_spark()
    known = spark.is_supported(version)
    if not known:
        print(f"Spark {version} is not among {', '.join(spark.SUPPORTED_SPARKS)}: test well", file=sys.stderr)
    try:
        jar, _ = build.build(build.installed_pyspark(), arguments.out or spark.JAR_DIRECTORY, force=not known)
    except build.BuildError as error:
        raise OptionError(str(error)) from error
    return jar
