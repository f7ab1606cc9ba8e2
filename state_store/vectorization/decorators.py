"""The two decorators, and the marked functions that they make.

A marked function is a callable object that PySpark pickles into the query plan in place of the user's
function. Its name there carries the mark, by which the session extension knows it. In the worker it is called
in one of two ways: by the Arrow iterator worker with one iterator of record batches, where the extension is
at work, or by Spark's own `applyInPandasWithState` worker with key, frames and state, where it is not.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, overload

from state_store.vectorization import binding
from state_store.vectorization.marked import BoundSchemas, Frame, MarkedFunction, restore_marked


class VectorizedFunction(MarkedFunction):
    """A function of rows, states and context, called for many groups at once."""

    _mark = "vectorized"

    def __init__(
        self, func: Callable[..., Any], frame: Frame, split_groups: bool, stored_timeout: bool
    ) -> None:
        super().__init__(func)
        if frame not in ("arrow", "pandas"):
            raise ValueError(
                f'frame is {frame!r}: state_store.vectorized knows frame="arrow" and frame="pandas"'
            )
        self.frame = frame
        self.split_groups = split_groups
        self.stored_timeout = stored_timeout
        self.schemas: BoundSchemas | None = None

    def bind(self, schemas: BoundSchemas) -> MarkedFunction:
        """A copy of this function that knows these schemas."""
        bound = restore_marked(type(self), dict(self.__dict__))
        bound.schemas = schemas
        return bound

    def _batches(self, batches: Iterator[Any]) -> Iterator[Any]:
        from state_store.vectorization import stream

        return stream.run(self, batches)

    def _group(self, key: Any, frames: Any, state: Any) -> Iterator[Any]:
        from state_store.vectorization import fallback

        return fallback.run(self, key, frames, state)


class AcceleratedFunction(MarkedFunction):
    """A function in Spark's own form (key, frames, `GroupState`), called in a leaner loop."""

    _mark = "accelerate"

    def _batches(self, batches: Iterator[Any]) -> Iterator[Any]:
        from state_store.vectorization import accelerated

        return accelerated.run(self.func, batches)

    def _group(self, key: Any, frames: Any, state: Any) -> Iterator[Any]:
        return self.func(key, frames, state)


# At import, because Python looks a method up before it evaluates what the method is called with:
# `df.groupBy("k").applyInPandasWithState(vectorized(f), ...)`.
binding.observe()


@overload
def vectorized(func: Callable[..., Any]) -> VectorizedFunction: ...


@overload
def vectorized(
    *, frame: Frame = "arrow", split_groups: bool = False, stored_timeout: bool = False
) -> Callable[[Callable[..., Any]], VectorizedFunction]: ...


def vectorized(
    func: Callable[..., Any] | None = None,
    *,
    frame: Frame = "arrow",
    split_groups: bool = False,
    stored_timeout: bool = False,
) -> Any:
    """Mark a function that `applyInPandasWithState` shall call for many groups at once.

    The function takes `rows`, `states` and `context` and returns a `Result`, or `None` to
    leave all groups as they are. `rows` holds the input columns and `__group`, an int32 index into
    `states`; the rows of a group are together and in the order in which Spark gives them. `states` has
    one row for each group of the call: the grouping columns, the state columns (null without state; a
    grouping column whose name a state column has too is called `key.<name>`), `__exists` and `__group`.

    Parameters
    ----------
    frame
        `"arrow"`: rows and states are `pyarrow.Table`; `"pandas"`: `pandas.DataFrame`.
    split_groups
        Accept a group whose rows exceed `...vectorized.maxGroupBytes` in several calls, each of which sees
        the state that the call before returned. Without it such a group is an error that names it.
    stored_timeout
        Add `__timeout_ms` to `states`: the timeout that the group has from earlier batches, null for
        none. Needs the session extension, because Spark's own operator does not tell it: without the
        extension it is an error.

    Raises
    ------
    BadResultError
        In the query, when the result breaks a rule; nothing of the call is written then.
    """

    def mark(function: Callable[..., Any]) -> VectorizedFunction:
        return VectorizedFunction(function, frame, split_groups, stored_timeout)

    return mark if func is None else mark(func)


def accelerate(func: Callable[..., Any]) -> AcceleratedFunction:
    """Mark an ordinary `applyInPandasWithState` function (key, iterator of
    frames, `GroupState`) to run faster.

    The function stays as it is, and so do its results and errors: it is still called once for each
    group, but frames and states are made for many groups at once. Option
    `...vectorized.accelerate` does the same for a whole session.
    """
    return AcceleratedFunction(func)
