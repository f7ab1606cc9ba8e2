"""Runs Spark's own published state store suites against the provider, and says how many passed.

    python tests/suites/run.py [--only GROUP] [--suite NAME] [--test NAME] [--provider CLASS]

The groups contract, aggregation, dedup and reader are the harness's; state-variables and transform-with-state
are those of `redirected.py`. Without --only all run but the last, which takes long; --suite and --test run
one suite of transform-with-state, or one test of it.

The harness with the list of required tests lives outside the repository: STATE_STORE_SUITES names its
directory, which is otherwise `../shared/suites` beside the checkout. It runs in the project's environment
for Spark 4.2 (`.venv-4.2`), which is made first when it is not there. What Maven fetches is kept in the
user's cache directory. The exit status is 0 when every required test passed.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

CHECKOUT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(CHECKOUT))

import redirected  # noqa: E402

from state_store import spark  # noqa: E402
from state_store.jvm import build, releases  # noqa: E402

# Spark publishes its test classes for this release; the harness is written for it.
SPARK_VERSION = next(release.tested for release in releases.RELEASES if release.minor == "4.2")
ENVIRONMENT = CHECKOUT / ".venv-4.2"
VARIABLE = "STATE_STORE_SUITES"
HARNESS_GROUPS = ("contract", "aggregation", "dedup", "reader")


def main(arguments: list[str] | None = None) -> int:
    options = _parse(arguments)
    suites = suites_directory()
    work = _cache_directory() / "suites"
    work.mkdir(parents=True, exist_ok=True)
    summary = work / f"summary-{options.provider.rsplit('.', 1)[-1]}.json"
    summary.unlink(missing_ok=True)
    command = [suites / "run-suites", _environment(options.venv), work, "--out", summary]
    command += ["--provider", options.provider]
    if options.provider == spark.PROVIDER_CLASS:
        command += ["--jar", _jar()]
    wanted = options.only or [*HARNESS_GROUPS, "state-variables"]
    own = [group for group in wanted if group in redirected.GROUPS]
    status = 0
    if not options.suite and len(own) < len(wanted):
        for group in set(wanted) - set(own):
            command += ["--only", group]
        status = subprocess.run([sys.executable, *map(str, command)], check=False).returncode
        _report(summary)
    if own or options.suite:
        status |= _run_redirected(suites, work, own, options)
    return status


def _run_redirected(suites: Path, work: Path, groups: list[str], options: argparse.Namespace) -> int:
    """Runs the suites of these groups, or the one that the options name; 0 when all is as it has to be."""
    program = redirected.harness(suites)
    bench = redirected.bench(
        program, _environment(options.venv).resolve(), work, _jar(), options.provider, "redirected"
    )
    bench.prepare()
    names = dict.fromkeys(name for group in groups for name in redirected.GROUPS[group])
    if options.suite:
        everything = redirected.GROUPS["transform-with-state"]
        names = dict.fromkeys(name for name in everything if name.endswith("." + options.suite))
    outcomes, wrong = {}, []
    for name in names:
        suite = program.short(name)
        outcomes[suite] = outcome = bench.run(name, options.test)
        program.show("redirected", name, outcome)
        wrong += redirected.judge(suite, outcome, options.provider)
    if not options.test:
        wrong += redirected.unused_exceptions(outcomes)
    summary = work / "summary-redirected.json"
    summary.write_text(json.dumps({"suites": outcomes}, indent=1), encoding="utf-8")
    _report(summary)
    print("\n".join(wrong) if wrong else "every test passed that has no exception")
    return int(bool(wrong))


def suites_directory() -> Path:
    """Where the harness is. Exits with a message that says what to do when it is nowhere."""
    named = os.environ.get(VARIABLE)
    directory = Path(named) if named else CHECKOUT.parent / "shared" / "suites"
    if not (directory / "run-suites").is_file():
        sys.exit(
            f"Spark's suites are not in {directory}: it has no file run-suites. "
            f"Set {VARIABLE} to the directory that has it, or put it beside the checkout: ../shared/suites."
        )
    return directory


def _parse(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Run Spark's own state store suites against the provider.")
    parser.add_argument(
        "--only",
        action="append",
        choices=[*HARNESS_GROUPS, *redirected.GROUPS],
        help="a group of suites; may be given more than once",
    )
    parser.add_argument("--suite", help="a suite of transform-with-state by its short name, and no other")
    parser.add_argument("--test", help="one test of that suite")
    parser.add_argument(
        "--provider", default=spark.PROVIDER_CLASS, help="another provider's class, to compare"
    )
    parser.add_argument(
        "--venv", type=Path, default=ENVIRONMENT, help=f"an environment with pyspark {SPARK_VERSION}"
    )
    return parser.parse_args(arguments)


def _environment(venv: Path) -> Path:
    if not (venv / "bin" / "python").exists():
        subprocess.run(["make", f"{ENVIRONMENT.name}/.ready"], cwd=CHECKOUT, check=True)
    return venv


def _jar() -> Path:
    jar = build.JAR_DIRECTORY / releases.jar_name(SPARK_VERSION)
    if not jar.exists():
        sys.exit(f"{jar} is missing; `make setup` compiles it")
    return jar


def _cache_directory() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "incremental-state-store"


def _report(summary: Path) -> None:
    """Prints a table of the suites, when they ran at all."""
    if not summary.exists():
        print("no suite was run")
        return
    for suite, outcome in sorted(json.loads(summary.read_text())["suites"].items()):
        counts = Counter(test["status"] for test in outcome["tests"].values())
        told = ", ".join(f"{number} {status}" for status, number in sorted(counts.items()))
        print(f"  {suite:55} {outcome['seconds']:4} s  {told}")


if __name__ == "__main__":
    sys.exit(main())
