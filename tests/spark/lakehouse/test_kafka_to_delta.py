"""The example from Kafka to Delta, killed in the middle of batches: each committed payment is there once."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import minikafka
import pinned_jars
import pyarrow.parquet as pq
import pytest
import quick_java

import state_store

pytestmark = [pytest.mark.spark, pytest.mark.tier("long"), pytest.mark.release("4.0")]

EXAMPLE = Path(__file__).resolve().parents[3] / "examples" / "kafka_to_delta.py"
TOPIC = "payments"
ROWS_A_BATCH = 200
PATIENCE_S = 600
KILLS = 3
ACCOUNTS = 20
WRONG = 1_000_000
"""Amount of payments in transactions that never commit."""

Row = tuple[str, int, int, int]


class Ledger:
    """Transactions of payments, and the rows that must come of them."""

    def __init__(self, kafka: minikafka.Kafka, seed: int) -> None:
        self._kafka = kafka
        self._draw = random.Random(seed)
        self._producer = kafka.producer("ledger")
        self._amounts: dict[str, list[int]] = {}

    def commit(self) -> None:
        """Commit a transaction of 60 payments."""
        paid = [
            (f"account {self._draw.randrange(ACCOUNTS)}", self._draw.randrange(1, 100)) for _ in range(60)
        ]
        self._send(paid)
        self._producer.commit()
        for account, amount in paid:
            self._amounts.setdefault(account, []).append(amount)

    def abort(self) -> None:
        """Abort a transaction of as many."""
        self._send_wrong()
        self._producer.abort()

    def crash(self) -> None:
        """Leave a transaction open; the producer's next life aborts it."""
        self._send_wrong()
        self._producer = self._kafka.producer("ledger")

    def some(self) -> None:
        """Commit eight transactions; abort four between them."""
        for number in range(6):
            self.commit()
            (self.commit, self.abort, self.crash)[number % 3]()

    def rows(self) -> list[Row]:
        """Return account, number, amount and balance of each payment that was committed."""
        return [
            (account, number, amount, sum(amounts[:number]))
            for account, amounts in sorted(self._amounts.items())
            for number, amount in enumerate(amounts, 1)
        ]

    def _send_wrong(self) -> None:
        self._send([(f"account {number}", WRONG) for number in range(ACCOUNTS)])

    def _send(self, paid: list[tuple[str, int]]) -> None:
        values = (json.dumps({"account": account, "amount": amount}) for account, amount in paid)
        accounts = [account for account, _ in paid]
        self._producer.begin(TOPIC, zip(accounts, values, strict=True))


class Query:
    """The example as a process group of its own."""

    def __init__(self, room: Path, address: str) -> None:
        self._room, self._address = room, address
        self.checkpoint, self.table = room / "checkpoint", room / "balances"
        wanted = (pinned_jars.KAFKA, pinned_jars.DELTA)
        conf = {
            **pinned_jars.repository(room, wanted),
            "spark.ui.enabled": "false",
            "spark.driver.extraJavaOptions": quick_java.spark_options(),
        }
        words = [word for key, value in conf.items() for word in ("--conf", f"'{key}={value}'")]
        self._submit = " ".join(["--master local[2]", *words, "pyspark-shell"])

    @contextmanager
    def running(self, *arguments: str) -> Iterator[subprocess.Popen[bytes]]:
        """Run the example for the context; all its processes are killed at the end."""
        command = [sys.executable, str(EXAMPLE), self._address, TOPIC, str(self.checkpoint), str(self.table)]
        command += ["--rows-a-batch", str(ROWS_A_BATCH), *arguments]
        with open(self._room / "log", "ab") as log:
            process = subprocess.Popen(
                command,
                env={**os.environ, "PYSPARK_SUBMIT_ARGS": self._submit},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
            try:
                yield process
            finally:
                with suppress(ProcessLookupError):  # it has ended by itself: the log says why
                    os.killpg(process.pid, signal.SIGKILL)
                process.wait()

    def planned(self) -> int:
        """Return the newest batch of the offset log; -1 if there is none."""
        return _newest(self.checkpoint / "offsets")

    def committed(self) -> int:
        """Return the newest batch of the commit log; -1 if there is none."""
        return _newest(self.checkpoint / "commits")

    def written(self) -> int:
        """Return the newest version of the table; -1 if there is none."""
        return _newest(self.table / "_delta_log")

    def log(self) -> str:
        """Return the end of the processes' output."""
        return (self._room / "log").read_text(errors="replace")[-6000:]

    def rows(self) -> list[Row]:
        """Return the rows of the table, read from its log and its Parquet files, without Spark."""
        files: set[str] = set()
        for version in sorted((self.table / "_delta_log").glob("*.json")):
            for action in map(json.loads, version.read_text().splitlines()):
                files |= {action["add"]["path"]} if "add" in action else set()
                assert "remove" not in action
        frames = [pq.read_table(self.table / file).to_pylist() for file in files]
        return sorted(tuple(row.values()) for frame in frames for row in frame)


def _newest(directory: Path) -> int:
    names = [path.stem for path in directory.glob("*")] if directory.is_dir() else []
    return max((int(name) for name in names if name.isdigit()), default=-1)


def awaited(query: Query, process: subprocess.Popen[bytes], sign: str, number: int) -> None:
    """Wait until a number of the query is at least `number`."""
    end_s = time.monotonic() + PATIENCE_S
    while getattr(query, sign)() < number:
        assert process.poll() is None, query.log()
        assert time.monotonic() < end_s, f"{sign} stays below {number}: {query.log()}"
        time.sleep(0.001)


def test_each_committed_payment_is_in_the_table_once(tmp_path: Path) -> None:
    with minikafka.running() as kafka:
        kafka.create_topic(TOPIC, partitions=3)
        ledger = Ledger(kafka, seed=30)
        query = Query(tmp_path, kafka.address)
        kills = 0
        for life in range(3 * KILLS):
            ledger.some()
            sign = ("planned", "written")[life % 2]
            with query.running() as process:
                awaited(query, process, "committed", query.committed() + 1)
                if life == 1:  # the broker goes away under a running query, and comes back
                    kafka.stop()
                    kafka.start()
                    ledger.some()
                awaited(query, process, sign, getattr(query, sign)() + 1)
            kills += query.planned() > query.committed()
            if kills == KILLS:
                break
        assert kills == KILLS, "too few kills were within a batch"
        ledger.some()
        with query.running("--once") as process:
            assert process.wait(PATIENCE_S) == 0, query.log()
        found = query.rows()
        assert not [row for row in found if row[2] == WRONG], "rows of aborted transactions were read"
        assert found == ledger.rows()
        state_store.check_checkpoint(query.checkpoint)
