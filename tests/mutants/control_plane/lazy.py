"""Breaks of lazy restores."""

from __future__ import annotations

from mutants.mutant import Mutant

_LAZY = "tests/agent/lazy"

MUTANTS = [
    Mutant(
        "a merge does not wait for missing files",
        "state_store/agent/merges/merging.py",
        "    if readiness is Readiness.COMING:\n",
        "    if False:\n",
        ("tests/agent/test_supervision.py::test_files_that_come_after_the_look_put_the_merge_back",),
    ),
    Mutant(
        "a merge fetches files that are being fetched",
        "state_store/agent/merges/scheduler.py",
        "                if not store.hydrations.is_settled:\n",
        "                if False:\n",
        (_LAZY,),
    ),
    Mutant(
        "a part that storage did not give in the background is lost",
        "state_store/agent/lazy/hydration.py",
        "            self._file.put_back(self._part)\n",
        "            pass\n",
        (_LAZY,),
    ),
    Mutant(
        "no file is fetched before all tails are",
        "state_store/agent/lazy/hydrations.py",
        "        self._get_or_create(directory, found_damage).add([file])\n",
        "        pass\n",
        (
            f"{_LAZY}/test_early.py",
            "tests/agent/test_predicted_restores.py::test_a_lazy_restore_has_all_files_as_soon_as_an_eager_one",
        ),
    ),
    Mutant(
        "the last record of a large delta is not in its tail",
        "state_store/core/files/sparse.py",
        "if wanted.names_itself:",
        "if False:",
        ("tests/bridge/test_damage.py",),
    ),
    Mutant(
        "a file with an unreadable tail stays sparse",
        "state_store/core/files/sparse.py",
        "        wanted.target.unlink()\n        return None, requests",
        "        return None, requests",
        (_LAZY,),
    ),
    Mutant(
        "the end of a sparse file is fetched a second time",
        "state_store/agent/lazy/hydration.py",
        "spec.size_bytes - end_bytes(spec.size_bytes)",
        "spec.size_bytes",
        (f"{_LAZY}/test_reading.py::test_no_byte_comes_twice_and_no_part_is_tiny",),
    ),
    Mutant(
        "deltas are fetched as a whole however large they are",
        "state_store/core/snapshots/assembly.py",
        "not file.names_itself or file.size_bytes >= LEAST_SPARSE_DELTA_BYTES",
        "not file.names_itself",
        (_LAZY,),
    ),
    Mutant(
        "files fetched in the background are not verified",
        "state_store/agent/lazy/hydration.py",
        "        if wrong is not None:",
        "        if False:",
        (_LAZY,),
    ),
    Mutant(
        "a file is verified before others are fetched",
        "state_store/agent/lazy/hydration.py",
        "        if self._budget.bytes_per_s:\n            first, second",
        "        if True:\n            first, second",
        (f"{_LAZY}/test_budgets.py::test_files_are_compared_when_nothing_is_left_to_fetch",),
    ),
    Mutant(
        "requested bytes are not fetched first",
        "state_store/agent/lazy/hydration.py",
        "            self._order.insert(0, file)\n",
        "            self._order.append(file)\n",
        (_LAZY,),
    ),
    Mutant(
        "lazy restores exceed their share of the disk",
        "state_store/agent/lazy/budget.py",
        "if self._disk_bytes and not is_needed and",
        "if False and",
        (_LAZY,),
    ),
    Mutant(
        "reserved disk space is never released",
        "state_store/agent/lazy/budget.py",
        " for at, taken in self._taken.items() if at.exists()}",
        " for at, taken in self._taken.items()}",
        (f"{_LAZY}/test_budgets.py::test_what_is_gone_makes_room_for_others",),
    ),
    Mutant(
        "a merge waits for room on the disk",
        "state_store/agent/lazy/hydration.py",
        "            self._is_needed = self._is_needed or needed\n",
        "            pass\n",
        (f"{_LAZY}/test_budgets.py::test_a_merge_fetches_what_it_needs_however_little_room_there_is",),
    ),
    Mutant(
        "a verification that failed is not made again",
        "state_store/agent/lazy/hydration.py",
        "FileState.WHOLE if self._is_done else FileState.FETCHED",
        "FileState.WHOLE if self._is_done else FileState.VERIFYING",
        ("tests/agent/test_supervision.py",),
    ),
    Mutant(
        "a thread that ends by an error is counted for ever",
        "state_store/agent/supervision.py",
        "                except FAILURES as error:\n                    _log_unexpected(self._name, error)\n",
        "                except ZeroDivisionError:\n                    pass\n",
        ("tests/agent/test_supervision.py",),
    ),
    Mutant(
        "a base of a restore that fails at its end stays",
        "state_store/agent/restoring.py",
        "        store.head.release(directory)\n        raise\n\n\ndef _log",
        "        raise\n\n\ndef _log",
        ("tests/agent/test_restore_failures.py",),
    ),
    Mutant(
        "more tails are fetched at a time than allowed",
        "state_store/core/snapshots/context.py",
        "parallel(SMALL_AT_ONCE * self.transfer_threads,",
        "parallel(2 * SMALL_AT_ONCE * self.transfer_threads,",
        (f"{_LAZY}/test_budgets.py",),
    ),
    Mutant(
        "ends are fetched as few at a time as parts",
        "state_store/core/snapshots/context.py",
        "parallel(SMALL_AT_ONCE * self.transfer_threads,",
        "parallel(self.transfer_threads,",
        (f"{_LAZY}/test_budgets.py",),
    ),
    Mutant(
        "a part exceeds the bytes of a second",
        "state_store/agent/lazy/hydration.py",
        "budget.bytes_per_s * 2 // 3",
        "budget.bytes_per_s",
        (f"{_LAZY}/test_budgets.py",),
    ),
]
