"""A word that is not a Spark master is refused before a JVM starts."""

from __future__ import annotations

from pathlib import Path

import pytest

from state_store.cli import command
from state_store.cli.main import main
from state_store.cli.process import ExitCode


@pytest.mark.parametrize(
    "word", ["2", "", "spark", "local[", "localhost:7077", "spark:/host", "yarn://", "--json"]
)
def test_a_word_that_is_not_a_master_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str], word: str):
    assert main(["stats", str(tmp_path), f"--master={word}"]) == ExitCode.USAGE
    assert f"'{word}' is not a Spark master: give" in capsys.readouterr().err


REST = {
    "cp": ["target"],
    "export": ["target"],
    "files": [],
    "full": [],
    "import": ["rows.parquet", "target"],
    "migrate": ["target", "--to", "rocksdb"],
    "repair": [],
    "repartition": ["target", "--partitions", "3"],
    "stats": [],
    "verify": [],
}
"""The commands whose work executors can do, with the arguments that they need beside a directory."""


@pytest.mark.parametrize("name", REST)
def test_every_command_whose_work_grows_with_the_state_takes_a_master(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str
):
    assert main([name, str(tmp_path), *REST[name], "--master=spark"]) == ExitCode.USAGE
    assert "'spark' is not a Spark master: give" in capsys.readouterr().err
    assert not (tmp_path / "target").exists()


@pytest.mark.parametrize(
    "master",
    [
        "local",
        "local[4]",
        "local[*,3]",
        "local-cluster[2,1,1024]",
        "yarn",
        "spark://a:7077,b:7077",
        "k8s://https://x",
    ],
)
def test_a_master_is_taken(master: str):
    assert command._MASTER.fullmatch(master)
