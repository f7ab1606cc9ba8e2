"""Moments are read and written by one rule."""

from __future__ import annotations

import contextlib
import datetime
import io
import os
import re
import time
import zoneinfo

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

import state_store
from dataset.golden_states import checkpoint
from state_store.cli.main import main
from state_store.data.dataset.moments import (
    as_moment,
    format_moment,
    format_moments,
    milliseconds_of,
    parse_moment,
)
from state_store.errors import MissingError, OptionError

UTC = datetime.timezone.utc
EIGHT = datetime.datetime(2024, 2, 29, 8, tzinfo=UTC)
NAMES = ("UTC", "Asia/Tokyo", "Europe/Berlin", "America/New_York", "Asia/Kolkata", "Australia/Lord_Howe")
ZONES = st.sampled_from(NAMES).map(zoneinfo.ZoneInfo)
YEARS_MS = st.integers(-(10**12), 4 * 10**12)


@pytest.mark.parametrize(
    "text",
    [
        "2024-02-29 08:00",
        "2024-02-29T08:00:00",
        "2024-02-29T08:00:00.000Z",
        "2024-02-29 08:00:00,0 UTC",
        "2024-02-29 09:00+01",
        "2024-02-29T03:00:00-0500",
        "2024-02-29 13:30:00.000000000+05:30",
        "1709193600",
        "1709193600.0",
        "1709193600000",
        "1709193600000000",
        "@1709193600",
        "2 hours ago",
        "120 min",
        "7200s ago",
        "0.08333333333333333 days ago",
    ],
)
def test_texts_of_a_moment_are_read(text):
    assert abs(parse_moment(text, UTC, EIGHT + datetime.timedelta(hours=2)) - EIGHT) < datetime.timedelta(
        seconds=1
    )


def test_days_are_read():
    assert parse_moment("2024-02-29", UTC) == parse_moment("today", UTC, EIGHT) == EIGHT.replace(hour=0)
    assert parse_moment("yesterday", UTC, EIGHT) == datetime.datetime(2024, 2, 28, tzinfo=UTC)
    assert parse_moment("now", UTC, EIGHT) == EIGHT


@pytest.mark.parametrize(
    "text",
    ["", " ", "soon", "5", "2024", "2024-13-01", "2024-02-30 08:00", "01/02/2024", "9" * 40, "1e400", "ago"],
)
def test_texts_of_no_moment_are_refused(text):
    with pytest.raises(OptionError, match="is not a moment"):
        parse_moment(text)


@pytest.mark.parametrize("value", [None, True, b"2024-02-29", [], 1j])
def test_values_of_no_moment_are_refused(value):
    with pytest.raises(OptionError, match="is not a moment"):
        as_moment(value)


def test_values_of_a_moment_are_read():
    assert as_moment(EIGHT) == as_moment(EIGHT.replace(tzinfo=None), UTC) == as_moment(1709193600) == EIGHT
    assert as_moment(datetime.date(2024, 2, 29), UTC) == EIGHT.replace(hour=0)
    assert as_moment(1709193600.25) == EIGHT + datetime.timedelta(milliseconds=250)


@given(YEARS_MS, ZONES, ZONES)
def test_a_printed_moment_is_the_same_when_it_is_read(moment, written_in, read_in):
    assert milliseconds_of(parse_moment(format_moment(moment, written_in), read_in)) == moment


@given(st.lists(YEARS_MS, max_size=5), ZONES)
def test_moments_of_a_column_are_the_same_when_they_are_read(moments, zone):
    """Texts need the offset of the heading in other zones only."""
    offset, texts = format_moments(moments, zone)
    assert [milliseconds_of(parse_moment(text, zone)) for text in texts] == moments
    assert [milliseconds_of(parse_moment(text + offset, UTC)) for text in texts] == moments


def test_the_repeated_hour_has_its_offset():
    first = milliseconds_of(datetime.datetime(2024, 10, 27, 0, 30, tzinfo=UTC))
    offset, texts = format_moments([first + 3_600_000], zoneinfo.ZoneInfo("Europe/Berlin"))
    assert (offset, texts) == ("", ["2024-10-27 02:30:00.000+01:00"])


BERLIN = zoneinfo.ZoneInfo("Europe/Berlin")
HAVANA = zoneinfo.ZoneInfo("America/Havana")


@pytest.mark.parametrize("is_local", [False, True])
@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("2024-03-31 02:00", "skipped it"),
        ("2024-03-31T02:59:59.999", "skipped it"),
        (
            "2024-10-27 02:00",
            r"showed it twice, at 2024-10-27 02:00:00\+02:00 and 2024-10-27 02:00:00\+01:00",
        ),
        ("2024-10-27 02:59:59", "showed it twice.*add the offset"),
    ],
)
def test_times_that_clocks_skip_or_show_twice_are_refused(local_zone, text, says, is_local):
    local_zone("Europe/Berlin")
    with pytest.raises(OptionError, match=says):
        parse_moment(text, None if is_local else BERLIN)
    assert parse_moment(f"{text}+01:00", BERLIN).utcoffset() == datetime.timedelta(hours=1)


def test_times_beside_a_change_of_clocks_are_read(local_zone):
    local_zone("Europe/Berlin")
    for zone in (None, BERLIN):
        for text, utc_hour in (
            ("2024-03-31 01:59", 0),
            ("2024-03-31 03:00", 1),
            ("2024-10-27 01:59", 23),
            ("2024-10-27 03:00", 2),
        ):
            assert parse_moment(text, zone).astimezone(UTC).hour == utc_hour, (text, zone)
        with pytest.raises(OptionError, match="skipped it"):
            as_moment(datetime.datetime(2024, 3, 31, 2, 30), zone)
        for fold in (0, 1):
            again = datetime.datetime(2024, 10, 27, 2, 30, fold=fold)
            assert as_moment(again, zone).astimezone(UTC).hour == fold


def test_a_day_begins_with_its_first_moment(local_zone):
    """Clocks in Havana skip the midnight of 10 March, and show that of 3 November twice."""
    local_zone("America/Havana")
    now = datetime.datetime(2024, 3, 10, 12, tzinfo=UTC)
    for zone in (None, HAVANA):
        first = [
            as_moment("2024-03-10", zone),
            as_moment(datetime.date(2024, 3, 10), zone),
            parse_moment("today", zone, now),
            parse_moment("2024-11-03", zone),
        ]
        found = [moment.astimezone(UTC).isoformat()[:16] for moment in first]
        assert found == [*["2024-03-10T05:00"] * 3, "2024-11-03T04:00"], zone


def test_the_last_moment_of_the_calendar_is_later_than_all(local_zone):
    local_zone("UTC")
    for zone in (None, UTC, zoneinfo.ZoneInfo("America/New_York")):
        for last in (datetime.datetime.max, "9999-12-31 23:00", datetime.date.max):
            assert as_moment(last, zone).year == 9999


def test_a_moment_that_no_calendar_has_is_a_number():
    assert format_moment(2**62, UTC) == str(2**62)


@pytest.fixture
def local_zone():
    before = os.environ.get("TZ")

    def set_to(name: str) -> None:
        os.environ["TZ"] = name
        time.tzset()

    yield set_to
    os.environ.pop("TZ") if before is None else os.environ.update(TZ=before)
    time.tzset()


@pytest.mark.parametrize("zone", NAMES)
def test_a_printed_time_names_its_version(tmp_path, local_zone, zone):
    """In any local zone, for every version that Spark's log still has."""
    local_zone(zone)
    directory = checkpoint("flights", tmp_path)
    logs = sorted(
        (path for path in (directory / "commits").iterdir() if path.name.isdigit()),
        key=lambda path: int(path.name),
    )
    for number, path in enumerate(logs):
        os.utime(path, ns=(0, (1_709_190_000_000 + 333 * number) * 1_000_000))
    for key in state_store.checkpoints(str(directory)).values():
        for found in key:
            for text in (format_moment(found.made_ms), format_moment(found.made_ms, UTC)):
                if (
                    found.made_ms < 1_800_000_000_000
                    and (directory / f"commits/{found.version.number - 1}").exists()
                ):
                    with state_store.open(str(directory), at=text) as state:
                        assert state.version == found.version.number
    with pytest.raises(MissingError, match="the oldest batch"):
        state_store.open(str(directory), at="2020-01-01")


PRINTED = re.compile(r"(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d(?:\.\d{3})?)([+-]\d\d:\d\d)?")
COMMANDS = {"checkpoints": (), "history": ("C1",), "chain": ("--partition", "0")}
"""Commands that print the times of versions, with their arguments after the checkpoint."""


@pytest.fixture(scope="module")
def directory(tmp_path_factory):
    return checkpoint("flights", tmp_path_factory.mktemp("states"))


def printed_by(*words: object) -> str:
    """Return what a command prints to a pipe."""
    shown = io.StringIO()
    with contextlib.redirect_stdout(shown):
        assert main([str(word) for word in words]) == 0
    return shown.getvalue()


@settings(max_examples=12, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    committed=st.lists(st.integers(10**9, 17 * 10**11), min_size=4, max_size=4, unique=True).map(sorted),
    command=st.sampled_from(sorted(COMMANDS)),
    zones=st.tuples(st.sampled_from(NAMES), st.sampled_from(NAMES)),
    utc=st.sampled_from([(), ("--utc",)]),
)
@example(
    committed=[1_729_985_400_000, 1_729_987_200_000, 1_729_989_000_000, 1_729_990_800_250],
    command="checkpoints",
    zones=("Europe/Berlin", "Asia/Kolkata"),
    utc=(),
).via("the hour that is repeated when summer time ends")
@pytest.mark.tier("more")
def test_a_time_that_a_command_prints_names_the_version_when_it_is_given_back(
    directory, local_zone, committed, command, zones, utc
):
    """As it stands in the zone where it was printed, and with the offset that is printed with it in any."""
    for number, moment_ms in enumerate(committed):
        os.utime(directory / f"commits/{number}", ns=(0, moment_ms * 1_000_000))
    local_zone(zones[0])
    text = printed_by(command, directory, *COMMANDS[command], *utc)
    of_all = re.search(r"\(([+-]\d\d:\d\d)\)", text)
    found = 0
    for line in text.splitlines():
        version = re.search(r"(?:^ *|version )([1-4])\b", line)
        time_ = PRINTED.search(line)
        if version is None or time_ is None:
            continue
        found += 1
        offset = time_[2] or of_all[1]
        local_zone(zones[0])
        shown = printed_by("show", directory, "--at", time_[0], *utc)
        assert f" of version {version[1]}\n" in shown
        local_zone(zones[1])
        assert f" of version {version[1]}\n" in printed_by("show", directory, "--at", f"{time_[1]}{offset}")
    assert found == 4
