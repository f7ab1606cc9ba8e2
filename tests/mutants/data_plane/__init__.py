"""Breaks of the data plane (Scala), a module for each of its packages."""

from __future__ import annotations

from mutants.data_plane import agent, base, delta, memory, recent, sst, transaction

MUTANTS = [
    *agent.MUTANTS,
    *base.MUTANTS,
    *delta.MUTANTS,
    *memory.MUTANTS,
    *recent.MUTANTS,
    *sst.MUTANTS,
    *transaction.MUTANTS,
]
