"""Scenarios: each is a query, its input, and its required results."""
