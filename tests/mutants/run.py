"""Break the code in one line after the other, and list the breaks that no test sees.

    python tests/mutants/run.py [--only WORD]... [--sample N [--seed S]] [--jobs N] [--list]

Each mutant is put into a copy of the checkout and the tests that it names are run there; one of them has to
fail. Tests of unbroken code are run first: they have to pass. Prints a line for each mutant and, at the end,
how many were caught of how many; exits with 1 unless it was all of them.
"""

from __future__ import annotations

import argparse
import queue
import random
import sys
import tempfile
import threading
import time
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

TESTS = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(TESTS), str(TESTS.parent)]

from parts import at_least_one  # noqa: E402

from mutants import control_plane, data_plane  # noqa: E402
from mutants.mutant import Mutant, StaleMutantError, mutated  # noqa: E402
from mutants.workshop import CAUGHT, STALE, Verdict, Workshop  # noqa: E402

ALL = [*control_plane.MUTANTS, *data_plane.MUTANTS]


def main(arguments: list[str] | None = None) -> int:
    given = _parse(arguments)
    chosen = _chosen(given)
    if given.list:
        return _list(chosen)
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="mutants-") as name:
        shops = [Workshop(TESTS.parent, Path(name) / str(number)) for number in range(given.jobs)]
        complaint = shops[0].complaint(sorted({test for mutant in chosen for test in mutant.tests}))
        if complaint:
            print(f"the tests fail on the code as it is:\n{complaint}")
            return 1
        verdicts = list(_try_out(chosen, shops))
    caught = sum(verdict.outcome == CAUGHT for verdict in verdicts)
    print(f"caught {caught} of {len(verdicts)} in {time.monotonic() - began:.0f} s")
    return 0 if caught == len(verdicts) else 1


def _parse(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description="Break the code in one line after the other; tests must see it."
    )
    parser.add_argument(
        "--only", action="append", help="run mutants with this word in name or file (repeatable)"
    )
    parser.add_argument("--sample", type=at_least_one, help="run this many, drawn by the seed")
    parser.add_argument(
        "--seed", type=int, default=1, help="seed of the sample (default: 1, so that a draw can be repeated)"
    )
    parser.add_argument("--jobs", type=at_least_one, default=2, help="mutants at a time (default: 2)")
    parser.add_argument(
        "--list", action="store_true", help="list the mutants, and those whose text is not found"
    )
    return parser.parse_args(arguments)


def _chosen(given: argparse.Namespace) -> list[Mutant]:
    words = given.only or [""]
    places = {mutant: f"{mutant.name} {mutant.file}" for mutant in ALL}
    if unknown := [word for word in words if not any(word in place for place in places.values())]:
        raise SystemExit(
            f"no mutant has {' or '.join(map(repr, unknown))} in its name or file; --list names all"
        )
    found = [mutant for mutant, place in places.items() if any(word in place for word in words)]
    if given.sample is not None:
        print(f"seed {given.seed}")
        found = random.Random(given.seed).sample(found, min(given.sample, len(found)))
    return found


def _list(mutants: Iterable[Mutant]) -> int:
    stale = 0
    for mutant in mutants:
        try:
            mutated((TESTS.parent / mutant.file).read_text(encoding="utf-8"), mutant)
            print(f"{mutant.file}: {mutant.name}")
        except (FileNotFoundError, StaleMutantError) as error:
            stale += 1
            print(f"{mutant.file}: {mutant.name}: {STALE}: {error}")
    return 1 if stale else 0


def _try_out(mutants: list[Mutant], shops: list[Workshop]) -> Iterable[Verdict]:
    free: queue.SimpleQueue[Workshop] = queue.SimpleQueue()
    for shop in shops:
        free.put(shop)
    lock = threading.Lock()

    def try_mutant(mutant: Mutant) -> Verdict:
        shop = free.get()
        try:
            verdict = shop.try_out(mutant)
        finally:
            free.put(shop)
        with lock:
            print(f"{verdict.outcome:8} {mutant.file}: {mutant.name}", flush=True)
            if verdict.details:
                print(f"         {verdict.details}", flush=True)
        return verdict

    with ThreadPoolExecutor(len(shops)) as pool:
        yield from pool.map(try_mutant, mutants)


if __name__ == "__main__":
    sys.exit(main())
