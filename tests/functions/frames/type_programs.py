"""A function of frames and processors of rows and frames that tell what a value of any type is to them.

Each keeps the values of a group's last row as its state, if it has one, and passes all rows on.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pandas as pd
from frame_programs import described
from pyspark.sql import Row
from pyspark.sql.streaming import StatefulProcessor

TYPES = {
    "days": ("interval day to second", "make_dt_interval(0, 0, i, 1.5)"),
    "variant": ("variant", """parse_json(concat('{"a":', i, '}'))"""),
    "void": ("void", "null"),
    "collated": ("string collate UTF8_LCASE", "cast(i as string) collate UTF8_LCASE"),
    "skipped_hour": ("timestamp_ntz", "timestamp_ntz'2024-03-10 02:30:00' + make_dt_interval(0, i)"),
    "hour_twice": ("timestamp", "timestamp'2024-11-03 00:30:00' + make_dt_interval(0, i)"),
    "far_day": ("date", "date'9999-12-31' - cast(i as int)"),
    "digits": ("decimal(38,18)", "cast(i as decimal(38,18)) / 3"),
    "no_digits": ("decimal(38,0)", "cast(i as decimal(38,0)) * 1000000000000000000000"),
    "bytes": ("binary", "cast(repeat('x', cast(i as int)) as binary)"),
    "short": ("smallint", "cast(i as smallint)"),
    "flag": ("boolean", "i > 2"),
    "single": ("float", "cast(i as float) / 3"),
    "odd": ("double", "if(i = 1, double('nan'), if(i = 2, double('inf'), -0.0d))"),
    "map": (
        "map<string,struct<a:int,t:timestamp>>",
        "map('q', named_struct('a', cast(i as int), 't', timestamp_seconds(i)))",
    ),
    "wall_times": ("array<timestamp_ntz>", "array(timestamp_ntz'2024-03-10 02:30:00', null)"),
    "many_bytes": ("array<binary>", "array(cast('q' as binary), null)"),
    "by_bytes": ("map<binary,int>", "map(cast('q' as binary), 1)"),
    "by_number": ("map<int,interval day to second>", "map(1, make_dt_interval(1))"),
    "nothing": ("struct<>", "named_struct()"),
    "old": ("timestamp", "timestamp'1883-11-18 00:00:00' - make_dt_interval(10000 * i)"),
    "months": ("interval year to month", "make_ym_interval(i, 2)"),
    "fixed": ("char(5)", "cast(i as string)"),
    "bounded": ("varchar(9)", "cast(i as string)"),
    "year_10000": ("timestamp", "timestamp_seconds(253402300800 + i)"),
    "twice": ("struct<a:int,a:int>", "named_struct('a', 1, 'a', 2)"),
    "clock": ("time(6)", "make_time(1, 2, cast(coalesce(i, 0) as decimal(16,6)))"),
    "shape": ("geometry(4326)", f"st_geomfromwkb(X'{(point := '0101000000' + '0' * 32)}', 4326)"),
    "place": ("geography(4326)", f"st_geogfromwkb(X'{point}')"),
}
"""By the name of a column its type, and its value of the number `i`."""

NAMED = frozenset(TYPES)


def tell(x: Any) -> str:
    """Return all that can be seen of a value, the bytes of a variant included."""
    if isinstance(x, pd.DataFrame):
        return repr([*map(str, x.dtypes), *(tell(x.iloc[:, i].tolist()) for i in range(x.shape[1]))])
    if isinstance(x, (list, tuple)):
        return f"{type(x).__name__}{[tell(part) for part in x]}"
    if isinstance(x, dict):
        return repr({key: tell(part) for key, part in x.items()})
    if type(x).__name__ == "VariantVal":
        return f"variant {x.value!r} {x.metadata!r}"
    return f"{type(x).__name__} {described(x)!r}"


def follow(key: Any, frames: Iterator[pd.DataFrame], state: Any) -> Iterator[pd.DataFrame]:
    """Tell of frames; the state is a count."""
    was = tell(state.get) if state.exists else ""
    for frame in frames:
        state.update((len(frame),))
        yield frame[[c for c in frame.columns if c in NAMED]].assign(said=tell((key, frame, was)))


def keep(key: Any, frames: Iterator[pd.DataFrame], state: Any) -> Iterator[pd.DataFrame]:
    """Tell of the state, which are the values of the last row."""
    was = tell(state.get) if state.exists else ""
    last = list(frames)[-1]
    values = [last[c].tolist()[-1] for c in last.columns if c in NAMED]
    state.update(tuple(None if pd.api.types.is_scalar(x) and pd.isna(x) else x for x in values))
    yield pd.DataFrame({"said": [tell((key, was))]})


class Follows(StatefulProcessor):
    """Tells of rows."""

    def __init__(self, state: str | None = None) -> None:
        self._state = state

    def init(self, handle: Any) -> None:
        self._last = handle.getValueState("last", self._state) if self._state else None

    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[Any]:
        for row in rows:
            was = tell(self._last.get()) if self._last and self._last.exists() else ""
            values = {name: row[name] for name in row.__fields__ if name in NAMED}
            if self._last:
                self._last.update(tuple(values.values()))
            yield Row(**values, said=tell((key, row, was)))

    def close(self) -> None:
        pass


class FollowsFrames(Follows):
    """Tells of frames."""

    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[Any]:
        for frame in rows:
            yield frame[[c for c in frame.columns if c in NAMED]].assign(said=tell((key, frame)))
