"""The scenarios: each as data, or with the function that runs it; `runner` runs them all."""
