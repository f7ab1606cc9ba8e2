"""`python -m tests.simulation SEED [...]`: runs the histories of these seeds, and says which fail.

python -m tests.simulation 17 --trace
python -m tests.simulation 1000 --count 500 --format 2 --jobs 2
"""

from __future__ import annotations

import argparse
import sys
import time
import traceback
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

TESTS = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(TESTS), str(TESTS / "core"), str(TESTS.parent)]

from simulation.cluster_history import PROFILES, History  # noqa: E402
from simulation.troubles import TROUBLES  # noqa: E402


def main() -> int:
    given = _parse()
    began = time.monotonic()
    seeds = range(given.seed, given.seed + given.count)
    failed = []
    counts: dict[str, int] = {}
    if given.jobs > 1:
        with ProcessPoolExecutor(given.jobs) as pool:
            running = pool.map(
                _run, seeds, *zip(*[_arguments(given)] * len(seeds), strict=True), chunksize=10
            )
            results = list(running)
    else:
        results = [_run(seed, *_arguments(given)) for seed in seeds]
    for seed, error, found in results:
        for name, count in found.items():
            counts[name] = counts.get(name, 0) + count
        if error is not None:
            failed.append(seed)
            print(f"seed {seed} failed:\n{error}", flush=True)
    for name in sorted(counts):
        print(f"{counts[name]:8} {name}")
    held, took_s = len(seeds) - len(failed), time.monotonic() - began
    print(f"{held} of {len(seeds)} held in {took_s:.0f} s; failed: {failed}")
    return 1 if failed else 0


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Run simulated histories.")
    parser.add_argument("seed", type=int)
    parser.add_argument("--count", type=int, default=1, help="this many seeds from that on (default: 1)")
    parser.add_argument(
        "--format", type=int, choices=(1, 2), default=2, help="checkpoint format (default: 2)"
    )
    parser.add_argument("--batches", type=int, help="length of the history (default: as the seed says)")
    parser.add_argument("--profile", choices=sorted(set(PROFILES)), help="faults (default: as the seed says)")
    parser.add_argument("--partitions", type=int, default=2, help="partitions of the state (default: 2)")
    parser.add_argument(
        "--trouble",
        action="append",
        choices=sorted(TROUBLES),
        default=[],
        help="a trouble beyond the profile (repeatable)",
    )
    parser.add_argument("--jobs", type=int, default=1, help="this many at a time (default: 1)")
    parser.add_argument("--trace", action="store_true", help="print what happened")
    return parser.parse_args()


def _arguments(given: argparse.Namespace) -> tuple[object, ...]:
    return given.format, given.batches, given.profile, given.partitions, given.trace, given.trouble


def _run(
    seed: int,
    format_: int,
    batches: int | None,
    profile: str | None,
    partitions: int,
    trace: bool,
    troubles: list[str],
) -> tuple[int, str | None, dict[str, int]]:
    history = History(
        seed, ids=format_ == 2, batches=batches, profile=profile, partitions=partitions, troubles=troubles
    )
    error = None
    try:
        history.run()
    except BaseException:
        error = traceback.format_exc()
    if trace:
        print("\n".join(history.trace))
    counts = {**history.counts, "batches": history.committed, "steps": history.scheduler.steps}
    return seed, error, counts


if __name__ == "__main__":
    sys.exit(main())
