"""Checkpoints below directories with names that Spark or this store gives to directories of its own."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import state_store
from dataset.golden_states import STATES
from state_store.cli.main import main
from state_store.data.query import Query

NAMES = (
    *("state", "offsets", "commits", "metadata", "sources", "_metadata", "_stateSchema", "default", "0"),
    *("delta", "shared", "snapshot", "lease", "tombstone", "tmp", "v2", "schema", "_spark_metadata"),
    *("a b", "100%", "%20", "k=v", "größe"),
)
LISTS = STATES.parent / "lists-of-spark-4.1" / "incremental"


@pytest.fixture(scope="module", params=[LISTS, STATES / "flights"], ids=["lists", "flights"])
def golden(request) -> Path:
    return request.param


@pytest.mark.tier("more")
@settings(max_examples=2)
@given(st.lists(st.sampled_from(NAMES), min_size=1, max_size=5))
@example(["state", "0", "_stateSchema", "default", "state"])
@example([*NAMES])
def test_each_tool_takes_a_checkpoint_below_any_names(golden, tmp_path_factory, names):
    place = tmp_path_factory.mktemp("above").joinpath(*names)
    source = Path(shutil.copytree(golden, place / "checkpoint"))
    found = rows(source)
    for path in source.glob("state/0/_metadata/v2/*"):  # as a query there would have written them
        path.write_text(path.read_text().replace("file:/checkpoint/", f"file:{source}/"))
    assert found and found == rows(source)
    for command in ("show", "stats", "verify", "checkpoints"):
        assert main([command, str(source)]) == 0, command
    assert main(["doctor", str(source)]) == 1, "it warns of a query that has stopped, and of nothing else"
    copied, parted = place / "state" / "copied", place / "state" / "parted"
    state_store.copy(source, copied)
    state_store.repartition(source, parted, 3)
    for target in (copied, parted):
        assert rows(target) == found
        assert_spark_finds_schemas(target)


def rows(checkpoint: Path) -> list[str]:
    (operator,) = Query.open(checkpoint).operators
    store = operator.variables[0] if operator.variables else None
    with state_store.open(checkpoint, store=store) as state:
        return sorted(map(repr, state.to_arrow().drop_columns("partition_id").to_pylist()))


def assert_spark_finds_schemas(checkpoint: Path) -> None:
    """Look for each file where the metadata say: there Spark reads it."""
    described = [path for path in checkpoint.glob("state/0/_metadata/**/*") if path.is_file()]
    assert described
    for path in described:
        for store in json.loads(path.read_text().splitlines()[1])["stateStoreInfo"]:
            for named in store.get("stateSchemaFilePaths", []):
                assert named.startswith("file:/") and Path(named[len("file:") :]).is_file()
                assert named.startswith(f"file:{checkpoint}/")
