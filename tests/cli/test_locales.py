"""Commands print the same in every locale, and read the same texts."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from dataset.golden_states import checkpoint

COMMANDS = (
    "checkpoints DIR",
    "files DIR",
    "show DIR --limit 20",
    "show DIR --json --limit 20",
    "show DIR --format csv --limit 20",
    "stats DIR",
    "show DIR --limit 1,5",
    "show",
)
PROGRAM = """
import sys
from state_store.cli.main import main
for words in sys.argv[1:]:
    print(words, main(words.split()), flush=True)
"""


@pytest.fixture(scope="module")
def flights(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return checkpoint("flights", tmp_path_factory.mktemp("states"))


@pytest.fixture(scope="module")
def locales(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a directory with the locales, as far as this machine can make them."""
    directory = tmp_path_factory.mktemp("locales")
    for name in ("de_DE", "tr_TR"):
        words = ["localedef", "--no-archive", "-i", name, "-f", "UTF-8", str(directory / f"{name}.UTF-8")]
        try:
            subprocess.run(words, check=False, capture_output=True, timeout=120)
        except FileNotFoundError:
            break  # the C library of this machine has no such program, and perhaps the locales
    return directory


def run_in(name: str, locales: Path, state: Path) -> subprocess.CompletedProcess[str]:
    """Run all commands in a locale."""
    variables = {"LC_ALL": name, "LANG": name, "LANGUAGE": name[:2], "LOCPATH": str(locales), "TZ": "UTC"}
    if name == "C.UTF-8":
        del variables["LOCPATH"]
    return subprocess.run(
        [sys.executable, "-c", PROGRAM, *(words.replace("DIR", str(state)) for words in COMMANDS)],
        env={**os.environ, **variables},
        capture_output=True,
        text=True,
        encoding="utf-8",
        timeout=240,
        check=True,
    )


@pytest.mark.tier("more")
def test_commands_print_the_same_in_every_locale(flights: Path, locales: Path) -> None:
    expected = run_in("C.UTF-8", locales, flights)
    codes = [line.split()[-1] for line in expected.stdout.splitlines() if line.startswith(("show", "stats"))]
    assert codes == ["0", "0", "0", "0", "2", "2"]
    for name in ("de_DE.UTF-8", "tr_TR.UTF-8"):
        printed = run_in(name, locales, flights)
        assert (printed.stdout, printed.stderr) == (expected.stdout, expected.stderr)
