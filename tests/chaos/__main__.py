"""`python -m chaos`: runs this many faults, checks, and says what happened."""

from __future__ import annotations

import argparse
import random
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Sequence
from pathlib import Path

import scala_jars

from chaos import comparison, life_places
from chaos.cluster import Cluster
from chaos.event_counts import Summary
from chaos.life import Life, draw_questions
from chaos.plan import STORAGES, Plan, plans
from chaos.questions import QUESTIONS

QUERIES_A_LIFE = 5


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m chaos", description=__doc__)
    parser.add_argument("--faults", type=int, default=60, help="number of faults (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=None, help="default: drawn, and printed")
    parser.add_argument("--life", type=int, default=None, help="play this one alone")
    parser.add_argument("--storage", choices=STORAGES, default="local", help="storage of the checkpoints")
    parser.add_argument(
        "--queries", type=int, default=QUERIES_A_LIFE, help="queries at a time (default: %(default)s)"
    )
    parser.add_argument("--only", choices=QUESTIONS, nargs="+", help="these queries, in each life")
    parser.add_argument("--formats", type=int, nargs="+", default=(2, 1), help="formats of checkpoints")
    parser.add_argument("--keep", action="store_true", help="keep the files even if all went well")
    given = parser.parse_args(arguments)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("ended from outside"))  # no process is left behind
    seed = random.SystemRandom().randrange(100_000) if given.seed is None else given.seed
    chosen = plans(seed, given.faults, tuple(given.formats), STORAGES[given.storage])
    if given.life is not None:
        chosen = [plan for plan in chosen if plan.life == given.life]
    formats = " ".join(map(str, given.formats))
    command = f"python -m chaos --faults {given.faults} --seed {seed} --formats {formats}"
    command += f" --storage {given.storage}"
    command += f" --only {' '.join(given.only)}" if given.only else f" --queries {given.queries}"
    room = Path(tempfile.mkdtemp(prefix="chaos-"))
    _say(f"{command}\nfiles are in {room}")
    summary, wrong = Summary(), []
    for plan in chosen:
        rng = random.Random(f"{plan.seed}/{plan.life}")
        names = given.only or draw_questions(rng, given.queries, QUESTIONS)
        if not _play(plan, given.storage, names, room / f"life-{plan.life}", summary):
            wrong.append(f"{command} --life {plan.life}")
            _say(f"life {plan.life} is wrong; again: {wrong[-1]}")
        elif not given.keep:
            shutil.rmtree(room / f"life-{plan.life}")
        _say(f"so far: {summary}\n")
    if wrong:
        _say("\n".join([f"wrong, with files in {room}:", *wrong]))
    elif not given.keep:
        shutil.rmtree(room)
    return 1 if wrong else 0


def _play(plan: Plan, storage: str, names: Sequence[str], room: Path, summary: Summary) -> bool:
    """Play the plan on a cluster and a storage of its own, and check it. Return True if all was right."""
    began = time.monotonic()
    _say(f"{plan}: {', '.join(names)}")
    try:
        with life_places.STORAGES[storage](room / "life") as place:
            with Cluster(room / "cluster") as cluster:
                life = Life(cluster, plan, place, names, room / "life", [scala_jars.probes_jar()], _say)
                life.play()
            comparison.check(life)
            took_s = time.monotonic() - began
            summary.add(life, took_s)
    except Exception:  # one life that is wrong, however, does not end the others
        traceback.print_exc()
        return False
    _say(f"life {plan.life} is right after {took_s:.0f} s")
    return True


def _say(line: str) -> None:
    print(line, flush=True)


if __name__ == "__main__":
    sys.exit(main())
