"""Directories of the data plane's packages, and the tests that see their breaks."""

from __future__ import annotations

ROOT = "jvm_bridge/scala/org/apache/spark/sql/execution/streaming/state/incremental"
WALKS = [f"test_random_walk[{seed}]" for seed in (1, 2, 3)]
MODEL = tuple(f"tests/jvm/test_state_model.py::{test}" for test in [*WALKS, "test_single_pieces"])
HEAP = ("tests/jvm/test_state_model.py::test_many_rows_need_little_heap[heap]",)
HARD = ("tests/jvm/test_state_model.py::test_hard_cases",)
STORES = ("tests/bridge/test_stores.py",)
SHARED = ("tests/jvm/test_state_model.py::test_stores_of_several_threads_in_one_budget[1-30]",)
EITHER = (*STORES, *MODEL)
LONG_KEY = (
    "--tier=long",
    "tests/jvm/test_state_model.py::test_a_key_of_more_than_a_gibibyte_does_not_end_the_jvm",
)
DAMAGE = ("tests/jvm/test_state_model.py::test_damaged_files_give_no_wrong_row",)
GUARD = ("tests/jvm/test_state_model.py::test_wrong_uses_of_memory_are_found",)
ANEW = (
    "tests/bridge/test_stores.py::test_memory_forgets_versions_that_another_executor_recommitted_in_format_1",
)
TRIED = ("tests/bridge/test_stores.py::test_under_format_1_a_task_looks_again_after_an_attempt_that_failed",)
FAILED = ("tests/bridge/test_stores.py::test_memory_forgets_the_commit_of_a_failed_task_in_format_1",)
UPLOADED = (
    "tests/bridge/test_stores.py::test_under_format_1_an_attempt_whose_commit_failed_after_its_upload_does_not_count",
)
THREADS = ("tests/jvm/test_state_model.py::test_threads_outlive_all_errors",)
KNOWN = ("tests/bridge/test_soak.py::test_only_versions_in_memory_have_their_column_families[2-60]",)
ASKED_AGAIN = ("tests/bridge/test_life.py::test_a_repeated_call_lists_the_stores_that_the_jvm_has_open",)
PAGES = ("tests/core/storage/test_bridge.py::TestOnADirectory::test_a_listing_in_pages_has_each_file_once",)
SPARSE = ("tests/jvm/test_state_model.py::test_look_ups_in_files_that_are_far",)
CONTRADICTIONS = ("tests/jvm/test_state_model.py::test_what_contradicts_itself_is_not_used",)
TABLES = ("tests/jvm/test_state_model.py::test_tables_are_read_as_rocksdb_reads_them_or_refused[1-15-200]",)
MANIFESTS = (
    "tests/jvm/test_state_model.py::test_manifests_are_read_as_rocksdb_reads_them_or_refused[1-1-150]",
)
SIZES = ("tests/jvm/test_state_model.py::test_single_pieces",)
VERIFIED = ("tests/bridge/test_damage.py::TestBackgroundVerification",)
LOCALE = ("tests/jvm/test_state_model.py::test_single_pieces_in_a_locale_with_other_digits",)
KILLED_AT_START = ("tests/bridge/test_life.py::test_an_agent_killed_before_it_answers_is_replaced",)
STILL = ("tests/bridge/test_life.py::test_a_provider_closes_while_its_agent_does_not_answer",)
CLOSED = ("tests/bridge/test_stores.py::test_a_provider_that_is_closed_lets_its_stores_finish",)
