"""The wings of the control plane import each other only as declared, and no imports form a cycle."""

from __future__ import annotations

from pathlib import Path

import pytest
import wings
from scala_rooms import Room, circle


def cycles(root: Path) -> list[str]:
    """Return the modules on a cycle of imports, and those that import one of them."""
    modules = wings.imports(root)
    return circle({name: Room("", frozenset(used & modules.keys())) for name, used in modules.items()})


def test_every_import_is_allowed(checkout: Path) -> None:
    assert wings.violations(checkout) == []


def test_every_folder_is_a_declared_wing(checkout: Path) -> None:
    folders = {path.parent.name for path in (checkout / wings.PACKAGE).glob("*/__init__.py")}
    assert folders == wings.MAY_IMPORT.keys()
    assert len(folders) <= 8


def test_the_rules_are_declared_without_a_cycle() -> None:
    assert circle({name: Room("", used) for name, used in wings.MAY_IMPORT.items()}) == []


def test_nothing_imports_the_command_line() -> None:
    assert not any("cli" in allowed for allowed in wings.MAY_IMPORT.values())


def test_no_imports_form_a_cycle(checkout: Path) -> None:
    assert cycles(checkout) == []


def test_only_the_engine_imports_rocksdict(checkout: Path) -> None:
    using = {
        wings.room_of(wings.module_of(source, checkout))
        for source in wings.sources(checkout)
        if " import rocksdict\n" in (text := source.read_text(encoding="utf-8")) or "from rocksdict" in text
    }
    assert using == {"engine"}


@pytest.mark.parametrize(
    "line",
    [
        "from state_store.data.rows import types",
        "import state_store.cli.main",
        "def later():\n    from state_store.functions.group_context import Result",
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import state_store.data.query.logs",
        "from state_store import spark_conf",
    ],
)
def test_a_forbidden_import_is_found_wherever_it_stands(line: str, tmp_path: Path) -> None:
    planning = tmp_path / "state_store/core/planning"
    planning.mkdir(parents=True)
    (planning / "chain.py").write_text(line + "\n")
    (planning / "cost.py").write_text(
        "import state_store.core.storage.local\nfrom state_store.core import storage\n"
    )
    assert len(wings.violations(tmp_path)) == 1


def test_a_cycle_is_found(tmp_path: Path) -> None:
    planning = tmp_path / "state_store/core/planning"
    planning.mkdir(parents=True)
    (planning / "cost.py").write_text("from state_store.core.planning import chain\n")
    (planning / "chain.py").write_text("def later():\n    from state_store.core.planning.cost import Rate\n")
    assert cycles(tmp_path) == ["state_store.core.planning.chain", "state_store.core.planning.cost"]
