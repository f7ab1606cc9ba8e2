"""Runs of scenarios: they are stopped, killed, restarted and judged."""
