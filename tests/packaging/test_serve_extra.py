"""The extra `serve` of the wheel: a service with its page in a clean environment; a sentence without it."""

from __future__ import annotations

import json
import re
import subprocess
import urllib.request
import zipfile
from pathlib import Path

import pytest
from environments import Environment
from owned_processes import ENDED_S, started
from query_directory import QueryDirectory, rows

pytestmark = pytest.mark.packaging

PACKAGE = "incremental-state-store"


def distributions(wheel: Path, extra: str) -> set[str]:
    """Return the names of the distributions that an extra of the wheel asks for."""
    with zipfile.ZipFile(wheel) as archive:
        metadata = archive.read(next(name for name in archive.namelist() if name.endswith("/METADATA")))
    found: set[str] = set()
    for line in metadata.decode().splitlines():
        required = re.fullmatch(r"Requires-Dist: ([\w.-]+)(?:\[([\w,-]+)\])?(.*)", line)
        if required is None or not re.search(rf"extra == ['\"]{extra}['\"]", required[3]):
            continue
        if required[1] == PACKAGE:
            found = found.union(*(distributions(wheel, inner) for inner in required[2].split(",")))
        else:
            found.add(required[1])
    return found


@pytest.fixture
def query(tmp_path: Path) -> QueryDirectory:
    """Return a query of two stores and two versions."""
    query = QueryDirectory(tmp_path / "flights", tmp_path / "scratch")
    query.commit(rows(0, 30))
    query.commit(rows(10, 30))
    return query


def test_the_extra_brings_a_service_with_its_page(wheel: Path, query: QueryDirectory, tmp_path: Path) -> None:
    names = distributions(wheel, "serve")
    assert {"starlette", "uvicorn", "prometheus-client", "click", "pyarrow"} <= names
    clean = Environment(tmp_path / "env", "rocksdict", *sorted(names))
    clean.pip_install(wheel, cwd=tmp_path)
    command = [clean.directory / "bin/state-store", "serve", query.location, "--port", "0"]
    pipe = subprocess.PIPE
    with started(command, stdout=pipe, stderr=pipe, text=True, cwd=tmp_path) as process:
        assert process.stdout is not None and process.stderr is not None
        first = process.stdout.readline()
        address = re.search(r"http://127\.0\.0\.1:\d+/", first)
        assert address is not None, first + process.stderr.read()

        def get(path: str) -> bytes:
            with urllib.request.urlopen(address[0] + path, timeout=ENDED_S) as answer:
                return bytes(answer.read())

        page = get("").decode()
        for name in re.findall(r'(?:src|href)="(static/[^"]+)"', page):
            assert len(get(name)) > 100, name
        assert b"uPlot" in get("static/uPlot.iife.min.js")
        assert b"MIT License" in get("static/uPlot.LICENSE.txt")
        assert b"state_store_up" in get("metrics")
        assert json.loads(get("v1/openapi.json"))["openapi"]
        assert [found["name"] for found in json.loads(get("v1/queries"))["queries"]] == ["flights"]


@pytest.mark.parametrize("command", [["serve", "DIR"], ["serve", "s3://bucket/query", "--read-only"]])
def test_without_the_extra_a_sentence_says_which_it_is(
    wheel: Path, tmp_path: Path, command: list[str]
) -> None:
    clean = Environment(tmp_path / "env", "rocksdict", "click", "rich")
    clean.pip_install(wheel, cwd=tmp_path)
    done = clean.run("state-store", *command, cwd=tmp_path, check=False)
    assert done.returncode == 2
    assert "pip install uvicorn (the extra 'serve'" in done.stderr
    assert "Traceback" not in done.stderr


def test_the_licence_of_the_charts_is_in_the_wheel_beside_them(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        page = "state_store/session/bridge/resources/state-store/page"
        licence = archive.read(f"{page}/uPlot.LICENSE.txt").decode()
        script = archive.read(f"{page}/uPlot.iife.min.js").decode()
    assert "Leon Sorokin" in licence and "Permission is hereby granted" in licence
    assert "leeoniya/uPlot" in script[:400], "the script says where it is from"
