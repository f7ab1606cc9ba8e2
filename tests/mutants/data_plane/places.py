"""Directories of the data plane's packages, and the tests that see their breaks."""

from __future__ import annotations

ROOT = "jvm_bridge/scala/org/apache/spark/sql/execution/streaming/state/incremental"
WALKS = [f"test_a_random_walk_agrees_with_the_model[{seed}]" for seed in (1, 2, 3)]
MODEL = tuple(
    f"tests/jvm/test_state_model.py::{test}"
    for test in [*WALKS, "test_single_pieces_agree_with_their_models"]
)
HARD = ("tests/jvm/test_state_model.py::test_hard_cases_agree_with_the_model",)
COPIES = ("tests/jvm/test_copied_rows.py",)
STORES = ("tests/bridge/test_stores.py",)
SHARED = (
    "tests/jvm/test_state_model.py::test_stores_of_several_threads_agree_with_their_models_in_one_budget[1-30]",
)
EITHER = (*STORES, *MODEL)
DAMAGE = ("tests/jvm/test_state_model.py::test_damaged_files_give_no_wrong_row",)
GUARD = ("tests/jvm/test_state_model.py::test_wrong_uses_of_memory_are_found",)
ANEW = (
    "tests/bridge/test_numbered_attempts.py::test_memory_forgets_versions_that_another_executor_recommitted_in_format_1",
)
TRIED = (
    "tests/bridge/test_numbered_attempts.py::test_under_format_1_a_task_looks_again_after_an_attempt_that_failed",
)
FAILED = (
    "tests/bridge/test_numbered_attempts.py::test_memory_forgets_the_commit_of_a_failed_task_in_format_1",
)
UPLOADED = (
    "tests/bridge/test_numbered_attempts.py::test_under_format_1_an_attempt_whose_commit_failed_after_its_upload_does_not_count",
)
KEPT = (
    "tests/bridge/test_numbered_attempts.py::test_under_format_1_an_attempt_whose_commit_failed_does_not_count_if_its_local_file_stays",
)
RANGES = ("tests/jvm/test_state_model.py::test_ranges_of_files_are_read_into_memory",)
THREADS = ("tests/jvm/test_state_model.py::test_threads_outlive_all_errors",)
SPARSE = ("tests/jvm/test_state_model.py::test_look_ups_in_remote_files_find_their_rows",)
CONTRADICTIONS = ("tests/jvm/test_state_model.py::test_contradictory_memory_is_not_used",)
TABLES = ("tests/jvm/test_state_model.py::test_tables_are_read_as_rocksdb_reads_them_or_refused[1-15-200]",)
REFUSED = ("tests/jvm/test_state_model.py::test_tables_with_wrong_numbers_are_refused",)
MANIFESTS = (
    "tests/jvm/test_state_model.py::test_manifests_are_read_as_rocksdb_reads_them_or_refused[1-1-150]",
)
SIZES = ("tests/jvm/test_state_model.py::test_single_pieces_agree_with_their_models",)
VERIFIED = ("tests/bridge/test_damage_in_use.py::TestBackgroundVerification",)
KILLED_AT_START = ("tests/bridge/test_agent_life.py::test_an_agent_killed_before_it_answers_is_replaced",)
STILL = ("tests/bridge/test_agent_life.py::test_a_provider_closes_while_its_agent_does_not_answer",)
