"""A state as Parquet files, and as a table in a notebook."""

from __future__ import annotations

import errno
import html
import json
import os
import re
from contextlib import nullcontext
from pathlib import Path
from typing import ClassVar

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import state_store
from dataset.golden_states import VERSIONS, checkpoint, expected, in_order, shown
from state_store.cli import formats
from state_store.cli.main import main
from state_store.cli.process import ExitCode
from state_store.data.dataset import export
from state_store.data.dataset.export import METADATA
from state_store.data.dataset.moments import cells, format_moment
from state_store.data.jobs import Threads
from state_store.data.query.arguments import whole_uri
from state_store.errors import ConflictError, StorageError


@pytest.mark.parametrize("name", ["types", "flights"])
def test_files_have_the_rows_and_their_origin(name, tmp_path):
    directory, target = str(checkpoint(name, tmp_path)), tmp_path / "exported"
    with state_store.open(directory, version=3) as state:
        assert state.export(target) == len(expected(name, 3))
        with pytest.raises(ConflictError, match="exists already"):
            state.export(target)
    assert in_order(shown(row) for row in pq.read_table(target).to_pylist()) == expected(name, 3)
    for number in (0, 1):
        file = target / f"part-{number:05}.parquet"
        assert set(pq.read_table(file)["partition_id"].to_pylist()) == {number}
        said = json.loads(pq.read_schema(file).metadata[METADATA])
        assert (said["checkpoint"], said["version"], said["batch"], said["store"]) == (
            Path(directory).as_uri(),
            3,
            2,
            "default",
        )
        offsets = (Path(directory) / "offsets/2").read_text().splitlines()
        assert said["watermark_ms"] == json.loads(offsets[1])["batchWatermarkMs"]


def test_the_command_exports_once(tmp_path, capsys):
    directory, target = str(checkpoint("flights", tmp_path)), str(tmp_path / "exported")
    assert main(["export", directory, target, "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert (document["rows"], document["version"]) == (len(expected("flights", VERSIONS[-1])), VERSIONS[-1])
    assert (Path(target) / "_SUCCESS").exists()
    assert main(["export", directory, target]) == ExitCode.RETRY


def test_a_notebook_shows_the_first_rows(tmp_path):
    with state_store.open(str(checkpoint("flights", tmp_path))) as state:
        text = state._repr_html_()
        assert "<th>carrier</th>" in text and "<td>C" in text and "version 4" in text
    with state_store.open(str(checkpoint("types", tmp_path))) as state:
        assert "&#x27;" in state._repr_html_()


def test_a_notebook_shows_moments_that_can_be_given_back(tmp_path):
    """Time-outs of rows, and the times of versions, which name the same versions again."""
    directory = checkpoint("flights", tmp_path)
    for number in range(4):
        os.utime(directory / f"commits/{number}", ns=(0, (1_709_190_000_000 + 333 * number) * 1_000_000))
    with state_store.open(directory) as state:
        for row in next(iter(state.scan())).to_pylist():
            assert f"<td>{format_moment(row['timeoutTimestamp'])}</td>" in state._repr_html_()
    assert cells({"a": -1, "b": 5, "c": 1_000_000}, {"a": "ms", "c": "us"}) == [
        "never",
        5,
        format_moment(1000),
    ]
    chain = next(iter(state_store.chain(directory).values()))
    for text in (state_store.checkpoints(directory)._repr_html_(), chain._repr_html_()):
        lines = re.findall(r"<tr><td>(\d+)</td><td>(.*?)</td>", text)
        assert lines
        for number, time in lines:
            with state_store.open(directory, at=html.unescape(time)) as state:
                assert state.version == int(number)


@pytest.mark.parametrize("form", ["parquet", "csv", "json"])
def test_a_full_disk_below_a_file_of_rows_is_named(tmp_path, form, monkeypatch, capsys):
    """PyArrow's errors name no file."""
    directory, target = checkpoint("flights", tmp_path), tmp_path / "rows"

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "Error writing bytes to file")

    monkeypatch.setattr(formats, "_write_texts", full)
    monkeypatch.setattr(formats, "_write_parquet", full)
    code = main(["show", str(directory), "--format", form, "--output", str(target)])
    assert code == ExitCode.RETRY
    assert f"cannot write '{target}': No space left on device" in capsys.readouterr().err
    assert not target.exists()


def test_a_full_disk_below_an_export_is_named(tmp_path, monkeypatch):
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "Error writing bytes to file")

    monkeypatch.setattr(export, "_write", full)
    target = tmp_path / "target"
    with pytest.raises(StorageError, match=f"cannot write '{target}': No space left on device"):
        state_store.export(checkpoint("flights", tmp_path), target)
    assert [path.name for path in tmp_path.iterdir()] == ["flights"]


def test_rows_that_cannot_be_read_are_not_said_to_be_unwritten(tmp_path):
    schema = pa.schema([("n", pa.int64())])

    class Failing:
        lost: ClassVar[dict] = {}

        def of_partition(self, partition):
            yield pa.record_batch([pa.array([1])], schema)
            raise OSError("the source is gone")

    with pytest.raises(StorageError, match=r"^the source is gone"):
        export.write_export(
            tmp_path / "target",
            schema,
            {"checkpoint": "query"},
            [0],
            lambda number, meter: nullcontext(Failing()),
            Threads(),
        )
    assert list(tmp_path.iterdir()) == []


def test_the_second_of_two_exports_to_a_place_is_refused(tmp_path, monkeypatch):
    directory, target = str(checkpoint("flights", tmp_path)), tmp_path / "exported"
    write = export._write

    def after_another(*given):
        monkeypatch.undo()
        state_store.export(directory, target)
        return write(*given)

    monkeypatch.setattr(export, "_write", after_another)
    with pytest.raises(ConflictError, match="exists already"):
        state_store.export(directory, target)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["exported", "flights"]


def test_nothing_stays_of_a_task_that_was_killed(tmp_path, monkeypatch):
    """Its file has a name of its own, beside that of the attempt that counts."""
    write = export._write

    def write_twice(batches, schema, path):
        path.with_name(f"{path.name}-of-a-killed-task").write_bytes(b"PAR1")
        return write(batches, schema, path)

    monkeypatch.setattr(export, "_write", write_twice)
    target = tmp_path / "exported"
    state_store.export(checkpoint("flights", tmp_path), target)
    names = sorted(path.name for path in target.iterdir())
    assert names == ["_SUCCESS", "part-00000.parquet", "part-00001.parquet"]


def test_metadata_of_an_export_have_the_whole_place_of_a_relative_checkpoint(tmp_path, monkeypatch):
    place = checkpoint("flights", tmp_path)
    monkeypatch.chdir(tmp_path)
    state_store.export("flights", "rows")
    (part, *_) = sorted((tmp_path / "rows").glob("*.parquet"))
    said = json.loads(pq.read_schema(part).metadata[METADATA])
    assert said["checkpoint"] == f"file://{place}"


@pytest.mark.parametrize(
    ("location", "uri"),
    [
        ("/a b/c%20", "file:///a b/c%20"),
        ("s3://bucket/c", "s3://bucket/c"),
        ("hdfs:///c", "hdfs:///c"),
        ("file:/c", "file:/c"),
    ],
)
def test_a_whole_place_is_a_uri(location, uri):
    assert whole_uri(location) == uri
