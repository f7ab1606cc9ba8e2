"""Compiles the Scala queries with the compiler that the installed pyspark carries, and keeps the jar."""

from __future__ import annotations

import hashlib
import os
import subprocess
import tempfile
from pathlib import Path

import pyspark

_SOURCES = Path(__file__).resolve().parent / "scala"
_CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "incremental-state-store"


def scala_queries_jar() -> Path:
    """The jar of ``scala/*.scala`` for this pyspark. Raises CalledProcessError with the compiler's words."""
    sources = sorted(_SOURCES.glob("*.scala"))
    digest = hashlib.sha256(b"".join(source.read_bytes() for source in sources)).hexdigest()[:16]
    jar = _CACHE / "test-jars" / f"queries-{pyspark.__version__}-{digest}.jar"
    if not jar.exists():
        _compile(sources, jar)
    return jar


def _compile(sources: list[Path], jar: Path) -> None:
    jar.parent.mkdir(parents=True, exist_ok=True)
    classpath = str(Path(pyspark.__file__).parent / "jars" / "*")
    with tempfile.TemporaryDirectory(dir=jar.parent) as room:
        fresh = Path(room) / jar.name
        command = [
            "java",
            "-Xss4m",
            "-cp",
            classpath,
            "scala.tools.nsc.Main",
            "-nowarn",
            "-classpath",
            classpath,
        ]
        subprocess.run([*command, "-d", str(fresh), *map(str, sources)], check=True, timeout=300)
        fresh.replace(jar)
