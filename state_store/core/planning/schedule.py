"""Times at which full checkpoints are due: cron fields in a time zone, and the jitter of a store.

The jitter of a store is a fixed share of the longest delay, a hash of its names. So partitions do not rewrite
their state all at once, and each keeps its own time.
"""

from __future__ import annotations

import hashlib
from datetime import date, datetime, timedelta
from zoneinfo import ZoneInfo

from state_store.core.settings.option import Cron

_MINUTE_MS = 60_000
_LONGEST_MS = 366 * 5 * 24 * 60 * _MINUTE_MS


def jitter(longest: int, *names: object) -> int:
    """Return a number from 0 to `longest` (excluded, unless 0) that depends on the names alone."""
    digest = hashlib.sha256("/".join(map(str, names)).encode("utf-8")).digest()
    return int.from_bytes(digest[:8], "big") * longest >> 64


class Schedule:
    """The times that cron fields name in a time zone, in milliseconds since 1970 UTC.

    An hour that daylight saving skips does not occur; one that it repeats occurs twice. An answer is kept
    until the next time, so that asking costs nothing. Not safe for threads: the caller locks.
    """

    def __init__(self, cron: str, zone: str) -> None:
        """Parse the fields.

        Args:
            cron: five fields.
            zone: IANA name of a time zone.

        Raises:
            ValueError: if `cron` is not five fields.
        """
        self._cron = Cron.parse(cron)
        self._zone = ZoneInfo(zone)
        self._last_ms: int | None = None
        self._known_from_ms = self._known_until_ms = 0

    def last_ms(self, now_ms: int) -> int | None:
        """Return the latest time at or before `now_ms`, or None if there is none within five years."""
        if not self._known_from_ms <= now_ms < self._known_until_ms:
            self._last_ms = self._find_last(now_ms)
            self._known_from_ms = now_ms if self._last_ms is None else self._last_ms
            self._known_until_ms = self._find_next(now_ms)
        return self._last_ms

    def _find_last(self, now_ms: int) -> int | None:
        at_ms = now_ms - now_ms % _MINUTE_MS
        while at_ms > now_ms - _LONGEST_MS:
            local = self._local(at_ms)
            if not self._has_date(local):
                at_ms = self._midnight_ms(local.date()) - _MINUTE_MS
            elif local.hour not in self._cron.hours:
                at_ms -= (local.minute % 15 + 1) * _MINUTE_MS
            elif local.minute not in self._cron.minutes:
                at_ms -= _MINUTE_MS
            else:
                return at_ms
        return None

    def _find_next(self, now_ms: int) -> int:
        """Return the first time after `now_ms`, or a time five years later."""
        at_ms = now_ms - now_ms % _MINUTE_MS + _MINUTE_MS
        while at_ms < now_ms + _LONGEST_MS:
            local = self._local(at_ms)
            if not self._has_date(local):
                at_ms = self._midnight_ms(local.date() + timedelta(days=1))
            elif local.hour not in self._cron.hours:
                at_ms += (15 - local.minute % 15) * _MINUTE_MS
            elif local.minute not in self._cron.minutes:
                at_ms += _MINUTE_MS
            else:
                return at_ms
        return at_ms

    def _local(self, at_ms: int) -> datetime:
        return datetime.fromtimestamp(at_ms / 1000, self._zone)

    def _midnight_ms(self, day: date) -> int:
        return int(datetime(day.year, day.month, day.day, tzinfo=self._zone).timestamp() * 1000)

    def _has_date(self, local: datetime) -> bool:
        return self._cron.has_date(local.month, local.day, local.isoweekday() % 7)
