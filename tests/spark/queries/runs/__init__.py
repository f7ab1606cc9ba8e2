"""How scenarios are run, stopped, killed and judged."""
