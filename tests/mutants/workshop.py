"""Copy of the checkout in which one mutant at a time is tested."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from mutants.mutant import Mutant, StaleMutantError, mutated
from mutants.scala import ScalaMutants

TEST_LIMIT_S = 900
CAUGHT, SURVIVED, STALE, BROKEN, UNDECIDED = "caught", "SURVIVED", "STALE", "BROKEN", "NO END"

_TESTS_FAILED, _ALL_PASSED = 1, 0


@dataclass(frozen=True)
class Verdict:
    """Outcome of a mutant: CAUGHT, SURVIVED, STALE, BROKEN or UNDECIDED; `details` explains.

    STALE: its text is not found. BROKEN: the tests could not run. UNDECIDED: they did not end, as on a busy
    machine.
    """

    mutant: Mutant
    outcome: str
    details: str = ""


class Workshop:
    """Copy of `checkout` in `directory`, for one thread at a time."""

    def __init__(self, checkout: Path, directory: Path) -> None:
        self.root = directory
        listed = subprocess.run(
            ["git", "ls-files", "-co", "--exclude-standard"],
            cwd=checkout,
            capture_output=True,
            text=True,
            check=True,
        ).stdout.splitlines()
        for name in listed:
            if (checkout / name).is_file():
                (directory / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(checkout / name, directory / name)
        jars = checkout / "state_store" / "jars"
        if jars.is_dir():
            shutil.copytree(jars, directory / "state_store" / "jars")
        self._scala = ScalaMutants(checkout, directory)

    def try_out(self, mutant: Mutant) -> Verdict:
        """Apply the mutant, run its tests, and restore the file."""
        path = self.root / mutant.file
        try:
            original = path.read_text(encoding="utf-8")
            path.write_text(mutated(original, mutant), encoding="utf-8")
        except (FileNotFoundError, StaleMutantError) as error:
            return Verdict(mutant, STALE, str(error))
        try:
            if mutant.is_scala:
                complaint = self._scala.compile(mutant.file)
                path.write_text(original, encoding="utf-8")
                if complaint:
                    return Verdict(mutant, BROKEN, complaint)
            return self._judge(mutant)
        finally:
            path.write_text(original, encoding="utf-8")
            self._scala.restore()

    def complaint(self, tests: list[str]) -> str | None:
        """Run tests on the unchanged code; return None if they pass, else pytest's output."""
        done = self._run(tests, limit_s=4 * TEST_LIMIT_S)
        return None if done is not None and done.returncode == _ALL_PASSED else _last_words(done)

    def _judge(self, mutant: Mutant) -> Verdict:
        done = self._run(list(mutant.tests), TEST_LIMIT_S)
        if done is None:
            return Verdict(mutant, UNDECIDED, f"the tests did not end in {TEST_LIMIT_S} s")
        if done.returncode == _TESTS_FAILED:
            failed = [line for line in done.stdout.splitlines() if line.startswith(("FAILED", "ERROR"))]
            return Verdict(mutant, CAUGHT, failed[0].split(" - ")[0] if failed else "")
        if done.returncode == _ALL_PASSED:
            return Verdict(mutant, SURVIVED)
        return Verdict(mutant, BROKEN, _last_words(done))

    def _run(self, tests: list[str], limit_s: int) -> subprocess.CompletedProcess[str] | None:
        """Run pytest; return None if it took too long."""
        environment = {**os.environ, "PYTHONPATH": str(self.root), "PYTHONDONTWRITEBYTECODE": "1"}
        environment |= {**self._scala.environment(), "STATE_STORE_TEST_TIER": "change"}
        command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider"]
        command += ["--hypothesis-profile=mutants", *tests]
        try:
            return subprocess.run(
                command, cwd=self.root, env=environment, capture_output=True, text=True, timeout=limit_s
            )
        except subprocess.TimeoutExpired:
            return None


def _last_words(done: subprocess.CompletedProcess[str] | None) -> str:
    return f"no end within {TEST_LIMIT_S} s" if done is None else (done.stdout + done.stderr)[-1500:]
