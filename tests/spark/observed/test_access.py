"""Spark's filters and access rights hold for the tab, its API and its metrics."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from observed.ui_application import Running

pytestmark = [pytest.mark.spark, pytest.mark.tier("more")]

GETS = [
    "queries",
    "queries/totals/stores",
    "/checkpoints/",
    "/checkpoints/metrics",
    "/checkpoints/assets/page.js",
]


@pytest.fixture(scope="module")
def app(tmp_path_factory: pytest.TempPathFactory, scala_jar: Path) -> Iterator[Running]:
    options = {
        "spark.acls.enable": "true",
        "spark.ui.filters": "queries.UserFilter",
        "spark.driver.extraClassPath": str(scala_jar),
        "spark.ui.view.acls": "viewer",
        "spark.modify.acls": "operator",
        "spark.admin.acls": "admin",
    }
    with Running(tmp_path_factory.mktemp("access"), headers={"X-User": "viewer"}, **options) as running:
        running.start("totals")
        running.feed("totals")
        yield running


@pytest.mark.parametrize("path", GETS)
def test_only_users_with_the_right_to_view_see_anything(app: Running, path: str) -> None:
    assert app.get(path, headers={"X-User": "stranger"}).status == 403
    assert app.get(path, headers={"X-User": "viewer"}).status != 403


@pytest.mark.parametrize(
    ("user", "status"), [("stranger", 403), ("viewer", 403), ("operator", 403), ("admin", 202)]
)
def test_only_users_with_the_right_to_modify_request_full_checkpoints(
    app: Running, user: str, status: int
) -> None:
    answer = app.get("queries/totals/checkpoints", method="POST", body={}, headers={"X-User": user})
    # A user with the right to modify but not to view sees nothing in Spark.
    assert answer.status == status
    assert ("spark.modify.acls" in answer.text) == (user == "viewer")
