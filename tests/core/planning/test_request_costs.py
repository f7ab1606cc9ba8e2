"""Measured times of requests to remote storage, one by one and many together."""

from __future__ import annotations

import contextlib

import pytest

from state_store.core.files.sparse import end_bytes
from state_store.core.planning.cost import (
    DOWNLOAD,
    LIST,
    PART,
    READ,
    CostModel,
    LazyPolicy,
    RemoteTransfers,
    RequestTimes,
    RestoreWork,
)
from state_store.core.settings.options import parse

MIB = 1 << 20
EXPECTED_MIB_MS = 40.0


def seen(*requests: tuple[str, int, float]) -> RequestTimes:
    times = RequestTimes(contextlib.nullcontext())
    for request in requests:
        times.observe(*request)
    return times


def remote(times: RequestTimes, threads: int = 8) -> RemoteTransfers:
    return RemoteTransfers(times, threads, 8 * MIB, MIB)


def line(kind: str, size_bytes: int) -> tuple[str, int, float]:
    """Return a request of 30 ms and 10 ms a MiB."""
    return kind, size_bytes, 30 + 10 * size_bytes / MIB


USUAL = [*[(LIST, 0, 15.0)] * 2, line(READ, 20_000), *[line(PART, 8 * MIB)] * 8, line(DOWNLOAD, 2 * MIB)]


def test_a_request_has_a_time_of_its_own_and_one_for_each_byte() -> None:
    times = seen(*USUAL)
    for kind, size_bytes in ((PART, 8 * MIB), (PART, MIB), (DOWNLOAD, 4 * MIB), (READ, 64 << 10)):
        assert times.line(kind, EXPECTED_MIB_MS).ms(size_bytes) == pytest.approx(
            line(kind, size_bytes)[2], rel=0.1
        )
    assert times.line(LIST, EXPECTED_MIB_MS).ms(MIB) == pytest.approx(15.0)


def test_a_listing_tells_of_requests_until_there_were_others() -> None:
    times = seen((LIST, 0, 15.0))
    assert times.line(PART, 7.0).ms(10 * MIB) == 30 + 70


def test_requests_of_a_kind_may_take_longer_than_others() -> None:
    times = seen(*USUAL, *[(READ, 64 << 10, 130.6)] * 40)
    assert times.line(READ, EXPECTED_MIB_MS).ms(64 << 10) == pytest.approx(130.6, rel=0.02)
    assert times.line(PART, EXPECTED_MIB_MS).ms(8 * MIB) == pytest.approx(110.0, rel=0.01)


def test_recent_requests_count_most() -> None:
    times = seen(*[(READ, 64 << 10, 500.0)] * 100, *[(READ, 64 << 10, 5.0)] * 150)
    assert times.line(READ, EXPECTED_MIB_MS).ms(64 << 10) < 15


def test_a_copy_does_not_learn() -> None:
    times = seen(*USUAL)
    before, was = times.copy(), times.line(PART, EXPECTED_MIB_MS)
    times.observe(PART, 8 * MIB, 5000.0)
    times.observe_ends(10, 20)
    assert before.requests_per_end == 1 < times.requests_per_end
    assert before.line(PART, EXPECTED_MIB_MS) == was != times.line(PART, EXPECTED_MIB_MS)


@pytest.mark.parametrize(
    ("sizes", "ms"),
    [
        ([64 * MIB], 110),
        ([72 * MIB], 220),
        ([64 * MIB, MIB], 110 + 40),
        ([32 * MIB, *[MIB] * 8], 110),
        ([MIB] * 8, 40),
        ([MIB] * 9, 80),
        ([MIB, *[1000] * 3], 40),
        ([], 0),
    ],
)
def test_as_many_go_on_at_a_time_as_there_are_threads(sizes: list[int], ms: float) -> None:
    assert remote(seen(*USUAL)).files_ms(sizes, EXPECTED_MIB_MS) == pytest.approx(ms, rel=0.1)


def test_small_deltas_come_beside_the_ends() -> None:
    storage = remote(seen(*USUAL))
    ends_ms = storage.ends_ms([64 * MIB] * 8, [1000] * 8, end_bytes, EXPECTED_MIB_MS)
    assert ends_ms == pytest.approx(30 + 20, rel=0.1)
    many_ms = storage.ends_ms([64 * MIB] * 8, [1000] * 24, end_bytes, EXPECTED_MIB_MS)
    assert many_ms == pytest.approx(3 * 30, rel=0.1)
    storage.times.observe_ends(1000, 2000)
    twice_ms = storage.ends_ms([64 * MIB] * 8, [1000] * 8, end_bytes, EXPECTED_MIB_MS)
    assert twice_ms == pytest.approx(ends_ms + 30, rel=0.1)


def test_ends_come_more_at_a_time_than_parts() -> None:
    storage = remote(seen(line(PART, 64 << 10)))

    def ends_ms(files: int) -> float:
        return storage.ends_ms([2 * MIB] * files, [], end_bytes, EXPECTED_MIB_MS)

    assert ends_ms(16) == ends_ms(1)
    assert ends_ms(17) == 2 * ends_ms(1)


def test_a_restore_is_lazy_by_what_requests_take() -> None:
    options = parse({"restoreMode": "auto", "restoreObjective": "1s"})

    def model(factor: float) -> CostModel:
        times = seen(*[(kind, size_bytes, ms * factor) for kind, size_bytes, ms in USUAL])
        found = CostModel(remote=remote(times))
        found.lazy_policy = LazyPolicy.of(options, end_bytes)
        return found

    work = RestoreWork.of_sizes([512 * MIB], [2 * MIB, 1000], archives=2)
    quick, slow = model(1.0), model(2.0)
    assert (quick.is_lazy(work), slow.is_lazy(work)) == (False, True)
    assert quick.predict_restore_ms(work) == pytest.approx(2 * 15 + 30 + 8 * 110 + 50, rel=0.1)
    assert slow.predict_restore_ms(work) == pytest.approx(2 * ((2 + 4) * 15 + 30 + 30 + 160), rel=0.1)


def test_the_time_of_a_choice_beyond_its_requests_is_computed() -> None:
    model = CostModel(remote=remote(seen(*USUAL)))
    work = RestoreWork.of_sizes([], [], archives=1)
    for _ in range(20):
        model.observe_choice(2 * 15 + 30 + 50, archives=1)
    assert model.predict_restore_ms(work) == pytest.approx(110, rel=0.05)


def test_a_forecast_is_not_moved_by_what_comes_after_it() -> None:
    times = seen(*USUAL)
    model = CostModel(remote=remote(times))
    work = RestoreWork.of_sizes([64 * MIB], [])
    forecast = model.frozen()
    before_ms = forecast.predict_restore_ms(work)
    times.observe(PART, 8 * MIB, 5000.0)
    assert forecast.predict_restore_ms(work) == before_ms < model.predict_restore_ms(work) / 2
