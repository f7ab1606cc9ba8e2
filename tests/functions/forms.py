"""A function in all its forms: it keeps a group's count, and its last row with columns of several types."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pyarrow as pa

from state_store.functions import GROUP, Result, accelerate, per_group, vectorized

OUTPUT_COLUMNS = "k string, c long, n long, v double, s string, t timestamp, l array<int>"
STATE_COLUMNS = "c long, s string, n long"


def stock(key, frames, state):
    count = state.get[0] if state.exists else 0
    last = None
    for frame in frames:
        count += len(frame)
        last = frame.iloc[-1]
    given = None if pd.isna(last["n"]) else int(last["n"])
    state.update((count, last["s"], given))
    row = {
        "k": [key[0]],
        "c": [count],
        "n": pd.Series([given], dtype="Int64"),
        "v": [last["v"]],
        "s": [last["s"]],
    }
    yield pd.DataFrame({**row, "t": [last["t"]], "l": [last["l"]]})


@per_group
def plain(key, rows, state):
    count = (state.get.c if state.exists else 0) + len(rows)
    last = rows[-1]
    state.update((count, last.s, last.n))
    yield key.k, count, last.n, last.v, last.s, last.t, last.l


def _many(rows, states):
    group = rows[GROUP].to_numpy()
    last = rows.take(pa.array(np.flatnonzero(np.append(group[1:] != group[:-1], True))))
    count = pa.array(np.bincount(group, minlength=states.num_rows) + states["c"].fill_null(0).to_numpy())
    state = pa.table({"c": count, "s": last["s"], "n": last["n"]})
    output = {
        "k": states["k"],
        "c": count,
        "n": last["n"],
        "v": last["v"],
        "s": last["s"],
        "t": last["t"],
        "l": last["l"],
    }
    return output, state


@vectorized
def tables(rows, states, context):
    output, state = _many(rows, states)
    return Result(output=pa.table(output), state=state)


@vectorized(frame="pandas")
def frames(rows, states, context):
    last = rows.groupby(GROUP).tail(1).reset_index(drop=True)
    count = np.bincount(rows[GROUP], minlength=len(states)) + states["c"].fillna(0).to_numpy().astype(int)
    state = pd.DataFrame({"c": count, "s": last["s"], "n": last["n"].astype("Int64")})
    output = {
        "k": states["k"],
        "c": count,
        "n": last["n"].astype("Int64"),
        "v": last["v"],
        "s": last["s"],
        "t": last["t"],
    }
    return Result(output=pd.DataFrame({**output, "l": last["l"]}), state=state)


FORMS = {
    "stock": stock,
    "accelerated": accelerate(stock),
    "plain_rows": plain,
    "tables": tables,
    "frames": frames,
}
