"""`python -m state_store.cli` is `state-store`."""

from state_store.cli.main import run

if __name__ == "__main__":
    run()
