"""Declare commands: their arguments, the types of these, and what happens with errors.

`command` declares any command, `query_command` one about the stores of a query, `state_command` one about the
rows of a store; `version_options` and `spark_option` add to them.
"""

from __future__ import annotations

import functools
import math
import os
import re
import sys
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from state_store.cli.output import Meter, print_error, print_note, wide_option
from state_store.cli.process import NOTHING_WRITTEN, ExitCode, note_left, set_utc, visible, zone
from state_store.core.runtime import SYSTEM
from state_store.core.settings.option import OptionType
from state_store.core.storage import open_storage
from state_store.core.storage.open import NO_FILE_NAME, is_file_name, without_secret
from state_store.data.dataset.export import local_path
from state_store.data.dataset.moments import parse_moment
from state_store.data.query import DEFAULT_NAME, Filter, Query
from state_store.data.query.query import root_files
from state_store.data.query.targets import unfinished_batch
from state_store.errors import InternalError, OptionError, StateStoreError, as_store_error

if TYPE_CHECKING:
    from state_store.data.dataset.state import State

PROGRAM = "state-store"


DIRECTORY = (
    "DIR is the query's checkpointLocation: a path or a file:, hdfs:, webhdfs:, s3:, gs: or abfs: URI."
)


DIRECTORIES = "DIR and TARGET are paths or file:, hdfs:, webhdfs:, s3:, gs: or abfs: URIs."


STORES_AT_ONCE = 4


_MAXIMUM = 2**31 - 1


_INTERRUPTED = "state-store.interrupted"


_SUBMITTED = "PYSPARK_GATEWAY_PORT"
"""Variable of the environment that spark-submit gives to a program in Python."""


_MASTER = re.compile(r"local(-cluster)?(\[[^\[\]]+\])?|yarn|[a-z][a-z0-9+.-]*://\S+")
"""Names of masters, those of other cluster managers included; a JVM takes seconds to refuse other words."""


class Location(click.ParamType):
    """A path or URI.

    An empty one, as of a shell variable that is not set, is refused: it would be the root.
    """

    name = "location"

    def __init__(self, *, is_target: bool = False) -> None:
        self._is_target = is_target

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Return the location, or fail with what is wrong with it."""
        text = str(value)
        try:
            text = without_secret(text)
        except OptionError as error:
            self.fail(error.message, param, ctx)
        if not text.strip():
            self.fail("it is empty: is a variable of the shell not set?", param, ctx)
        if not is_file_name(text):
            self.fail(f"{text!a} {NO_FILE_NAME}", param, ctx)
        try:
            if self._is_target and (text.strip("/") == "" or Path(text).resolve() == Path("/")):
                self.fail("the root of the file system is not a target", param, ctx)
            if not self._is_target and "://" not in text and Path(text).is_file():
                self.fail(f"'{text}' is a file; a directory is needed", param, ctx)
        except (OSError, ValueError) as error:
            self.fail(str(error), param, ctx)
        except RuntimeError:  # of Python before 3.13
            self.fail(f"'{text}' is a symbolic link to itself", param, ctx)
        return text


class MomentType(click.ParamType):
    """A moment as `parse_moment` reads it, in the zone that `--utc` says."""

    name = "time"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the moment, or fail with examples."""
        if not isinstance(value, str):
            return value
        try:
            return parse_moment(value, zone())
        except OptionError as error:
            self.fail(error.message, param, ctx)


class OptionValue(click.ParamType):
    """A text of an option's type, such as 512m or 10s; the parameter is the value that it stands for."""

    def __init__(self, type_: OptionType, minimum: int = 0, maximum: int = 2**62) -> None:
        self._type = type_
        self._minimum = minimum
        self._maximum = maximum
        self.name = type_.name

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the value, or fail with what is wrong with the text."""
        if not isinstance(value, str):
            return value
        try:
            number = self._type.parse(value)
        except ValueError as error:
            self.fail(f"'{value}': {error}", param, ctx)
        if not self._minimum <= number <= self._maximum:
            bounds = f"{self._minimum} to {self._maximum} {self._type.unit}"
            self.fail(f"'{value}' is not from {bounds}", param, ctx)
        return number


class WholeNumber(click.ParamType):
    """A whole number within bounds, which are in the message of a wrong one and not in each help."""

    name = "integer"

    def __init__(self, minimum: int, maximum: int) -> None:
        self._minimum = minimum
        self._maximum = maximum

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """Return the number, or fail with the bounds."""
        number = int(click.INT.convert(value, param, ctx))
        if not self._minimum <= number <= self._maximum:
            bound = "" if self._maximum >= _MAXIMUM else f" and at most {self._maximum}"
            self.fail(f"{value} is not a whole number of at least {self._minimum}{bound}", param, ctx)
        return number


class Number(click.ParamType):
    """A finite number within bounds, such as 50e6."""

    name = "number"

    def __init__(self, minimum: float, maximum: float) -> None:
        self._minimum = minimum
        self._maximum = maximum

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Return the number, or fail with the bounds."""
        try:
            number = float(value)
        except ValueError:
            self.fail(f"'{value}' is not a number", param, ctx)
        if not math.isfinite(number) or not self._minimum <= number <= self._maximum:
            self.fail(f"{value} is not from {self._minimum:g} to {self._maximum:g}", param, ctx)
        return number


def _utc(_ctx: click.Context, _parameter: click.Parameter, value: bool) -> None:
    if value:
        set_utc(True)


json_option = click.option(
    "--json",
    "as_json",
    is_flag=True,
    help="Print one JSON document for programs, not tables; errors, too, are JSON then.",
)


utc_option = click.option(
    "--utc",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_utc,
    help="Read and show times in UTC, not in the local zone.",
)


directory_argument = click.argument("checkpoint", metavar="DIR", type=Location())


target_argument = click.argument("target", metavar="TARGET", type=Location(is_target=True))


NUMBER = WholeNumber(0, _MAXIMUM)
"""The type of numbers of operators, partitions, batches and versions."""


def store_option(help_: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Return `--store`, with its former name `--name`."""
    return click.option("--store", "--name", "store", metavar="NAME", help=help_)


def stores_option(done: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Return `--stores`, the number of stores that a command works on at once.

    Args:
        done: a participle for the help, such as `read`.
    """
    return click.option(
        "--stores",
        type=WholeNumber(1, 1024),
        default=STORES_AT_ONCE,
        show_default=True,
        metavar="N",
        help=f"Stores {done} at once; fewer if file descriptors are short.",
    )


def command(
    name: str, *, examples: tuple[str, ...], note: str = ""
) -> Callable[[Callable[..., Any]], click.Command]:
    """Declare a command.

    Args:
        name: the name; the function's docstring is the help.
        examples: arguments that show its use.
        note: a text that follows the options.
    """
    lines = "\n".join(f"  {PROGRAM} {name} {example}".rstrip() for example in examples)
    return click.command(name, cls=_StoreCommand, epilog=f"{note}\n\n\b\nExamples:\n{lines}".lstrip("\n"))


class _StoreCommand(click.Command):
    """Command that reports errors on standard error, as JSON with `--json`, and exits with their codes."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse arguments; the error after a negative number says where it belongs."""
        try:
            return super().parse_args(ctx, args)
        except click.NoSuchOption as error:
            if not error.option_name[1:2].isdecimal():
                raise
            message = f"{error.message} A value that begins with a minus comes after `--`."
            raise click.NoSuchOption(error.option_name, message, ctx=ctx) from None

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command and return its exit code."""
        as_json = bool(ctx.params.get("as_json") or ctx.params.get("form") == "document")
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            print_note(f"interrupted: {_left(ctx)}")
            return ExitCode.INTERRUPTED
        except (click.ClickException, click.Abort, click.exceptions.Exit, BrokenPipeError):
            raise
        except (StateStoreError, OSError) as error:
            reported = as_store_error(error)
        except ModuleNotFoundError as error:
            package = (error.name or "").partition(".")[0]
            reported = OptionError(
                f"the Python package '{package}' is needed for this: pip install '{package}'"
            )
        except Exception as error:
            reported = InternalError(f"a defect of this program: {error!r}")
            if not as_json:
                traceback.print_exc()
        print_error(reported, as_json=as_json)
        return ExitCode.of_kind(reported.kind)


@contextmanager
def writing(target: str, *, if_interrupted: str) -> Iterator[None]:
    """Note that a command writes to a target, and what a user does with a part of it after Ctrl-C."""
    click.get_current_context().meta[_INTERRUPTED] = (target, if_interrupted)
    note_left(visible(f"'{target}' may not be complete: {if_interrupted}"))
    yield


def changing(*, if_interrupted: str) -> None:
    """Note that a command changes what exists, and what is so after Ctrl-C."""
    click.get_current_context().meta[_INTERRUPTED] = (None, if_interrupted)
    note_left(if_interrupted)


def _left(ctx: click.Context) -> str:
    """Return the sentence that says what an interrupted command left."""
    target, advice = ctx.meta.get(_INTERRUPTED, (None, NOTHING_WRITTEN))
    if target is None:
        return advice
    return f"'{target}' is not complete: {advice}" if _has_files(target) else f"nothing is left in '{target}'"


def _has_files(location: str) -> bool:
    try:
        path = local_path(location)
        if path is not None:
            return path.exists() and (path.is_file() or any(path.iterdir()))
        storage = open_storage(location)
        return bool(root_files(storage, location) or storage.directories())
    except (StateStoreError, OSError):
        return True


def note_unfinished(query: Query) -> None:
    """Note that a batch of a query that has to be stopped has begun lately and not ended."""
    sentence = unfinished_batch(query, SYSTEM.wall_ms())
    if sentence is not None:
        print_note(f"note: {sentence}")


_QUERY_PARAMETERS = (
    wide_option,
    json_option,
    utc_option,
    store_option("Only this store: a side of a join (left, right), a variable, or Spark's name of a store."),
    click.option("--partition", type=NUMBER, metavar="N", help="Only the stores of this partition."),
    click.option("--operator", type=NUMBER, metavar="N", help="Only the stores of this stateful operator."),
)


class QueryStores(NamedTuple):
    """The stores of a query that a command is about, as the functions of the package take them.

    `checkpoint` is empty if it may be, and is missing.
    """

    checkpoint: str
    operator: int | None
    partition: int | None
    name: str | None

    def meter(self, done: str) -> Meter:
        """Return a meter of work on each of them."""
        selection = Filter(self.operator, self.partition, self.name)
        return Meter(done, len(Query.open(self.checkpoint).stores(selection)))


def query_command(
    name: str, *, examples: tuple[str, ...], optional: bool = False
) -> Callable[[Callable[..., Any]], click.Command]:
    """Declare a command about the stores of a query.

    Its function gets the `QueryStores` that are meant, whose checkpoint may be missing if it is `optional`,
    and `as_json`.
    """

    def declare(function: Callable[..., Any]) -> click.Command:
        @functools.wraps(function)
        def of_stores(
            checkpoint: str | None,
            operator: int | None,
            partition: int | None,
            store: str | None,
            **others: Any,
        ) -> Any:
            return function(QueryStores(checkpoint or "", operator, partition, store), **others)

        declared: Callable[..., Any] = of_stores
        argument = click.argument("checkpoint", metavar="DIR", type=Location(), required=not optional)
        for decorate in (*_QUERY_PARAMETERS, argument):
            declared = decorate(declared)
        return command(name, examples=examples, note=DIRECTORY)(declared)

    return declare


_STATE_NOTE = DIRECTORY + " The query {} meanwhile. Version v is the state after batch v - 1."


def state_command(
    name: str, *, examples: tuple[str, ...], stopped: bool = False
) -> Callable[[Callable[..., Any]], click.Command]:
    """Declare a command about one store of a query: `checkpoint`, `operator`, `store`.

    Args:
        name: the name of the command.
        examples: arguments that show its use.
        stopped: whether the query must not run meanwhile.
    """
    note = _STATE_NOTE.format("must not run" if stopped else "may run")

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
class Selection:
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
        from state_store.data.dataset import opening

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


def version_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add `--version`, `--batch` and `--at` to a `state_command`, whose function gets a `Selection` first."""

    @functools.wraps(function)
    def of_selection(
        checkpoint: str,
        operator: int,
        version: int | None,
        batch: int | None,
        at: datetime | None,
        store: str | None = None,
        **others: Any,
    ) -> Any:
        return function(Selection(checkpoint, operator, store, version, batch, at), **others)

    declared: Callable[..., Any] = of_selection
    for decorate in _VERSION_OPTIONS:
        declared = decorate(declared)
    return declared


def spark_option(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add `--master` to a command, whose function gets `spark`: a session, or None."""

    @functools.wraps(function)
    def with_session(*arguments: Any, master: str | None, **others: Any) -> Any:
        with _session(master) as spark:
            return function(*arguments, spark=spark, **others)

    return click.option(
        "--master",
        metavar="URL",
        help="Let the executors of this Spark master work (spark://HOST:PORT, yarn, k8s://..., local[4]), a "
        "task a store; spark-submit needs no --master here.",
    )(with_session)


@contextmanager
def _session(master: str | None) -> Iterator[Any]:
    if master is None and _SUBMITTED not in os.environ:
        yield None
        return
    if master is not None and not _MASTER.fullmatch(master):
        raise OptionError(
            f"'{master}' is not a Spark master: give spark://HOST:PORT, yarn, k8s://..., local or local[4]",
            option="--master",
        )
    try:
        from pyspark.sql import SparkSession
    except ImportError as error:
        raise OptionError("--master needs the Python package pyspark", option="--master") from error
    existing = SparkSession.getActiveSession()
    builder = SparkSession.builder.appName("state-store").config("spark.ui.showConsoleProgress", "false")
    if master is not None:
        builder = builder.master(master)
        if master.startswith("local"):
            os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    try:
        session = builder.getOrCreate()
    except Exception as error:
        place = "of spark-submit" if master is None else master
        raise OptionError(f"no session on the Spark master {place}: {error}", option="--master") from error
    try:
        yield session
    finally:
        if existing is None:
            session.stop()
