"""Breaks of protocols of the control plane (Python): a module for a room, one for the order of deletion."""

from __future__ import annotations

from mutants.control_plane import (
    agent,
    checkpoint,
    deletion,
    deletion_order,
    engine,
    files,
    lazy,
    migration,
    observe,
    snapshots,
    storage,
)

MUTANTS = [
    *agent.MUTANTS,
    *checkpoint.MUTANTS,
    *deletion.MUTANTS,
    *deletion_order.MUTANTS,
    *engine.MUTANTS,
    *files.MUTANTS,
    *lazy.MUTANTS,
    *migration.MUTANTS,
    *observe.MUTANTS,
    *snapshots.MUTANTS,
    *storage.MUTANTS,
]
