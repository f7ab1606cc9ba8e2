"""Compile the Scala of the tests: each jar once, kept in the user's cache under a hash of its sources.

Any process may ask for a jar; one compiles, the others wait for it.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import tempfile
import zipfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pyspark

from state_store.session import build, releases
from state_store.session.releases import BuildError as BuildError  # for those who compile

PROBES_VARIABLE = "STATE_STORE_TEST_PROBES"
"""Variable that names a jar to use for `probes_jar`, unchanged."""

TESTS = Path(__file__).resolve().parent
CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "incremental-state-store"
SPARK_JARS = Path(pyspark.__file__).resolve().parent / "jars"
QUERIES = TESTS / "spark" / "queries"


def state_store_jar() -> Path:
    """Return the state store's jar for this pyspark, built if it is missing or out of date."""
    with locked(f"state-store-{pyspark.__version__}"):
        jar, _ = build.build(releases.installed_pyspark(), build.JAR_DIRECTORY)
    return jar


def queries_jar() -> Path:
    """Return the jar of streaming queries in Scala. They need only Spark; some need 4.2."""
    sources = sorted(QUERIES.glob("scala/**/*.scala"))
    if not pyspark.__version__.startswith(("4.0.", "4.1.")):
        sources += sorted(QUERIES.glob("scala-4.2/**/*.scala"))
    return compiled("queries", sources)


def probes_jar() -> Path:
    """Return the jar of the tests' other Scala: programs that inspect the state store."""
    if PROBES_VARIABLE in os.environ:
        return Path(os.environ[PROBES_VARIABLE])
    sources = [path for path in sorted(TESTS.glob("**/scala/**/*.scala")) if QUERIES not in path.parents]
    return compiled("probes", sources, against=[state_store_jar()])


def probes_class_path() -> str:
    """Return a class path with `probes_jar`, the state store's jar, and Spark's."""
    return os.pathsep.join([str(probes_jar()), str(state_store_jar()), f"{SPARK_JARS}{os.sep}*"])


def compiled(name: str, sources: Sequence[Path], against: Iterable[Path] = ()) -> Path:
    """Return the jar of the sources, compiled against Spark and the jars in `against`.

    Raises BuildError with the compiler's output.
    """
    libraries = list(against)
    jar = CACHE / "test-jars" / f"{name}-{pyspark.__version__}-{_digest(sources, libraries)}.jar"
    with locked(f"{name}-{pyspark.__version__}"):
        if not jar.exists():
            jar.parent.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryDirectory(dir=jar.parent) as room:
                fresh = Path(room) / jar.name
                compile_into(fresh, sources, libraries)
                fresh.replace(jar)
    return jar


def compile_into(out: Path, sources: Iterable[Path], against: Iterable[Path]) -> None:
    """Compile into `out`, a directory or a jar, against Spark and the jars in `against`.

    Raises BuildError.
    """
    build.compile_scala(SPARK_JARS, sources, out, against)


def _digest(sources: Iterable[Path], libraries: Iterable[Path]) -> str:
    """Return a digest of the sources and of the classes in the jars, which are all that the compiler sees."""
    total = hashlib.sha256()
    for source in sources:
        total.update(source.read_bytes())
    for library in libraries:
        with zipfile.ZipFile(library) as archive:
            classes = [entry for entry in archive.infolist() if entry.filename.endswith(".class")]
        total.update("".join(f"{entry.filename} {entry.CRC}\n" for entry in classes).encode())
    return total.hexdigest()[:16]


@contextmanager
def locked(name: str) -> Iterator[None]:
    """Keep the tests' other processes out of this name in the cache."""
    CACHE.mkdir(parents=True, exist_ok=True)
    with open(CACHE / f"{name}.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
