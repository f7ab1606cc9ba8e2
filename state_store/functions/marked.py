"""The parts of a marked function: a user's function, its name in the plan, and the schemas of its query."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Generator, Iterator
from typing import Any, Literal, Protocol

Frame = Literal["arrow", "pandas", "polars"]


@dataclasses.dataclass(frozen=True)
class BoundSchemas:
    """Schemas (Spark's JSON) and time zone of one query, and whether the user was warned."""

    rows: str
    key: str
    state: str
    output: str
    time_zone: str
    warned: bool


class MarkedFunction:
    """The parts that both kinds of marked functions share: the user's function and the name in the plan.

    Instances are pickled with the plan, so they hold nothing but the function, its settings and the schemas
    that the driver bound to it.
    """

    _mark: str

    def __init__(self, func: Callable[..., Any]) -> None:
        if not callable(func):
            raise TypeError(f"state_store.{self._mark} marks a function, not {type(func).__name__}")
        name = getattr(func, "__name__", type(func).__name__)
        functools.update_wrapper(self, func, assigned=("__module__", "__doc__"), updated=())
        self.__name__ = f"state_store.{self._mark}({name})"
        self.__qualname__ = self.__name__
        self.func = func

    def __reduce__(self) -> tuple[Any, ...]:
        return restore_marked, (type(self), {k: v for k, v in self.__dict__.items() if k != "__wrapped__"})

    def __call__(self, *args: Any) -> Iterator[Any]:
        if len(args) == 1:
            return self._batches(args[0])
        if len(args) == 3:
            return self._group(*args)
        raise TypeError(f"{self.__name__} is called by Spark; call .func to try the function itself")

    def bind(self, schemas: BoundSchemas) -> MarkedFunction:
        """Return this function with the schemas of the query that it was passed to."""
        return self

    def _batches(self, batches: Iterator[Any]) -> Iterator[Any]:
        raise NotImplementedError

    def _group(self, key: Any, frames: Any, state: Any) -> Iterator[Any]:
        raise NotImplementedError


class Caller(Protocol):
    """Caller of a function for the groups of one stream."""

    def call(
        self, rows: Any, states: Any, call: Any, emit: Callable[[Any], Any]
    ) -> Generator[Any, None, Any]:
        """Call the function for the groups of two tables; yield `emit(output)` for output that comes early.

        Returns the `Changes`; raises `BadResultError` before anything of them is applied.
        """


class ManyGroups(Protocol):
    """The worker's view of a function that gets its groups many at a time."""

    __name__: str
    func: Callable[..., Any]
    frame: Frame
    split_groups: bool
    stored_timeout: bool
    schemas: BoundSchemas | None

    def caller(self, header: Any) -> Caller:
        """Return what calls this function for the groups of a stream with this header."""

    def __hash__(self) -> int: ...


def restore_marked(cls: type[MarkedFunction], fields: dict[str, Any]) -> Any:
    """Return a marked function with these attributes; pickle calls this."""
    marked = cls.__new__(cls)
    marked.__dict__.update(fields)
    return marked
