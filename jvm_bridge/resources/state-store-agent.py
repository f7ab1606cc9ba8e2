"""Starts the agent: `python state-store-agent.py <zip with the agent's code, or nothing> <version>`.

The installed package is taken where it is of the version that the jar was built with; otherwise the code
that came in the jar is.
"""

import os
import runpy
import sys
import zipfile
from pathlib import Path


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
    sys.path.insert(0, unpacked(archive))


def unpacked(archive: str) -> str:
    """Return a directory beside the archive that has its code, or the archive where none can be written.

    Python reads files faster than an archive, for which it never keeps byte code. The archive lies in a
    directory of this user and this executor, which is removed with it. What somebody has cleaned away there
    is written again.
    """
    directory = Path(archive).with_suffix("")
    try:
        with zipfile.ZipFile(archive) as code:
            for member in code.infolist():
                path = directory / member.filename
                if member.is_dir() or (path.is_file() and path.stat().st_size == member.file_size):
                    continue
                path.parent.mkdir(parents=True, exist_ok=True)
                unfinished = path.with_name(f"{path.name}.{os.getpid()}")
                unfinished.write_bytes(code.read(member))
                unfinished.replace(path)
    except (OSError, zipfile.BadZipFile):
        return archive
    return str(directory)


if __name__ == "__main__":
    if sys.version_info < (3, 10):  # noqa: UP036
        sys.exit(f"Python {sys.version.split()[0]} is too old for the agent, which needs 3.10 or newer")
    if not getattr(sys.flags, "safe_path", False):  # else the first entry is one of PYTHONPATH
        del sys.path[0]  # the directory of this file
    choose(sys.argv[1], sys.argv[2])
    sys.argv[1:] = []
    runpy.run_module("state_store.agent", run_name="__main__", alter_sys=True)
