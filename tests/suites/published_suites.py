"""Run Spark's own published state store suites against the provider, and print how many passed.

    python tests/suites/published_suites.py [--spark VERSION] [--only GROUP] [--draw SEED] [--suite NAME]
                                            [--test NAME] [--provider NAME]

The groups contract, aggregation, dedup and reader are the harness's; the others are those of `redirected.py`.
Without --only, the harness's, state-variables and checkpoint-files run, which take minutes; with --draw the
contract and another of these, which the seed draws; --suite and --test run one suite of `redirected.py`,
or one test of it.

The harness with the list of required tests lives outside the repository: STATE_STORE_SUITES names its
directory, which is otherwise `../shared/suites` beside the checkout. It is for Spark 4.2; `adapted.py` makes
one of it for 4.0 and 4.1. It runs in the project's environment for that Spark (`.venv-4.2`). Jars that Maven
fetches are kept in the user's cache directory. The exit status is 0 when every required test passed; on 4.0
and 4.1, every test that `exceptions.json` does not name.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

CHECKOUT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(CHECKOUT))

import adapted  # noqa: E402
import redirected  # noqa: E402

from state_store.core.settings import session  # noqa: E402
from state_store.session import build, releases  # noqa: E402

# Spark publishes its test classes for these releases.
SPARKS = [release.tested for release in releases.RELEASES if release.minor in ("4.0", "4.1", "4.2")]
OF_MINOR = {releases.minor_of(version): version for version in SPARKS}
DEFAULT = SPARKS[-1]
VARIABLE = "STATE_STORE_SUITES"
HARNESS_GROUPS = ("contract", "aggregation", "dedup", "reader")
USUAL = ("state-variables", "checkpoint-files")
"""Groups of our own that run without --only; the others take longer."""

ALWAYS = ("contract",)
"""Groups that run whatever is drawn: the contract of a state store, without a query."""


def main(arguments: list[str] | None = None) -> int:
    options = _parse(arguments)
    release = releases.minor_of(options.spark)
    work = _cache_directory() / "suites"
    if release != adapted.OF_HARNESS:
        work /= release
    work.mkdir(parents=True, exist_ok=True)
    suites = adapted.harness(suites_directory(), release, work / "harness")
    others = [group for group in (*HARNESS_GROUPS, *USUAL) if group not in ALWAYS]
    drawn = random.Random(options.draw).sample(others, 1) if options.draw else others
    wanted = options.only or [*ALWAYS, *drawn]
    own = [group for group in wanted if group in redirected.GROUPS]
    status = 0
    if not options.suite and len(own) < len(wanted):
        status = _run_harness(suites, work, sorted(set(wanted) - set(own)), options)
    if own or options.suite:
        status |= _run_redirected(suites, work, own, options)
    return status


def _run_harness(suites: Path, work: Path, groups: list[str], options: argparse.Namespace) -> int:
    """Run the harness's own groups; return 0 if all outcomes are as required."""
    summary = work / f"summary-{options.provider.rsplit('.', 1)[-1]}.json"
    summary.unlink(missing_ok=True)
    command = [suites / "run-suites", _environment(options), work, "--out", summary]
    command += ["--provider", options.provider]
    if options.provider == session.PROVIDER_CLASS:
        command += ["--jar", _jar(options.spark)]
    for group in groups:
        command += ["--only", group]
    status = subprocess.run([sys.executable, *map(str, command)], check=False).returncode
    _report(summary)
    if (suites / adapted.REQUIRED).exists():
        return status
    if not summary.exists():
        return 1
    return _verdict(_release(options), json.loads(summary.read_text())["suites"], options.provider)


def _run_redirected(suites: Path, work: Path, groups: list[str], options: argparse.Namespace) -> int:
    """Run the suites of these groups, or the one of the options; return 0 if all outcomes are as required."""
    program = redirected.harness(suites)
    bench = redirected.bench(
        program, _environment(options).resolve(), work, _jar(options.spark), options.provider, "redirected"
    )
    bench.prepare()
    release = _release(options)
    asked = dict.fromkeys(name for group in groups for name in redirected.GROUPS[group])
    if options.suite:
        everything = (name for names in redirected.GROUPS.values() for name in names)
        asked = dict.fromkeys(name for name in everything if name.endswith("." + options.suite))
    names = redirected.published(bench, asked)
    for name in asked.keys() - set(names):
        print(f"Spark {options.spark} has no {name}")
    if not names:
        sys.exit("none of these suites exists")
    outcomes = {}
    for name in names:
        outcomes[program.short(name)] = outcome = bench.run(name, options.test)
        program.show("redirected", name, outcome)
    summary = work / "summary-redirected.json"
    summary.write_text(json.dumps({"suites": outcomes}, indent=1), encoding="utf-8")
    _report(summary)
    return _verdict(release, outcomes, options.provider, in_part=options.test is not None)


def _verdict(release: str, outcomes: dict[str, Any], provider: str, *, in_part: bool = False) -> int:
    """Print the faults of outcomes; return 0 if there are none."""
    wrong = [
        line for suite in outcomes for line in redirected.judge(release, suite, outcomes[suite], provider)
    ]
    if not in_part:
        wrong += redirected.unused_exceptions(release, outcomes)
    print("\n".join(wrong) if wrong else "every test passed that has no exception")
    return int(bool(wrong))


def _release(options: argparse.Namespace) -> str:
    return releases.minor_of(options.spark)


def suites_directory() -> Path:
    """Return the directory of the harness. Exit with advice if it is missing."""
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
    parser.add_argument(
        "--draw", metavar="SEED", help="run the contract and another group, drawn by this word"
    )
    parser.add_argument(
        "--spark",
        default=DEFAULT,
        type=lambda text: OF_MINOR.get(text, text),
        choices=SPARKS,
        metavar="VERSION",
        help=f"one of {', '.join(SPARKS)}, or the first two numbers; default: {DEFAULT}",
    )
    parser.add_argument("--suite", help="a single suite of `redirected.py` by its short name")
    parser.add_argument("--test", help="a single test of that suite")
    parser.add_argument(
        "--provider", default=session.PROVIDER_CLASS, help="another provider's class, to compare"
    )
    parser.add_argument("--venv", type=Path, help="an environment with that pyspark; default: the project's")
    return parser.parse_args(arguments)


def _environment(options: argparse.Namespace) -> Path:
    venv: Path = options.venv or CHECKOUT / f".venv-{_release(options)}"
    if not (venv / "bin" / "python").exists():
        sys.exit(f"{venv} is missing; `make setup` makes it")
    return venv


def _jar(version: str) -> Path:
    jar = build.JAR_DIRECTORY / releases.jar_name(version)
    if not jar.exists():
        sys.exit(f"{jar} is missing; `make setup` compiles it")
    return jar


def _cache_directory() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "incremental-state-store"


def _report(summary: Path) -> None:
    """Print a table of the suites, if they ran."""
    if not summary.exists():
        print("no suite was run")
        return
    for suite, outcome in sorted(json.loads(summary.read_text())["suites"].items()):
        counts = Counter(test["status"] for test in outcome["tests"].values())
        counts_text = ", ".join(f"{number} {status}" for status, number in sorted(counts.items()))
        print(f"  {suite:55} {outcome['seconds']:4} s  {counts_text}")


if __name__ == "__main__":
    sys.exit(main())
