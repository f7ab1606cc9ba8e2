"""Spark's suites of `transformWithState`, which name Spark's RocksDB store, on this project's provider.

The harness outside the repository runs them (`published_suites.py`). Each provider of Spark's class is turned
into one of this project's where it is made (`redirect/Redirect.java`). The tests that cannot pass, and why,
are in `exceptions.json`, by release of Spark: a test by its whole name, or by the beginning of its name with
`*` behind it. Every other test has to pass.
"""

from __future__ import annotations

import hashlib
import importlib.machinery
import importlib.util
import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

from state_store.core.settings.session import PROVIDER_KEY
from state_store.session.releases import minor_of

HERE = Path(__file__).resolve().parent
_STATE = "org.apache.spark.sql.execution.streaming.state."
_STREAMING = "org.apache.spark.sql.streaming."
_READER = "org.apache.spark.sql.execution.datasources.v2.state."

FILES = "suites.CheckpointFilesSuite"
"""Spark's tests of managers of checkpoint files, for this project's. They open no store."""

VARIABLES = [_STATE + name for name in ("ValueStateSuite", "ListStateSuite", "MapStateSuite", "TimerSuite")]
"""State variables and timers on a store, without queries: a minute."""

# TransformWithStateClusterSuite is left out: it starts executors, in which nothing is redirected.
GROUPS: Mapping[str, Sequence[str]] = {
    "state-variables": VARIABLES,
    "transform-with-state": [
        *VARIABLES,
        _STATE + "StatefulProcessorHandleSuite",
        *(
            _STREAMING + name
            for name in (
                "TransformWithListStateSuite",
                "TransformWithListStateTTLSuite",
                "TransformWithMapStateSuite",
                "TransformWithMapStateTTLSuite",
                "TransformWithValueStateTTLSuite",
                "TransformWithStateAvroSuite",
                "TransformWithStateChainingSuite",
                "TransformWithStateInitialStateSuite",
                "TransformWithStateUnsafeRowSuite",
                "TransformWithStateValidationSuite",
            )
        ),
        _READER + "StateDataSourceTransformWithStateSuite",
    ],
    "change-feed": [
        _READER + "RocksDBWithChangelogCheckpointStateDataSourceChangeDataReaderSuite",
        _READER + "RocksDBWithCheckpointV2StateDataSourceChangeDataReaderSuite",
    ],
    "checkpoint-files": [FILES],
    "joins": [
        _STREAMING + f"Streaming{kind}JoinV4Suite" for kind in ("Inner", "Outer", "FullOuter", "LeftSemi")
    ],
}

# Spark ends its maintenance while it holds a lock that the maintenance may wait for: then it waits for so
# many seconds. By itself it waits for the five minutes after which the harness ends the suite.
CONF = ("spark.sql.streaming.stateStore.maintenanceShutdownTimeout=20",)

SUITE_S = 3600
"""Bound of a suite's seconds: some of `transformWithState` need 15 minutes on a busy machine."""

_EXCEPTIONS: dict[str, dict[str, dict[str, str]]] = json.loads(
    (HERE / "exceptions.json").read_text(encoding="utf-8")
)


def harness(directory: Path) -> ModuleType:
    """Return the harness's program as a module."""
    loader = importlib.machinery.SourceFileLoader("run_suites", str(directory / "run-suites"))
    spec = importlib.util.spec_from_loader(loader.name, loader)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    loader.exec_module(module)
    module.SUITE_S = SUITE_S
    return module


def bench(program: ModuleType, venv: Path, work: Path, jar: Path, provider: str, label: str) -> Any:
    """Return the harness's own bench, with another main class and `provider` behind Spark's.

    `label` names the directory of its runs.
    """
    options = program.argparse.Namespace(
        jar=[jar], provider=_STATE + "RocksDBStateStoreProvider", conf=[*CONF], out=label
    )

    class Redirected(program.Bench):  # type: ignore[name-defined,misc]
        sources = _sources(minor_of(program.Bench(venv, work, options).version))
        redirect = (
            work / f"redirect-{hashlib.sha256(b''.join(map(Path.read_bytes, sources))).hexdigest()[:16]}"
        )

        def compile(self) -> None:
            super().compile()
            if not self.redirect.exists():
                with tempfile.TemporaryDirectory(dir=work) as fresh:
                    java = [path for path in self.sources if path.suffix == ".java"]
                    scala = [path for path in self.sources if path.suffix == ".scala"]
                    subprocess.run(["javac", "-cp", self.classpath(), "-d", fresh, *java], check=True)
                    compiler = ["java", "-cp", self.classpath(), "scala.tools.nsc.Main", "-nowarn"]
                    subprocess.run(
                        [*compiler, "-classpath", self.classpath(), "-d", fresh, *scala], check=True
                    )
                    shutil.copytree(fresh, self.redirect)

        def classpath(self) -> str:
            return f"{self.redirect}{os.pathsep}{super().classpath()}"

        def command(self, *asked: Any) -> list[str]:
            # Some suites rest on Spark's default; those of RocksDB set it themselves.
            words = [
                word for word in super().command(*asked) if not str(word).startswith(f"-D{PROVIDER_KEY}=")
            ]
            at = words.index("suites.Main")
            return [*words[:at], f"-Dsuites.redirect={provider}", "suites.Redirect", *words[at + 1 :]]

    return Redirected(venv, work, options)


def _sources(release: str) -> list[Path]:
    """Return the classes that redirect; those of releases before 4.2 replace classes of the same name."""
    found = {path.name: path for path in (HERE / "redirect").glob("*.java")}
    if release < "4.2":
        found.update({path.name: path for path in (HERE / "redirect-4.0").glob("*.java")})
    found.update({path.name: path for path in (HERE / "files").glob("*.scala")})
    return [found[name] for name in sorted(found)]


def published(bench: Any, names: Iterable[str]) -> list[str]:
    """Return the suites that Spark's test classes of this release have, and this project's own."""
    return [
        name
        for name in names
        if any(
            (place / f"{name.replace('.', '/')}.class").exists() for place in (bench.unpacked, bench.redirect)
        )
    ]


def judge(release: str, suite: str, outcome: Mapping[str, Any], provider: str) -> list[str]:
    """Return the faults of a suite's outcome, each as a line; empty if the outcome is as required."""
    wrong = [f"{suite}: {outcome['aborted']}"] if "aborted" in outcome else []
    opens_stores = suite != FILES.rpartition(".")[2]
    if opens_stores and not any(provider in test["providers"] for test in outcome["tests"].values()):
        wrong.append(f"{suite}: none of its tests has opened {provider}")
    for name, test in sorted(outcome["tests"].items()):
        if test["status"] == "failed" and reason(release, suite, name) is None:
            wrong.append(f"{suite}: {name}: {test.get('why', '')}")
    return wrong


def reason(release: str, suite: str, test: str) -> str | None:
    """Return the reason why a test cannot pass; None if it must pass."""
    for name, why in _of(release, suite).items():
        if test == name or (name.endswith("*") and test.startswith(name[:-1])):
            return why
    return None


def unused_exceptions(release: str, outcomes: Mapping[str, Mapping[str, Any]]) -> Iterable[str]:
    """Return exceptions of suites that no failed test needs, each as a line."""
    for suite, outcome in outcomes.items():
        failed = [name for name, test in outcome["tests"].items() if test["status"] == "failed"]
        for name in _of(release, suite):
            beginning = name.removesuffix("*")
            if not any(test.startswith(beginning) for test in failed):
                yield f"{suite}: {name}: no test that fails needs this exception"


def _of(release: str, suite: str) -> Mapping[str, str]:
    return _EXCEPTIONS.get(release, {}).get(suite, {})
