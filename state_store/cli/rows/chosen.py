"""The arguments of commands about the rows of a state: which store and which version of it."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import click

from state_store.cli.command import (
    DIRECTORY,
    NUMBER,
    MomentType,
    command,
    directory_argument,
    store_option,
    utc_option,
)
from state_store.cli.output import print_note
from state_store.cli.progress_display import Meter
from state_store.cli.streams import zone
from state_store.data.dataset import opening
from state_store.data.dataset.columns import key_columns
from state_store.data.dataset.sql import moment_columns
from state_store.data.dataset.state import State
from state_store.data.query import DEFAULT_NAME
from state_store.errors import OptionError

_NOTE = DIRECTORY + " The query {} meanwhile. Version v is the state after batch v - 1."


def state_command(
    name: str, *, examples: tuple[str, ...], stopped: bool = False
) -> Callable[[Callable[..., Any]], click.Command]:
    """Declare a command about one store of a query: `checkpoint`, `operator`, `store`.

    Args:
        name: the name of the command.
        examples: arguments that show its use.
        stopped: whether the query must not run meanwhile.
    """
    note = _NOTE.format("must not run" if stopped else "may run")

    def declare(function: Callable[..., Any]) -> click.Command:
        for decorate in (
            utc_option,
            store_option(
                "A side of a join (left, right), a variable, or Spark's name of a store. Default: the only "
                "store, left, or the first variable."
            ),
            click.option(
                "--operator",
                type=NUMBER,
                default=0,
                show_default=True,
                metavar="N",
                help="The stateful operator.",
            ),
            directory_argument,
        ):
            function = decorate(function)
        return command(name, examples=examples, note=note)(function)

    return declare


@dataclass(frozen=True)
class Chosen:
    """A store of a query, by the options of `state_command`, and a version of it, by `version_options`.

    Without a store it is the default one of the operator, without a version the one that Spark committed
    last.
    """

    checkpoint: str
    operator: int
    store: str | None
    version: int | None = None
    batch: int | None = None
    at: datetime | None = None

    def open(self, partitions: Sequence[int] | None = None) -> State:
        """Open the state, or some of its partitions; errors are those of `state_store.open`."""
        state = opening.open(
            self.checkpoint,
            self.operator,
            self.store,
            self.version,
            partitions,
            batch=self.batch,
            at=self.at,
        )
        if self.store is None and state.view.name != DEFAULT_NAME:
            print_note(f"this is store '{state.view.name}'; --store names another: {', '.join(state.stores)}")
        return state


def version_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add `--version`, `--batch` and `--at` to a `state_command`, whose function gets a `Chosen` first."""

    @functools.wraps(function)
    def of_chosen(
        checkpoint: str,
        operator: int,
        version: int | None,
        batch: int | None,
        at: datetime | None,
        store: str | None = None,
        **others: Any,
    ) -> Any:
        return function(Chosen(checkpoint, operator, store, version, batch, at), **others)

    declared: Callable[..., Any] = of_chosen
    for decorate in _VERSION_OPTIONS:
        declared = decorate(declared)
    return declared


_VERSION_OPTIONS = (
    click.option(
        "--at",
        type=MomentType(),
        metavar="TIME",
        help="The newest version at that time: 2024-02-29 08:00, '2 hours ago', a printed time.",
    ),
    click.option("--batch", type=NUMBER, metavar="N", help="The version after that batch."),
    click.option("--version", type=NUMBER, metavar="N", help="The version; default: the one committed last."),
)


@contextmanager
def metered(
    state: State, done: str, partitions: int | None = None, *, prints: bool = False
) -> Iterator[None]:
    """Show the progress of a reading of the state.

    Args:
        state: the state that is read.
        done: a participle, such as `read`.
        partitions: how many partitions are read; None is all.
        prints: True if rows are printed meanwhile; a terminal then shows nothing else.
    """
    if prints and sys.stdout.isatty():
        yield
        return
    with Meter(done, len(state.partitions) if partitions is None else partitions) as meter:
        state.follow(meter)
        yield


def parsed_key(state: State, given: Sequence[str]) -> Any:
    """Return a key from texts: values in the order of the columns, or NAME=VALUE for each.

    Moments without a zone are in the zone that is shown.

    Raises:
        OptionError: as `key_columns`.
    """
    names = [name for name in state.columns.key_names if name not in state.view.hidden]
    pairs = [text.partition("=") for text in given]
    if given and all(equals and name in names for name, equals, _ in pairs):
        return _scalars(state, {name: value for name, _, value in pairs})
    if len(names) == 1 and len(given) > 1:
        raise OptionError(f"a key has one column ({names[0]}), not {len(given)}")
    return _scalars(state, tuple(given))


def _scalars(state: State, key: Any) -> tuple[Any, ...]:
    columns = key_columns(state.view, key, zone(), moment_columns(state.view))
    return tuple(column[0] for column in columns)
