"""Random functions for `applyInPandasWithState`, which tell in their output all that they have seen.

A program has recipes; a group takes the recipe that its key and its number of calls choose. A recipe says how
the function reads its frames, changes them, treats its state, and in which of pandas' many forms it gives its
rows. So one batch mixes forms, as the groups of real functions do.
"""

from __future__ import annotations

import dataclasses
import datetime
import zlib
from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd
from algebra import TYPED, typed
from pyspark.sql.streaming.state import GroupState

OUTPUT_KINDS = (
    "long",
    "int",
    "double",
    "string",
    "boolean",
    "date",
    "timestamp",
    "timestamp_ntz",
    "decimal(12,3)",
    "binary",
    "array<int>",
)
NESTED = {
    "array<int>": lambda c: [c, None if c % 4 == 1 else c + 1][: c % 3],
    "array<array<int>>": lambda c: [[c, None][: 1 + c % 2], None][: 1 + c % 3],
    "map<string,int>": lambda c: [("a", c), ("b", None)][: c % 3],
    "struct<x:int,y:boolean>": lambda c: {"x": None if c % 3 == 0 else c, "y": None if c % 7 == 0 else True},
    "array<struct<x:int,y:string>>": lambda c: [{"x": c if c % 2 else None, "y": str(c)}] * (c % 3),
}
NUMBERS = {
    "byte": lambda c: c - 20,
    "short": lambda c: c * 100,
    "float": lambda c: c / 4,
}
VALUES = {**TYPED, **NESTED, **NUMBERS}

READ = ("all", "all", "first", "none", "late", "list", "keep")
CHANGE = ("none", "cell", "column", "new", "rename", "sort", "values", "dtype")
ROWS = (
    "named",
    "named",
    "numbered",
    "reversed",
    "misnamed",
    "refilled",
    "rows",
    "cut",
    "empty",
    "bare",
    "none",
)
VALUE = ("right", "right", "objects", "none", "nan", "float", "string", "int", "category", "Int64", "numpy")
STATE = (
    "leave",
    "update",
    "update",
    "numpy",
    "list",
    "remove",
    "update and remove",
    "remove and update",
    "read after removal",
    "forget later",
)
WAIT = ("none", "none", "soon", "late", "never", "datetime", "float", "twice")
ERRORS = (
    "raise",
    "raise late",
    "get without state",
    "update none",
    "update short",
    "update long",
    "update wrong",
    "update scalar",
    "duration",
    "timestamp",
    "duration text",
    "duration of numpy",
    "timestamp past",
    "timestamp huge",
    "return none",
    "return frame",
    "return text",
    "yield series",
    "yield none",
    "too many columns",
    "too few columns",
    "overflow",
    "wrong type",
    "key index",
    "frame of nothing",
    "stop",
)


def value(kind: str, seed: int) -> Any:
    """Return a value of a column of this type; every fifth is null."""
    return None if seed % 5 == 4 else VALUES[kind](seed)


def described(x: Any) -> Any:
    """Return all that can be seen of a value, with the types of its parts."""
    if isinstance(x, pd.DataFrame):
        columns = [described(x.iloc[:, i].tolist()) for i in range(x.shape[1])]
        head = (type(x.columns).__name__, x.columns.tolist(), x.dtypes.map(str).tolist())
        return "frame", head, type(x.index).__name__, list(x.index), columns
    if isinstance(x, np.ndarray):
        return "array", str(x.dtype), x.flags.writeable, [described(v) for v in x]
    if isinstance(x, dict):
        return {k: described(v) for k, v in x.items()}
    if isinstance(x, (list, tuple)):
        return type(x).__name__, [described(v) for v in x]
    return type(x).__name__, repr(x)


@dataclasses.dataclass(frozen=True)
class Recipe:
    """The ways in which a group is treated; each is one of the constants of this module."""

    read: str
    change: str
    rows: str
    value: str
    state: str
    wait: str
    more: int
    """Rows of output besides the first."""


@dataclasses.dataclass(frozen=True)
class FrameProgram:
    """A function; groups whose calls are `fails_at` in number meet `error`, if there is one."""

    keys: tuple[str, ...]
    values: tuple[str, ...]
    state: tuple[str, ...]
    output: str
    recipes: tuple[Recipe, ...]
    timeout: str
    watermark: bool
    error: str | None
    fails_at: int

    def state_schema(self) -> str:
        return ", ".join(["c long", *(f"s{i} {kind}" for i, kind in enumerate(self.state))])

    def output_schema(self) -> str:
        return f"k string, n long, o {self.output}, seen string"

    def function(self) -> Any:
        """Return the program as a function, which is what `applyInPandasWithState` takes."""
        return lambda key, frames, state: self.call(key, frames, state)

    def call(self, key: tuple[Any, ...], frames: Any, state: GroupState) -> Any:
        count = state.get[0] + 1 if state.exists else 0
        number = zlib.crc32(repr(described(key)).encode()) + count
        recipe = self.recipes[number % len(self.recipes)]
        if self.error is not None and count >= self.fails_at:
            return self._fail(key, frames, state, count)
        rows = self._rows(recipe, key, frames, state, count)
        if recipe.rows == "rows":
            return list(rows)
        return iter([]) if recipe.rows == "none" and not list(rows) else rows

    def _rows(self, recipe: Recipe, key: Any, frames: Any, state: GroupState, count: int) -> Iterator[Any]:
        seen: list[Any] = [described(key), type(frames).__name__, self._of_state(state)]
        if recipe.read == "late":
            self._treat(recipe, state, count, seen)
            yield self._frame(recipe, key, count, seen)
        pdf = None
        if recipe.read in ("all", "late"):
            for pdf in frames:
                seen.append(described(pdf))
                seen.append(self._change(recipe, pdf))
        elif recipe.read in ("first", "keep"):
            pdf = next(iter(frames))
            seen.append(described(pdf))
            seen.append(self._change(recipe, pdf))
        elif recipe.read == "list":
            read = list(frames)
            pdf = read[-1]
            seen += [*map(described, read), len(list(frames)), self._change(recipe, pdf)]
        if recipe.read != "late":
            self._treat(recipe, state, count, seen)
        yield from self._given(recipe, key, pdf, count, seen)

    def _of_state(self, state: GroupState) -> Any:
        watermark = state.getCurrentWatermarkMs() if self.watermark else None
        return (
            state.exists,
            described(state.getOption),
            state.hasTimedOut,
            watermark,
            state.oldTimeoutTimestamp,
        )

    def _change(self, recipe: Recipe, pdf: Any) -> Any:
        """Change a frame in place, where it has rows, and return what it is then."""
        if not len(pdf) or recipe.change == "none":
            return None
        try:
            if recipe.change == "cell":
                pdf.iloc[0, 0] = pdf.iloc[-1, 0]
            elif recipe.change == "column":
                pdf["n"] += 1
            elif recipe.change == "new":
                pdf["new"] = range(len(pdf))
            elif recipe.change == "rename":
                pdf.columns = [f"c{i}" for i in range(pdf.shape[1])]
            elif recipe.change == "sort":
                pdf.sort_values("n", ascending=False, inplace=True)
            elif recipe.change == "values":
                pdf["n"].to_numpy()[:] = 7
            elif recipe.change == "dtype":
                pdf.loc[0, "n"] = None
        except (TypeError, ValueError, KeyError) as error:
            return type(error).__name__, str(error)
        return described(pdf)

    def _treat(self, recipe: Recipe, state: GroupState, count: int, seen: list[Any]) -> None:
        new = (count, *(_stored(kind, count) for kind in self.state))
        if recipe.state in ("update", "remove and update"):
            if recipe.state != "update":
                state.remove()
            state.update(new)
        elif recipe.state == "numpy":
            state.update((np.int64(count), *new[1:]))
        elif recipe.state == "list":
            state.update(list(new))
        elif recipe.state in ("remove", "read after removal"):
            state.remove()
            seen.append(self._of_state(state))
            if recipe.state == "read after removal":
                try:
                    seen.append(state.get)
                except ValueError as error:
                    seen.append((type(error).__name__, str(error)))
        elif recipe.state == "update and remove":
            state.update(new)
            seen.append(self._of_state(state))
            state.remove()
        elif recipe.state == "forget later":
            state.remove() if count > 1 else state.update(new)
        self._wait(recipe, state)
        seen.append(self._of_state(state))

    def _wait(self, recipe: Recipe, state: GroupState) -> None:
        if self.timeout == "NoTimeout" or recipe.wait == "none":
            return
        by = {"soon": 1, "late": 10**9, "never": 10**12, "float": 1.5, "datetime": 10**9, "twice": 5}[
            recipe.wait
        ]
        if self.timeout == "ProcessingTimeTimeout":
            state.setTimeoutDuration(10**9 if by == 5 else by)
            if recipe.wait == "twice":
                state.setTimeoutDuration(1)
            return
        at = max(state.getCurrentWatermarkMs(), 0) + by if self.watermark else by
        if recipe.wait == "datetime":
            state.setTimeoutTimestamp(datetime.datetime.fromtimestamp(at / 1000))
        else:
            state.setTimeoutTimestamp(at)
            if recipe.wait == "twice":
                state.setTimeoutTimestamp(at + 1)

    def _given(self, recipe: Recipe, key: Any, pdf: Any, count: int, seen: list[Any]) -> Iterator[Any]:
        frame = self._frame(recipe, key, count, seen)
        if recipe.rows == "none":
            return
        if recipe.rows == "empty":
            yield frame[:0]
        elif recipe.rows == "bare":
            yield pd.DataFrame()
        elif recipe.rows == "refilled":
            yield frame
            frame.loc[0, "n"] = 100 + count
            yield frame
            frame.loc[0, "seen"] = "changed after the last"
        elif recipe.rows == "cut" and pdf is not None and len(pdf) and "n" in pdf:
            part = pdf[["n"]].copy(deep=False)
            part.insert(0, "k", "cut")
            part["o"] = None
            part["seen"] = repr(seen)
            yield part[:2]
        else:
            for i in range(recipe.more + 1):
                if i:
                    frame = frame.copy()
                    frame.isetitem(2 if recipe.rows == "reversed" else 1, i)
                yield frame

    def _frame(self, recipe: Recipe, key: Any, count: int, seen: list[Any]) -> Any:
        given = _value(recipe.value, self.output, count)
        o = given if isinstance(given, pd.Series) else [given]
        frame = pd.DataFrame({"k": [str(key[0])], "n": [count], "o": o, "seen": [repr(seen)]})
        if recipe.rows == "numbered":
            frame.columns = range(4)
        elif recipe.rows == "reversed":
            frame = frame[frame.columns[::-1]]
        elif recipe.rows == "misnamed":
            frame.columns = ["k", "n", "other", "seen"]
        return frame

    def _fail(self, key: Any, frames: Any, state: GroupState, count: int) -> Any:
        error = self.error
        good = pd.DataFrame({"k": ["x"], "n": [count], "o": [typed_output(self.output, 1)], "seen": ["s"]})
        if error == "raise":
            raise KeyError("made up")
        if error in ("return none", "return frame", "return text"):
            return {"return none": None, "return frame": good, "return text": "abcd"}[error]
        if error == "key index":
            return [key[len(self.keys)]]
        if error == "stop":
            raise StopIteration("by hand")
        return self._late_error(error, good, frames, state, count)

    def _late_error(self, error: str, good: Any, frames: Any, state: GroupState, count: int) -> Iterator[Any]:
        yield good
        if error == "raise late":
            raise ValueError(f"after {len(list(frames))} frames")
        if error == "get without state":
            state.remove()
            yield state.get
        updates = {
            "update none": None,
            "update short": (),
            "update long": (count, *([1] * (len(self.state) + 1))),
            "update wrong": ("text", *([object] * len(self.state))),
            "update scalar": 5,
        }
        if error in updates:
            state.update(updates[error])
        elif error == "duration":
            state.setTimeoutDuration(-1)
        elif error == "timestamp":
            state.setTimeoutTimestamp(-1)
        elif error == "duration text":
            state.setTimeoutDuration("1 hour")
        elif error == "duration of numpy":
            state.setTimeoutDuration(np.int64(10**9))
        elif error == "timestamp past":
            state.setTimeoutTimestamp(1)
        elif error == "timestamp huge":
            state.setTimeoutTimestamp(10**20)
        frames_of = {
            "yield series": good["n"],
            "yield none": None,
            "too many columns": good.assign(more=1),
            "too few columns": good[["k"]],
            "overflow": good.assign(n=[2**63]),
            "wrong type": good.assign(n=["no number"]),
            "frame of nothing": pd.DataFrame(index=range(2)),
        }
        if error in frames_of:
            yield frames_of[error]


def typed_output(kind: str, count: int) -> Any:
    """Return a value for the output column of type `kind`."""
    return [count] if kind == "array<int>" else typed(kind, count)


def _value(form: str, kind: str, count: int) -> Any:
    right = typed_output(kind, count)
    if form == "objects":
        return pd.Series([right], dtype=object)
    if form == "category":
        return [right] if isinstance(right, list) else pd.Series([right]).astype("category")
    if form == "Int64":
        return pd.Series([count], dtype="Int64") if kind in ("long", "int", "double") else right
    if form == "numpy":
        return np.int32(count) if kind in ("long", "int", "double", "decimal(12,3)") else right
    if form == "float":
        return count + 0.0 if kind in ("long", "int", "decimal(12,3)") else right
    if form == "int":
        return (
            count if kind in ("double", "decimal(12,3)", "string", "boolean", "date", "timestamp") else right
        )
    if form == "string":
        return str(right) if kind in ("long", "int", "double", "string", "date", "timestamp") else right
    return {"none": None, "nan": float("nan")}.get(form, right)


def _stored(kind: str, count: int) -> Any:
    found = typed(kind, count)
    return tuple(found.values()) if isinstance(found, dict) else found
