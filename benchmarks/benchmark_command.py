"""The program of the benchmarks, `python -m benchmarks`.

It runs scenarios, writes their results, makes the pages, and compares ratios with the recorded ones.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import multiprocessing
import os
import random
import resource
import signal
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyspark

from benchmarks import recorded, results
from benchmarks.environment import jvm, machine_facts, providers
from benchmarks.page import report
from benchmarks.runner import QUICK, RUNNERS, USUAL
from benchmarks.scenarios.store_level import EXTENTS, Extent

ROOT = Path(__file__).resolve().parent.parent
DEFAULT_OUT = jvm.BUILD / "results"
KEPT = Path(__file__).resolve().parent / "measured"
"""The kept results, a file for each scenario, from which the pages are made."""

IN_SECOND_PROCESS = ("queries", "vectorized", "merges", "hdfs", "engines")
"""The scenarios that the quick extent runs in a second process; they take about half of its time."""


def main(arguments: list[str] | None = None) -> None:
    """Run the command line and exit.

    The exit code is 1 if a scenario failed or a store returned wrong content. A ratio that fell only warns.
    """
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that started processes end with it
    parser = _parser()
    options = parser.parse_args(arguments)
    extent = EXTENTS[options.bench or options.extent or "standard"]
    if options.keep and extent.is_quick:
        parser.error("the figures of the quick extent mean nothing: it cannot be kept")
    if options.keep and options.report:
        parser.error("--report runs nothing that --keep could keep")
    if options.largest:
        extent = dataclasses.replace(extent, largest=options.largest)
    extent = dataclasses.replace(extent, cases=tuple(options.cases), stores=tuple(options.stores))
    if extent.is_quick:  # its JVMs live for seconds, too short for the optimising compiler
        os.environ.setdefault("JAVA_TOOL_OPTIONS", "-XX:TieredStopAtLevel=1")
    out = options.out / extent.name
    out.mkdir(parents=True, exist_ok=True)
    usual = QUICK if extent.is_quick else USUAL
    if options.draw:
        options.scenario = random.Random(options.draw).sample(usual, -(-len(usual) // 10))
    failed = not options.report and not _run_all(options.scenario or usual, extent, out)
    is_complete = not options.scenario and not extent.is_quick and not options.report
    if is_complete or options.keep:
        _keep(options.scenario or usual, out, is_part=bool(options.cases or options.stores))
    of_kept = is_complete or options.keep or options.report
    loaded_results, pages = (results.load(KEPT), ROOT) if of_kept else (results.load(out), out)
    if options.record:
        recorded.write(loaded_results)
    for warning in recorded.warnings(loaded_results):
        print(f"warning: {warning}", file=sys.stderr)
    print(f"report: {report.write(loaded_results, pages, keep_earlier=of_kept)}")
    sys.exit(1 if failed else 0)


def _keep(names: Sequence[str], out: Path, *, is_part: bool) -> None:
    """Keep the results of these scenarios, except of those that failed, or in which a store was wrong.

    Earlier results stay for a scenario that failed, and for the other cases if only a part was measured.
    """
    KEPT.mkdir(exist_ok=True)
    measured, kept_scenarios = results.load(out).scenarios, results.load(KEPT).scenarios
    for name in names:
        if problems := problems_of(measured[name]):
            print(f"{name} is not kept: {problems[0]}", file=sys.stderr)
        else:
            joins = is_part and name in kept_scenarios
            result = results.joined(kept_scenarios[name], measured[name]) if joins else measured[name]
            (KEPT / f"{name}.json").write_text(json.dumps(result, indent=1) + "\n")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks",
        description="Run scenarios, write their results and the pages, and compare with recorded ratios.",
    )
    parser.add_argument("extent", nargs="?", choices=list(EXTENTS), help="the same as --bench")
    parser.add_argument("--bench", choices=list(EXTENTS), help="the sizes: quick, standard (default) or full")
    parser.add_argument(
        "--scenario", nargs="+", choices=list(RUNNERS), help="scenarios to run (default: all that are cheap)"
    )
    parser.add_argument("--draw", metavar="SEED", help="run a tenth of the scenarios, drawn by this word")
    parser.add_argument(
        "--largest", type=int, help="keys of the largest store in the scenarios `size` and `services`"
    )
    parser.add_argument(
        "--cases",
        nargs="+",
        default=[],
        metavar="CASE",
        help="cases to run of the store-level scenarios, as the page's headings name them",
    )
    parser.add_argument(
        "--stores",
        nargs="+",
        default=[],
        metavar="STORE",
        help="only these there, such as incremental or rocksdb-changelog; with --keep, the results of "
        "others and of other cases stay, and the page says which were measured when",
    )
    parser.add_argument(
        "--out", type=Path, default=DEFAULT_OUT, help=f"results go below it (default {DEFAULT_OUT})"
    )
    parser.add_argument(
        "--keep",
        action="store_true",
        help="keep these results for the pages, as those of a whole run are kept",
    )
    parser.add_argument(
        "--report", action="store_true", help="run nothing; write the pages from the results that are kept"
    )
    parser.add_argument(
        "--record", action="store_true", help="keep these results as those that later ones must reach"
    )
    return parser


def _run_all(names: Sequence[str], extent: Extent, out: Path) -> bool:
    """Run scenarios and return True if all succeeded.

    The quick extent runs two at a time, because its figures mean nothing; the others run one by one.
    """
    second = [name for name in IN_SECOND_PROCESS if name in names] if extent.is_quick else []
    if not second or len(second) == len(names):
        return _run_each(names, extent, out)
    process = multiprocessing.get_context("fork").Process(
        target=lambda: sys.exit(0 if _run_each(second, extent, out) else 1), daemon=True
    )
    process.start()  # a daemon: it ends when this process is ended
    succeeded = _run_each([name for name in names if name not in second], extent, out)
    process.join()
    return succeeded and process.exitcode == 0


def _run_each(names: Sequence[str], extent: Extent, out: Path) -> bool:
    outcomes = [_run(name, extent, out) for name in names]
    return all(outcomes)


def _run(name: str, extent: Extent, out: Path) -> bool:
    """Run a scenario, write its result file, and print its outcome."""
    ours = providers.jar_for(pyspark.__version__) is not None
    started, cpu = time.monotonic(), _cpu_seconds()
    result: dict[str, Any] = {
        "scenario": name,
        "bench": extent.name,
        "machine": machine_facts.describe(),
        "ours": ours,
    }
    try:
        result.update(RUNNERS[name](extent, ours, out))
    except Exception as error:
        result["failed"] = f"{type(error).__name__}: {error}"
    result["seconds"] = round(time.monotonic() - started, 1)
    result["cpu_seconds"] = round(_cpu_seconds() - cpu, 1)
    (out / f"{name}.json").write_text(json.dumps(result, indent=1) + "\n")
    problems = problems_of(result)
    print(
        f"{name}: {result['seconds']} s, {result['cpu_seconds']} s of CPU"
        + "".join(f"\n  {problem}" for problem in problems),
        flush=True,
    )
    return not problems


def problems_of(result: Mapping[str, Any]) -> list[str]:
    """Return why a scenario did not finish, or the errors of its stores; empty if all went well."""
    return [result["failed"]] if "failed" in result else results.errors(result)


def _cpu_seconds() -> float:
    """Return the CPU seconds of this process and of its children that have ended."""
    usages = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(usage.ru_utime + usage.ru_stime for usage in usages)
