"""Processors for many groups at a time, in a module that workers can import."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.streaming import StatefulProcessor

import state_store

OUTPUT = "k string, n long, total long, last timestamp, texts array<string>, counts array<long>, timers long"


@state_store.vectorized
class Everything(StatefulProcessor):
    """Keeps a value, a list, a map and timers, and shows all of them."""

    def init(self, handle: Any) -> None:
        handle.getValueState("total", "n long, total long, last timestamp")
        handle.getListState("texts", "text string")
        handle.getMapState("counts", "parity long", "n long")

    def handle(self, keys: pa.Table, rows: pa.Table, state: Any) -> Any:
        group = rows["__group"].to_numpy()
        groups = keys.num_rows
        value = state.total.table()
        sums = np.bincount(group, weights=rows["v"].fill_null(0).to_numpy(), minlength=groups).astype(
            np.int64
        )
        last = (
            rows.group_by("__group", use_threads=False)
            .aggregate([("at", "max")])
            .sort_by("__group")["at_max"]
        )
        state["total"].update(
            pa.table(
                {
                    "n": np.bincount(group, minlength=groups) + value["n"].fill_null(0).to_numpy(),
                    "total": sums + value["total"].fill_null(0).to_numpy(),
                    "last": last,
                }
            )
        )
        texts = pc.binary_join_element_wise(
            pc.cast(pc.fill_null(rows["v"], -1), pa.string()), pa.scalar("!"), ""
        )
        state.texts.append(pa.table({"text": texts, "__group": rows["__group"]}))
        parity = pc.bit_wise_and(pc.fill_null(rows["v"], 0), 1)
        seen = state.counts.table()
        columns = (seen[name].to_pylist() for name in ("__group", "parity", "n"))
        known = {(g, p): n for g, p, n in zip(*columns, strict=True)}
        for g, p in zip(group.tolist(), parity.to_pylist(), strict=True):
            known[g, p] = known.get((g, p), 0) + 1
        state.counts.update(
            pa.table(
                {
                    "parity": [p for _, p in known],
                    "n": pa.array(known.values(), pa.int64()),
                    "__group": pa.array([g for g, _ in known], pa.int32()),
                }
            )
        )
        state.timers.register(pc.add(pc.cast(pc.cast(last, pa.timestamp("ms", "UTC")), pa.int64()), 4000))
        return self._shown(keys, state)

    def handle_timers(self, keys: pa.Table, timers: pa.Table, state: Any) -> pa.Table:
        """Forget half of what is known of the groups, and show the rest."""
        state.total.clear(timers["__group"])
        state.counts.remove(pa.table({"parity": [1] * keys.num_rows, "__group": range(keys.num_rows)}))
        return self._shown(keys, state)

    def _shown(self, keys: pa.Table, state: Any) -> pa.Table:
        value, texts, counts = state.total.table(), state.texts.table(), state.counts.table()
        timers = np.bincount(state.timers.table()["__group"].to_numpy(), minlength=keys.num_rows)
        counts = counts.sort_by([("__group", "ascending"), ("parity", "ascending")])
        return pa.table(
            {
                "k": keys["k"],
                "n": value["n"],
                "total": value["total"],
                "last": value["last"],
                "texts": _lists(texts, "text", keys.num_rows),
                "counts": _lists(counts, "n", keys.num_rows),
                "timers": timers,
            }
        )


def _lists(table: pa.Table, name: str, groups: int) -> pa.Array:
    offsets = np.searchsorted(table["__group"].to_numpy(), np.arange(groups + 1)).astype(np.int32)
    return pa.ListArray.from_arrays(pa.array(offsets), table[name].combine_chunks())


TOTALS = "k string, n long"


class Counting(StatefulProcessor):
    """Counts the rows of each group."""

    def init(self, handle: Any) -> None:
        self.counts = handle.getValueState("counts", "n long")


@state_store.vectorized(frame="pandas")
class WithPandas(Counting):
    def handle(self, keys: Any, rows: Any, state: Any) -> Any:
        import pandas as pd

        sizes = rows.groupby("__group").size().to_numpy()
        n = self.counts.table()["n"].fillna(0).to_numpy().astype("int64") + sizes
        state.counts.update(pd.DataFrame({"n": n}))
        yield pd.DataFrame({"k": keys["k"], "n": n})


@state_store.vectorized(frame="polars")
class WithPolars(Counting):
    def handle(self, keys: Any, rows: Any, state: Any) -> Any:
        import polars as pl

        sizes = rows.group_by("__group", maintain_order=True).len()["len"].cast(pl.Int64)
        n = state.counts.table()["n"].fill_null(0) + sizes
        state.counts.update(pl.DataFrame({"n": n}))
        return pl.DataFrame({"k": keys["k"], "n": n})


@state_store.vectorized
class WithInitialState(Counting):
    def handle_initial_state(self, keys: pa.Table, rows: pa.Table, state: Any) -> None:
        state.counts.update(rows.select(["n", "__group"]))

    def handle(self, keys: pa.Table, rows: pa.Table, state: Any) -> pa.Table:
        sizes = np.bincount(rows["__group"].to_numpy(), minlength=keys.num_rows)
        n = sizes + state.counts.table()["n"].fill_null(0).to_numpy()
        state.counts.update(pa.table({"n": n}))
        return pa.table({"k": keys["k"], "n": n})


@state_store.vectorized
class Reminding(Counting):
    """Registers a timer an hour after the start of the batch, and gives the seconds until then."""

    def handle(self, keys: pa.Table, rows: pa.Table, state: Any) -> pa.Table:
        state.timers.register(pa.array([3_600_000] * keys.num_rows, pa.duration("ms")))
        timers = state.timers.table().group_by("__group", use_threads=False)
        last = timers.aggregate([("__timer_ms", "max")]).sort_by("__group")["__timer_ms_max"]
        seconds = pc.divide(pc.subtract(last, state.batch_time_ms), 1000)
        return pa.table({"k": keys["k"], "n": seconds})


@state_store.vectorized
class Wrong(Counting):
    """Does what `fault` says."""

    def __init__(self, fault: str) -> None:
        self.fault = fault

    def handle(self, keys: pa.Table, rows: pa.Table, state: Any) -> Any:
        units = pa.array([1] * keys.num_rows)
        if self.fault == "column":
            state.counts.update(pa.table({"m": units}))
        elif self.fault == "type":
            state.counts.update(pa.table({"n": units.cast(pa.string())}))
        elif self.fault == "rows":
            state.counts.update(pa.table({"n": [1] * (keys.num_rows + 1)}))
        elif self.fault == "group":
            state.counts.update(pa.table({"n": [1], "__group": [keys.num_rows]}))
        elif self.fault == "twice":
            state.counts.update(pa.table({"n": [1, 2], "__group": [0, 0]}))
        elif self.fault == "name":
            state["count"].table()
        elif self.fault == "output":
            return pa.table({"k": keys["k"], "n": units, "m": units})
        return None
