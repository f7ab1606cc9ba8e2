"""Stateful streaming queries of every kind, with their required results."""
