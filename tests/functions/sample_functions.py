"""Functions of the tests, in the module that workers import."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.streaming import StatefulProcessor

from state_store.functions import GROUP, Result

OUTPUT = "k string, n long, s double"
STATE = "n long, s double"


def total_per_group(key, pdfs, state):
    """Count and sum per key; forget a key at its seventh row."""
    n, s = state.get if state.exists else (0, 0.0)
    for pdf in pdfs:
        n += len(pdf)
        s += float(pdf["v"].sum())
    if n > 6:
        state.remove()
    else:
        state.update((n, s))
    yield pd.DataFrame({"k": [key[0]], "n": [n], "s": [s]})


def total_of_rows(key, rows, state):
    """Do the same with plain rows."""
    n, s = state.get if state.exists else (0, 0.0)
    n += len(rows)
    s += sum(row.v for row in rows)
    if n > 6:
        state.remove()
    else:
        state.update((n, s))
    yield key.k, n, s


def total(rows, states, context):
    """Do the same for many groups."""
    group, groups = rows[GROUP].to_numpy(), states.num_rows
    n = np.bincount(group, minlength=groups) + states["n"].fill_null(0).to_numpy()
    s = (
        np.bincount(group, weights=rows["v"].to_numpy(), minlength=groups)
        + states["s"].fill_null(0).to_numpy()
    )
    new = pa.table({GROUP: states[GROUP], "n": n, "s": s})
    return Result(
        output=pa.table({"k": states["k"], "n": n, "s": s}), state=new.filter(pa.array(n <= 6)), remove=n > 6
    )


def lists_and_maps(rows, states, context):
    """State of types that Spark's own Python worker cannot read."""
    group = rows[GROUP].to_numpy()
    tags = [list(old or []) for old in states["tags"].to_pylist()]
    for g, tag in zip(group, rows["v"].to_pylist(), strict=True):
        tags[g].append(tag)
    seen = [[(str(tag), tag) for tag in sorted(set(t))] for t in tags]
    types = {f.name: f.type for f in context.state_schema}
    columns = {"tags": pa.array(tags, types["tags"]), "seen": pa.array(seen, types["seen"])}
    return Result(output=pa.table({"k": states["k"], **columns}), state=pa.table(columns))


def expire(rows, states, context):
    """Count rows and emit the count when a key has been silent for ten minutes of event time."""
    if context.timed_out:
        return Result(output=states.select(["k", "n"]), remove=states[GROUP])
    group, groups = rows[GROUP].to_numpy(), states.num_rows
    n = np.bincount(group, minlength=groups) + states["n"].fill_null(0).to_numpy()
    latest = rows.group_by(GROUP).aggregate([("t", "max")]).sort_by(GROUP)["t_max"]
    return Result(state=pa.table({"n": n}), timeout=pc.add(latest, pa.scalar(600_000_000, pa.duration("us"))))


def expire_per_group(key, pdfs, state):
    if state.hasTimedOut:
        (n,) = state.get
        state.remove()
        yield pd.DataFrame({"k": [key[0]], "n": [n]})
        return
    rows = pd.concat(list(pdfs))
    n = (state.get[0] if state.exists else 0) + len(rows)
    state.update((n,))
    latest = rows["t"].max().tz_localize("America/Los_Angeles")
    state.setTimeoutTimestamp(int(latest.timestamp() * 1000) + 600_000)


def fails(rows, states, context):
    keys = states["k"].to_pylist()
    if "bad" in keys:
        raise KeyError("the key that this test made up")  # the line of the user
    return Result(state=pa.table({"n": [1] * len(keys), "s": [1.0] * len(keys)}))


def fails_per_group(key, pdfs, state):
    if key[0] == "bad":
        raise KeyError("the key that this test made up")  # the line of the user
    state.update((1, 1.0))
    yield pd.DataFrame({"k": [key[0]], "n": [1], "s": [1.0]})


def fails_with_rows(key, rows, state):
    if key.k == "bad":
        raise KeyError("the key that this test made up")  # the line of the user
    state.update((1, 1.0))


def stops(key, rows, state):
    yield next(iter(()))  # the line of the user


def shown(key, rows, state):
    """Show rows, and the state that holds the last of them, one batch later."""
    if state.exists:
        yield key.g, f"{type(state.get).__name__} {state.get!r}"
    for row in rows:
        yield key.g, repr(row)
    state.update(rows[-1][2:])


def misaligned(rows, states, context):
    if "bad" in states["k"].to_pylist():
        return Result(state=pa.table({"n": [1], "s": [1.0]}))
    return Result(state=pa.table({"n": [1] * states.num_rows, "s": [1.0] * states.num_rows}))


def wrong_columns(key, pdfs, state):
    yield pd.DataFrame({"k": [key[0]]})


def no_frames(key, pdfs, state):
    return pd.DataFrame({"k": [key[0]], "n": [1], "s": [1.0]})


def chunks(key, pdfs, state):
    """Emit the numbers of rows and of frames of a group."""
    sizes = [len(pdf) for pdf in pdfs]
    state.update((sum(sizes), float(len(sizes))))
    yield pd.DataFrame({"k": [key[0]], "n": [sum(sizes)], "s": [0.0]})


def first_frame_only(key, pdfs, state):
    """Stop before the end of a group."""
    first = next(iter(pdfs))
    state.update((int(first["v"].iloc[0]), 0.0))
    yield pd.DataFrame({"k": [key[0]], "n": [1], "s": [0.0]})


class Nothing(StatefulProcessor):
    """Keeps no state and gives no rows."""

    def init(self, handle):
        pass

    def handleInputRows(self, key, rows, timerValues):
        return iter(())

    def close(self):
        pass
