"""An environment in an archive, as `venv-pack` makes it: packages, and a link to the machine's Python.

    environment_archive.py ARCHIVE PACKAGE

The packages are those of the Python that runs this.
"""

from __future__ import annotations

import os
import sys
import tarfile
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[2] / "packaging"))
import borrow

_SITE = f"lib/python{sys.version_info[0]}.{sys.version_info[1]}/site-packages"
_PACKAGES = ["rocksdict", "numpy", "pandas", "pyarrow"]


def pack(archive: Path, package: Path) -> None:
    """Write a tar with a Python, what functions and the agent need, and this package, without its jars."""
    python = os.path.realpath(sys.executable)
    with tarfile.open(archive, "w") as tar:
        link = tarfile.TarInfo("bin/python")
        link.type, link.linkname = tarfile.SYMTYPE, python
        tar.addfile(link)
        settings = archive.with_suffix(".cfg")
        settings.write_text(f"home = {Path(python).parent}\ninclude-system-site-packages = false\n")
        tar.add(settings, "pyvenv.cfg")
        for path in sorted(borrow.borrowable(list(_PACKAGES))):
            tar.add(path, f"{_SITE}/{path.name}", filter=_needed)
        tar.add(package, f"{_SITE}/{package.name}", filter=_needed)


def _needed(info: tarfile.TarInfo) -> tarfile.TarInfo | None:
    left_out = ("__pycache__", "tests", "include", "jars")
    return None if Path(info.name).name in left_out else info


if __name__ == "__main__":
    pack(Path(sys.argv[1]), Path(sys.argv[2]))
