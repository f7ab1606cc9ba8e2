"""What commands about rows of state share: which store and which version of it are meant."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import click

from state_store.cli.command import DIRECTORY, command
from state_store.cli.progress import Meter
from state_store.data.dataset import opening
from state_store.data.dataset.state import State
from state_store.data.query import DEFAULT_NAME
from state_store.errors import OptionError

TIMES = ["%Y-%m-%d", "%Y-%m-%dT%H:%M:%S", "%Y-%m-%d %H:%M:%S"]
"""How a time is written in an argument (UTC)."""

_NOTE = DIRECTORY + " The query {} meanwhile. Version v is the state after batch v - 1."


def state_command(
    name: str, *, examples: tuple[str, ...], stopped: bool = False
) -> Callable[[Callable[..., Any]], click.Command]:
    """Declares a command about one store of a query, which has to be stopped or may run: `checkpoint`,
    `operator`, `store`.
    """
    note = _NOTE.format("must not run" if stopped else "may run")

    def declare(function: Callable[..., Any]) -> click.Command:
        for decorate in (
            click.option(
                "--store",
                default=DEFAULT_NAME,
                show_default=True,
                metavar="NAME",
                help="A side of a join (left, right), or the name of a store or column family.",
            ),
            click.option(
                "--operator",
                type=int,
                default=0,
                show_default=True,
                metavar="N",
                help="The stateful operator.",
            ),
            click.argument("checkpoint", metavar="DIR", type=click.Path(file_okay=False)),
        ):
            function = decorate(function)
        return command(name, examples=examples, note=note)(function)

    return declare


@dataclass(frozen=True)
class Chosen:
    """One store of a query, by `state_command`'s options, and the version of it by `version_options`: the one
    committed last where all three are None.
    """

    checkpoint: str
    operator: int
    store: str
    version: int | None = None
    batch: int | None = None
    at: datetime | None = None

    def open(self, partitions: Sequence[int] | None = None) -> State:
        """The state that is meant, or some of its partitions. Raises as `state_store.open`."""
        return opening.open(
            self.checkpoint,
            self.operator,
            self.store,
            self.version,
            partitions,
            batch=self.batch,
            at=self.at,
        )


def version_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Adds `--version`, `--batch` and `--at` to a `state_command`, whose function gets a `Chosen` first."""

    @functools.wraps(function)
    def of_chosen(
        checkpoint: str,
        operator: int,
        store: str,
        version: int | None,
        batch: int | None,
        at: datetime | None,
        **others: Any,
    ) -> Any:
        return function(Chosen(checkpoint, operator, store, version, batch, at), **others)

    declared: Callable[..., Any] = of_chosen
    for decorate in (
        click.option(
            "--at",
            type=click.DateTime(TIMES),
            metavar="TIME",
            help="The version that was the newest at that time (UTC).",
        ),
        click.option("--batch", type=int, metavar="N", help="The version after that batch."),
        click.option(
            "--version", type=int, metavar="N", help="The version; default: the one committed last."
        ),
    ):
        declared = decorate(declared)
    return declared


@contextmanager
def metered(
    state: State, what: str, partitions: int | None = None, *, prints: bool = False
) -> Iterator[None]:
    """Shows how far a reading of the state is, of all its partitions or of this many.

    With `prints`, rows are printed meanwhile: then nothing is shown where these go to a terminal, too.
    """
    if prints and sys.stdout.isatty():
        yield
        return
    with Meter(what, len(state.partitions) if partitions is None else partitions) as meter:
        state.follow(meter)
        yield


def parsed_key(state: State, given: Sequence[str]) -> Any:
    """A key from texts: values in the order of the columns, or NAME=VALUE for each. Raises OptionError for
    more values than the one that keys have.
    """
    names = [name for name in state.columns.key_names if name not in state.view.hidden]
    pairs = [one.partition("=") for one in given]
    if given and all(equals and name in names for name, equals, _ in pairs):
        return {name: value for name, _, value in pairs}
    if len(names) == 1 and len(given) > 1:
        raise OptionError(f"a key has one column ({names[0]}), not {len(given)}")
    return tuple(given)
