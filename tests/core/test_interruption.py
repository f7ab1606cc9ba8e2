"""Calls in other threads, which an interrupt ends and a limit leaves behind; what is removed at the end."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from state_store.core import runtime
from state_store.core.runtime import ScratchDirectory, answered, interruptible, remove_unfinished
from state_store.errors import StorageError


@pytest.fixture(autouse=True)
def _not_interrupted() -> Iterator[None]:
    yield
    runtime.note_interrupt(interrupted=False)


def interrupt_main() -> None:
    main = threading.main_thread().ident
    assert main is not None
    signal.pthread_kill(main, signal.SIGINT)


def test_an_interrupt_ends_the_call_before_it_is_raised() -> None:
    interrupted, ended = threading.Event(), threading.Event()

    def call() -> None:
        interrupt_main()
        interrupted.wait()
        ended.set()

    with pytest.raises(KeyboardInterrupt):
        interruptible(call, interrupted.set)
    assert ended.is_set()


def test_no_call_begins_after_an_interrupt_that_was_swallowed() -> None:
    def call() -> None:
        raise AssertionError("it was called")

    runtime.note_interrupt(interrupted=True)
    with pytest.raises(KeyboardInterrupt):
        interruptible(call, lambda: None)


def test_results_and_failures_of_calls_are_those_of_the_caller() -> None:
    def fail() -> None:
        raise ValueError("no")

    calls: list[Callable[[Callable[[], object]], object]] = [
        lambda call: interruptible(call, lambda: None),
        lambda call: answered("s3://bucket", call),
    ]
    for made in calls:
        assert made(lambda: 7) == 7
        with pytest.raises(ValueError, match=r"^no$"):
            made(fail)


def test_a_call_without_an_answer_is_left_behind() -> None:
    answer = threading.Event()
    with pytest.raises(StorageError, match=r"^'s3://bucket' did not answer within 0\.01 s: "):
        answered("s3://bucket", answer.wait, limit_s=0.01)
    assert runtime.has_left_calls_behind()
    (left,) = runtime._left_behind
    answer.set()
    left.wait()
    assert not runtime.has_left_calls_behind()
    runtime._left_behind.clear()


def test_half_written_files_are_removed_although_other_removals_fail(tmp_path: Path) -> None:
    half = tmp_path / "half"
    half.touch()

    def fail() -> None:
        raise OSError("the storage is gone")

    with (
        suppress(FileNotFoundError),
        runtime.removed_at_end(half.unlink),
        runtime.removed_at_end(fail),
        ScratchDirectory("test-") as scratch,
    ):
        remove_unfinished()
        assert not half.exists()
        assert not Path(scratch).exists()
    half.touch()
    remove_unfinished()
    assert half.exists()
