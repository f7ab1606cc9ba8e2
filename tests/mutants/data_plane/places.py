"""Where the data plane lies, and the tests that see its breaks."""

from __future__ import annotations

ROOT = "jvm_bridge/scala/org/apache/spark/sql/execution/streaming/state/incremental"
WALKS = [f"test_random_walk[{seed}]" for seed in (1, 2, 3)]
MODEL = tuple(f"tests/jvm/test_state_model.py::{test}" for test in [*WALKS, "test_single_pieces"])
HARD = ("tests/jvm/test_state_model.py::test_hard_cases",)
STORES = ("tests/bridge/test_stores.py",)
EITHER = (*STORES, *MODEL)
DAMAGE = ("tests/jvm/test_state_model.py::test_damaged_files_give_no_wrong_row",)
GUARD = ("tests/jvm/test_state_model.py::test_wrong_uses_of_memory_are_found",)
SPARSE = ("tests/jvm/test_state_model.py::test_look_ups_in_files_that_are_far",)
CONTRADICTIONS = ("tests/jvm/test_state_model.py::test_what_contradicts_itself_is_not_used",)
LOCALE = ("tests/jvm/test_state_model.py::test_single_pieces_in_a_locale_with_other_digits",)
KILLED_AT_START = ("tests/bridge/test_life.py::test_an_agent_killed_before_it_answers_is_replaced",)
