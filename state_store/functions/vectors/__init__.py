"""Processors of `transformWithState` that get many groups at a time, with their state as columns."""
