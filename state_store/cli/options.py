"""`state-store options`: the options with types, units and defaults."""

from __future__ import annotations

import textwrap

import click

from state_store.cli.command import command, json_option
from state_store.cli.output import print_json, print_table, say, text_column, write
from state_store.core.settings import option_pages
from state_store.core.settings.option import Option
from state_store.core.settings.options import OPTIONS
from state_store.core.settings.options import options as declared

_COLUMNS = (text_column("option"), text_column("type"), text_column("default"), text_column("meaning"))


def _complete(_ctx: click.Context, _parameter: click.Parameter, prefix: str) -> list[str]:
    return [option.name for option in OPTIONS if option.name.startswith(prefix)]


@command("options", examples=("", "restoreObjective", "restoreObjective=5s memoryBudget=1g", "--conf"))
@click.argument("names", nargs=-1, metavar="[NAME[=VALUE]]...", shell_complete=_complete)
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
        print_json([_json(option) for option in named])
    elif names:
        say("\n\n".join(_explained(option) for option in named))
    else:
        print_table(_COLUMNS, map(_row, named))


def _row(option: Option) -> tuple[object, ...]:
    return option.name, option.type.name, option.default or "-", textwrap.shorten(option.doc, 72)


def _explained(option: Option) -> str:
    kind = f"{option.type.name}, in {option.unit}" if option.unit else option.type.name
    facts = f"{kind}; default {option.default or 'empty'}; scope: {option.scope}"
    return f"{option.key}\n  {facts}\n  {option.doc}\n  Trade-off: {option.trade_off}"


def _json(option: Option) -> dict[str, str]:
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
