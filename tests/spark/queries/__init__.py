"""Stateful streaming queries of every kind, with what each must have answered in the end."""
