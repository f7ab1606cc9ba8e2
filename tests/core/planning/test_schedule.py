from __future__ import annotations

import random
from datetime import datetime
from zoneinfo import ZoneInfo

import pytest

from state_store.core.planning.policy import Schedule, jitter
from state_store.core.settings.option import Cron

MINUTE_MS = 60_000
DAY_MS = 1440 * MINUTE_MS


def at(text: str, zone: str = "UTC") -> int:
    return int(datetime.fromisoformat(text).replace(tzinfo=ZoneInfo(zone)).timestamp() * 1000)


def last_ms(cron: str, zone: str, now_ms: int) -> int | None:
    return Schedule(cron, zone).last_ms(now_ms)


@pytest.mark.parametrize(
    ("cron", "now", "expected"),
    [
        ("0 3 * * *", "2026-03-10 12:00", "2026-03-10 03:00"),
        ("0 3 * * *", "2026-03-10 02:59", "2026-03-09 03:00"),
        ("0 3 * * *", "2026-03-10 03:00", "2026-03-10 03:00"),
        ("*/20 * * * *", "2026-03-10 12:59", "2026-03-10 12:40"),
        ("5/20 * * * *", "2026-03-10 12:59", "2026-03-10 12:45"),
        ("5 8-10/2 * * *", "2026-03-10 09:30", "2026-03-10 08:05"),
        ("0 3 * * 0", "2026-03-10 12:00", "2026-03-08 03:00"),
        ("0 3 * * 7", "2026-03-10 12:00", "2026-03-08 03:00"),
        ("0 0 1 1 *", "2026-03-10 12:00", "2026-01-01 00:00"),
        ("0 0 29 2 *", "2026-03-10 12:00", "2024-02-29 00:00"),
        ("0 0 13 * 5", "2026-03-10 12:00", "2026-03-06 00:00"),
        ("0 0 13,9 * 5", "2026-03-10 12:00", "2026-03-09 00:00"),
    ],
)
def test_the_last_time_that_the_fields_name_is_found(cron: str, now: str, expected: str) -> None:
    assert last_ms(cron, "UTC", at(now)) == at(expected)


def test_a_schedule_of_a_day_that_never_comes_is_never_due() -> None:
    assert last_ms("0 0 30 2 *", "UTC", at("2026-03-10 12:00")) is None


def test_times_are_those_of_the_zone() -> None:
    now = at("2026-07-01 12:00")
    assert last_ms("0 3 * * *", "Europe/Berlin", now) == at("2026-07-01 01:00")
    assert last_ms("0 3 * * *", "America/New_York", now) == at("2026-07-01 07:00")


def test_an_hour_that_daylight_saving_skips_does_not_occur() -> None:
    now = at("2026-03-29 12:00", "Europe/Berlin")
    assert last_ms("30 2 * * *", "Europe/Berlin", now) == at("2026-03-28 02:30", "Europe/Berlin")


def test_an_hour_that_daylight_saving_repeats_occurs_twice() -> None:
    first, second = at("2026-10-25 00:30"), at("2026-10-25 01:30")
    assert last_ms("30 2 * * *", "Europe/Berlin", second - 1) == first
    assert last_ms("30 2 * * *", "Europe/Berlin", second) == second


@pytest.mark.parametrize("zone", ["UTC", "Europe/Berlin", "Australia/Lord_Howe", "America/Havana"])
def test_a_schedule_answers_as_a_walk_over_all_minutes_does(zone: str) -> None:
    """Also when asked again and again, later and earlier, around both changes of the clocks."""
    chance = random.Random(zone)
    for cron in ("* * * * *", "*/7 1,2 * * *", "30 0-3 * * *", "15 2 * * 0", "0 0 8 3 *", "59 23 * * 6"):
        schedule, fields = Schedule(cron, zone), Cron.parse(cron)
        for middle in (
            at("2026-03-08 07:00"),
            at("2026-03-29 01:00"),
            at("2026-10-25 01:00"),
            at("2026-11-01 05:00"),
        ):
            begin_ms, expected, times = middle - 2 * DAY_MS, None, {}
            for now_ms in range(begin_ms, middle + 2 * DAY_MS, MINUTE_MS):
                local = datetime.fromtimestamp(now_ms / 1000, ZoneInfo(zone))
                named = local.minute in fields.minutes and local.hour in fields.hours
                if named and fields.has_date(local.month, local.day, local.isoweekday() % 7):
                    expected = now_ms
                if expected is not None:
                    times[now_ms] = expected
            for now_ms in chance.sample(sorted(times), min(40, len(times))):
                assert schedule.last_ms(now_ms + 59_999) == times[now_ms], (cron, zone, now_ms)


@pytest.mark.parametrize(("cron", "searches"), [("* * * * *", 3), ("0 3 * * *", 1), ("0 0 30 2 *", 1)])
def test_between_two_times_nothing_is_computed(
    monkeypatch: pytest.MonkeyPatch, cron: str, searches: int
) -> None:
    made = 0

    class Counted(Schedule):
        def _find_last(self, now_ms: int) -> int | None:
            nonlocal made
            made += 1
            return super()._find_last(now_ms)

    schedule = Counted(cron, "UTC")
    for second in range(180):
        schedule.last_ms(at("2026-03-10 12:00") + second * 1000)
    assert made == searches


def test_a_time_counts_from_its_very_millisecond() -> None:
    schedule = Schedule("0 3 * * *", "UTC")
    three = at("2026-03-10 03:00")
    assert schedule.last_ms(three - 1) == at("2026-03-09 03:00")
    assert schedule.last_ms(three) == three


def test_each_partition_has_its_own_jitter_and_keeps_it() -> None:
    delays = [jitter(600_000, "run", 0, partition) for partition in range(200)]
    assert delays == [jitter(600_000, "run", 0, partition) for partition in range(200)]
    assert all(0 <= delay < 600_000 for delay in delays)
    tenths = {delay // 60_000 for delay in delays}
    assert tenths == set(range(10))
    assert jitter(0, "run") == 0
