"""Moments as PySpark shows them in rows: `datetime` without a zone, in the session's time zone.

The moments of an hour that the clocks repeat are told apart by `fold`, as in Python (PEP 495).
"""

from __future__ import annotations

import datetime
import re
from collections.abc import Sequence
from zoneinfo import ZoneInfo

import pyarrow as pa
import pyarrow.compute as pc

_UTC = datetime.timezone.utc
_EPOCH = datetime.datetime(1970, 1, 1, tzinfo=_UTC)
_MICROSECOND = datetime.timedelta(microseconds=1)
_OFFSET = re.compile(r"(?:GMT|UTC|UT)?([+-])(\d{1,2})(?::?(\d{2}))?(?::?(\d{2}))?")


class SessionZone:
    """The time zone with this name, in any of the forms that Spark knows."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.tzinfo = _tzinfo(name)
        self._type = pa.timestamp("us", name)
        self._in_arrow = self._arrow_knows()

    def _arrow_knows(self) -> bool:
        """Return True if Arrow, which has no zones where the machine has none, can do the arithmetic."""
        try:
            pc.local_timestamp(pa.scalar(0, self._type))
        except pa.ArrowInvalid:
            return False
        return True

    def datetimes(self, column: pa.Array) -> list[datetime.datetime | None]:
        """Return the moments of `column`, timestamps with any zone, in this zone and without it."""
        if self._in_arrow:
            moments = column.cast(self._type)
            local = pc.local_timestamp(moments)
            first = pc.assume_timezone(local, self.name, ambiguous="earliest", nonexistent="earliest")
            datetimes = local.to_pylist()
            for i in pc.indices_nonzero(pc.not_equal(first, moments).fill_null(False)).to_pylist():
                datetimes[i] = datetimes[i].replace(fold=1)
            return datetimes
        micros = column.cast(pa.timestamp("us", column.type.tz)).cast(pa.int64())
        return [None if us is None else self._datetime(us) for us in micros.to_pylist()]

    def _datetime(self, us: int) -> datetime.datetime:
        return (_EPOCH + us * _MICROSECOND).astimezone(self.tzinfo).replace(tzinfo=None)

    def moments(self, values: Sequence[datetime.datetime | None]) -> pa.Array:
        """Return the array for `datetimes`; a value with a zone of its own keeps its moment."""
        if self._in_arrow and all(value is None or value.tzinfo is None for value in values):
            try:
                return pc.assume_timezone(pa.array(values, pa.timestamp("us")), self.name)
            except pa.ArrowInvalid:  # clocks change: Python knows `fold`
                pass
        micros = [None if value is None else self.micros(value) for value in values]
        return pa.array(micros, pa.int64()).cast(self._type)

    def micros(self, value: datetime.datetime) -> int:
        """Return microseconds since the epoch of `value`, which is in this zone if it has none."""
        aware = value if value.tzinfo is not None else value.replace(tzinfo=self.tzinfo)
        return (aware.astimezone(_UTC) - _EPOCH) // _MICROSECOND


def _tzinfo(name: str) -> datetime.tzinfo:
    if name == "Z":
        return _UTC
    match = _OFFSET.fullmatch(name)
    if match is None:
        return ZoneInfo(name)
    sign, hours, minutes, seconds = match.groups()
    offset = datetime.timedelta(hours=int(hours), minutes=int(minutes or 0), seconds=int(seconds or 0))
    return datetime.timezone(offset if sign == "+" else -offset)
