"""Files of Spark's that are lost, emptied or cut: every tool says what a restart of the query would say.

The judgement is that of Spark 4.3: `tests/spark/failures/test_altered_starts.py` starts it on such copies.
"""

from __future__ import annotations

import json
import shutil

import pytest
from dataset.golden_states import checkpoint

import state_store
from state_store.cli.main import main
from state_store.data.dataset.rewriting.copying import copy
from state_store.data.query import Query
from state_store.errors import DamagedError, MissingError, StateStoreError
from state_store.observe.look import examine

HOW = {
    "removed": lambda path: path.unlink(),
    "emptied": lambda path: path.write_bytes(b""),
    "cut": lambda path: path.write_bytes(path.read_bytes()[: len(path.read_bytes()) // 2]),
}

# The golden query was stopped in batch 4, which had begun; batch 3 was committed.
STOPS = [
    ("metadata", "removed"),
    ("metadata", "emptied"),
    ("metadata", "cut"),
    ("offsets/4", "emptied"),
    ("offsets/4", "cut"),
    ("offsets/3", "removed"),
    ("offsets/3", "emptied"),
    ("offsets/3", "cut"),
    ("commits/3", "removed"),
    ("commits/3", "emptied"),
    ("commits/3", "cut"),
    ("state/0/0/_metadata/schema", "emptied"),
    ("state/0/0/_metadata/schema", "cut"),
]
GOES_ON = [
    ("offsets/4", "removed"),  # batch 4 is planned anew
    ("offsets/2", "removed"),
    ("offsets/2", "emptied"),
    ("commits/2", "removed"),
    ("commits/2", "emptied"),
    ("commits/2", "cut"),
]


@pytest.fixture
def query(tmp_path):
    return checkpoint("flights", tmp_path)


def files_named(directory) -> list[str]:
    """Return the files of Spark's that `verify` names, in its list or its error."""
    try:
        return [finding.file for finding in state_store.verify(str(directory)).of_spark]
    except StateStoreError as error:
        return [str(error.file)]


def severity(directory) -> str:
    """Return the verdict's severity, or `fine` if it finds nothing but that the query has stopped."""
    verdict = examine(str(directory)).verdict
    stopped = all(
        finding.code == "no-checkpoint" or finding.severity == "note" for finding in verdict.findings
    )
    return "fine" if stopped else verdict.severity


def test_a_query_that_can_start_has_no_problem(query):
    assert Query.open(query).start_problems() == []
    assert (files_named(query), severity(query)) == ([], "fine")


@pytest.mark.parametrize(("file", "how"), STOPS)
def test_a_file_without_which_spark_refuses_to_start_is_named(query, file, how, capsys):
    HOW[how](query / file)
    assert files_named(query) == [file]
    assert main(["verify", str(query)]) == 1
    shown = capsys.readouterr()
    text = " ".join((shown.out + shown.err).replace("\n", " ").split())
    assert file in text.replace(" ", "")
    examination = examine(str(query))
    assert examination.verdict.severity == "critical"
    assert file in examination.verdict.sentence


@pytest.mark.parametrize(("file", "how"), GOES_ON)
def test_a_file_that_spark_does_without_is_no_problem(query, file, how):
    HOW[how](query / file)
    assert (files_named(query), severity(query)) == ([], "fine")


@pytest.mark.parametrize(("log", "named"), [("offsets", "offsets/3"), ("commits", "commits")])
def test_a_log_that_is_lost_is_named(query, log, named, capsys):
    shutil.rmtree(query / log)
    assert files_named(query) == [named]
    assert main(["verify", str(query)]) == 1
    assert severity(query) == "critical"
    if log == "commits":
        with pytest.raises(DamagedError, match="commit log is lost"):
            state_store.open(str(query))


def test_the_entries_of_a_gap_are_named(query):
    (query / "offsets/5").write_bytes((query / "offsets/4").read_bytes())
    assert "commits/4" in files_named(query)
    assert severity(query) == "critical"


def test_the_log_of_a_source_is_looked_at(query):
    offsets = query / "offsets/4"
    version, metadata, _ = offsets.read_text().split("\n")
    offsets.write_text("\n".join([version, metadata, '{"logOffset":7}']))
    assert files_named(query) == ["sources/0/7"]
    log = query / "sources/0/7.compact"
    log.parent.mkdir(parents=True)
    log.write_text("")
    assert files_named(query) == ["sources/0/7.compact"]
    log.write_text('v1\n{"path":"a","timestamp":1,"batchId":7}')
    assert files_named(query) == []


@pytest.mark.parametrize(
    ("places", "before", "logs", "named"),
    [
        ("77", "66", "0", []),  # a stream that is joined with itself
        ("77", "66", "01", []),  # two streams
        ("77", "66", "1", ["sources/0/7"]),
        ("77", "76", "0", ["sources/1/7"]),  # the batch before tells the two apart
        ("77", "66", "", ["sources/0/7"]),  # the log of the one stream, once
        ("776", "665", "01", []),  # a union of a stream with itself, and another stream
        ("776", "665", "0", ["sources/1/6"]),
        ("767", "656", "01", []),
    ],
)
def test_a_stream_that_is_read_twice_has_one_log(query, places, before, logs, named):
    for batch, numbers in ((4, places), (3, before)):
        entry = query / f"offsets/{batch}"
        version, metadata, *_ = entry.read_text().split("\n")
        entry.write_text("\n".join([version, metadata, *(f'{{"logOffset":{n}}}' for n in numbers)]))
    for log in logs:
        for number in set(places):
            entry = query / f"sources/{log}/{number}"
            entry.parent.mkdir(parents=True, exist_ok=True)
            entry.write_text('v1\n{"path":"a","timestamp":1,"batchId":7}')
    assert files_named(query) == named


def test_an_emptied_commit_is_not_called_a_loss_of_rows(query):
    (query / "commits/3").write_bytes(b"")
    with pytest.raises(DamagedError, match=r"commits/3 is empty: no row is lost.*put it back") as refused:
        state_store.open(str(query))
    assert "repeats" not in str(refused.value), "batch 4 has begun"
    (query / "offsets/4").unlink()
    with pytest.raises(DamagedError, match=r"remove it: Spark repeats that batch"):
        state_store.open(str(query))


def test_an_entry_of_the_version_alone_is_whole(query):
    """As Spark 2 wrote it; Spark reads it still."""
    (query / "commits/3").write_text("v1")
    assert "commits/3" not in [problem.file for problem in Query.open(query).start_problems()]


def test_a_lost_description_of_an_operator_is_named(query):
    shutil.rmtree(query / "state/0/_metadata")
    for work in (state_store.verify, state_store.open, examine):
        with pytest.raises(MissingError, match="description of it, 'state/0/_metadata/metadata', is missing"):
            work(str(query))


def test_a_lost_schema_is_a_problem_of_tools_alone(query):
    (query / "state/0/0/_metadata/schema").unlink()
    (finding,) = state_store.verify(str(query)).of_spark
    assert (finding.kind, finding.file) == ("missing", "state/0/0/_metadata/schema")
    assert "the query goes on" in finding.problem
    assert severity(query) == "fine"


def test_a_copy_without_metadata_is_refused(query, tmp_path):
    (query / "metadata").unlink()
    with pytest.raises(MissingError, match="Spark starts no query"):
        copy(str(query), str(tmp_path / "copy"))


def test_programs_get_the_files(query, capsys):
    (query / "metadata").unlink()
    assert main(["verify", str(query), "--json"]) == 1
    shown = json.loads(capsys.readouterr().out)
    assert not shown["ok"]
    assert [(finding["kind"], finding["file"]) for finding in shown["spark"]] == [("missing", "metadata")]
