"""Breaks of the control plane (Python), a module for each room."""

from __future__ import annotations

from mutants.control_plane import (
    agent,
    checkpoint,
    deletion,
    embedded,
    engine,
    files,
    planning,
    settings,
    snapshots,
    storage,
)

MUTANTS = [
    *agent.MUTANTS,
    *checkpoint.MUTANTS,
    *deletion.MUTANTS,
    *embedded.MUTANTS,
    *engine.MUTANTS,
    *files.MUTANTS,
    *planning.MUTANTS,
    *settings.MUTANTS,
    *snapshots.MUTANTS,
    *storage.MUTANTS,
]
