"""Watching of queries by their files in checkpoint storage, with as few requests as possible."""
