"""The rooms of the control plane use each other only as it is declared, and no imports go in a circle."""

from __future__ import annotations

from pathlib import Path

import python_rooms
from python_rooms import ROOMS
from scala_rooms import circle


def test_every_room_uses_exactly_what_it_may(checkout: Path) -> None:
    assert python_rooms.used_rooms(checkout) == {name: set(room.may_use) for name, room in ROOMS.items()}


def test_the_declaration_has_no_circle() -> None:
    assert circle(ROOMS) == []


def test_no_imports_go_in_a_circle(checkout: Path) -> None:
    assert python_rooms.circles(checkout) == []


def test_imports_are_found_wherever_they_stand(tmp_path: Path) -> None:
    package = tmp_path / "state_store"
    (package / "planning").mkdir(parents=True)
    (package / "planning" / "cost.py").write_text("from state_store.planning import chain\n")
    (package / "planning" / "chain.py").write_text(
        "from typing import TYPE_CHECKING\n"
        "from state_store import __version__\n"
        "if TYPE_CHECKING:\n    from state_store.storage.local import LocalStorage\n"
        "def lazy():\n"
        "    import state_store.engine.database\n"
        "    from state_store.planning.cost import Rate\n"
    )
    assert python_rooms.used_rooms(tmp_path) == {"planning": {"storage", "engine"}}
    assert python_rooms.circles(tmp_path) == ["state_store.planning.chain", "state_store.planning.cost"]
    (package / "planning" / "chain.py").write_text("from state_store import spark_conf\n")
    assert python_rooms.used_rooms(tmp_path) == {"planning": {"state_store"}}


def test_the_document_shows_the_rooms(checkout: Path) -> None:
    assert python_rooms.table() in (checkout / "docs" / "architecture.md").read_text(encoding="utf-8")
