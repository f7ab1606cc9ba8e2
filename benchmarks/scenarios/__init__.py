"""What is measured: each scenario as data, or with what runs it; `runner` runs them all."""
