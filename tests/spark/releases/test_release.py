"""A query that an earlier release began continues in this one."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from golden.write_query import FORMATS, joined, pairs, rows_read, session_options
from queries.small.flow import session_options as options_of_the_session

from state_store.cli.main import main

pytestmark = [pytest.mark.spark, pytest.mark.tier("more")]

RELEASES = sorted((Path(__file__).resolve().parents[2] / "golden").glob("release-*"))
CHECKPOINTS = [(path, name) for path in RELEASES for name in FORMATS]


@pytest.mark.parametrize(("release", "name"), CHECKPOINTS)
def test_a_query_of_an_earlier_release_continues(
    spark, provider: str, tmp_path: Path, release: Path, name: str
) -> None:
    if provider != "incremental":
        pytest.skip("the checkpoints are those of this store")
    checkpoint = tmp_path / "checkpoint"
    shutil.copytree(release / name, checkpoint)
    before = json.loads((release / "expected.json").read_text("utf-8"))[name]["rows_read"]
    assert rows_read(checkpoint) == before
    found: list[tuple[int, int]] = []
    with options_of_the_session(spark, session_options(FORMATS[name])):
        for _ in range(3):
            query = joined(spark).writeStream.option("checkpointLocation", str(checkpoint))
            query = query.foreachBatch(lambda frame, _: found.extend(tuple(row) for row in frame.collect()))
            query.trigger(availableNow=True).start().awaitTermination()
    after = rows_read(checkpoint)
    assert after > before
    assert sorted(found) == sorted(pairs(after) - pairs(before))
    assert main(["verify", str(checkpoint), "--all-versions"]) == 0
