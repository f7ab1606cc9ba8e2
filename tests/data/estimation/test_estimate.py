"""Estimates against the agent's results: bytes and files within a tenth, for several key distributions."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import replace
from pathlib import Path
from statistics import mean
from unittest import mock

import pytest

import state_store
from estimation.histories import INTERVAL_MS, KEY_BYTES, VALUE_BYTES, History, Writes
from state_store.core.checkpoint.registry import NEWEST_DELTAS, NEWEST_MERGED, NO_VERSION, OLDER_DELTAS
from state_store.core.engine.database import DatabaseSettings
from state_store.core.planning.cost import CostModel, RestoreWork
from state_store.core.settings.options import parse
from state_store.data.estimation.estimate import AHEAD_BYTES, Estimate, Prices, SimulatedStore, estimate
from state_store.data.estimation.workload import Workload
from state_store.errors import OptionError

KEYS, RETAIN, FULL_EVERY, BATCHES = 4_000, 10, 30, 100
OPTIONS = {"maxDeltas": "6", "fullAfterDeltas": str(FULL_EVERY), "fullScheduleJitter": "0"}
WRITES = {
    "few keys, all alike": lambda: Writes(KEYS, 80),
    "many keys, all alike": lambda: Writes(KEYS, 800),
    "some keys far more often": lambda: Writes(KEYS, 500, exponent=1.3),
    "new keys come and old ones go": lambda: Writes(KEYS, 120, new=120),
}
LARGE = {"maxDeltas": "20", "fullAfterDeltas": "0", "retainedOlderBytes": "1m"}
LARGE_KEYS, LARGE_RETAIN, LARGE_BATCHES = 30_000, 40, 250
WORKLOAD = Workload(1_000_000, 24, 120, 20_000, partitions=10)


@pytest.fixture(scope="module", params=WRITES)
def history(request, tmp_path_factory) -> History:
    """A query that has run for three full checkpoints."""
    root = tmp_path_factory.mktemp("history") / "checkpoint"
    made = History(root, WRITES[request.param](), RETAIN, OPTIONS)
    made.run(BATCHES)
    return made


@pytest.fixture(scope="module")
def large(tmp_path_factory) -> History:
    """A job that is large for its files, as one of terabytes is for files of 32 MiB: they grow with it, and
    versions before a full checkpoint go for their size.
    """
    root = tmp_path_factory.mktemp("large") / "checkpoint"
    made = History(root, Writes(LARGE_KEYS, LARGE_KEYS // 50), LARGE_RETAIN, LARGE, file_bytes=16 << 10)
    made.run(LARGE_BATCHES)
    return made


def of(history: History, workload: Workload, options: dict[str, str], **how) -> Estimate:
    """Estimate with the history's settings of databases, and a clean-up after each batch."""
    settings = DatabaseSettings(threads=1, file_bytes=history.file_bytes)
    with mock.patch("state_store.data.estimation.estimate.DatabaseSettings", lambda: settings):
        return estimate(workload, options, retain=history.retain, maintenance_ms=INTERVAL_MS, **how)


def ratios(found: Estimate, history: History, batches: slice) -> dict[str, float]:
    """Return the figures of an estimate as multiples of those that these batches had."""
    made = history.batches[batches]
    asked, a_minute = sum((batch.requests for batch in made), Counter()), found.requests_per_minute
    minutes = len(made) * INTERVAL_MS / 60_000
    return {
        "bytes": found.stored_bytes.average / mean(batch.size_bytes for batch in made),
        "files": found.stored_files.average / mean(batch.files for batch in made),
        "uploaded": found.upload_bytes_per_s * 60 * minutes / sum(batch.uploaded_bytes for batch in made),
        "puts": a_minute.puts * minutes / (asked["write"] + asked["upload"]),
        "deletes": a_minute.deletes * minutes / asked["delete"],
        "lists": a_minute.lists * minutes / asked["list"],
    }


def check(found: Estimate, history: History) -> None:
    """Compare two cycles between full checkpoints with their estimate."""
    cycles = slice(-2 * FULL_EVERY, None)
    compared = ratios(found, history, cycles)
    assert found.is_steady
    assert all(0.9 <= compared[name] <= 1.1 for name in ("bytes", "files", "uploaded")), compared
    peak_bytes = max(batch.peak_bytes for batch in history.batches[cycles])
    assert 0.8 <= found.stored_bytes.maximum / peak_bytes <= 1.2


@pytest.mark.tier("more")
def test_an_estimate_of_a_planned_query_is_close_to_its_run(history: History) -> None:
    writes = history.changes
    sizes = (KEYS, KEY_BYTES, VALUE_BYTES, writes.per_batch)
    workload = Workload(*sizes, INTERVAL_MS, 1, writes.new, zipf=writes.exponent)
    check(of(history, workload, OPTIONS), history)


@pytest.mark.tier("more")
def test_an_estimate_of_a_measured_query_is_close_to_its_run(history: History) -> None:
    found = state_store.measure(str(history.root))
    assert (found.version, found.stored_bytes, found.stored_files) == (BATCHES, *history.batches[-1][:2])
    assert found.retained == RETAIN and found.workload.interval_ms == INTERVAL_MS
    assert found.workload.keys == pytest.approx(KEYS)
    assert found.workload.new_per_batch == pytest.approx(history.changes.new)
    assert found.restore_ms > 0
    assert f"version {BATCHES}" in found._repr_html_()
    check(of(history, found.workload, OPTIONS, cost=found.cost), history)


@pytest.mark.tier("more")
def test_an_estimate_of_a_job_that_is_large_for_its_files_is_close_to_its_run(large: History) -> None:
    workload = Workload(LARGE_KEYS, KEY_BYTES, VALUE_BYTES, large.changes.per_batch, INTERVAL_MS, 1)
    found, uncut = (of(large, workload, {**LARGE, **more}) for more in ({}, {"retainedOlderBytes": "0"}))
    assert found.is_steady and found.full_per_hour > 2
    assert found.stored_bytes.average < 0.9 * uncut.stored_bytes.average
    cuts = [batch for batch, made in enumerate(large.batches) if made.requests["delete"] > LARGE_RETAIN // 2]
    compared = ratios(found, large, slice(cuts[1], cuts[-1]))
    assert all(0.85 <= ratio <= 1.15 for ratio in compared.values()), str((compared, cuts))
    sums = [sum(values) for values in zip(*found.reasons.values(), strict=True)]
    assert sums == pytest.approx([found.stored_bytes.average, found.stored_files.average])
    assert found.reasons[OLDER_DELTAS][1] > 1


@pytest.mark.tier("more")
def test_files_by_reason_are_all_files(large: History) -> None:
    found = state_store.files(str(large.root))
    sums = [sum(values) for values in zip(*found.by_reason().values(), strict=True)]
    assert sums == [*large.batches[-1][:2]]
    for file in found.all:
        is_of_newest = any(holder.number == LARGE_BATCHES for holder in file.holders)
        assert is_of_newest == (file.reason in (NEWEST_MERGED, NEWEST_DELTAS))
        assert (not file.holders) == (file.reason == NO_VERSION)
        if file.holders:
            assert file.path.startswith("delta/") == (file.reason in (NEWEST_DELTAS, OLDER_DELTAS))


@pytest.mark.tier("more")
def test_files_that_are_copied_cost_by_their_bytes(history: History, other_disk, monkeypatch) -> None:
    state = RestoreWork(files=1, size_bytes=1 << 30, deltas=0)
    linked = state_store.measure(str(history.root)).cost.predict_restore_ms(state)
    monkeypatch.setattr("tempfile.tempdir", str(other_disk))
    assert state_store.measure(str(history.root)).cost.predict_restore_ms(state) > 3 * linked


def test_deltas_of_retained_versions_stay() -> None:
    """A delta that a snapshot replaces stays until a clean-up after its version is retired."""
    workload = Workload(KEYS, KEY_BYTES, VALUE_BYTES, 10, INTERVAL_MS, 1)
    store = SimulatedStore(workload, parse(OPTIONS), RETAIN, CostModel(), INTERVAL_MS)
    for version in range(1, 4 * FULL_EVERY):
        store.batch()
        deltas = {int(path[6:26]) for path in store.stored if path.startswith("delta/")}
        assert {*range(max(1, version - RETAIN + 1), version + 1)} <= deltas
    assert len(deltas) < 2 * RETAIN


def test_requests_have_a_price() -> None:
    usual = estimate(WORKLOAD)
    dear = estimate(WORKLOAD, prices=Prices(puts=0.05, gets=0.0, gigabyte_months=0.23))
    a_minute = usual.requests_per_minute
    commits = WORKLOAD.partitions * 60_000 / WORKLOAD.interval_ms
    assert commits < a_minute.puts < 2 * commits and 0 < a_minute.lists < commits
    monthly = (a_minute.puts + a_minute.lists) * 43_200 * 0.005 / 1000
    assert usual.requests_dollars_per_month == pytest.approx(monthly, rel=0.1)
    assert dear.requests_dollars_per_month == pytest.approx(10 * monthly)
    assert dear.storage_dollars_per_month == pytest.approx(10 * usual.storage_dollars_per_month)
    large = estimate(Workload(1_000, 24, 200_000, 500, partitions=1), batches=10)
    assert large.requests_per_minute.puts >= 4 * 6, "a delta of 100 MB has a begin, two parts and an end"


def test_a_large_job_keeps_its_goals() -> None:
    """Ten terabytes in 2,000 partitions, of which half a per cent changes each minute."""
    found = estimate(Workload(50e9, 24, 176, 250e6, 60_000, 2_000))
    assert found.is_steady
    assert found.stored_files.average <= 300_000 and found.stored_bytes.average <= 18e12
    assert found.write_amplification <= 2.5


@pytest.mark.tier("more")
def test_options_have_the_effect_that_they_have_in_the_agent() -> None:
    usual = estimate(WORKLOAD)
    assert usual.is_steady and usual.full_per_hour > 0
    few = estimate(WORKLOAD, retain=5)
    assert few.stored_bytes.average < usual.stored_bytes.average
    assert few.restore_bytes == usual.restore_bytes and few.upload_bytes_per_s == usual.upload_bytes_per_s
    calm = replace(WORKLOAD, updates_per_batch=1000)
    often = estimate(calm, {"fullAfterDeltas": 50})
    assert often.full_per_hour == pytest.approx(10 * 360 / 50, rel=0.11)
    assert often.upload_bytes_per_s > estimate(calm).upload_bytes_per_s
    short = estimate(WORKLOAD, {"restoreObjective": "130ms"})
    assert short.restore_ms.average < usual.restore_ms.average
    assert short.restore_ms.maximum < usual.restore_ms.maximum
    assert short.upload_bytes_per_s > usual.upload_bytes_per_s
    thorough = estimate(WORKLOAD, {"restoreVerification": "files"})
    assert thorough.restore_ms.average > 1.2 * usual.restore_ms.average
    small = estimate(WORKLOAD, {"snapshotCompression": "lz4"})
    assert small.restore_bytes.average < usual.restore_bytes.average


def test_partitions_divide_a_state_that_is_in_storage_at_least_once() -> None:
    single, ten = (estimate(replace(WORKLOAD, partitions=count), retain=2) for count in (1, 10))
    assert ten.stored_bytes.average == pytest.approx(single.stored_bytes.average, rel=0.2)
    assert ten.restore_bytes.average == pytest.approx(single.restore_bytes.average / 10, rel=0.2)
    assert ten.stored_files.average > single.stored_files.average
    rows = WORKLOAD.keys * (24 + 120)
    assert rows < ten.restore_bytes.average * 10 < ten.stored_bytes.average < 6 * rows


def test_memory_holds_the_rows_that_are_looked_up() -> None:
    half, nine_tenths, everything = (
        estimate(WORKLOAD, hit_ratio=share).memory_bytes for share in (0.5, 0.9, 1.0)
    )
    rows = WORKLOAD.keys * (24 + 120)
    assert rows / 2 < half < nine_tenths < everything < 3 * rows
    skewed = estimate(replace(WORKLOAD, zipf=1.2), hit_ratio=0.5).memory_bytes
    assert skewed < half / 2
    shared = estimate(WORKLOAD, executors=5)
    assert shared.memory_bytes < nine_tenths / 3
    assert shared.memory_overhead_bytes == shared.memory_bytes + (384 << 20)


@pytest.mark.parametrize(
    ("options", "keys", "is_lazy"),
    [
        ({"restoreMode": "lazy"}, 1e6, True),
        ({"restoreMode": "lazy", "lookAhead": "false"}, 50e6, False),
        ({"restoreMode": "eager"}, 50e6, False),
        ({"restoreMode": "eager", "localDiskLimit": "1g"}, 1e6, True),
        ({"restoreObjective": "1s"}, 50e6, True),
        ({"restoreObjective": "1h"}, 50e6, False),
    ],
)
def test_look_ahead_takes_heap_where_restores_are_lazy(
    options: dict[str, str], keys: float, is_lazy: bool
) -> None:
    found = estimate(replace(WORKLOAD, keys=keys), options, batches=100)
    assert found.look_ahead_bytes == (AHEAD_BYTES if is_lazy else 0)


def test_the_heap_for_look_ahead_is_that_of_the_data_plane(checkout: Path) -> None:
    sources = ("LookAheadExec.scala", "RowsAhead.scala")
    texts = "".join(
        path.read_text(encoding="utf-8") for name in sources for path in (checkout / "jvm_bridge").rglob(name)
    )
    mib = dict(re.findall(r"val (MaxBytes|maxBlockBytes|maxBytes) = (\d+)L << 20", texts))
    assert len(mib) == 3 and sum(map(int, mib.values())) << 20 == AHEAD_BYTES


def test_an_estimate_without_two_full_checkpoints_is_marked() -> None:
    found = estimate(replace(WORKLOAD, updates_per_batch=100), batches=300)
    assert not found.is_steady and (found.batches, found.full_per_hour) == (150, 0)


@pytest.mark.parametrize(
    ("wrong", "names"),
    [
        (lambda: Workload(0, 8, 8, 1), "needs a key"),
        (lambda: Workload(10, 8, 8, 11), "cannot write 11"),
        (lambda: Workload(10, 8, 8, 5, new_per_batch=6), "6 of them new"),
        (lambda: Workload(10, -8, 8, 5), "0 or more"),
        (lambda: estimate(WORKLOAD, {"maxDelta": 5}), "maxDeltas"),
        (lambda: estimate(WORKLOAD, hit_ratio=0), "ratio"),
        (lambda: estimate(WORKLOAD, hit_ratio="much"), "hit_ratio is above 0 and at most 1, not 'much'"),
        (lambda: estimate("large"), "workload is a state_store.Workload, not 'large'"),
        (lambda: estimate(WORKLOAD, retain=0), "1 or more"),
        (lambda: estimate(WORKLOAD, executor_cores=1025), "executor_cores"),
    ],
)
def test_impossible_numbers_are_refused(wrong, names: str) -> None:
    with pytest.raises(OptionError, match=names):
        wrong()


def test_a_notebook_shows_the_numbers() -> None:
    table = estimate(WORKLOAD, batches=50)._repr_html_()
    assert all(f"<tr><td>{name}" in table for name in ("keys", "stored_bytes", "seconds of full"))
