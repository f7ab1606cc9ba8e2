"""Local files: verified transfers, the cache of what this machine already has, working directories."""
