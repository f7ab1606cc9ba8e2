"""Breaks of lazy restores: a merge waits for its files, files are verified, and the disk's budget holds."""

from __future__ import annotations

from mutants.mutant import Mutant

_LAZY = "tests/agent/lazy"
_ACCOUNTS = f"{_LAZY}/test_cache_accounts.py"
_STREAMED = f"{_LAZY}/test_streamed_merges.py"
_PREFETCH = "state_store/agent/lazy/prefetch.py"
_FILE_CACHE = "state_store/agent/lazy/file_cache.py"
_LOCAL_FILE = "state_store/agent/lazy/local_file.py"

MUTANTS = [
    Mutant(
        "a merge does not wait for missing files",
        "state_store/agent/merges/merging.py",
        "        is_coming = bases.is_coming(directory)\n",
        "        is_coming = False\n",
        ("tests/agent/process/test_supervision.py::test_files_that_come_after_the_look_put_the_merge_back",),
    ),
    Mutant(
        "files fetched in the background are not verified",
        _PREFETCH,
        "        if wrong is not None:",
        "        if False:",
        (_LAZY,),
    ),
    Mutant(
        "whole bases take more than their half of the disk",
        _FILE_CACHE,
        "if sum(largest.values()) > self._limit_bytes // 2:",
        "if False:",
        (f"{_LAZY}/test_disk_limit.py",),
    ),
    Mutant(
        "a base takes room beside the one that it replaces",
        _FILE_CACHE,
        "largest[store] = max(largest.get(store, 0), taken_bytes)",
        "largest[store] = largest.get(store, 0) + taken_bytes",
        (f"{_LAZY}/test_disk_limit.py",),
    ),
    Mutant(
        "pages keep the room of whole bases",
        _FILE_CACHE,
        "others = self._other_bytes + whole_bytes + self._reserved_bytes",
        "others = self._other_bytes",
        (f"{_LAZY}/test_disk_limit.py",),
    ),
    Mutant(
        "a thread ends by an error, and nothing is logged",
        "state_store/agent/supervision.py",
        "                except FAILURES as error:\n                    _log_unexpected(self._name, error)\n",
        "                except ZeroDivisionError:\n                    pass\n",
        ("tests/agent/process/test_supervision.py",),
    ),
    Mutant(
        "a thread that ends by an error is counted for ever",
        "state_store/agent/supervision.py",
        "            if is_counted:\n",
        "            if False:\n",
        ("tests/agent/process/test_supervision.py",),
    ),
    Mutant(
        "a replaced agent writes over what the JVM has verified",
        "state_store/agent/lazy/remote_bases.py",
        "stretches = None if inherited else",
        "stretches = [] if inherited else",
        (f"{_LAZY}/test_failures.py",),
    ),
    Mutant(
        "a part replaces pages that came meanwhile",
        _LOCAL_FILE,
        "                copy_ranges(aside, self.local, self._places(stretches, replaced_stretches, before))",
        "                copy_ranges(aside, self.local, stretches)",
        (f"{_LAZY}/test_local_file.py",),
    ),
    Mutant(
        "bytes that are asked for replace pages that came meanwhile",
        _LOCAL_FILE,
        "if page >= len(before) or before[page]:",
        "if True:",
        (f"{_LAZY}/test_local_file.py",),
    ),
    Mutant(
        "damaged bytes that are asked for again stay",
        _LOCAL_FILE,
        "if page >= len(before) or before[page]:",
        "if page >= len(before):",
        (f"{_LAZY}/test_local_file.py",),
    ),
    Mutant(
        "one lazy restore has all threads until it is done",
        _PREFETCH,
        "                self._queue.rotate(-1)  # it stays in the queue if it fails\n",
        "",
        (f"{_LAZY}/test_prefetch_threads.py::test_prefetches_take_turns",),
    ),
    Mutant(
        "each lazy restore has threads of its own",
        _PREFETCH,
        "count = min(self._limit, self._workers.count + threads)",
        "count = self._workers.count + threads",
        (f"{_LAZY}/test_prefetch_threads.py::test_stores_that_are_restored_lazily_share_their_threads",),
    ),
    Mutant(
        "files that are waited for have to queue",
        _PREFETCH,
        "self._queue.appendleft(source)",
        "self._queue.append(source)",
        (f"{_LAZY}/test_prefetch_threads.py::test_a_prefetch_that_is_waited_for_comes_first",),
    ),
    Mutant(
        "jobs that fail are made again at once",
        _PREFETCH,
        "            self._resting_until_s.append(self._clock_s() + RETRY_S)\n",
        "            pass\n",
        (
            f"{_LAZY}/test_prefetch_threads.py::test_a_store_whose_storage_is_down_does_not_hold_up_the_others",
        ),
    ),
    Mutant(
        "the hand stands behind the end of a file",
        _FILE_CACHE,
        "first = min(first, count)",
        "first = max(first, 0)",
        (f"{_ACCOUNTS}::test_the_hand_goes_on_when_the_longer_file_that_it_was_in_is_gone",),
    ),
    Mutant(
        "pages of a base that is gone are counted",
        _FILE_CACHE,
        "[piece for piece in pieces if piece.file.paths]",
        "[piece for piece in pieces]",
        (f"{_ACCOUNTS}::test_pages_of_a_base_that_goes_while_they_are_fetched_are_not_counted",),
    ),
    Mutant(
        "pages of a fetch that failed are not counted",
        _FILE_CACHE,
        "                self._note_fetched([piece",
        "                return\n                self._note_fetched([piece",
        (f"{_ACCOUNTS}::test_pages_of_a_fetch_that_failed_half_way_are_counted",),
    ),
    Mutant(
        "a file that goes takes its other copy out of the cache",
        _FILE_CACHE,
        "                self._count(file, -1)\n                if self._files.get(file.key) is file:",
        "                self._count(file, -1)\n                if file.key in self._files:",
        (f"{_ACCOUNTS}::test_a_copy_of_a_file_that_goes_leaves_the_other_to_later_bases",),
    ),
    Mutant(
        "another copy of a file is taken for the same",
        _FILE_CACHE,
        "if file is None or not any(_is_same(local, path) for path in file.paths.values()):",
        "if file is None:",
        (f"{_ACCOUNTS}::test_holes_are_made_in_the_copy_that_has_the_pages",),
    ),
    Mutant(
        "half of a link stays",
        _FILE_CACHE,
        "                    target.unlink(missing_ok=True)\n        return False",
        "                    pass\n        return False",
        (f"{_ACCOUNTS}::test_a_file_whose_uses_cannot_be_linked_is_not_linked",),
    ),
    Mutant(
        "pages that were read go with their neighbours",
        _FILE_CACHE,
        "bool(file.present[page]) and not uses[page - first]",
        "bool(file.present[page])",
        (f"{_ACCOUNTS}::test_a_page_that_was_read_stays_when_its_neighbours_go",),
    ),
    Mutant(
        "another limit of pages has no effect after a full disk",
        _FILE_CACHE,
        "            if disk_bytes != self._limit_bytes:\n                self._disk.forget()\n",
        "",
        (f"{_ACCOUNTS}::test_another_limit_forgets_that_the_disk_was_full",),
    ),
    Mutant(
        "pages that cannot be evicted fail a read",
        _FILE_CACHE,
        "        except LocalDiskError as error:  # those",
        "        except ZeroDivisionError as error:  # those",
        (f"{_ACCOUNTS}::test_pages_that_cannot_be_evicted_fail_neither_reads_nor_limits",),
    ),
    Mutant(
        "a full disk fails the read of pages, and evicts none",
        _FILE_CACHE,
        "            except LocalDiskError:\n                if attempt",
        "            except ZeroDivisionError:\n                if attempt",
        (f"{_LAZY}/test_full_disks.py::test_a_full_disk_halves_the_cache",),
    ),
    Mutant(
        "the cache grows on a disk that was full without a look at its space",
        "state_store/agent/lazy/file_cache.py",
        "step = min(self.pages, (4 * spare - self.pages) // 5)",
        "step = self.pages",
        (
            f"{_LAZY}/test_full_disks.py::test_the_cache_leaves_a_quarter_of_its_size_free_after_the_disk_was_full",
        ),
    ),
    Mutant(
        "a download that finds the local disk full blames storage",
        "state_store/core/storage/hadoop.py",
        "if failure is not None:",
        "if False:",
        ("tests/core/storage/test_hadoop.py",),
    ),
    Mutant(
        "a restore that verifies takes pages that may be damaged",
        "state_store/core/snapshots/restore.py",
        "if self._is_paged and disk and not self._run.thorough:",
        "if self._is_paged and disk:",
        (
            f"{_LAZY}/test_page_cache.py::test_pages_that_may_be_damaged_are_not_taken_into_a_restore_that_verifies",
        ),
    ),
    Mutant(
        "a restore that verifies looks at no sparse file",
        "state_store/core/snapshots/restore.py",
        "            if self._run.thorough:\n                self._verify_sparse(sparse)\n",
        "",
        (f"{_LAZY}/test_page_cache.py::test_a_damaged_file_is_found_by_a_restore_that_verifies",),
    ),
    Mutant(
        "fetched files of young runs are not compared with their checksums",
        "state_store/core/snapshots/streamed_merge.py",
        "        if wrong is not None:",
        "        if False:",
        (f"{_STREAMED}::test_a_young_file_that_differs_outside_its_blocks_is_not_compacted",),
    ),
    Mutant(
        "a delta with holes gets the checksum of its holes",
        "state_store/core/snapshots/streamed_merge.py",
        "if files[name].sha256 is None]",
        "if False]",
        (f"{_STREAMED}::test_a_large_delta_that_stays_in_storage_has_its_checksum_in_the_snapshot",),
    ),
    Mutant(
        "files that are not local are uploaded again",
        "state_store/core/snapshots/merge.py",
        "if not new.keys().isdisjoint(sparse):",
        "if False:",
        (f"{_STREAMED}::test_merges_go_on_while_files_of_the_oldest_run_may_not_be_shared",),
    ),
    Mutant(
        "a disk that is full after each step is tried as often as before",
        _FILE_CACHE,
        "        if self._has_grown:\n            self._quiet_ms",
        "        if False:\n            self._quiet_ms",
        (f"{_LAZY}/test_full_disks.py::test_a_disk_that_is_full_after_each_step_is_left_alone_for_longer",),
    ),
    Mutant(
        "young runs that do not fit are merged all the same",
        "state_store/core/snapshots/streamed_merge.py",
        "if size_bytes <= room_bytes)",
        "if size_bytes > 0)",
        (f"{_STREAMED}::test_young_runs_that_do_not_fit_are_merged_in_parts",),
    ),
]
