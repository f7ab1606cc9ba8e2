"""The REST API over real HTTP: every answer is of the schema, every error a problem."""

from __future__ import annotations

import concurrent.futures
import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from query_directory import QueryDirectory, rows
from running_service import Served, serving
from waiting import awaited

from state_store.cli.main import main
from state_store.observe import documents
from state_store.observe.documents import ENDPOINTS
from state_store.observe.look import Watched
from state_store.observe.operations import Operations
from state_store.observe.rest_answers import SERVE
from state_store.observe.service import Answers

FULL_REQUEST = {"checkpointType": "FULL"}
SCHEMA = documents.schema()


def check(answer: dict[str, Any], name: str) -> None:
    """Fail unless an answer is of a definition of the schema."""
    jsonschema.validate(answer, {**SCHEMA, "$ref": f"#/$defs/{name}"})


@pytest.mark.parametrize("endpoint", [e for e in ENDPOINTS if e.method == "GET" and e.name != "trigger"])
def test_an_answer_is_of_the_schema(served: Served, endpoint: Any) -> None:
    path = endpoint.path.format(query="flights", version=12)
    answer = served.http.get(f"v1{path}")
    assert answer.status_code == 200, answer.text
    assert SERVE in endpoint.sources
    check(answer.json(), endpoint.answer.__name__)


def test_an_older_version_is_described(served: Served) -> None:
    answer = served.http.get("v1/queries/flights/checkpoints/5").json()
    check(answer, "CheckpointDetails")
    assert answer["checkpoint"]["version"] == 5
    assert [store["version"] for store in answer["stores"]] == [5, 5]


def test_a_version_has_the_files_of_the_attempt_that_spark_committed(tmp_path: Path) -> None:
    query = QueryDirectory(tmp_path / "flights", tmp_path / "scratch", partitions=1)
    query.commit(rows(0, 5))
    query.commit(rows(100, 500), logged=False)
    query.run_again(rows(0, 1))
    query._log_commit()
    query.commit(rows(1000, 5))
    watched = Watched("flights", query.location, every_s=30)
    watched.look_now()
    answers = Answers([watched], Operations(1))
    everything = {"is_selected": lambda _: True, "sort": "bytes", "offset": 0, "limit": 9}
    details = answers.checkpoint("flights", 2, **everything)  # type: ignore[arg-type]
    assert [(store.bytes, store.files) for store in details.stores] == [
        (details.checkpoint.bytes, details.checkpoint.files)
    ]
    files = answers.files("flights", query.keys[0], version=2).files
    assert sum(file.bytes for file in files) == details.checkpoint.bytes


def test_a_query_is_found_by_the_id_of_spark(served: Served) -> None:
    answer = served.http.get("v1/queries/0b7a4a3c-6f0e-4c7e-9a53-6b8f9a1d2c3e/verdict")
    assert answer.json()["severity"] == "fine"


def test_the_configuration_is_what_the_newest_merge_found(served: Served) -> None:
    options = {
        option["name"]: option["value"]
        for option in served.http.get("v1/queries/flights/config").json()["options"]
    }
    assert (options["restoreObjective"], options["maxDeltas"]) == ("20000ms", "4")
    assert options["retainedAge"] == "0"


def test_the_history_is_paged(served: Served) -> None:
    first = served.http.get("v1/queries/flights/checkpoints?limit=5").json()
    assert [checkpoint["version"] for checkpoint in first["history"]] == [12, 11, 10, 9, 8]
    assert first["more"] and first["latest"]["version"] == 12
    rest = served.http.get("v1/queries/flights/checkpoints?before=8").json()
    assert [checkpoint["version"] for checkpoint in rest["history"]] == list(range(7, 0, -1))
    assert not rest["more"]


def test_stores_are_sorted_filtered_and_paged(served: Served) -> None:
    answer = served.http.get("v1/queries/flights/stores?sort=partition&limit=1&offset=1").json()
    assert answer["total"] == 2 and [store["partition"] for store in answer["stores"]] == [1]
    answer = served.http.get("v1/queries/flights/stores?partition=0").json()
    assert [store["partition"] for store in answer["stores"]] == [0]
    assert served.http.get("v1/queries/flights/stores?operator=9").json()["total"] == 0


@pytest.mark.parametrize(
    ("path", "status", "words"),
    [
        ("v1/queries/none", 404, "there are: flights"),
        ("v1/queries/flights/checkpoints/99", 404, "versions 1 to 12 are known"),
        ("v1/queries/flights/checkpoints/99/files", 404, "versions that can be: 1 to 12"),
        ("v1/queries/flights/files?partition=7", 404, "no store 0/7/default"),
        ("v1/queries/flights/checkpoints/triggers/x", 404, "full_ms"),
        ("v1/queries/flights/stores?limit=0", 400, "'limit' must be a number from 1 to 1000"),
        ("v1/queries/flights/stores?limit=1e9", 400, "'limit'"),
        ("v1/queries/flights/stores?offset=-1", 400, "'offset'"),
        ("v1/queries/flights/stores?sort=__class__", 400, "'sort' must be one of bytes"),
        ("v1/queries/flights/checkpoints?before=%00", 400, "'before'"),
        ("v1/nothing", 404, "there is no GET /v1/nothing"),
        ("v2/queries", 404, "there is no GET"),
    ],
)
def test_an_error_is_a_problem(served: Served, path: str, status: int, words: str) -> None:
    answer = served.http.get(path)
    assert answer.status_code == status
    assert answer.headers["content-type"] == "application/problem+json"
    check(answer.json(), "Problem")
    assert words in answer.json()["detail"]


@pytest.mark.tier("more")
def test_a_full_checkpoint_is_made_and_shown(changing: Served, query: QueryDirectory) -> None:
    before = changing.http.get("v1/queries/flights/checkpoints").json()["counts"]["full"]
    answer = changing.post(FULL_REQUEST)
    assert answer.status_code == 202
    check(answer.json(), "Accepted")
    assert answer.headers["location"].endswith(answer.json()["request-id"])
    ended = changing.ended(answer.json()["request-id"])
    check(ended, "Operation")
    assert (ended["wanted"], ended["made"], ended["failed"]) == (2, 2, 0)
    assert ended["operation"] == {"checkpointId": 12}

    def shown_full() -> dict | None:
        shown = changing.http.get("v1/queries/flights/checkpoints").json()
        return shown if shown["counts"]["full"] == before + 1 else None

    shown = awaited(shown_full, "the full checkpoint is shown")
    assert shown is not None
    assert shown["latest"]["wrote"] == {"delta": 2, "full": 2}
    assert shown["latest"]["deltas_since_full"] == 0
    assert shown["latest"]["reasons"] == [f"requested of state-store serve ({answer.json()['request-id']})"]
    assert (
        'state_store_full_checkpoint_requests_total{outcome="completed"} 1.0'
        in changing.http.get("metrics").text
    )


def test_a_version_that_is_full_already_is_not_made_again(changing: Served, query: QueryDirectory) -> None:
    changing.ended(changing.post(FULL_REQUEST).json()["request-id"])
    files = sorted(path.name for key in query.keys for path in query.files(key))
    ended = changing.ended(changing.post(FULL_REQUEST).json()["request-id"])
    assert [store["outcome"] for store in ended["stores"]] == ["already", "already"]
    assert sorted(path.name for key in query.keys for path in query.files(key)) == files


def test_requests_that_come_together_are_one(changing: Served) -> None:
    with concurrent.futures.ThreadPoolExecutor(8) as callers:
        answers = list(callers.map(lambda _: changing.post(FULL_REQUEST).json()["request-id"], range(8)))
    assert len(set(answers)) <= 2, "those that came while the first ran got its id"
    assert (
        sum(store["outcome"] == "made" for id_ in set(answers) for store in changing.ended(id_)["stores"])
        == 2
    )


def test_the_callers_id_makes_a_request_idempotent(changing: Served) -> None:
    body = {**FULL_REQUEST, "triggerId": "nightly-2026-11-25"}
    first = changing.post(body).json()["request-id"]
    changing.ended(first)
    assert changing.post(body).json()["request-id"] == first == "nightly-2026-11-25"
    other = changing.post({**body, "partition": 0})
    assert other.status_code == 409 and "belongs to another request" in other.json()["detail"]


def test_a_request_for_some_stores_is_for_these(changing: Served) -> None:
    ended = changing.ended(changing.post({**FULL_REQUEST, "partition": 1}).json()["request-id"])
    assert [(store["partition"], store["outcome"]) for store in ended["stores"]] == [(1, "made")]


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ({"checkpointType": "INCREMENTAL"}, "must be FULL"),
        ({}, "lacks 'checkpointType'"),
        ([], "must be a JSON object"),
        ({**FULL_REQUEST, "operator": True}, "'operator' must be of type int"),
        ({**FULL_REQUEST, "operator": 7}, "no store that the request names"),
        ({**FULL_REQUEST, "stop": 1}, "the body has 'stop'"),
        ({**FULL_REQUEST, "triggerId": "a b"}, "'triggerId' must be"),
        ({**FULL_REQUEST, "triggerId": "../x"}, "'triggerId' must be"),
    ],
)
def test_a_body_that_is_no_request_is_refused(served: Served, body: object, words: str) -> None:
    answer = served.post(body)
    assert answer.status_code == 400
    assert words in answer.json()["detail"]


def test_a_store_that_fails_does_not_stop_the_others(changing: Served, query: QueryDirectory) -> None:
    for path in query.files(query.keys[0]):
        if path.parent.name == "delta":
            path.unlink()
    ended = changing.ended(changing.post(FULL_REQUEST).json()["request-id"])
    assert (ended["made"], ended["failed"]) == (1, 1)
    assert ended["failure"]["kind"] == "missing"
    assert "cannot be restored" in ended["operation"]["failureCause"]
    failed = changing.http.get("v1/queries/flights/merges").json()["failed"]
    assert [(merge["partition"], merge["failure"]["kind"]) for merge in failed] == [(0, "missing")]


def verdict(service: Served) -> str:
    return str(service.http.get("v1/queries/flights").json()["verdict"])


def test_a_directory_that_vanishes_is_shown_with_the_last_figures(
    changing: Served, query: QueryDirectory, tmp_path: Path
) -> None:
    query.root.rename(tmp_path / "away")
    awaited(lambda: verdict(changing) == "critical", "the loss is said")
    assert changing.http.get("v1/queries/flights/stores").json()["total"] == 2
    (tmp_path / "away").rename(query.root)
    awaited(lambda: verdict(changing) == "fine", "the query is read again")


def test_new_batches_appear(changing: Served, query: QueryDirectory) -> None:
    query.commit(rows(500_000, 10))
    awaited(lambda: changing.http.get("v1/queries/flights").json()["batch"] == 12, "the batch appears")


def test_several_queries_are_listed_the_worst_first(
    query: QueryDirectory, grown: QueryDirectory, tmp_path: Path
) -> None:
    (tmp_path / "empty").mkdir()
    service = serving(f"good={query.location}", f"bad={tmp_path / 'empty'}", grown.location)
    try:
        shown = service.http.get("v1/queries").json()["queries"]
        assert [(each["name"], each["verdict"]) for each in shown] == [
            ("bad", "critical"),
            ("flights", "fine"),
            ("good", "fine"),
        ]
        answer = service.http.get("v1/queries/bad/stores")
        assert answer.status_code == 503 and answer.headers["retry-after"]
        assert "is empty. No query has started there" in answer.json()["detail"]
    finally:
        service.stop()


def test_a_checkpoint_of_another_store_is_an_error_that_lasts(
    grown: QueryDirectory, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    query = QueryDirectory(tmp_path / "other", tmp_path / "scratch", provider="org.example.Other")
    query.commit(rows(0, 1))
    service = serving(query.location, grown.location)
    try:
        for answer in (service.http.get("v1/queries/other/stores"), service.post(FULL_REQUEST, "other")):
            assert (answer.status_code, answer.json()["kind"]) == (400, "option"), "not: try again"
            assert "was started with the state store org.example.Other" in answer.json()["detail"]
        assert main(["full", "--url", service.url, "--query", "other"]) == 2
        assert "org.example.Other" in capsys.readouterr().err
        shown = service.http.get("v1/queries").json()["queries"]
        assert [(each["name"], each["verdict"]) for each in shown] == [
            ("other", "critical"),
            ("flights", "fine"),
        ]
    finally:
        service.stop()


def test_the_openapi_document_is_served(served: Served) -> None:
    shown = served.http.get("v1/openapi.json").json()
    assert shown == json.loads(documents.documents()["openapi.json"])


def test_the_command_line_asks_the_service(changing: Served, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["full", "--url", changing.url, "--trigger-id", "nightly", "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    check(shown, "Operation")
    assert (shown["request-id"], shown["made"]) == ("nightly", 2)
    assert main(["full", "--url", changing.url, "--trigger-id", "nightly"]) == 0
    assert "made" in capsys.readouterr().out


def test_a_store_that_fails_is_the_exit_code(
    changing: Served, query: QueryDirectory, capsys: pytest.CaptureFixture[str]
) -> None:
    for path in query.files(query.keys[0]):
        if path.parent.name == "delta":
            path.unlink()
    assert main(["full", "--url", changing.url]) == 1
    assert "cannot be restored" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["--url", "URL", "--query", "none"], 3, "there are: flights"),
        (["--url", "URL", "--operator", "9"], 2, "no store that the request names"),
        (["--url", "URL", "--compression", "lz4"], 2, "--compression"),
        (["--url", "http://127.0.0.1:1"], 4, "does not answer"),
        (["--url", "file:///etc/passwd"], 2, "is not an address"),
        (["--url", "URL", "/some/directory"], 2, "either DIR or --url"),
        ([], 2, "either DIR or --url"),
        (["/some/directory", "--query", "x"], 2, "belong to --url"),
    ],
)
def test_wrong_use_of_the_client_is_refused(
    served: Served, arguments: list[str], code: int, words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["full", *(served.url if text == "URL" else text for text in arguments)]) == code
    assert words in capsys.readouterr().err
