"""Breaks of the control plane (Python), a module for each room, and one for what some rooms do together."""

from __future__ import annotations

from mutants.control_plane import (
    agent,
    checkpoint,
    cli,
    dataset,
    deletion,
    deletion_order,
    embedded,
    engine,
    estimation,
    files,
    lazy,
    migration,
    observe,
    planning,
    settings,
    snapshots,
    storage,
)

MUTANTS = [
    *agent.MUTANTS,
    *checkpoint.MUTANTS,
    *cli.MUTANTS,
    *dataset.MUTANTS,
    *deletion.MUTANTS,
    *deletion_order.MUTANTS,
    *embedded.MUTANTS,
    *engine.MUTANTS,
    *estimation.MUTANTS,
    *files.MUTANTS,
    *lazy.MUTANTS,
    *migration.MUTANTS,
    *observe.MUTANTS,
    *planning.MUTANTS,
    *settings.MUTANTS,
    *snapshots.MUTANTS,
    *storage.MUTANTS,
]
