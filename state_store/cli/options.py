"""`state-store options`: the options with types, units and defaults."""

from __future__ import annotations

import argparse
import textwrap

from state_store.cli import tables
from state_store.cli.arguments import add_json
from state_store.errors import OptionError
from state_store.settings import pages
from state_store.settings.options import OPTIONS, PREFIX, Option, parse

HELP = "list the options, or explain some"
DESCRIPTION = f"""Lists all options (each below {PREFIX}), or explains those that are named. NAME=VALUE
checks a value as the start of a query would."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "names", nargs="*", metavar="NAME[=VALUE]", help="explain an option, or check a value for it"
    )
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--markdown", action="store_true", help="the reference page")
    form.add_argument("--conf", action="store_true", help="a template for spark-defaults.conf")
    add_json(form)


def run(arguments: argparse.Namespace) -> int:
    if arguments.markdown or arguments.conf:
        print(pages.reference() if arguments.markdown else pages.template(), end="")
        return 0
    named = [_named(text) for text in arguments.names]
    if arguments.json:
        print(tables.as_json([_json(one) for one in named or OPTIONS]))
    elif named:
        print("\n\n".join(_explained(one) for one in named))
    else:
        rows = [
            (one.name, one.type.name, one.default or "-", textwrap.shorten(one.doc, 72)) for one in OPTIONS
        ]
        print(tables.table(("option", "type", "default", "meaning"), rows))
    return 0


def _named(text: str) -> Option:
    name, equals, value = text.partition("=")
    name = name.removeprefix(PREFIX)
    found = next((one for one in OPTIONS if one.name == name), None)
    if found is None or equals:
        parse({name: value})
    if found is None:
        raise OptionError(f"there is no option {PREFIX}{name}", option=PREFIX + name)
    return found


def _explained(one: Option) -> str:
    kind = f"{one.type.name}, in {one.unit}" if one.unit else one.type.name
    return f"{one.key}\n  {kind}; default {one.default or 'empty'}\n  {one.doc}\n  Trade-off: {one.trade_off}"


def _json(one: Option) -> dict[str, str]:
    return {
        "name": one.name,
        "key": one.key,
        "type": one.type.name,
        "unit": one.unit,
        "default": one.default,
        "group": one.group,
        "doc": one.doc,
        "trade_off": one.trade_off,
    }
