"""What the commands share: how they are declared, the arguments of those about a query, their errors."""

from __future__ import annotations

import functools
import traceback
from collections.abc import Callable
from typing import Any

import click

from state_store.cli import exit_codes
from state_store.cli.output import print_error
from state_store.data.query import Filter
from state_store.errors import InternalError, StateStoreError, as_store_error

PROGRAM = "state-store"
DIRECTORY = (
    "DIR is the query's checkpointLocation: a path or a file:, hdfs:, webhdfs:, s3:, gs: or abfs: URI."
)
DIRECTORIES = "DIR and TARGET are paths or file:, hdfs:, webhdfs:, s3:, gs: or abfs: URIs."

json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON for programs, not tables.")

_QUERY_PARAMETERS = (
    json_option,
    click.option("--name", help="Only the stores of this name (joins have several)."),
    click.option("--partition", type=int, metavar="N", help="Only the stores of this partition."),
    click.option("--operator", type=int, metavar="N", help="Only the stores of this stateful operator."),
)


class _StoreCommand(click.Command):
    """Reports errors with their exit codes; on standard error, as JSON with `--json`."""

    def invoke(self, ctx: click.Context) -> Any:
        as_json = bool(ctx.params.get("as_json"))
        try:
            return super().invoke(ctx)
        except (click.ClickException, click.Abort, click.exceptions.Exit, BrokenPipeError):
            raise
        except (StateStoreError, OSError) as error:
            reported = as_store_error(error)
        except Exception as error:
            reported = InternalError(f"a defect of this program: {error!r}")
            if not as_json:
                traceback.print_exc()
        print_error(reported, as_json=as_json)
        return exit_codes.OF_KIND[reported.kind]


def command(
    name: str, *, examples: tuple[str, ...], note: str = ""
) -> Callable[[Callable[..., Any]], click.Command]:
    """Declares a command; its docstring is the help, `note` follows its options, `examples` are arguments
    that show its use.
    """
    lines = "\n".join(f"  {PROGRAM} {name} {example}".rstrip() for example in examples)
    return click.command(name, cls=_StoreCommand, epilog=f"{note}\n\n\b\nExamples:\n{lines}".lstrip("\n"))


def query_command(
    name: str, *, examples: tuple[str, ...], optional: bool = False
) -> Callable[[Callable[..., Any]], click.Command]:
    """Declare a command about a query.

    Its function gets `checkpoint`, the directory (None if it is `optional` and was not given), `chosen`, the
    filter of stores, and `as_json`.
    """

    def declare(function: Callable[..., Any]) -> click.Command:
        @functools.wraps(function)
        def of_stores(
            checkpoint: str | None,
            operator: int | None,
            partition: int | None,
            name: str | None,
            **others: Any,
        ) -> Any:
            return function(checkpoint, Filter(operator, partition, name), **others)

        declared: Callable[..., Any] = of_stores
        directory = click.Path(file_okay=False)
        argument = click.argument("checkpoint", metavar="DIR", type=directory, required=not optional)
        for decorate in (*_QUERY_PARAMETERS, argument):
            declared = decorate(declared)
        return command(name, examples=examples, note=DIRECTORY)(declared)

    return declare
