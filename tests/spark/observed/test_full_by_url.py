"""`state-store full --url` with a driver: full checkpoints, and messages if none can be made."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from observed.ui_application import Running, awaited

from state_store.cli.main import main
from state_store.cli.process import ExitCode
from state_store.observe.look import Looker

pytestmark = [pytest.mark.spark, pytest.mark.older(more=("4.0",)), pytest.mark.tier("more")]


@pytest.fixture(scope="module")
def app(tmp_path_factory: pytest.TempPathFactory, scala_jar: Path) -> Iterator[Running]:
    room = tmp_path_factory.mktemp("url")
    (room / "user").write_text("operator")
    options = {
        "spark.acls.enable": "true",
        "spark.ui.filters": "queries.UserFilter",
        "spark.queries.UserFilter.param.file": str(room / "user"),
        "spark.driver.extraClassPath": str(scala_jar),
        "spark.ui.view.acls": "viewer",
        "spark.admin.acls": "operator",
    }
    with Running(room, settings_={"maxDeltas": "100"}, **options) as running:
        running.start("totals")
        running.feed("totals", 3)
        yield running


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    """Return the exit code, output and errors of `state-store full`."""
    code = main(["full", *arguments])
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def test_it_makes_full_checkpoints_of_a_running_query(
    app: Running, capsys: pytest.CaptureFixture[str]
) -> None:
    code, out, _ = run(capsys, "--url", app.ui, "--query", "totals", "--trigger-id", "nightly", "--json")
    operation = json.loads(out)
    assert (code, operation["made"], operation["failed"]) == (ExitCode.OK, 2, 0)
    assert {store["version"] for store in operation["stores"]} == {3}
    stores = Looker(str(app.room / "totals/checkpoint")).look().stores
    assert [store.full_version for store in stores] == [3, 3]
    reasons = {store.snapshot_reason for store in stores}
    assert reasons == {"requested by operator in Spark's UI or by its REST API"}
    asked = ("--url", f"{app.ui}/checkpoints/api/v1", "--query", "totals", "--trigger-id", "nightly")
    code, out, _ = run(capsys, *asked, "--json")
    assert (code, json.loads(out)["ended_ms"]) == (ExitCode.OK, operation["ended_ms"]), "asked twice"
    code, out, _ = run(capsys, "--url", app.ui, "--query", "totals", "--partition", "1")
    assert code == ExitCode.OK and "0/1/default" in out and "already" in out


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (("--url", "UI", "--query", "nobody"), ExitCode.NOT_FOUND, "totals"),
        (("--url", "UI", "--query", "totals", "--operator", "9"), ExitCode.NOT_FOUND, "no such store"),
        (("--url", "UI/jobs"), ExitCode.NOT_FOUND, "no REST API of this state store"),
        (("--url", "http://127.0.0.1:1"), ExitCode.RETRY, "does not answer"),
    ],
)
def test_a_wrong_address_or_name_is_refused(
    app: Running, arguments: tuple[str, ...], code: int, words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    given = [text.replace("UI", app.ui, 1) if text.startswith("UI") else text for text in arguments]
    exit_code, _, err = run(capsys, *given)
    assert (exit_code, words in err) == (code, True), err


@pytest.mark.parametrize(
    ("user", "words"), [("viewer", "may look but not change"), ("stranger", "answers 403")]
)
def test_a_user_without_permission_is_refused(
    app: Running, user: str, words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (app.room / "user").write_text(user)
    try:
        code, _, err = run(capsys, "--url", app.ui, "--query", "totals")
        assert (code, words in err) == (ExitCode.USAGE, True), err
    finally:
        (app.room / "user").write_text("operator")


def test_a_stopped_query_is_refused_with_the_command_to_use(
    app: Running, capsys: pytest.CaptureFixture[str]
) -> None:
    app.start("short")
    app.feed("short", 1)
    app.do("stop", name="short")
    awaited(lambda: app.get("queries/short").json["running"] is False, "the end is shown")
    code, _, err = run(capsys, "--url", app.ui, "--query", "short")
    assert code == ExitCode.NOT_FOUND and "state-store full DIRECTORY" in err, err
    directory = str(app.room / "short/checkpoint")
    assert run(capsys, directory)[0] == ExitCode.OK, "the advice is right"
