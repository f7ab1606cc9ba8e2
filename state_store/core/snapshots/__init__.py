"""Local databases and the snapshots made of them: restore, merge, publish."""
