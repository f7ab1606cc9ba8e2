"""Starts the agent: `python state-store-agent.py <zip with the agent's code, or nothing> <version>`.

The installed package is taken where it is of the version that the jar was built with; otherwise the code
that came in the jar is.
"""

import runpy
import sys


def choose(archive: str, version: str) -> None:
    """Make `import state_store` find the agent's code of this version."""
    try:
        import state_store

        installed = getattr(state_store, "__version__", None)
    except (Exception, SystemExit):  # another module of that name, which may do anything
        installed = None
    if installed == version or not archive:
        return
    for name in [name for name in sys.modules if name.split(".")[0] == "state_store"]:
        del sys.modules[name]
    sys.path.insert(0, archive)


if __name__ == "__main__":
    if sys.version_info < (3, 10):  # noqa: UP036
        sys.exit(f"Python {sys.version.split()[0]} is too old for the agent, which needs 3.10 or newer")
    if not getattr(sys.flags, "safe_path", False):  # else the first entry is one of PYTHONPATH
        del sys.path[0]  # the directory of this file
    choose(sys.argv[1], sys.argv[2])
    sys.argv[1:] = []
    runpy.run_module("state_store.agent", run_name="__main__", alter_sys=True)
