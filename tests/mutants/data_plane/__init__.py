"""Breaks of the data plane (Scala), a module for each of its packages."""

from __future__ import annotations

from mutants.data_plane import (
    agent,
    base,
    local,
    memory,
    migration,
    observed,
    placement,
    recent,
    sst,
    transaction,
)

MUTANTS = [
    *agent.MUTANTS,
    *base.MUTANTS,
    *local.MUTANTS,
    *memory.MUTANTS,
    *migration.MUTANTS,
    *observed.MUTANTS,
    *placement.MUTANTS,
    *recent.MUTANTS,
    *sst.MUTANTS,
    *transaction.MUTANTS,
]
