"""Predicted times of restores after some were measured."""

from __future__ import annotations

import pytest

from state_store.core.files.sparse import end_bytes
from state_store.core.planning.cost import CostModel, LazyPolicy, Rate, RestoreWork
from state_store.core.settings.options import parse

MIB = 1 << 20


def work(files: int, deltas: int = 0) -> RestoreWork:
    return RestoreWork(files, files * 8 * MIB, deltas)


def learned(fetch_ms_of_a_file: float, *, check_ms: float = 0.05, times: int = 12) -> CostModel:
    """After restores of 8 files."""
    cost = CostModel()
    for _ in range(times):
        cost.observe_choice(2.0)
        cost.observe_fetch(8, 64 * MIB, 8 * fetch_ms_of_a_file)
        cost.observe_verification(8, 64 * MIB, 8 * check_ms, thorough=False)
    return cost


@pytest.mark.parametrize("files", [4, 8, 80])
@pytest.mark.parametrize("fetch_ms", [0.05, 40.0], ids=["links", "downloads"])
def test_a_prediction_agrees_with_what_was_measured(files: int, fetch_ms: float) -> None:
    measured_ms = 2.0 + files * (fetch_ms + 0.05)
    assert learned(fetch_ms).predict_restore_ms(work(files)) == pytest.approx(measured_ms, rel=0.3, abs=1.0)


@pytest.mark.parametrize(
    ("files", "mib", "measured_ms"), [(138, 6_000, 5.0), (993, 120, 28.0), (80, 100, 5.0)]
)
def test_links_cost_by_the_number_of_files_and_not_of_bytes(files: int, mib: int, measured_ms: float) -> None:
    """Use the times of the first restores of stores on a local disk."""
    predicted_ms = CostModel(is_local=True).predict_restore_ms(RestoreWork(files, mib * MIB, 0))
    assert predicted_ms == pytest.approx(measured_ms, rel=0.3, abs=4.0)
    small_ms = CostModel(is_local=True).predict_restore_ms(RestoreWork(files, mib * MIB // 100, 0))
    assert predicted_ms == pytest.approx(small_ms, rel=0.3, abs=4.0)


def test_deltas_cost_what_other_files_cost() -> None:
    cost = learned(0.05)
    assert cost.predict_restore_ms(work(8, deltas=4)) == cost.predict_restore_ms(work(8))


def test_bytes_are_verified_only_where_restores_are_thorough() -> None:
    by_blocks, thorough = CostModel(), CostModel(thorough=True)
    for cost in (by_blocks, thorough):
        cost.observe_verification(8, 64 * MIB, 300.0, thorough=True)
    few_ms, many_ms = (cost.predict_restore_ms(work(80)) for cost in (by_blocks, thorough))
    assert many_ms - few_ms > 2000


def test_the_prior_fades() -> None:
    rate = Rate(100.0, 16)
    assert rate.ms_per_unit == 100.0
    for _ in range(30):
        rate.observe(1, 1.0)
    assert rate.ms_per_unit == pytest.approx(1.0, rel=0.5)


def test_nothing_tells_nothing() -> None:
    rate = Rate(3.0, 2)
    rate.observe(0, 50.0)
    rate.observe(-1, 50.0)
    assert rate.ms_per_unit == 3.0


def test_uploads_tell_until_something_was_fetched() -> None:
    cost = CostModel()
    before_ms = cost.predict_restore_ms(work(80))
    for _ in range(10):
        cost.observe_upload(8, 64 * MIB, 8000.0)
    uploaded_ms = cost.predict_restore_ms(work(80))
    for _ in range(10):
        cost.observe_fetch(8, 64 * MIB, 0.5)
        cost.observe_upload(8, 64 * MIB, 8000.0)
    assert uploaded_ms > 10 * before_ms > 10 * cost.predict_restore_ms(work(80))


def lazy(cost: CostModel, **texts: str) -> CostModel:
    options = parse({"restoreMode": "lazy", **texts})
    cost.lazy_policy = LazyPolicy.of(options, end_bytes)
    return cost


def test_a_lazy_restore_costs_by_files_and_their_ends() -> None:
    cost, eager = lazy(learned(40.0)), learned(40.0)
    large = work(320)
    assert cost.predict_restore_ms(large) < eager.predict_restore_ms(large) / 5
    ends = RestoreWork(large.files, large.files * end_bytes(8 * MIB), 0)
    assert cost.predict_restore_ms(large) == eager.predict_restore_ms(ends)


def test_thorough_restores_and_those_of_local_storage_are_not_lazy() -> None:
    for cost in (CostModel(thorough=True), CostModel(is_local=True)):
        before_ms = cost.predict_restore_ms(work(320))
        assert lazy(cost).predict_restore_ms(work(320)) == before_ms
        assert not cost.is_lazy(work(320))


def test_by_itself_a_restore_is_lazy_where_it_would_take_longer_than_the_objective() -> None:
    slow, quick = (lazy(learned(ms), restoreMode="auto", restoreObjective="4s") for ms in (80.0, 8.0))
    assert [slow.is_lazy(work(files)) for files in (40, 60)] == [False, True]
    assert [quick.is_lazy(work(files)) for files in (400, 600)] == [False, True]
    assert lazy(slow, restoreMode="lazy").is_lazy(work(1))
    assert not lazy(slow, restoreMode="lazy").is_lazy(work(0))
    assert not lazy(slow, restoreMode="auto", restoreObjective="0").is_lazy(work(1000))
    assert not lazy(slow, restoreMode="eager").is_lazy(work(1000))
