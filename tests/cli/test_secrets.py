"""Secrets in the URI of a checkpoint: no command shows one, or writes it anywhere."""

from __future__ import annotations

from pathlib import Path

import pytest
from minis3 import S3Server
from query_directory import QueryDirectory, rows

from state_store.cli.commands import NAMES, load
from state_store.cli.main import main
from state_store.cli.process import ExitCode
from state_store.observe.program import named

pytest.importorskip("moto")
pytestmark = pytest.mark.tier("more")

SECRET = "TOPSECRET"
ARGUMENTS = {
    "cp": ("{dir}", "{root}/copy"),
    "diff": ("{dir}", "1", "2"),
    "export": ("{dir}", "{tmp}/rows.parquet"),
    "get": ("{dir}", "1"),
    "history": ("{dir}", "1"),
    "import": ("{dir}", "{root}/imported", "{root}/no-rows.parquet"),
    "migrate": ("{dir}", "{root}/migrated", "--to", "rocksdb"),
    "repartition": ("{dir}", "{root}/other", "--partitions", "2"),
    "sql": ("{dir}", "select 1"),
}
"""Arguments of commands that take more than a directory."""

WITHOUT = {"jar", "options", "completion", "serve"}
"""Commands that name no checkpoint, and the one that does not end, whose names `named` makes."""


@pytest.fixture
def root(s3_server: S3Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The URI, with a secret, of a directory with the checkpoint `q`."""
    made = QueryDirectory(tmp_path / "q", tmp_path / "scratch", partitions=1)
    for batch in range(3):
        made.commit(rows(batch * 10, 20))
    prefix = f"secrets/{tmp_path.name}"
    client = s3_server.client()
    for path in (tmp_path / "q").rglob("*"):
        if path.is_file():
            client.upload_file(str(path), "bucket", f"{prefix}/q/{path.relative_to(tmp_path / 'q')}")
    for name, value in s3_server.environment.items():
        if "KEY" not in name:
            monkeypatch.setenv(name, value)
    return f"s3://test:{SECRET}@bucket/{prefix}"


@pytest.mark.parametrize("name", sorted({*NAMES} - WITHOUT))
def test_no_command_shows_a_secret(
    name: str,
    root: str,
    s3_server: S3Server,
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
    caplog: pytest.LogCaptureFixture,
) -> None:
    command = load(name)
    tells_json = any("--json" in option.opts for option in command.params)
    for directory in (f"{root}/q", f"{root}/nowhere", root.replace(SECRET, f"{SECRET}/{SECRET}")):
        arguments = [
            argument.format(dir=directory, root=root, tmp=tmp_path)
            for argument in ARGUMENTS.get(name, ("{dir}",))
        ]
        main([name, *arguments])
        if tells_json and directory.endswith("/q"):
            main([name, *arguments, "--json"])
    shown = capfd.readouterr()
    assert "***@bucket" in shown.out + shown.err
    assert SECRET not in shown.out + shown.err + caplog.text
    listed = s3_server.client().list_objects_v2(Bucket="bucket", Prefix=root.partition("@bucket/")[2])
    for item in listed["Contents"]:
        body = s3_server.client().get_object(Bucket="bucket", Key=item["Key"])["Body"].read()
        assert SECRET.encode() not in body, item["Key"]


def test_a_command_reads_what_the_secret_opens(root: str, capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["checkpoints", f"{root}/q", "--json"]) == ExitCode.OK
    assert '"s3://test:***@bucket/' in capfd.readouterr().out


def test_a_service_names_its_queries_without_secrets(root: str) -> None:
    assert SECRET not in str(named([f"{root}/q", f"other={root}/nowhere"]))
