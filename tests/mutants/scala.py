"""Compile only a changed Scala file, and put its classes into the jar of a copy of the checkout."""

from __future__ import annotations

import tempfile
import zipfile
from pathlib import Path

import scala_jars


class ScalaMutants:
    """The state store's jar of a copy of the checkout, which is at `root`.

    A mutant changes no signature, so its file is compiled against the jar as it is. The jar keeps the note of
    the sources that it was made from: with the source as it was, it counts as up to date.
    """

    def __init__(self, checkout: Path, root: Path) -> None:
        self._checkout, self._root = checkout, root
        self._jar: Path | None = None
        self._original = b""
        self._probes = Path()

    def environment(self) -> dict[str, str]:
        """Return the jar of the tests' own Scala, compiled against the unchanged classes."""
        return {scala_jars.PROBES_VARIABLE: str(self._probes)} if self._jar else {}

    def compile(self, file: str) -> str | None:
        """Put the classes of the changed file into the jar; return the compiler's output if it fails."""
        if self._jar is None:
            original = scala_jars.state_store_jar()
            self._jar = self._root / original.relative_to(self._checkout)
            self._original = original.read_bytes()
            self._probes = scala_jars.probes_jar()
            self.restore()
        with tempfile.TemporaryDirectory() as name:
            try:
                scala_jars.compile_into(Path(name), [self._root / file], [self._jar])
            except scala_jars.BuildError as error:
                return str(error)
            changed = {path.relative_to(name).as_posix(): path for path in Path(name).rglob("*.class")}
            _replace(self._jar, {name: path.read_bytes() for name, path in changed.items()})
        return None

    def restore(self) -> None:
        """Restore the jar."""
        if self._jar is not None:
            self._jar.parent.mkdir(parents=True, exist_ok=True)
            self._jar.write_bytes(self._original)


def _replace(jar: Path, members: dict[str, bytes]) -> None:
    with zipfile.ZipFile(jar) as archive:
        entries = {name: archive.read(name) for name in archive.namelist()} | members
    with zipfile.ZipFile(jar, "w") as archive:
        for name, content in entries.items():
            archive.writestr(name, content)
