"""Estimates of a store's resources: the planning code driven through many batches, on sizes alone."""
