"""Moments as people write and read them: one rule for arguments, tables and messages.

Texts without a zone are in the local one, unless the caller names another. A printed moment has milliseconds
and the offset of its zone, so that it names the same version when it is parsed again.

The last part writes tables for notebooks.
"""

from __future__ import annotations

import html
import re
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from datetime import date, datetime, timedelta, timezone, tzinfo

from state_store.core.runtime import SYSTEM, Runtime
from state_store.errors import OptionError

Moment = datetime | date | str | int | float
"""A moment as callers give it: a `datetime` object, a text for `parse_moment`, or seconds since 1970 UTC."""

UNKNOWN = "unknown"
"""In place of the time of a version whose files are copies, and whose batch Spark's log has forgotten."""

EXAMPLES = "2024-02-29, 2024-02-29 08:00:00.5+01:00, 2024-02-29T07:00:00Z, 1709190000 or '2 hours ago'"

_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
_ISO = re.compile(
    r"(\d{4})-(\d{2})-(\d{2})"
    r"(?:[T ](\d{1,2}):(\d{2})(?::(\d{2})(?:[.,](\d{1,9}))?)?)?"
    r"\s*(Z|UTC|[+-]\d{2}(?::?\d{2}(?::?\d{2})?)?)?",
    re.IGNORECASE,
)
_AGO = re.compile(r"(\d+(?:\.\d+)?)\s*([a-z]+)(?:\s+ago)?", re.IGNORECASE)
_EPOCH_TEXT = re.compile(r"@?(-?\d{1,18})(\.\d{1,9})?")
_UNITS_S = {
    **dict.fromkeys(("ms", "millisecond", "milliseconds"), 0.001),
    **dict.fromkeys(("s", "sec", "second", "seconds"), 1),
    **dict.fromkeys(("m", "min", "minute", "minutes"), 60),
    **dict.fromkeys(("h", "hour", "hours"), 3600),
    **dict.fromkeys(("d", "day", "days"), 86_400),
    **dict.fromkeys(("w", "week", "weeks"), 604_800),
}
_SECONDS_END, _MILLISECONDS_END = 10**11, 10**14

_LONGEST = 80


def parse_moment(
    text: str, zone: tzinfo | None = None, now: datetime | None = None, runtime: Runtime = SYSTEM
) -> datetime:
    """Return the moment that a text names.

    Args:
        text: a date or a time in ISO 8601 with or without a fraction and a zone (a date is its midnight), a
            number of seconds, milliseconds or microseconds since 1970 UTC, `now`, `today`, `yesterday`, or a
            span such as `2 hours ago` or `90s`.
        zone: the zone of texts that name none; None is the local one.
        now: the moment from which spans count; None is the clock of `runtime`.
        runtime: the clock.

    Raises:
        OptionError: the text names no moment.
    """
    stripped_text = text.strip()
    present = now or _EPOCH + timedelta(milliseconds=runtime.wall_ms())
    try:
        moment = (
            _named(stripped_text.lower(), zone, present)
            or _iso(stripped_text, zone)
            or _since_1970(stripped_text)
            or _ago(stripped_text, present)
        )
    except (OverflowError, ValueError, OSError) as error:
        raise OptionError(f"'{text}' is not a moment: {error}") from error
    if moment is None:
        raise OptionError(f"'{text}' is not a moment, such as {EXAMPLES}")
    return moment


def as_moment(value: Moment, zone: tzinfo | None = None) -> datetime:
    """Return a moment that a caller gave, with a zone.

    Raises:
        OptionError: the value is not a moment.
    """
    if isinstance(value, date):
        try:
            if not isinstance(value, datetime):
                moment = _start(datetime(value.year, value.month, value.day), zone)
            else:
                moment = _in_zone(value, zone)
                if value.tzinfo is None and not _instants(value, zone):
                    raise ValueError("clocks skipped it when summer time began")
            _ = moment - _EPOCH
        except (OverflowError, ValueError, OSError) as error:
            raise OptionError(f"{value!r} is not a moment: {error}") from error
        return moment
    if isinstance(value, str):
        return parse_moment(value, zone)
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise OptionError(f"{value!r} is not a moment: give a datetime, a text or seconds since 1970 UTC")
    return parse_moment(f"@{value:.6f}" if isinstance(value, float) else f"@{value}", zone)


def format_moment(milliseconds: int, zone: tzinfo | None = None) -> str:
    """Return a moment as text: date, time with milliseconds, and the offset of the zone.

    `parse_moment` returns the same moment for it, in any zone. A moment outside of the years 1 to 9999 is its
    number.

    Args:
        milliseconds: since 1970 UTC.
        zone: the zone; None is the local one.
    """
    try:
        moment = (_EPOCH + timedelta(milliseconds=milliseconds)).astimezone(zone)
    except (OverflowError, ValueError, OSError):
        return str(milliseconds)
    return moment.isoformat(sep=" ", timespec="milliseconds")


def moment_or_unknown(milliseconds: int | None, zone: tzinfo | None = None) -> str:
    """Return a moment as `format_moment` does; None, which nobody knows, is `unknown`."""
    return UNKNOWN if milliseconds is None else format_moment(milliseconds, zone)


def latest(moments: Iterable[int | None]) -> int | None:
    """Return the latest of some moments; None if one of them is not known."""
    all_ms = list(moments)
    return (
        None if None in all_ms else max((each_ms for each_ms in all_ms if each_ms is not None), default=None)
    )


def format_moments(milliseconds: Sequence[int], zone: tzinfo | None = None) -> tuple[str, list[str]]:
    """Return the common offset of some moments, and their texts without it.

    The offset is empty, and each text has its own, if the offsets differ or if a text alone would be
    ambiguous, as in the hour that is repeated when summer time ends.
    """
    texts = [format_moment(moment, zone) for moment in milliseconds]
    offsets = {text[23:] for text in texts}
    if len(offsets) != 1:
        return "", texts
    short = [text[:23] for text in texts]
    try:
        again = [_milliseconds(_iso(text, zone)) for text in short]
    except ValueError:  # of the hour that is repeated when summer time ends
        return "", texts
    return (offsets.pop(), short) if again == list(milliseconds) else ("", texts)


def milliseconds_of(moment: datetime) -> int:
    """Return whole milliseconds since 1970 UTC, rounded down; a moment without a zone is in the local one."""
    return (_in_zone(moment, None) - _EPOCH) // timedelta(milliseconds=1)


def _milliseconds(moment: datetime | None) -> int | None:
    return None if moment is None else milliseconds_of(moment)


def _in_zone(moment: datetime, zone: tzinfo | None) -> datetime:
    if moment.tzinfo is not None:
        return moment
    return moment.replace(tzinfo=zone) if zone is not None else moment.astimezone()


def _named(text: str, zone: tzinfo | None, now: datetime) -> datetime | None:
    if text == "now":
        return now
    if text not in ("today", "yesterday"):
        return None
    day = now.astimezone(zone).replace(hour=0, minute=0, second=0, microsecond=0, tzinfo=None, fold=0)
    return _start(day - timedelta(days=text == "yesterday"), zone)


def _iso(text: str, zone: tzinfo | None) -> datetime | None:
    match = _ISO.fullmatch(text)
    if match is None:
        return None
    year, month, day, hour, minute, second = (int(part or 0) for part in match.groups()[:6])
    fraction = int((match[7] or "").ljust(6, "0")[:6])
    moment = datetime(year, month, day, hour, minute, second, fraction)
    if match[8] is not None:
        return _in_zone(moment, _offset(match[8].upper()))
    instants = _instants(moment, zone)
    if len(instants) == 1:
        return instants[0]
    if match[4] is None:
        return _start(moment, zone)
    name = "the local zone" if zone is None else f"the zone {zone}"
    if instants:
        texts = " and ".join(moment.isoformat(sep=" ") for moment in instants)
        raise ValueError(f"clocks in {name} showed it twice, at {texts}: add the offset")
    raise ValueError(f"clocks in {name} skipped it when summer time began: give another time, or an offset")


def _start(day: datetime, zone: tzinfo | None) -> datetime:
    """Return the first moment of a day, whose midnight clocks may skip or show twice."""
    instants = _instants(day, zone) or sorted(_both(day, zone), key=datetime.timestamp)[-1:]
    return instants[0].astimezone(timezone.utc).astimezone(zone)


def _both(moment: datetime, zone: tzinfo | None) -> list[datetime]:
    """Return what a time means by the offset before and after a change of clocks.

    It is one moment at the ends of the calendar, where the local zone has no second one.
    """
    meanings = [_in_zone(moment, zone)]
    with suppress(OverflowError, ValueError):
        meanings.append(_in_zone(moment.replace(fold=1 - moment.fold), zone))
    return meanings


def _instants(moment: datetime, zone: tzinfo | None) -> list[datetime]:
    """Return the moments at which clocks in a zone show a time, in order: none, one or two."""
    clock_time = moment.replace(fold=0)
    try:
        same = [
            at
            for at in _both(clock_time, zone)
            if at.astimezone(timezone.utc).astimezone(zone).replace(tzinfo=None, fold=0) == clock_time
        ]
    except (OverflowError, ValueError):  # at an end of the calendar
        return [_in_zone(clock_time, zone)]
    return sorted({at.timestamp(): at for at in reversed(same)}.values(), key=datetime.timestamp)


def _offset(text: str) -> tzinfo:
    if text in ("Z", "UTC"):
        return timezone.utc
    padded = text[1:].replace(":", "").ljust(6, "0")
    hours, minutes, seconds = (int(padded[start : start + 2]) for start in (0, 2, 4))
    span = timedelta(hours=hours, minutes=minutes, seconds=seconds)
    return timezone(-span if text[0] == "-" else span)


def _since_1970(text: str) -> datetime | None:
    match = _EPOCH_TEXT.fullmatch(text)
    if match is None or (len(match[1]) < 9 and not text.startswith("@")):
        return None
    number = int(match[1])
    unit = 1 if abs(number) < _SECONDS_END else 1000 if abs(number) < _MILLISECONDS_END else 1_000_000
    fraction = timedelta(microseconds=int(float(match[2] or 0) * 1_000_000 // unit))
    seconds, rest = divmod(number, unit)
    return _EPOCH + timedelta(seconds=seconds, microseconds=rest * (1_000_000 // unit)) + fraction


def _ago(text: str, now: datetime) -> datetime | None:
    match = _AGO.fullmatch(text)
    if match is None or match[2].lower() not in _UNITS_S:
        return None
    return now - timedelta(seconds=float(match[1]) * _UNITS_S[match[2].lower()])


def table(title: str, headings: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Return an HTML table below a line of text. Texts are escaped and shortened."""
    head = "".join(f"<th>{html.escape(text)}</th>" for text in headings)
    body = "".join(f"<tr>{''.join(f'<td>{_cell(text)}</td>' for text in row)}</tr>" for row in rows)
    return f"<p>{html.escape(title)}</p><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def cells(row: Mapping[str, object], units: Mapping[str, str]) -> list[object]:
    """Return the values of a row. Moments, which are numbers since 1970, become texts.

    Args:
        row: the values by column.
        units: `ms` or `us` for each column that is a moment in numbers since 1970 UTC; negative is never.
    """
    return [
        _moment(value, units[name]) if name in units and isinstance(value, int) else value
        for name, value in row.items()
    ]


def _moment(value: int, unit: str) -> str:
    return "never" if value < 0 else format_moment(value if unit == "ms" else value // 1000)


def _cell(value: object) -> str:
    text = "" if value is None else str(value)
    return html.escape(text if len(text) <= _LONGEST else f"{text[: _LONGEST - 3]}...")
