"""The packages of the data plane use each other only as it is declared, and the declaration has no circle."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import scala_rooms
from scala_rooms import PACKAGE, ROOMS, ROOT, Room

NAMED_BY_SPARK = {
    "migration.Migration",
    "observed.CheckpointsHistoryPlugin",
    "observed.StoresReported",
    "vectorized.VectorizedExtension",
}
"""Classes that a configuration, a command line, a service file or an event log names."""

PLANS = {"vectorized.VectorizedGroupsExec", "vectorized.VectorizedRule"}
"""Classes whose objects Spark's planner makes and copies."""

OF_MEMBERS = {
    "agent.AgentLimits",
    "agent.RestorePhases",
    "local.AttemptStart",
    "local.BackgroundVerification",
    "local.StoreMerges",
    "recent.OrderedChanges",
    "recent.OrderedIndex",
    "settings.DeclaredOption",
    "sst.Change",
    "sst.SstHandle",
}
"""The types of what other rooms use by its own name."""


def _sources(checkout: Path) -> list[Path]:
    return sorted(path for tree in (checkout / "jvm_bridge").glob("scala*") for path in tree.rglob("*.scala"))


def test_rooms_use_only_what_they_may(checkout: Path) -> None:
    sources = _sources(checkout)
    assert len(sources) > 50
    assert scala_rooms.violations(sources) == []


def test_every_room_is_there_and_uses_what_it_may(checkout: Path) -> None:
    used: dict[str, set[str]] = {}
    for source in _sources(checkout):
        room, others = scala_rooms.used_by(source.read_text(encoding="utf-8"))
        used.setdefault(room, set()).update(others)
    assert used == {name: set(room.may_use) for name, room in ROOMS.items()}


@pytest.mark.tier("more")
def test_a_class_that_only_its_room_names_is_private_to_it(checkout: Path) -> None:
    tests = [path for tree in ("tests", "benchmarks") for path in (checkout / tree).rglob("*.scala")]
    open_types = scala_rooms.needlessly_open(_sources(checkout), tests)
    assert open_types == NAMED_BY_SPARK | PLANS | OF_MEMBERS


def test_the_declaration_has_no_circle() -> None:
    assert scala_rooms.circle(ROOMS) == []
    assert scala_rooms.circle({"a": Room("", frozenset("b")), "b": Room("", frozenset("a"))}) == ["a", "b"]


def test_a_forbidden_reference_is_found(tmp_path: Path) -> None:
    folder = tmp_path / "memory"
    folder.mkdir()
    source = folder / "Stray.scala"
    source.write_text(f"package {PACKAGE}.memory\n\nclass Stray(table: {PACKAGE}.sst.SstTable)\n")
    assert scala_rooms.violations([source]) == ["Stray.scala: memory may not use sst"]
    source.write_text(f"package {PACKAGE}.memory\n\nimport {PACKAGE}.StoreMetrics\n")
    assert scala_rooms.violations([source]) == [f"Stray.scala: memory may not use {ROOT}"]
    source.write_text(f"package {PACKAGE}.memory\n\n// {PACKAGE}.sst.SstTable\nclass Stray\n")
    assert scala_rooms.violations([source]) == []


@pytest.mark.parametrize("evasion", [f"import {PACKAGE}._\n", f"import {PACKAGE}.{{sst}}\n", "package sst\n"])
def test_a_reference_that_cannot_be_read_is_refused(evasion: str) -> None:
    with pytest.raises(ValueError, match=r"whole|package clauses"):
        scala_rooms.used_by(f"package {PACKAGE}.memory\n{evasion}\nclass Stray\n")


def test_the_page_shows_the_declaration(checkout: Path) -> None:
    page = (checkout / "docs" / "architecture.md").read_text(encoding="utf-8")
    assert scala_rooms.table() in page


def test_memory_outside_the_heap_is_used_through_one_object(checkout: Path) -> None:
    raw = re.compile(r"\bPlatform\s*\.|\bUnsafe\b\.|\bsun\.misc\b|unsafe\.Platform")
    using = {path.name for path in _sources(checkout) if raw.search(path.read_text(encoding="utf-8"))}
    assert using == {"OffHeap.scala", "MemoryGuard.scala"}


def test_json_is_read_into_types_where_it_comes_in(checkout: Path) -> None:
    readers = {path.name for path in _sources(checkout) if "JsonNode" in path.read_text(encoding="utf-8")}
    formats = {"Json.scala", "DeltaMetadata.scala", "Declarations.scala", "MigrationRequest.scala"}
    messages = {"AgentStore.scala", "Messages.scala", "BatchRecord.scala"}
    # Rules and metrics name fields of answers, so these are JSON when they are evaluated.
    declared = {"Model.scala", "Verdict.scala", "Exposition.scala", "Answering.scala", "ApiServlet.scala"}
    assert readers == formats | messages | declared
