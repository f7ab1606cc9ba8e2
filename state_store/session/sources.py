"""The sources of the jar: Scala files, resources, and the agent's Python code.

In a checkout the Scala sources are in `jvm_bridge/` beside the package; an installed package has a copy of
that directory. Nothing here writes. Safe for any thread.
"""

from __future__ import annotations

import hashlib
import io
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path

from state_store.session.releases import minor_of

PACKAGE = Path(__file__).resolve().parent.parent
CHECKOUT = PACKAGE.parent / "jvm_bridge"
CARRIED = PACKAGE / "session" / "bridge"
MANIFEST = "META-INF/MANIFEST.MF"
_DOS_EPOCH = (1980, 1, 1, 0, 0, 0)


def directory() -> Path:
    """Return the directory with `scala`, a `scala-<minor>` for each Spark, and `resources`."""
    return CARRIED if CARRIED.is_dir() else CHECKOUT


def is_checkout() -> bool:
    """Return True if the package runs from a checkout, whose sources may change at any time."""
    return directory() == CHECKOUT


def scala(spark_version: str) -> list[Path]:
    """Return the common sources and those for a version of Spark.

    A file of `scala-<minor>` is for that Spark and all later ones, up to the next release with a file of the
    same name. An unknown Spark gets those of the newest release before it.
    """
    version = _numbers(spark_version)
    own: dict[Path, Path] = {}
    for root in sorted(directory().glob("scala-*"), key=lambda root: _numbers(root.name[len("scala-") :])):
        if _numbers(root.name[len("scala-") :]) <= version:
            own.update({path.relative_to(root): path for path in root.rglob("*.scala")})
    return sorted([*(directory() / "scala").rglob("*.scala"), *own.values()])


def _numbers(version: str) -> tuple[int, ...]:
    """Return `(4, 3)` for `4.3.0` and for `4.3`."""
    return tuple(int(part) for part in minor_of(version).split("."))


def resources() -> dict[str, bytes]:
    """Return the files that the jar has unchanged, by their names in it."""
    root = directory() / "resources"
    return {path.relative_to(root).as_posix(): path.read_bytes() for path in files(root)}


def agent_code() -> dict[str, bytes]:
    """Return the package's Python files by import path; the jar brings them to the executors."""
    python_files = (path for path in files(PACKAGE) if path.suffix == ".py" and CARRIED not in path.parents)
    return {f"state_store/{path.relative_to(PACKAGE).as_posix()}": path.read_bytes() for path in python_files}


def files(root: Path) -> Iterator[Path]:
    """Yield all files below a directory in order, without compiled Python."""
    return (path for path in sorted(root.rglob("*")) if path.is_file() and "__pycache__" not in path.parts)


def digest(parts: Mapping[str, bytes]) -> str:
    """Return one hash of all names and contents, as 64 hexadecimal digits."""
    total = hashlib.sha256()
    for name, content in sorted(parts.items()):
        total.update(f"{name} {len(content)}\n".encode())
        total.update(content)
    return total.hexdigest()


def archive(entries: Mapping[str, bytes]) -> bytes:
    """Return a zip of these entries.

    They are sorted, the manifest first, with fixed times, so that the bytes are reproducible.
    """
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as zipped:
        for name in sorted(entries, key=lambda name: (name != MANIFEST, name)):
            entry = zipfile.ZipInfo(name, _DOS_EPOCH)
            entry.compress_type = zipfile.ZIP_DEFLATED
            entry.external_attr = 0o644 << 16
            zipped.writestr(entry, entries[name])
    return buffer.getvalue()
