"""What restores are predicted to take, once some were measured."""

from __future__ import annotations

import pytest

from state_store.planning.cost import CostModel, Rate, RestoreWork

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


def test_deltas_beside_the_database_cost_what_files_cost_and_ingested_ones_more() -> None:
    cost = learned(0.05)
    beside_ms = cost.predict_restore_ms(work(8, deltas=4))
    assert beside_ms == cost.predict_restore_ms(work(8))
    cost.ingests = True
    assert cost.predict_restore_ms(work(8, deltas=4)) > beside_ms + 4


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
