"""The program that starts the agent finds the agent's code in any environment of Python."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from agent.harness import PATIENCE_S

VERSION = "9.9"
MAIN = "print(__name__, {place!r})\n"


@pytest.fixture(scope="module")
def program(checkout: Path) -> Path:
    return checkout / "jvm_bridge" / "resources" / "state-store-agent.py"


def package(directory: Path, init: str) -> Path:
    """Write a package `state_store`, whose agent says where it was found. Returns its parent."""
    agent = directory / "state_store" / "agent"
    agent.mkdir(parents=True)
    (agent.parent / "__init__.py").write_text(init)
    (agent / "__init__.py").write_text("")
    (agent / "__main__.py").write_text(MAIN.format(place="installed"))
    return directory


def archive(path: Path, place: str = "'archive'") -> Path:
    """Write an archive with the agent's code, as a jar carries it; the agent prints the value of `place`."""
    with zipfile.ZipFile(path, "w") as file:
        file.writestr("state_store/__init__.py", f"__version__ = {VERSION!r}\n")
        file.writestr("state_store/agent/__init__.py", "from state_store.agent import place\n")
        file.writestr("state_store/agent/place.py", "")
        file.writestr("state_store/agent/__main__.py", f"print(__name__, {place})\n")
    return path


def run(program: Path, code: Path | str, **environment: str) -> str:
    done = subprocess.run(
        [sys.executable, str(program), str(code), VERSION],
        env=environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@pytest.mark.parametrize("safe", [{}, {"PYTHONSAFEPATH": "1"}], ids=["plain", "safe path"])
def test_the_first_entry_of_the_path_is_the_users(
    program: Path, tmp_path: Path, safe: dict[str, str]
) -> None:
    """Without the directory of the program, which Python adds unless PYTHONSAFEPATH forbids it."""
    entry = package(tmp_path / "entry", f"__version__ = {VERSION!r}\n")
    assert run(program, "", PYTHONPATH=str(entry), **safe) == "__main__ installed"


@pytest.mark.parametrize(
    "init",
    [
        "raise RuntimeError('not yours')",
        "import sys; sys.exit('not yours')",
        "raise ImportError",
        "__version__ = '1'",
    ],
)
def test_another_package_of_that_name_is_passed_over(program: Path, tmp_path: Path, init: str) -> None:
    entry = package(tmp_path / "entry", init)
    assert run(program, archive(tmp_path / "agent.zip"), PYTHONPATH=str(entry)) == "__main__ archive"


WHERE = "__file__, __import__('state_store.agent.place').agent.place.__cached__"


def test_code_of_the_jar_is_compiled_once_for_all_agents_of_an_executor(
    program: Path, tmp_path: Path
) -> None:
    code = archive(tmp_path / "agent.zip", WHERE)
    _, main, cached = run(program, code).split()
    assert main == str(tmp_path / "agent/state_store/agent/__main__.py")
    files = [Path(main), Path(cached)]
    before = [(file.stat().st_ino, file.stat().st_mtime_ns) for file in files]
    assert run(program, code).split() == ["__main__", main, cached]
    assert [(file.stat().st_ino, file.stat().st_mtime_ns) for file in files] == before
    assert sorted(path.name for path in Path(main).parent.iterdir()) == [
        "__init__.py",
        "__main__.py",
        "__pycache__",
        "place.py",
    ]


@pytest.mark.parametrize("harm", ["gone", "half"])
def test_code_that_was_cleaned_away_is_written_again(program: Path, tmp_path: Path, harm: str) -> None:
    code = archive(tmp_path / "agent.zip")
    run(program, code)
    main = tmp_path / "agent/state_store/agent/__main__.py"
    main.unlink()
    if harm == "half":
        main.write_text("pri")
    assert run(program, code) == "__main__ archive"


def test_an_agent_starts_where_no_directory_can_be_written(program: Path, tmp_path: Path) -> None:
    """As on a full disk: the code is read out of the archive."""
    code = archive(tmp_path / "agent.zip", "__file__")
    (tmp_path / "agent").write_text("in the way")
    assert run(program, code) == f"__main__ {code}/state_store/agent/__main__.py"
