"""Collections after a task look at the objects of tasks alone, and miss none of their garbage."""

from __future__ import annotations

import subprocess
import sys

import pytest

EXEMPT = """
import gc, weakref
from state_store.functions.group_context import exempt_imports

class Cycle:
    def __init__(self):
        self.me = self

def garbage():
    return weakref.ref(Cycle())

gc.disable()
exempt_imports()
frozen = gc.get_freeze_count()
assert frozen > 1000, "nothing is exempt"

first = garbage()
exempt_imports()
assert gc.get_freeze_count() == frozen, "a task without imports exempts objects"
assert first() is not None
gc.collect()
assert first() is None, "garbage of a task is exempt"

second = garbage()
import wave
exempt_imports()
assert second() is None, "garbage was there when imports were exempt"
assert gc.get_freeze_count() > frozen, "new modules are not exempt"
"""

BEFORE_LOADING = """
import gc, pickle
{imported}

class Count:
    def __reduce__(self):
        return gc.get_freeze_count, ()

assert gc.get_freeze_count() == 0
_, frozen = {command}(pickle.dumps(([].append, Count())){arguments})
assert frozen > 1000, frozen
"""


def run(script: str) -> None:
    """Run a script in a process of its own."""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr


def test_modules_are_exempt_and_garbage_is_not():
    run(EXEMPT)


@pytest.mark.tier("more")
@pytest.mark.parametrize(
    ("module", "command", "arguments"),
    [
        ("state_store.functions.processors.processor_loop", "processor_command", ", ''"),
        ("state_store.functions.accelerated", "accelerated_command", ""),
    ],
)
def test_modules_are_exempt_before_a_function_is_loaded(module, command, arguments):
    imported = f"from {module} import {command}"
    run(BEFORE_LOADING.format(imported=imported, command=command, arguments=arguments))
