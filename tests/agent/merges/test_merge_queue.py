"""Order of merges: limits, pauses, retries and joined requests, on a clock of the test."""

from __future__ import annotations

import sys
from dataclasses import replace
from types import FrameType

from state_store.agent.merges.merging import MergeRequest
from state_store.agent.merges.scheduler import MergeLimits, MergeQueue
from state_store.core.checkpoint.names import VersionId


def request(kind: str, version: int = 1) -> MergeRequest:
    return MergeRequest(VersionId(version, f"id{version}"), kind, "test")


def queue(*stores: int, concurrent: int = 1, pause_ms: int = 1000) -> MergeQueue:
    made = MergeQueue()
    for store in stores:
        made.add(store, MergeLimits(concurrent, pause_ms))
    return made


def test_merges_start_in_the_order_in_which_they_became_due_up_to_the_limit() -> None:
    waiting = queue(1, 2, 3, concurrent=2)
    for store in (3, 1, 2):
        waiting.ask(store, request("incremental"))
    assert waiting.next(0.0) == (3, request("incremental"))
    assert waiting.next(0.0) == (1, request("incremental"))
    assert waiting.next(0.0) is None
    waiting.ended(3, 1.0, succeeded=True)
    assert waiting.next(1.0) == (2, request("incremental"))


def test_an_ingest_does_not_wait_for_a_full_merge_of_another_store() -> None:
    waiting = queue(1, 2, 3)
    waiting.ask(1, request("full"))
    assert waiting.next(0.0) == (1, request("full"))
    waiting.ask(2, request("full"))
    waiting.ask(2, request("ingest"))
    waiting.ask(3, request("ingest"))
    assert waiting.next(0.0) == (2, request("ingest"))
    assert waiting.next(0.0) is None, "as many ingests at a time as the limit says"
    waiting.ended(2, 0.0, succeeded=True)
    assert waiting.next(0.0) == (3, request("ingest"))
    waiting.ended(1, 0.0, succeeded=True)
    assert waiting.next(0.0) == (2, request("full")), "it was not forgotten over the ingest"


def test_a_store_has_a_single_merge_at_a_time() -> None:
    waiting = queue(1, concurrent=4, pause_ms=0)
    waiting.ask(1, request("incremental"))
    assert waiting.next(0.0) is not None
    waiting.ask(1, request("ingest"))
    assert waiting.next(0.0) is None
    waiting.ended(1, 0.0, succeeded=True)
    assert waiting.next(0.0) == (1, request("ingest"))


def test_requests_that_wait_are_one_the_stronger_kind_of_the_newest_version() -> None:
    waiting = queue(1)
    waiting.ask(1, request("incremental", 1))
    waiting.ask(1, request("full", 2))
    waiting.ask(1, request("incremental", 3))
    waiting.advance(1, VersionId(4, "id4"))
    assert waiting.next(0.0) == (1, request("full", 4))
    assert waiting.next(0.0) is None


def test_a_merge_answers_what_was_asked_while_it_ran_unless_that_is_more() -> None:
    waiting = queue(1, pause_ms=0)
    waiting.ask(1, request("incremental", 1))
    waiting.next(0.0)
    waiting.ask(1, request("incremental", 2))
    waiting.ended(1, 0.0, succeeded=True)
    assert waiting.next(0.0) is None
    waiting.ask(1, request("incremental", 3))
    waiting.next(0.0)
    waiting.ask(1, request("full", 4))
    waiting.ended(1, 0.0, succeeded=True)
    assert waiting.next(0.0) == (1, request("full", 4))


def test_a_base_is_replaced_while_a_merge_waits_for_its_files() -> None:
    waiting = queue(1)
    waiting.ask(1, request("incremental"))
    waiting.ask(1, request("ingest"))
    assert waiting.next(0.0, lambda store: False) is None
    moving = replace(request("ingest"), moves=True)
    waiting.ask(1, moving)
    assert waiting.next(0.0, lambda store: False) == (1, moving)
    waiting.ended(1, 0.0, succeeded=True)
    assert waiting.next(0.0, lambda store: False) is None
    assert waiting.next(0.0) == (1, request("incremental"))


def test_the_pause_between_merges_does_not_hold_an_ingest() -> None:
    waiting = queue(1, pause_ms=5000)
    waiting.ask(1, request("incremental"))
    waiting.next(0.0)
    waiting.ended(1, 10.0, succeeded=True)
    waiting.ask(1, request("incremental"))
    assert waiting.next(14.9) is None
    assert waiting.wait_s(11.0) == 4.0
    waiting.ask(1, request("ingest"))
    assert waiting.next(11.0) == (1, request("ingest"))
    waiting.ended(1, 11.0, succeeded=True)
    assert waiting.next(15.0) == (1, request("incremental"))


def test_a_failed_merge_is_tried_again_after_twice_as_long_each_time() -> None:
    waiting = queue(1, pause_ms=100)
    waiting.ask(1, request("incremental"))
    now_s, pauses = 0.0, []
    for failures in range(1, 13):
        assert waiting.next(now_s) is not None
        assert waiting.ended(1, now_s, succeeded=False) == failures
        pauses.append(waiting.wait_s(now_s))
        now_s += pauses[-1]
    assert pauses[:5] == [1.0, 2.0, 4.0, 8.0, 16.0]
    assert pauses[-1] == 600.0, "ten minutes at most"
    waiting.next(now_s)
    assert waiting.ended(1, now_s, succeeded=True) == 0
    waiting.ask(1, request("incremental"))
    assert waiting.next(now_s + 0.1) is not None, "a success ends the back-off"


def test_a_merge_that_was_skipped_clears_no_failures() -> None:
    waiting = queue(1, pause_ms=0)
    waiting.ask(1, request("incremental"))
    waiting.next(0.0)
    assert waiting.ended(1, 0.0, succeeded=False) == 1
    waiting.next(1.0)
    assert waiting.ended(1, 1.0, succeeded=None) == 1


def test_an_ingest_that_succeeds_does_not_hide_that_snapshots_fail() -> None:
    waiting = queue(1, pause_ms=0)
    waiting.ask(1, request("incremental"))
    waiting.next(0.0)
    waiting.ended(1, 0.0, succeeded=False)
    waiting.ask(1, request("ingest"))
    assert waiting.next(0.0) == (1, request("ingest"))
    assert waiting.ended(1, 0.0, succeeded=True) == 1


def test_a_merge_that_somebody_waits_for_counts_for_no_limit() -> None:
    waiting = queue(1, 2)
    assert waiting.start_now(1, request("full"))
    assert not waiting.start_now(1, request("full"))
    waiting.ask(2, request("incremental"))
    assert waiting.next(0.0) == (2, request("incremental"))
    assert waiting.running(1) == request("full")


def test_a_store_that_is_closed_asks_for_nothing() -> None:
    waiting = queue(1)
    waiting.ask(1, request("full"))
    waiting.remove(1)
    waiting.ask(1, request("full"))
    assert waiting.next(0.0) is None
    assert waiting.ended(1, 0.0, succeeded=False) == 0


def test_a_merge_of_a_store_that_is_gone_counts_until_it_has_ended() -> None:
    waiting = queue(1, 2)
    waiting.ask(1, request("incremental"))
    waiting.ask(2, request("incremental"))
    assert waiting.next(0.0) == (1, request("incremental"))
    waiting.ask(1, request("full"))
    waiting.remove(1)
    waiting.ask(1, request("full"))
    assert waiting.next(0.0) is None
    assert waiting.ended(1, 1.0, succeeded=False) == 0
    assert waiting.next(1.0) == (2, request("incremental"))
    waiting.ended(2, 2.0, succeeded=True)
    assert waiting.next(100.0) is None, "nothing of it waits any more"


def test_a_merge_whose_files_are_being_fetched_takes_no_slot() -> None:
    waiting = queue(1, 2, 3, concurrent=1)
    for store in (1, 2, 3):
        waiting.ask(store, request("incremental"))
    fetched: set[int] = set()
    assert waiting.next(0.0, lambda store: store == 3) == (3, request("incremental"))
    assert waiting.next(0.0, fetched.__contains__) is None
    waiting.ended(3, 0.0, succeeded=True)
    assert waiting.next(5.0, fetched.__contains__) is None
    (described,) = waiting.waiting(1, 5.0)
    assert "fetched by a lazy restore" in described.why and described.ready_in_ms is None
    fetched.add(1)
    assert waiting.next(5.0, fetched.__contains__) == (1, request("incremental"))


def test_a_merge_that_is_put_back_has_not_failed() -> None:
    waiting = queue(1)
    waiting.ask(1, request("incremental"))
    waiting.next(0.0)
    waiting.put_back(1)
    assert waiting.failures(1) == 0
    assert waiting.next(0.0) == (1, request("incremental"))


def test_providers_of_one_location_merge_one_after_the_other_and_inherit() -> None:
    waiting = MergeQueue()
    for store in (1, 2, 3):
        waiting.add(store, MergeLimits(4, 0), "other" if store == 3 else "location")
    waiting.ask(1, request("incremental"))
    waiting.next(0.0)
    waiting.ended(1, 0.0, succeeded=False)
    waiting.ask(3, request("incremental"))
    waiting.ask(2, request("incremental", 2))
    waiting.inherit(2, 1)
    assert waiting.owed(1) is None, "the closed provider has nothing to do any more"
    assert waiting.next(0.5) == (3, request("incremental")), "the failures go over, and their pause"
    assert waiting.next(1.0) == (2, request("incremental", 2))
    waiting.ask(1, request("incremental"))
    assert waiting.next(5.0) is None, "another merge of the location runs"
    assert waiting.ended(2, 5.0, succeeded=False) == 2


def test_a_look_at_many_stores_that_wait_takes_as_many_steps_as_there_are_stores() -> None:
    def calls_of_a_look(stores: int) -> int:
        waiting = queue(*range(stores))
        for store in range(stores):
            waiting.ask(store, request("full"))
        assert waiting.next(0.0) is not None
        calls = 0

        def count(frame: FrameType, event: str, argument: object) -> None:
            nonlocal calls
            calls += event == "call"

        before = sys.getprofile()
        sys.setprofile(count)
        try:
            assert waiting.next(0.0) is None, "as many run as the limit says"
        finally:
            sys.setprofile(before)
        return calls

    assert calls_of_a_look(400) < 3 * calls_of_a_look(200)
