"""Each trigger of the policy by itself: just before it and just after."""

from __future__ import annotations

from dataclasses import replace

import pytest

from state_store.core.checkpoint.lineage import Chain, ChainDelta
from state_store.core.checkpoint.names import DeltaName, VersionId
from state_store.core.checkpoint.stored_documents import FileEntry, Manifest
from state_store.core.files.sparse import end_bytes
from state_store.core.planning.cost import LazyPolicy, RestoreWork
from state_store.core.planning.policy import Due, Policy, StoreStatistics
from state_store.core.settings.options import parse

MIB = 1 << 20
DAY_MS = 86_400_000
NOW_MS = 1_790_000_000_000  # 2026-09-21 14:13:20 UTC


def never(**texts: str) -> dict[str, str]:
    """Options under which nothing is ever due, but for what `texts` say."""
    off = {
        "restoreObjective": "0",
        "maxDeltas": "1000000",
        "maxDeltaShare": "0",
        "minPauseBetweenMerges": "0",
        "fullAfterDeltas": "0",
        "fullAfterMerges": "0",
        "fullAfterFiles": "0",
        "fullSpaceAmplification": "0",
        "fullScheduleJitter": "0",
    }
    return off | texts


def policy(partition: int = 0, **texts: str) -> Policy:
    return Policy(parse(never(**texts)), "state", 0, partition)


def snapshot(
    version: int = 100, *, kind: str = "full", sizes: tuple[int, ...] = (64 * MIB,), merges: int = 0
) -> Manifest:
    files = tuple(
        FileEntry(
            f"{number:06d}.sst",
            f"shared/{version:020d}-{number:08x}-{number}.sst",
            size,
            "0" * 64,
            6,
            version,
        )
        for number, size in enumerate(sizes)
    )
    at = VersionId(version, "s")
    return Manifest(version, "s", kind, None, at, merges, 0, 1000, files, created_ms=NOW_MS)


def chain(deltas: int, delta_bytes: int = 1000, on: Manifest | None = None) -> Chain:
    found = Chain.from_listing(VersionId(on.version, on.checkpoint_id), on, []) if on else Chain()
    first = (on.version if on else 0) + 1
    for version in range(first, first + deltas):
        parent = f"v{version - 1}" if version > first else ("s" if on else "empty")
        found = found.commit(ChainDelta(DeltaName(version, f"v{version}", parent, 0), delta_bytes))
    return found


def history(newest: Manifest | None = None, keys: int = 1000) -> StoreStatistics:
    made = StoreStatistics()
    made.note_snapshot(NOW_MS, newest)
    made.note_commit(keys)
    return made


def due(
    policy: Policy, chain: Chain, history: StoreStatistics | None = None, now_ms: int = NOW_MS
) -> Due | None:
    return policy.due(chain, history or StoreStatistics(), now_ms)


def kind_of(answer: Due | None, option: str) -> str | None:
    assert answer is None or option in answer.reason, answer
    return answer and answer.kind


def test_nothing_is_due_where_everything_is_off() -> None:
    assert due(policy(), chain(5, on=snapshot()), history(snapshot())) is None
    assert due(policy(fullAfterDeltas="1"), Chain()) is None


def test_a_number_of_deltas_makes_an_incremental_merge_due() -> None:
    full = snapshot()
    assert due(policy(maxDeltas="8"), chain(7, on=full), history(full)) is None
    assert kind_of(due(policy(maxDeltas="8"), chain(8, on=full), history(full)), "maxDeltas") == "incremental"


def test_a_state_that_is_rewritten_soon_is_not_merged_before() -> None:
    full, rule = snapshot(sizes=(1000 * MIB,)), policy(maxDeltas="20", maxDeltaShare="0.8")

    def kind(deltas: int, size_mib: float, on: Manifest = full) -> str | None:
        return kind_of(due(rule, chain(deltas, int(size_mib * MIB), on=on), history(on)), "maxDelta")

    assert kind(20, 10) == "incremental"
    assert kind(20, 30) is None
    assert kind(39, 20) is None
    assert kind(40, 19) == "incremental"
    assert kind(27, 30) == "incremental"
    small = snapshot(sizes=(100 * MIB,))
    assert kind(20, 3, on=small) == "incremental", "in a small store a merge costs little"


def test_a_number_of_deltas_since_the_last_full_checkpoint_makes_a_full_merge_due() -> None:
    incremental = replace(snapshot(kind="incremental"), deltas_since_full=15)
    rule = policy(fullAfterDeltas="20")
    assert due(rule, chain(4, on=incremental)) is None
    assert kind_of(due(rule, chain(5, on=incremental)), "fullAfterDeltas") == "full"


def test_a_number_of_merges_since_the_last_full_checkpoint_makes_a_full_merge_due() -> None:
    rule = policy(fullAfterMerges="3")
    assert due(rule, chain(1, on=snapshot(kind="incremental", merges=2))) is None
    assert (
        kind_of(due(rule, chain(1, on=snapshot(kind="incremental", merges=3))), "fullAfterMerges") == "full"
    )


def test_a_number_of_files_makes_a_full_merge_due() -> None:
    rule = policy(fullAfterFiles="10")
    assert due(rule, chain(9, on=snapshot()), history(snapshot())) is None
    assert kind_of(due(rule, chain(10, on=snapshot()), history(snapshot())), "fullAfterFiles") == "full"


def test_files_that_a_full_checkpoint_would_need_as_well_are_no_reason() -> None:
    large = snapshot(sizes=(8 * MIB,) * 20)
    assert due(policy(fullAfterFiles="10"), chain(5, on=large), history(large)) is None
    assert due(policy(fullAfterFiles="10"), chain(25, on=large), history(large)) is not None


def test_space_amplification_makes_a_full_merge_due() -> None:
    full = snapshot(sizes=(10 * MIB,))
    rule = policy(fullSpaceAmplification="2.0")
    assert due(rule, chain(9, MIB, on=full), history(full)) is None
    assert kind_of(due(rule, chain(11, MIB, on=full), history(full)), "fullSpaceAmplification") == "full"


def test_a_state_that_grew_is_not_amplified() -> None:
    full = snapshot(sizes=(10 * MIB,))
    assert (
        due(policy(fullSpaceAmplification="2.0"), chain(11, MIB, on=full), history(full, keys=2000)) is None
    )


def test_a_state_that_shrank_is_amplified() -> None:
    full = snapshot(sizes=(10 * MIB,))
    rule = policy(fullSpaceAmplification="2.0")
    assert due(rule, chain(8, 10_000, on=full), history(full, keys=600)) is None
    answer = due(rule, chain(8, 10_000, on=full), history(full, keys=10))
    assert kind_of(answer, "fullSpaceAmplification") == "full"
    assert due(rule, chain(8, 10_000, on=full), history(full, keys=0)) is not None


def test_a_state_that_shrank_counts_for_the_objective() -> None:
    full = snapshot(sizes=(512 * MIB,))
    small, same = history(full, keys=10), history(full)
    objective_ms = int(small.cost.predict_restore_ms(RestoreWork(2, 100 * MIB, 0)))
    rule = policy(restoreObjective=f"{objective_ms}ms")
    assert due(rule, chain(4, on=full), same) is None
    assert kind_of(due(rule, chain(4, on=full), small), "restoreObjective") == "full"


def test_a_restart_does_not_make_a_large_partition_due() -> None:
    """Its newest snapshot is an incremental one, and a full one would need as many files."""
    large = replace(snapshot(kind="incremental", sizes=(512 * MIB,) * 600), full=VersionId(50, "f"))
    assert due(Policy(parse({}), "state"), chain(1, on=large), history(large)) is None
    shattered = snapshot(kind="incremental", sizes=(64 * MIB, *(100_000,) * 600))
    made = history(shattered)
    assert made.live_bytes() == shattered.total_bytes
    levels = replace(shattered, files=tuple(replace(file, level=0) for file in shattered.files))
    assert kind_of(due(policy(fullAfterFiles="500"), chain(1, on=levels), history(levels)), "Files") == "full"


def test_a_full_snapshot_of_a_clock_that_was_ahead_delays_the_next_by_one_interval_at_most() -> None:
    made = StoreStatistics()
    made.note_snapshot(NOW_MS, replace(snapshot(100), created_ms=NOW_MS + 1000 * DAY_MS))
    daily = policy(fullInterval="1d", fullScheduleJitter="0s")
    grown = chain(1, on=snapshot(100))
    assert due(daily, grown, made, NOW_MS + DAY_MS - 1) is None
    assert kind_of(due(daily, grown, made, NOW_MS + DAY_MS), "fullInterval") == "full"


def test_after_a_restart_the_full_snapshot_tells_size_and_age() -> None:
    newest = snapshot(200, kind="incremental", sizes=(8 * MIB,) * 3)
    full = replace(snapshot(100, sizes=(10 * MIB,)), created_ms=NOW_MS - DAY_MS)
    made = StoreStatistics()
    made.note_snapshot(NOW_MS, newest, full)
    made.note_commit(2000)
    assert (made.live_bytes(), made.full_ms, made.snapshot_ms) == (20 * MIB, NOW_MS - DAY_MS, NOW_MS)
    made.note_snapshot(NOW_MS, newest)
    assert made.live_bytes() == 20 * MIB, "what was read is not replaced by an estimate"


def test_partitions_that_begin_together_do_not_cut_in_the_same_batch() -> None:
    def first_due(rule: Policy) -> int:
        incremental = snapshot(kind="incremental")
        merged = {deltas: replace(incremental, deltas_since_full=deltas - 1) for deltas in range(1700, 2001)}
        return next(n for n, newest in merged.items() if due(rule, chain(1, on=newest)) is not None)

    spread = [first_due(policy(n, fullAfterDeltas="2000", fullScheduleJitter="10min")) for n in range(40)]
    assert min(spread) > 1800
    assert max(spread) <= 2000
    assert len(set(spread)) > 25
    assert spread[0] == first_due(policy(0, fullAfterDeltas="2000", fullScheduleJitter="10min"))
    assert first_due(policy(0, fullAfterDeltas="2000")) == 2000


def test_amplification_needs_a_few_deltas() -> None:
    full = snapshot(sizes=(1000,))
    assert due(policy(fullSpaceAmplification="2.0"), chain(7, on=full), history(full)) is None


def test_the_interval_since_the_last_full_checkpoint_makes_a_full_merge_due() -> None:
    full = snapshot()
    rule = policy(fullInterval="1h")
    assert due(rule, chain(1, on=full), history(full), NOW_MS + 3_599_000) is None
    assert kind_of(due(rule, chain(1, on=full), history(full), NOW_MS + 3_600_000), "fullInterval") == "full"


def test_the_first_interval_counts_from_the_first_commit() -> None:
    made = StoreStatistics()
    made.note_chain_start(NOW_MS)
    rule = policy(fullInterval="1h")
    assert due(rule, chain(1), made, NOW_MS + 3_599_000) is None
    assert kind_of(due(rule, chain(1), made, NOW_MS + 3_600_000), "fullInterval") == "full"


def test_a_clock_that_jumps_back_makes_nothing_due() -> None:
    full = snapshot()
    made = history(full)
    assert due(policy(fullInterval="1h"), chain(1, on=full), made, NOW_MS - DAY_MS) is None
    rule = policy(maxDeltas="1")
    assert due(rule, chain(1, on=full), made, NOW_MS - DAY_MS) is not None


def test_after_a_clock_that_was_ahead_has_gone_back_the_interval_counts_from_then() -> None:
    full, rule = snapshot(), policy(fullInterval="1h")
    merged, fresh = history(full), StoreStatistics()
    merged.note_merge(full, NOW_MS + 365 * DAY_MS)
    fresh.note_chain_start(NOW_MS + 365 * DAY_MS)
    for made in (merged, fresh):
        made.note_time(NOW_MS)
        assert due(rule, chain(1, on=full), made, NOW_MS + 3_599_000) is None
        assert kind_of(due(rule, chain(1, on=full), made, NOW_MS + 3_600_000), "fullInterval") == "full"


def test_a_schedule_is_kept_in_its_time_zone() -> None:
    full = snapshot()
    rule = policy(fullSchedule="0 3 * * *", fullScheduleTimeZone="Europe/Berlin")
    three_in_berlin_ms = 1_790_038_800_000  # 2026-09-22 01:00 UTC
    assert due(rule, chain(1, on=full), history(full), three_in_berlin_ms - 1000) is None
    assert kind_of(due(rule, chain(1, on=full), history(full), three_in_berlin_ms), "fullSchedule") == "full"
    after = history(full)
    after.full_ms = three_in_berlin_ms + 5000
    assert due(rule, chain(1, on=full), after, three_in_berlin_ms + 10_000) is None


def test_a_full_checkpoint_just_before_the_scheduled_time_does_not_replace_the_scheduled_one() -> None:
    full, at_three_ms = snapshot(), 1_790_046_000_000  # 2026-09-22 03:00 UTC
    rules = [policy(number, fullSchedule="0 3 * * *", fullScheduleJitter="10min") for number in range(40)]
    for distance_ms, count in ((-1000, 40), (601_000, 0)):
        made = history(full)
        made.full_ms = at_three_ms + distance_ms
        answers = [due(rule, chain(1, on=full), made, at_three_ms + 660_000) for rule in rules]
        assert sum(answer is not None for answer in answers) == count


def test_jitter_spreads_partitions_over_its_whole_length() -> None:
    full = snapshot()
    rules = [policy(number, fullInterval="1h", fullScheduleJitter="10min") for number in range(100)]
    minutes = range(11)
    ready = [
        sum(
            due(rule, chain(1, on=full), history(full), NOW_MS + 3_600_000 + m * 60_000) is not None
            for rule in rules
        )
        for m in minutes
    ]
    assert ready == sorted(ready)
    assert ready[-1] == 100
    assert 25 <= ready[5] <= 75
    schedule = [policy(number, fullSchedule="0 3 * * *", fullScheduleJitter="10min") for number in range(100)]
    at_three_ms = 1_790_046_000_000  # 2026-09-22 03:00 UTC
    at = [
        sum(
            due(rule, chain(1, on=full), history(full), at_three_ms + m * 60_000) is not None
            for rule in schedule
        )
        for m in minutes
    ]
    assert at[-1] == 100
    assert 25 <= at[5] <= 75


def test_a_restore_predicted_above_the_objective_makes_a_merge_due() -> None:
    full = snapshot(sizes=(8 * MIB,))
    made = history(full)
    long = chain(60, 10_000, on=full)
    predicted_ms = int(made.predict_restore_ms(long))
    assert due(policy(restoreObjective=f"{predicted_ms + 1}ms"), long, made) is None
    answer = due(policy(restoreObjective=f"{predicted_ms - 1}ms"), long, made)
    assert kind_of(answer, "restoreObjective") == "incremental"


def test_few_deltas_are_not_merged_for_the_objective() -> None:
    full = snapshot(sizes=(8 * MIB,))
    made = history(full)
    three, four = chain(3, MIB, on=full), chain(4, MIB, on=full)
    objective_ms = int(made.cost.predict_restore_ms(RestoreWork(2, three.size_bytes, 0))) + 1
    assert objective_ms < made.predict_restore_ms(three), "a merge would be enough"
    rule = policy(restoreObjective=f"{objective_ms}ms")
    assert due(rule, three, made) is None
    longer = policy(restoreObjective=f"{objective_ms + 5}ms")
    assert kind_of(due(longer, four, made), "restoreObjective") == "incremental"


def test_a_full_checkpoint_where_a_merge_would_not_be_enough() -> None:
    full = snapshot(sizes=(8 * MIB,))
    made = history(full)
    heavy = chain(60, MIB, on=full)
    objective_ms = int(made.cost.predict_restore_ms(RestoreWork(2, 10 * MIB, 0)))
    answer = due(policy(restoreObjective=f"{objective_ms}ms"), heavy, made)
    assert kind_of(answer, "restoreObjective") == "full"


def test_measured_restores_move_the_prediction() -> None:
    full = snapshot(sizes=(64 * MIB,))
    slow, fast = history(full), history(full)
    for _ in range(10):
        slow.cost.observe_fetch(8, 64 * MIB, 6400)
        fast.cost.observe_fetch(8, 64 * MIB, 64)
    at = chain(10, on=full)
    assert slow.predict_restore_ms(at) > 4 * fast.predict_restore_ms(at)
    objective_ms = int(fast.predict_restore_ms(at)) + 1
    assert due(policy(restoreObjective=f"{objective_ms}ms"), at, fast) is None


def test_bytes_that_a_lazy_restore_leaves_are_not_rewritten() -> None:
    full = snapshot(sizes=(8 * MIB,))
    eager, lazy = history(full), history(full)
    lazy.cost.lazy_policy = LazyPolicy(0, end_bytes)
    heavy = chain(60, MIB, on=full)
    rule = policy(restoreObjective=f"{int(eager.predict_restore_ms(heavy)) // 2}ms")
    assert kind_of(due(rule, heavy, eager), "restoreObjective") == "full"
    assert due(rule, heavy, lazy) is None


def test_no_merge_is_asked_for_where_none_would_help() -> None:
    huge = snapshot(sizes=(64 * MIB,) * 200)
    assert due(policy(restoreObjective="1s"), chain(10, on=huge), history(huge)) is None


def test_deltas_as_large_as_the_state_are_merged() -> None:
    full = snapshot(sizes=(10 * MIB,))
    rule = policy(maxDeltaShare="0.8")
    assert due(rule, chain(7, 2 * MIB, on=full)) is None
    assert kind_of(due(rule, chain(8, MIB, on=full)), "maxDeltaShare") == "incremental"
    assert due(rule, chain(8, 10_000, on=snapshot(sizes=(10_000,)))) is None
    growing = snapshot(kind="incremental", sizes=(10 * MIB, 4 * MIB))
    assert due(rule, chain(8, MIB, on=growing)) is None


def test_a_full_checkpoint_goes_before_a_merge() -> None:
    full = snapshot()
    answer = due(policy(maxDeltas="1", fullAfterDeltas="1"), chain(1, on=full), history(full))
    assert answer is not None
    assert answer.kind == "full"


@pytest.mark.parametrize("option", ["maxDeltas", "restoreObjective", "fullAfterDeltas", "fullAfterMerges"])
def test_defaults_are_on(option: str) -> None:
    from state_store.core.settings.options import Options, by_name

    assert by_name(Options())[option] > 0
