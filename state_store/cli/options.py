"""`state-store options`: the options with types, units and defaults."""

from __future__ import annotations

import textwrap

import click

from state_store.cli.command import command, json_option
from state_store.cli.output import output, print_json, print_table, text_column
from state_store.errors import OptionError
from state_store.settings import pages
from state_store.settings.option import PREFIX, Option
from state_store.settings.options import OPTIONS, parse

_COLUMNS = (text_column("option"), text_column("type"), text_column("default"), text_column("meaning"))


def _complete(_ctx: click.Context, _parameter: click.Parameter, begun: str) -> list[str]:
    return [one.name for one in OPTIONS if one.name.startswith(begun)]


@command("options", examples=("", "restoreObjective", "restoreObjective=5s memoryBudget=1g", "--conf"))
@click.argument("names", nargs=-1, metavar="[NAME[=VALUE]]...", shell_complete=_complete)
@click.option("--markdown", is_flag=True, help="Print the reference page.")
@click.option("--conf", is_flag=True, help="Print a template for spark-defaults.conf.")
@json_option
def options(names: tuple[str, ...], markdown: bool, conf: bool, as_json: bool) -> None:
    """List the options, or explain some.

    Lists all options (each below spark.sql.streaming.stateStore.incremental.), or explains those that are
    named. NAME=VALUE checks a value as the start of a query would.
    """
    if markdown + conf + as_json > 1:
        raise click.UsageError("--markdown, --conf and --json exclude each other")
    named = [_named(given) for given in names]
    if markdown or conf:
        output().out(pages.reference() if markdown else pages.template(), end="", highlight=False)
    elif as_json:
        print_json([_json(one) for one in named or OPTIONS])
    elif named:
        output().print("\n\n".join(_explained(one) for one in named))
    else:
        rows = (
            (one.name, one.type.name, one.default or "-", textwrap.shorten(one.doc, 72)) for one in OPTIONS
        )
        print_table(_COLUMNS, rows)


def _named(given: str) -> Option:
    name, equals, value = given.partition("=")
    name = name.removeprefix(PREFIX)
    found = next((one for one in OPTIONS if one.name == name), None)
    if found is None or equals:
        parse({name: value})
    if found is None:
        raise OptionError(f"there is no option {PREFIX}{name}", option=PREFIX + name)
    return found


def _row(one: Option) -> tuple[object, ...]:
    return one.name, one.type.name, one.default or "-", textwrap.shorten(one.doc, 72)


def _explained(one: Option) -> str:
    kind = f"{one.type.name}, in {one.unit}" if one.unit else one.type.name
    facts = f"{kind}; default {one.default or 'empty'}; scope: {one.scope}"
    return f"{one.key}\n  {facts}\n  {one.doc}\n  Trade-off: {one.trade_off}"


def _json(one: Option) -> dict[str, str]:
    return {
        "name": one.name,
        "key": one.key,
        "type": one.type.name,
        "unit": one.unit,
        "default": one.default,
        "group": one.group,
        "scope": one.scope,
        "doc": one.doc,
        "trade_off": one.trade_off,
    }
