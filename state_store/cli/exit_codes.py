"""Exit codes, one for each thing that a caller can do next, and the signals that end a command.

A signal ends a command even while a library holds its main thread. Python runs the handler of a signal, which
raises KeyboardInterrupt, when the main thread runs Python code again. The number of the signal is in a pipe
before that, and a thread waits for it. So the first signal interrupts, and the process ends soon if the main
thread does not notice; a second one ends it at once.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import sys
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any, NoReturn

from state_store.core import interruption

OK, PROBLEM, USAGE, NOT_FOUND, RETRY, DEFECT, INTERRUPTED = 0, 1, 2, 3, 4, 5, 130

OF_KIND = {
    "damaged": PROBLEM,
    "format": PROBLEM,
    "option": USAGE,
    "missing": NOT_FOUND,
    "storage": RETRY,
    "unknown": RETRY,
    "conflict": RETRY,
    "busy": RETRY,
    "internal": DEFECT,
}
"""The exit code of an error of each kind."""

HELP = """\
\b
Exit codes:
  0  done
  1  a problem was found: something is damaged, or cannot be restored
  2  wrong arguments, or an option or checkpoint that this store cannot use
  3  no such checkpoint, version or file
  4  the storage, another writer or an existing target was in the way; nothing is lost
  5  a defect of this program
  130  interrupted, by Ctrl-C, SIGTERM or SIGHUP; a sentence says what is left
  129, 143  ended at once, by a second SIGHUP or SIGTERM
"""

NOTICED_S = 3.0
"""Seconds in which the main thread has to notice a signal, and a command that only reads has to end."""

REMOVED_S = 10.0
"""Seconds in which files that are half written are removed before the process ends at once."""

NOTHING_WRITTEN = "nothing was written"
_ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
"""Signals that end a program: of Ctrl-C; of `kill`, `timeout`, a container; of a terminal that is closed."""

_LATE = -1
_running: list[_Watcher] = []


def of_findings(kinds: Iterable[str]) -> int:
    """Return the code for what a look at files found: RETRY if nothing but the storage failed."""
    codes = {OF_KIND[kind] for kind in kinds}
    if not codes:
        return OK
    return RETRY if codes == {RETRY} else PROBLEM


@contextmanager
def ended_by_signals() -> Iterator[None]:
    """Let SIGTERM and SIGHUP interrupt a command as Ctrl-C does, so that it tidies up and says what is left.

    A signal that the parent process has this one ignore, as nohup does with SIGHUP, stays ignored.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    usual = {number: signal.getsignal(number) for number in _ENDING}
    taken = [n for n in _ENDING if usual[n] in (signal.SIG_DFL, signal.default_int_handler)]
    interruption.note(interrupted=False)
    watcher = _Watcher(taken)
    _running.append(watcher)
    try:
        for number in taken:
            signal.signal(number, watcher.interrupt)
        yield
    finally:
        for number in taken:
            signal.signal(number, usual[number])
        _running.remove(watcher)
        watcher.close()
        interruption.note(interrupted=False)


def note_left(sentence: str) -> None:
    """Note that the command writes from now on, and what it says to leave if it ends at once."""
    for watcher in _running:
        watcher.left, watcher.is_writing = sentence, True


class _Watcher:
    """The thread that waits for signals."""

    def __init__(self, taken: list[signal.Signals]) -> None:
        self.left = NOTHING_WRITTEN
        self.is_writing = False
        self._taken = taken
        self._has_noticed = False
        self._reading, self._writing = os.pipe()
        os.set_blocking(self._writing, False)
        self._usual = signal.set_wakeup_fd(self._writing, warn_on_full_buffer=False)
        self._thread = threading.Thread(target=self._watch, name="signals", daemon=True)
        self._thread.start()

    def interrupt(self, _number: int, _frame: Any) -> None:
        """Interrupt the main thread."""
        self._has_noticed = True
        interruption.note(interrupted=True)
        raise KeyboardInterrupt

    def close(self) -> None:
        """End the thread."""
        signal.set_wakeup_fd(self._usual)
        os.close(self._writing)
        self._thread.join()
        os.close(self._reading)

    def _watch(self) -> None:
        first = self._next(None)
        if first is None:
            return
        number = self._next(NOTICED_S)
        if number == _LATE:
            number = self._next(None) if self._goes_on(first) else first
        if number is not None:
            self._end_at_once(number)

    def _next(self, limit_s: float | None) -> int | None:
        """Return the next signal; `_LATE` if none comes in time, None if the command has ended."""
        while select.select([self._reading], [], [], limit_s)[0]:
            read = os.read(self._reading, 1)
            if not read or read[0] in self._taken:
                return read[0] if read else None
        return _LATE

    def _goes_on(self, number: int) -> bool:
        """Return True if the command may end in its own time: it tidies up, or is a service that ends."""
        if signal.getsignal(number) != self.interrupt:
            return True
        if self._has_noticed and self.is_writing:
            _say("interrupted: files that are half written are removed; Ctrl-C ends this at once")
            return True
        return False

    def _end_at_once(self, number: int) -> NoReturn:
        def remove() -> None:
            interruption.remove_all()
            _say(f"interrupted: {self.left}")
            os._exit(128 + number)

        threading.Thread(target=remove, name="removal", daemon=True).start()
        self._next(REMOVED_S)
        os._exit(128 + number)


def _say(text: str) -> None:
    with contextlib.suppress(OSError, ValueError):
        print(f"state-store: {text}", file=sys.stderr, flush=True)
