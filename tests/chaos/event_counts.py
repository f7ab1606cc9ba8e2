"""Numbers of the events in some lives."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass, field

from chaos.life import Life


@dataclass
class Summary:
    """Sums over lives."""

    lives: int = 0
    faults: Counter[str] = field(default_factory=Counter)
    queries: int = 0
    batches: int = 0
    files: int = 0
    cached: int = 0
    drivers: int = 0
    processes: Counter[str] = field(default_factory=Counter)
    tasks: Counter[str] = field(default_factory=Counter)
    failed_tasks: Counter[str] = field(default_factory=Counter)
    failed_queries: Counter[str] = field(default_factory=Counter)
    refusals: int = 0
    seconds: float = 0.0

    def add(self, life: Life, seconds: float) -> None:
        self.lives += 1
        self.faults += life.faults
        self.queries += len(life.questions)
        self.files += life.files
        self.cached += life.cached
        self.drivers += life.generations
        self.seconds += seconds
        self.processes += Counter({role: len(found) for role, found in life.seen.items()})
        for question in life.questions:
            self.batches += life.committed(question) + 1
        self._add_tasks(life)
        for errors in (life.room / "errors").glob("*.jsonl"):
            for line in errors.read_text().splitlines():
                self.failed_queries[_cause(json.loads(line)["error"])] += 1

    def _add_tasks(self, life: Life) -> None:
        for line in life.journal.read_text(errors="replace").splitlines():
            parts = line.split("\t")
            if len(parts) != 3:
                continue  # the driver was killed while it wrote the line
            attempt, kind, why = parts
            self.tasks["speculative" if attempt == "speculative" else "first"] += 1
            if kind != "Success":
                self.failed_tasks[kind.rpartition(".")[2]] += 1
                self.refusals += "another attempt" in why or "ConflictError" in why

    def __str__(self) -> str:
        processes = self.processes
        lines = [
            f"{self.faults.total()} faults in {self.lives} lives, {self.seconds / 60:.0f} minutes",
            _table("faults", self.faults),
            f"{self.batches} batches of {self.queries} queries, {self.files} files in each of two streams",
            f"{self.cached} seconds with a base that was cached by pages",
            f"{self.drivers} drivers, {processes['executor']} executors, {processes['agent']} agents",
            f"{self.tasks.total()} tasks ended, {self.tasks['speculative']} of them speculative",
            _table("tasks that failed", self.failed_tasks),
            f"{self.refusals} tasks refused by the store",
            _table("queries that failed and were started again", self.failed_queries),
        ]
        return "\n".join(lines)


def _cause(error: str) -> str:
    """Return the last cause of an error, in a few words."""
    lines = [line.strip() for line in error.splitlines() if line.strip() and not line.startswith("\tat")]
    return lines[0][:110] if lines else "unknown"


def _table(title: str, counts: Counter[str]) -> str:
    if not counts:
        return f"{title}: none"
    return "\n".join([f"{title}:", *(f"  {count:6}  {event}" for event, count in counts.most_common())])
