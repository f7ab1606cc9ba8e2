"""Commands to prepare a job: `options`, `jar` and `completion`."""

from __future__ import annotations

import textwrap
from pathlib import Path

import click
from click.shell_completion import get_completion_class

from state_store.cli.command import PROGRAM, command, json_option
from state_store.cli.output import print_json, print_note, print_table, say, text_column, write
from state_store.core.settings import option_pages
from state_store.core.settings.option import Option
from state_store.core.settings.options import OPTIONS
from state_store.core.settings.options import options as declared

_OPTION_COLUMNS = (text_column("option"), text_column("type"), text_column("default"), text_column("meaning"))


def _names_with(_ctx: click.Context, _parameter: click.Parameter, prefix: str) -> list[str]:
    return [option.name for option in OPTIONS if option.name.startswith(prefix)]


@command("options", examples=("", "restoreObjective", "restoreObjective=5s memoryBudget=1g", "--conf"))
@click.argument("names", nargs=-1, metavar="[NAME[=VALUE]]...", shell_complete=_names_with)
@click.option("--markdown", is_flag=True, help="Print the reference page.")
@click.option("--conf", is_flag=True, help="Print a template for spark-defaults.conf.")
@json_option
def options(names: tuple[str, ...], markdown: bool, conf: bool, as_json: bool) -> None:
    """List the options, or explain some.

    Without an argument the command lists all options (each below
    spark.sql.streaming.stateStore.incremental.), otherwise it explains those that are named. NAME=VALUE
    checks a value as the start of a query does.
    """
    if markdown + conf + as_json > 1:
        raise click.UsageError("--markdown, --conf and --json exclude each other")
    named = declared(*names)
    if markdown or conf:
        write(option_pages.reference() if markdown else option_pages.template())
    elif as_json:
        print_json([_option_json(option) for option in named])
    elif names:
        say("\n\n".join(_explained(option) for option in named))
    else:
        print_table(_OPTION_COLUMNS, map(_option_row, named))


def _option_row(option: Option) -> tuple[object, ...]:
    return option.name, option.type.name, option.default or "-", textwrap.shorten(option.doc, 72)


def _explained(option: Option) -> str:
    kind = f"{option.type.name}, in {option.unit}" if option.unit else option.type.name
    facts = f"{kind}; default {option.default or 'empty'}; scope: {option.scope}"
    return f"{option.key}\n  {facts}\n  {option.doc}\n  Trade-off: {option.trade_off}"


def _option_json(option: Option) -> dict[str, str]:
    return {
        "name": option.name,
        "key": option.key,
        "type": option.type.name,
        "unit": option.unit,
        "default": option.default,
        "group": option.group,
        "scope": option.scope,
        "doc": option.doc,
        "trade_off": option.trade_off,
    }


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
    from state_store.session.jar import jar_path

    path = _build(out) if action == "build" else jar_path(spark)
    if as_json:
        print_json({"jar": str(path)})
    else:
        write(f"{path}\n")


def _build(out: Path | None) -> Path:
    from state_store.session.jar import build_jar
    from state_store.session.releases import SUPPORTED_SPARKS, installed_spark, is_supported

    version = installed_spark()
    if not is_supported(version):
        print_note(
            f"Spark {version} is not among {', '.join(SUPPORTED_SPARKS)}, with which this store is tested"
        )
    return build_jar(out)


_SHELLS = ("bash", "zsh", "fish")


_FOR_THIS_SHELL = """\
For this shell alone:
  eval "$(state-store completion bash)"        in bash
  eval "$(state-store completion zsh)"         in zsh
  state-store completion fish | source         in fish"""


@command(
    "completion",
    examples=("bash > ~/.local/share/bash-completion/completions/state-store",),
    note=f"\b\n{_FOR_THIS_SHELL}",
)
@click.argument("shell", type=click.Choice(_SHELLS))
@click.pass_context
def completion(ctx: click.Context, shell: str) -> None:
    """Print the script that makes a shell complete the commands.

    Put the line that runs it into ~/.bashrc, ~/.zshrc or ~/.config/fish/config.fish for every shell.
    """
    completer = get_completion_class(shell)
    assert completer is not None
    click.echo(completer(ctx.find_root().command, {}, PROGRAM, "_STATE_STORE_COMPLETE").source())
