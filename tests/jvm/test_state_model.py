"""The random walk of the JVM's byte-level state beside a model, over bases that RocksDB makes."""

from __future__ import annotations

import resource
import subprocess
import tempfile
from pathlib import Path

import pytest
import quick_java
import scala_jars

pytestmark = pytest.mark.tier("more")

CHECK_MEMORY = "-DincrementalStateStore.checkMemory=true"
PACKAGE = "org.apache.spark.sql.execution.streaming.state.incremental"


@pytest.fixture(scope="module")
def class_path() -> str:
    return scala_jars.probes_class_path()


def walk(
    class_path: str,
    directory: Path,
    main: str,
    *arguments: object,
    heap: str = "1g",
    java: tuple[str, ...] = (CHECK_MEMORY,),
) -> str:
    opens = [f"--add-opens=java.base/{name}=ALL-UNNAMED" for name in ("java.nio", "sun.nio.ch")]
    command = ["java", f"-Xmx{heap}", *quick_java.probe_options(), f"-Djava.io.tmpdir={directory}"]
    command += [*opens, *java, "-cp", class_path]
    ran = subprocess.run(
        [*command, f"{PACKAGE}.{main}", *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert not list(directory.iterdir()), "files are left behind"
    return ran.stdout


LONG = [pytest.param(seed, marks=pytest.mark.tier("long")) for seed in range(4, 21)]


@pytest.mark.parametrize(
    "seed", [pytest.param(1, marks=pytest.mark.dear("the data plane's walk")), 2, 3, *LONG]
)
def test_a_random_walk_agrees_with_the_model(class_path: str, tmp_path: Path, seed: int) -> None:
    assert "commit=" in walk(class_path, tmp_path, "StateModel", seed, 100 if seed > 3 else 60)


def test_a_random_walk_agrees_with_the_model_in_a_budget_that_holds_nothing(
    class_path: str, tmp_path: Path
) -> None:
    assert "budget 4096 " in walk(class_path, tmp_path, "StateModel", 7, 60, 4096)


SHARED_LONG = [pytest.param(seed, 120, marks=pytest.mark.tier("long")) for seed in range(2, 8)]


@pytest.mark.parametrize(("seed", "steps"), [(1, 30), *SHARED_LONG])
def test_stores_of_several_threads_agree_with_their_models_in_one_budget(
    class_path: str, tmp_path: Path, seed: int, steps: int
) -> None:
    printed = walk(class_path, tmp_path, "SharedWalks", seed, 4, steps)
    assert printed.count("commit=") == 4


STRESS_LONG = [pytest.param(seed, 3000, 3, marks=pytest.mark.tier("long")) for seed in (2, 3)]


@pytest.mark.parametrize(("seed", "commits", "stores"), [(1, 10, 2), *STRESS_LONG])
def test_stores_agree_with_their_rows_while_everything_happens_at_once(
    class_path: str, tmp_path: Path, seed: int, commits: int, stores: int
) -> None:
    assert "every row was right" in walk(class_path, tmp_path, "StoreStress", seed, commits, stores)


def test_single_pieces_agree_with_their_models(class_path: str, tmp_path: Path) -> None:
    assert "13 pieces agree" in walk(class_path, tmp_path, "StatePieces")


@pytest.mark.tier("long")
def test_rows_of_64_mebibytes_agree_with_the_model(class_path: str, tmp_path: Path) -> None:
    assert "1 pieces agree" in walk(class_path, tmp_path, "StatePieces", "64m")


@pytest.mark.tier("long")
def test_the_longest_key_that_is_taken_can_be_read(class_path: str, tmp_path: Path) -> None:
    assert "1 pieces agree" in walk(class_path, tmp_path, "StatePieces", "longest key", heap="4g")


@pytest.mark.tier("long")
def test_a_key_of_more_than_a_gibibyte_does_not_end_the_jvm(class_path: str, tmp_path: Path) -> None:
    assert "was read" in walk(class_path, tmp_path, "sst.LongKey", heap="3g")


@pytest.mark.tier("long")
def test_a_delta_that_is_too_long_for_a_mapping_is_read(class_path: str, tmp_path: Path) -> None:
    assert "all 34 changes" in walk(class_path, tmp_path, "sst.LargeDelta")


def test_hard_cases_agree_with_the_model(class_path: str, tmp_path: Path) -> None:
    assert "cases pass" in walk(class_path, tmp_path, "HardCases")


def test_contradictory_memory_is_not_used(class_path: str, tmp_path: Path) -> None:
    assert "every contradiction is seen" in walk(class_path, tmp_path, "transaction.Contradictions")
    assert "no record has too little room" in walk(class_path, tmp_path, "recent.SavedRecords")


def test_wrong_uses_of_memory_are_found(class_path: str, tmp_path: Path) -> None:
    assert "every fault is found" in walk(class_path, tmp_path, "memory.GuardedMemory")


@pytest.mark.parametrize("case", ["heap", "prefix heap"])
def test_many_rows_need_little_heap(class_path: str, tmp_path: Path, case: str) -> None:
    assert "cases pass" in walk(class_path, tmp_path, "HardCases", case, heap="64m", java=())


def test_damaged_files_give_no_wrong_row(class_path: str, tmp_path: Path) -> None:
    assert "no wrong row" in walk(class_path, tmp_path, "base.DamagedBases", 1, 50)


def test_tables_with_wrong_numbers_are_refused(class_path: str, tmp_path: Path) -> None:
    assert "kinds of damage are refused" in walk(class_path, tmp_path, "sst.RefusedTables")


FUZZ_LONG = [pytest.param(seed, 60, 400, marks=pytest.mark.tier("long")) for seed in range(2, 12)]


@pytest.mark.parametrize(("seed", "files", "changes"), [(1, 15, 200), *FUZZ_LONG])
def test_tables_are_read_as_rocksdb_reads_them_or_refused(
    class_path: str, tmp_path: Path, seed: int, files: int, changes: int
) -> None:
    printed = walk(class_path, tmp_path, "sst.ReaderFuzz", seed, files, changes)
    assert "every file is read alike or refused" in printed


@pytest.mark.parametrize(("seed", "files", "changes"), [(1, 1, 150), *FUZZ_LONG])
def test_manifests_are_read_as_rocksdb_reads_them_or_refused(
    class_path: str, tmp_path: Path, seed: int, files: int, changes: int
) -> None:
    printed = walk(class_path, tmp_path, "base.ManifestFuzz", seed, files * changes)
    assert "list the same files" in printed


def test_page_faults_do_not_wait_for_the_disk(class_path: str) -> None:
    with tempfile.TemporaryDirectory(dir=scala_jars.CACHE) as disk:
        assert "no page fault waits" in walk(class_path, Path(disk), "base.ColdBases")


def test_look_ups_in_remote_files_find_their_rows(class_path: str, tmp_path: Path) -> None:
    assert "all that was expected came" in walk(class_path, tmp_path, "base.SparseBases")


def test_any_words_of_the_agent_are_an_answer_or_an_exception(class_path: str, tmp_path: Path) -> None:
    printed = walk(class_path, tmp_path, "agent.HostileAgent", 1, 300)
    assert "nothing else happened" in printed


def test_threads_outlive_all_errors(class_path: str, tmp_path: Path) -> None:
    assert "survive all errors" in walk(class_path, tmp_path, "agent.EventThreads")


def test_no_span_is_written_after_an_interrupt(class_path: str, tmp_path: Path) -> None:
    assert "all spans end before" in walk(class_path, tmp_path, "agent.InterruptedSpans")


def test_a_file_that_is_replaced_while_it_is_read_is_read_again(class_path: str, tmp_path: Path) -> None:
    assert "replaced files are read again" in walk(class_path, tmp_path, "agent.ReplacedFiles")


def test_a_file_is_replaced_in_one_step_or_kept(class_path: str, tmp_path: Path) -> None:
    assert "no file is removed before another one" in walk(class_path, tmp_path, "agent.KeptFiles")


def test_the_loser_of_two_writers_is_told_of_the_other(class_path: str, tmp_path: Path) -> None:
    assert "the loser of two writers is told" in walk(class_path, tmp_path, "agent.MeetingWriters")


def test_files_are_opened_for_the_user_who_opened_the_store(class_path: str, tmp_path: Path) -> None:
    assert "for the user of the store, with renewed tokens" in walk(class_path, tmp_path, "agent.FileUsers")


def test_ranges_of_files_are_read_into_memory(class_path: str, tmp_path: Path) -> None:
    assert "ranges are read" in walk(class_path, tmp_path, "agent.RangeReadCases")


def test_blocks_are_read_ahead_if_they_are_there_sooner_than_the_files(
    class_path: str, tmp_path: Path
) -> None:
    assert "the sooner way is taken" in walk(class_path, tmp_path, "base.BlockCensuses")


def test_threads_that_cannot_be_started_end_nothing(class_path: str, tmp_path: Path) -> None:
    """Let stacks of a gibibyte fill the address space, as a limit of threads ends them on an executor."""
    usual, hard = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (24 << 30, hard))
    try:
        printed = walk(class_path, tmp_path, "agent.FailedStarts", heap="64m", java=("-Xss1g",))
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (usual, hard))
    assert "every failed start is told" in printed


def test_the_state_of_closed_hdfs_files_is_polled_soon(class_path: str, tmp_path: Path) -> None:
    assert "settings of the user stay" in walk(class_path, tmp_path, "agent.HdfsWaits")


def test_checkpoint_files_behave_like_sparks(class_path: str, tmp_path: Path) -> None:
    with tempfile.TemporaryDirectory(dir=tmp_path.parent) as files:
        assert "equal Spark's" in walk(class_path, tmp_path, "agent.CheckpointFileCases", files)


@pytest.mark.parametrize(("limit", "bound"), [(2_000, 512), (8_000, 1_000)])
def test_files_in_use_take_an_eighth_of_the_descriptors(
    class_path: str, tmp_path: Path, limit: int, bound: int
) -> None:
    """Use more files than there are descriptors: each is opened again when it is read."""
    usual, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (limit, hard))
    try:
        printed = walk(class_path, tmp_path, "sst.Descriptors", 1_100, java=("-XX:-MaxFDLimit",))
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (usual, hard))
    assert f"\n{bound} descriptors at most" in "\n" + printed


def test_single_pieces_agree_with_their_models_in_a_locale_with_other_digits(
    class_path: str, tmp_path: Path
) -> None:
    locale = ("-Duser.language=ar", "-Duser.country=EG", "-Dfile.encoding=ISO-8859-1")
    pieces = ("blocks", "fits", "names")
    assert "3 pieces agree" in walk(class_path, tmp_path, "StatePieces", *pieces, java=locale)
