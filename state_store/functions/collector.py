"""Python's garbage collector in workers that run one task after the other."""

from __future__ import annotations

import gc
import sys

_modules_when_frozen = 0


def exempt_imports() -> None:
    """Exempt all objects that live now from collections, if modules were imported since the last call.

    Spark's worker collects everything after each task; modules of pandas and pyarrow alone make that last
    tens of milliseconds. Call it at the begin of a task, before the user's function is loaded, so that no
    object of a task is exempt: garbage in cycles that is exempt would stay.
    """
    global _modules_when_frozen
    if len(sys.modules) != _modules_when_frozen:
        gc.collect()
        gc.freeze()
        _modules_when_frozen = len(sys.modules)
