"""`state-store jar`: print the path of the jar for a version of Spark, or compile it."""

from __future__ import annotations

from pathlib import Path

import click

from state_store.cli.command import command, json_option
from state_store.cli.output import print_json, print_note, say
from state_store.session.jar import build_jar, jar_path
from state_store.session.releases import SUPPORTED_SPARKS, installed_spark, is_supported


@command("jar", examples=("", "--spark 4.2.0", "--build --out /opt/jars"))
@click.option("--path", "action", flag_value="path", default="path", help="Print the path (the default).")
@click.option("--build", "action", flag_value="build", help="Compile the jar for the installed pyspark.")
@click.option("--spark", metavar="VERSION", help="The jar for this version of Spark.")
@click.option(
    "--out",
    type=click.Path(file_okay=False, path_type=Path),
    metavar="DIRECTORY",
    help="The directory that --build writes to; default: that of the package.",
)
@json_option
def jar(action: str, spark: str | None, out: Path | None, as_json: bool) -> None:
    """Print the path of the jar, or compile it.

    Without an argument the command prints the path of the jar for the installed pyspark, as spark.jars and
    --jars take it; a package without that jar compiles it first. --build compiles the jar unless the one in
    the directory is up to date. The compiler comes with pyspark: nothing is downloaded, and Java 17, 21 or 25
    is needed.
    """
    path = _build(out) if action == "build" else jar_path(spark)
    if as_json:
        print_json({"jar": str(path)})
    else:
        say(str(path))


def _build(out: Path | None) -> Path:
    version = installed_spark()
    if not is_supported(version):
        print_note(
            f"Spark {version} is not among {', '.join(SUPPORTED_SPARKS)}, with which this store is tested"
        )
    return build_jar(out)
