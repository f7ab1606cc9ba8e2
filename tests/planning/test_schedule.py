from __future__ import annotations

from datetime import datetime
from zoneinfo import ZoneInfo

import pytest

from state_store.planning.schedule import jitter_ms, last_occurrence_ms


def at(text: str, zone: str = "UTC") -> int:
    return int(datetime.fromisoformat(text).replace(tzinfo=ZoneInfo(zone)).timestamp() * 1000)


@pytest.mark.parametrize(
    ("cron", "now", "expected"),
    [
        ("0 3 * * *", "2026-03-10 12:00", "2026-03-10 03:00"),
        ("0 3 * * *", "2026-03-10 02:59", "2026-03-09 03:00"),
        ("0 3 * * *", "2026-03-10 03:00", "2026-03-10 03:00"),
        ("*/20 * * * *", "2026-03-10 12:59", "2026-03-10 12:40"),
        ("5 8-10/2 * * *", "2026-03-10 09:30", "2026-03-10 08:05"),
        ("0 3 * * 0", "2026-03-10 12:00", "2026-03-08 03:00"),
        ("0 3 * * 7", "2026-03-10 12:00", "2026-03-08 03:00"),
        ("0 0 1 1 *", "2026-03-10 12:00", "2026-01-01 00:00"),
        ("0 0 29 2 *", "2026-03-10 12:00", "2024-02-29 00:00"),
        ("0 0 13 * 5", "2026-03-10 12:00", "2026-03-06 00:00"),
        ("0 0 13,9 * 5", "2026-03-10 12:00", "2026-03-09 00:00"),
    ],
)
def test_the_last_time_that_the_fields_name(cron: str, now: str, expected: str) -> None:
    assert last_occurrence_ms(cron, "UTC", at(now)) == at(expected)


def test_a_day_that_never_comes() -> None:
    assert last_occurrence_ms("0 0 30 2 *", "UTC", at("2026-03-10 12:00")) is None


def test_times_are_those_of_the_zone() -> None:
    now = at("2026-07-01 12:00")
    assert last_occurrence_ms("0 3 * * *", "Europe/Berlin", now) == at("2026-07-01 01:00")
    assert last_occurrence_ms("0 3 * * *", "America/New_York", now) == at("2026-07-01 07:00")


def test_an_hour_that_daylight_saving_skips_does_not_occur() -> None:
    now = at("2026-03-29 12:00", "Europe/Berlin")
    assert last_occurrence_ms("30 2 * * *", "Europe/Berlin", now) == at("2026-03-28 02:30", "Europe/Berlin")


def test_an_hour_that_daylight_saving_repeats_occurs_twice() -> None:
    first, second = at("2026-10-25 00:30"), at("2026-10-25 01:30")
    assert last_occurrence_ms("30 2 * * *", "Europe/Berlin", second - 1) == first
    assert last_occurrence_ms("30 2 * * *", "Europe/Berlin", second) == second


def test_each_partition_has_its_own_jitter_and_keeps_it() -> None:
    delays = [jitter_ms(600_000, "run", 0, partition) for partition in range(200)]
    assert delays == [jitter_ms(600_000, "run", 0, partition) for partition in range(200)]
    assert all(0 <= delay < 600_000 for delay in delays)
    tenths = {delay // 60_000 for delay in delays}
    assert tenths == set(range(10))
    assert jitter_ms(0, "run") == 0
