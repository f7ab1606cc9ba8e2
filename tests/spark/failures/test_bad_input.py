"""Bad input in a running query: a clear error that names the file, and nothing lost."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from mounted_disks import mounted_disk
from pyspark.errors import StreamingQueryException
from pyspark.sql import functions as F
from queries import session_settings
from queries.small.flow import Flow, totals

from state_store.cli import main as cli

pytestmark = [pytest.mark.spark, pytest.mark.older(long=("4.2", "4.1")), pytest.mark.tier("more")]

PREFIX = session_settings.PREFIX + "incremental."
BATCHES = [[(f"k{number % 7}", number + batch) for number in range(10)] for batch in range(5)]
MORE = [("k1", 1000), ("new", 1)]
ONE_PARTITION = {"spark.sql.shuffle.partitions": 1}
FROM_STORAGE = {**ONE_PARTITION, PREFIX + "localRecovery": "false"}
DELTAS_ONLY = {**FROM_STORAGE, PREFIX + "maxDeltas": 1000, PREFIX + "restoreObjective": 0}


@pytest.fixture(autouse=True, scope="module")
def _only_for_the_incremental_store(provider):
    if provider != "incremental":
        pytest.skip("about the files of the incremental store")


def expected(*batches: list[tuple[str, int]]) -> dict[str, tuple[int, int]]:
    records = [record for batch in batches for record in batch]
    values = {key: [value for k, value in records if k == key] for key, _ in records}
    return {key: (len(found), sum(found)) for key, found in values.items()}


def found(flow: Flow) -> dict[str, tuple[int, int]]:
    return {key: (row["count"], row["sum"]) for key, row in flow.state_of_keys().items()}


def store_of(flow: Flow) -> Path:
    return flow.checkpoint / "state" / "0" / "0"


def newest(flow: Flow, pattern: str) -> Path:
    return max(store_of(flow).glob(pattern))


def truncated(path: Path) -> None:
    content = path.read_bytes()
    path.write_bytes(content[: len(content) // 2])


def flipped(path: Path) -> None:
    content = path.read_bytes()
    place = len(content) // 3
    path.write_bytes(content[:place] + bytes([content[place] ^ 0x10]) + content[place + 1 :])


DAMAGES = (truncated, flipped, Path.unlink)


def test_a_damaged_delta_is_named_and_nothing_is_lost(spark, tmp_path):
    flow = Flow(spark, tmp_path / "flow", **DELTAS_ONLY)
    flow.run(*BATCHES)
    path = newest(flow, "delta/*.sst")
    content = path.read_bytes()
    version_and_id, _, _ = path.name.rsplit("_", 2)
    flow.feed(MORE)
    for damage in DAMAGES:
        damage(path)
        with pytest.raises(StreamingQueryException) as failure:
            flow.run()
        assert f"delta/{version_and_id}" in str(failure.value)
        path.write_bytes(content)
    flow.run()
    assert found(flow) == expected(*BATCHES, MORE)


@pytest.fixture(scope="module")
def cut(spark, tmp_path_factory) -> Flow:
    """Make a query whose newest checkpoint is a full one, with older checkpoints."""
    directory = tmp_path_factory.mktemp("cut")
    flow = Flow(spark, directory / "flow", **FROM_STORAGE, **{PREFIX + "retainedCheckpoints": 0})
    flow.options["spark.sql.streaming.minBatchesToRetain"] = 100
    flow.run(*BATCHES)
    assert cli.main(["full", str(flow.checkpoint)]) == 0
    return flow


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_snapshot_is_replaced_by_an_older_one(cut, tmp_path, damage: Callable[[Path], None]):
    flow = cut.copied(tmp_path / "flow")
    damage(newest(flow, "snapshot/*.zip"))
    flow.run(MORE)
    assert found(flow) == expected(*BATCHES, MORE)


def test_a_file_that_no_checkpoint_can_do_without_is_named(spark, tmp_path):
    flow = Flow(spark, tmp_path / "flow", **DELTAS_ONLY)
    flow.run(*BATCHES)
    assert cli.main(["full", str(flow.checkpoint)]) == 0
    merged = max(int(path.name[:20]) for path in store_of(flow).glob("snapshot/*.zip"))
    flow.run(*BATCHES)
    contents = {path: path.read_bytes() for path in store_of(flow).glob("shared/*.sst")}
    assert contents
    for path in store_of(flow).glob("delta/*.sst"):
        if int(path.name[:20]) <= merged:
            path.unlink()  # as a clean-up does eventually
    for path in contents:
        flipped(path)
    with pytest.raises(StreamingQueryException) as failure:
        flow.run(MORE)
    assert any(path.name in str(failure.value) for path in contents)

    for path, content in contents.items():
        path.write_bytes(content)
    flow.run()
    assert found(flow) == expected(*BATCHES, *BATCHES, MORE)


def test_a_newer_format_is_refused(cut, tmp_path):
    flow = cut.copied(tmp_path / "flow")
    paths = list(store_of(flow).glob("snapshot/*.zip"))
    before = {path: path.read_bytes() for path in paths}
    for path in paths:
        _rewrite_manifest(path, {"format": 99})
    with pytest.raises(StreamingQueryException, match=r"\b99\b") as failure:
        flow.run(MORE)
    assert any(path.name in str(failure.value) for path in paths)

    for path in paths:
        path.write_bytes(before[path])
    flow.run()
    assert found(flow) == expected(*BATCHES, MORE)


def _rewrite_manifest(path: Path, changes: dict) -> None:
    with zipfile.ZipFile(path) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    members["manifest.json"] = json.dumps({**json.loads(members["manifest.json"]), **changes}).encode()
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in members.items():
            archive.writestr(name, content)


def test_a_wrong_state_directory_is_named(spark, tmp_path):
    flow = Flow(spark, tmp_path / "flow", **ONE_PARTITION)
    store = store_of(flow)
    store.mkdir(parents=True)
    (store / "delta").write_text("somebody's file")
    with pytest.raises(StreamingQueryException, match="STATE_STORE_CHECKPOINT_LOCATION_NOT_EMPTY"):
        flow.run(BATCHES[0])
    assert (store / "delta").read_text() == "somebody's file"


def test_a_file_in_the_place_of_a_directory_is_named(cut, tmp_path):
    flow = cut.copied(tmp_path / "flow")
    deltas = store_of(flow) / "delta"
    deltas.rename(tmp_path / "aside")
    deltas.write_text("somebody's file")
    with pytest.raises(StreamingQueryException) as failure:
        flow.run(MORE)
    assert str(deltas) in str(failure.value)
    assert deltas.read_text() == "somebody's file"

    deltas.unlink()
    (tmp_path / "aside").rename(deltas)
    flow.run()
    assert found(flow) == expected(*BATCHES, MORE)


def test_an_unknown_scheme_is_named(spark, tmp_path):
    flow = Flow(spark, tmp_path / "flow")
    flow.checkpoint = "nosuch://host/checkpoint"
    with pytest.raises(Exception, match="nosuch"):
        flow.run(BATCHES[0])


def test_a_change_of_the_state_schema_is_refused(spark, tmp_path):
    flow = Flow(spark, tmp_path / "flow")
    flow.run(BATCHES[0])
    flow.query = lambda records: records.groupBy("key").agg(F.collect_list("value").alias("all"))
    with pytest.raises(StreamingQueryException, match="STATE_STORE_VALUE_SCHEMA_NOT_COMPATIBLE"):
        flow.run(BATCHES[1])
    flow.query = totals
    flow.run()
    assert found(flow) == expected(*BATCHES[:2])


def test_two_queries_on_one_checkpoint_are_refused(spark, tmp_path):
    flow = Flow(spark, tmp_path / "flow", **{"spark.sql.streaming.stopActiveRunOnRestart": "false"})
    for records in BATCHES:
        flow.feed(records)
    first = flow.start()
    with pytest.raises(Exception, match=r"(?i)concurrent|already active"):
        flow.start()
    first.awaitTermination()
    flow.run(MORE)
    assert found(flow) == expected(*BATCHES, MORE)


def test_a_partition_count_that_changed_is_kept_as_it_was(spark, tmp_path):
    flow = Flow(spark, tmp_path / "flow", **{"spark.sql.shuffle.partitions": 2})
    flow.run(*BATCHES)
    flow.options = {"spark.sql.shuffle.partitions": 3}
    flow.run(MORE)
    assert found(flow) == expected(*BATCHES, MORE)
    assert sorted(path.name for path in (flow.checkpoint / "state" / "0").glob("[0-9]")) == ["0", "1"]


@pytest.mark.parametrize("size", [4 << 20, pytest.param(64 << 20, marks=pytest.mark.tier("long"))])
def test_empty_and_large_keys_and_values_are_kept(spark, tmp_path, size: int):
    def query(records):
        key = F.expr(f"repeat(key, {size})").alias("key")
        value = F.expr(f"repeat(cast(value as string), if(value = 1, {size}, 0))")
        kept = records.groupBy(key).agg(F.max(value).alias("value"))
        return kept.select(F.length("key").alias("key"), F.length("value").alias("value"))

    flow = Flow(spark, tmp_path / "flow", query, **FROM_STORAGE)
    flow.run([("", 0)], [("k", 0)], [("", 1)])
    flow.run([("k", 0)], [("", 0)])
    last = [(row["key"], row["value"]) for batch in flow.batches[-2:] for row in batch]
    assert last == [(size, 0), (0, size)]


@pytest.fixture
def small_disk(tmp_path) -> Iterator[Path]:
    """Yield a file system of 2 MiB."""
    with mounted_disk(tmp_path / "small", "2m") as path:
        yield path


def test_a_full_disk_fails_the_batch_and_loses_nothing(spark, tmp_path, small_disk):
    flow = Flow(spark, tmp_path / "flow", **FROM_STORAGE)
    flow.run(BATCHES[0])
    state = flow.checkpoint / "state"
    moved = small_disk / "state"
    state.rename(tmp_path / "aside")
    subprocess.run(["cp", "-a", tmp_path / "aside", moved], check=True)
    state.symlink_to(moved)
    filler = small_disk / "filler"
    with open(filler, "wb", buffering=0) as file, pytest.raises(OSError, match="No space left"):
        while True:
            file.write(bytes(4096))

    with pytest.raises(StreamingQueryException, match=r"(?i)no space left"):
        flow.run(MORE)
    filler.unlink()
    flow.run()
    assert found(flow) == expected(BATCHES[0], MORE)


@pytest.mark.older(more=("4.2",), long=("4.1",))
def test_a_killed_agent_is_replaced(spark, tmp_path):
    flow = Flow(spark, tmp_path / "flow")
    flow.run(*BATCHES[:2])
    jvm = spark.sparkContext._gateway.proc.pid
    for records in BATCHES[2:]:
        for agent in _agents(jvm):
            os.kill(agent, signal.SIGKILL)
        flow.run(records)
    assert found(flow) == expected(*BATCHES)


def _agents(jvm: int) -> list[int]:
    """Return the process ids of the agents that the JVM has started."""
    listing = subprocess.run(
        ["ps", "-ww", "-o", "pid=,args=", "--ppid", str(jvm)], capture_output=True, text=True
    )
    agents = [int(line.split()[0]) for line in listing.stdout.splitlines() if "state-store-agent" in line]
    assert agents, f"no agent among {listing.stdout}"
    return agents
