r"""The process that a command runs in: its standard streams, texts on them, signals that end it, exit codes.

Texts may come from events, names and paths, which nobody has checked. Control characters, escape sequences
and characters that are invisible or change the direction of writing are shown escaped (`\x1b`, `\u202e`),
so that no data can act on a terminal.

A signal ends a command even while a library holds its main thread. Python runs the handler of a signal, which
raises KeyboardInterrupt, when the main thread runs Python code again. The number of the signal is in a pipe
before that, and a thread waits for it. So the first signal interrupts, and the process ends soon if the main
thread does not notice; a second one ends it at once.
"""

from __future__ import annotations

import codecs
import contextlib
import os
import re
import select
import signal
import sys
import threading
from collections.abc import Iterable, Iterator
from contextvars import ContextVar
from datetime import timezone, tzinfo
from enum import IntEnum
from typing import Any, NoReturn

from state_store.core import runtime

_HIDDEN = re.compile(
    "[\x00-\x1f\x7f-\x9f\xad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u2028-\u202e"
    "\u2060-\u206f\u2800\u3164\ud800-\udfff\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufffb\U0001bca0-\U0001bca3"
    "\U0001d173-\U0001d17a\U000e0000-\U000e0fff\U00013430-\U0001343f]"
)
"""Characters that are not shown, or that change how others are."""


_SHORT = {"\n": "\\n", "\t": "\\t", "\r": "\\r"}


_zone: ContextVar[tzinfo | None] = ContextVar("_zone", default=None)
"""The zone of printed moments and of texts that name none: None is the local one."""


NOTICED_S = 3.0
"""Seconds in which the main thread has to notice a signal, and a command that only reads has to end."""


REMOVED_S = 10.0
"""Seconds in which files that are half written are removed before the process ends at once."""


NOTHING_WRITTEN = "nothing was written"


_ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
"""Signals that end a program: of Ctrl-C; of `kill`, `timeout`, a container; of a terminal that is closed."""


_LATE = -1


_running: list[_Watcher] = []


class ExitCode(IntEnum):
    """Exit codes of `state-store`, one for each thing that a caller can do next."""

    OK = 0
    PROBLEM = 1
    USAGE = 2
    NOT_FOUND = 3
    RETRY = 4
    DEFECT = 5
    INTERRUPTED = 130

    @staticmethod
    def of_kind(kind: str) -> ExitCode:
        """Return the code for an error of a kind, one of `errors.KINDS`."""
        return _CODES[kind]

    @staticmethod
    def of_findings(kinds: Iterable[str]) -> ExitCode:
        """Return the code for what a look at files found: RETRY if nothing but the storage failed."""
        codes = {_CODES[kind] for kind in kinds}
        if not codes:
            return ExitCode.OK
        return ExitCode.RETRY if codes == {ExitCode.RETRY} else ExitCode.PROBLEM


_CODES = {
    "damaged": ExitCode.PROBLEM,
    "format": ExitCode.PROBLEM,
    "option": ExitCode.USAGE,
    "missing": ExitCode.NOT_FOUND,
    "storage": ExitCode.RETRY,
    "unknown": ExitCode.RETRY,
    "conflict": ExitCode.RETRY,
    "busy": ExitCode.RETRY,
    "internal": ExitCode.DEFECT,
}
"""The exit code of an error of each kind."""


EXIT_CODES = """\
\b
Exit codes:
  0  done
  1  a problem was found: something is damaged, or cannot be restored
  2  wrong arguments, or an option or checkpoint that this store cannot use
  3  no such checkpoint, version or file
  4  the storage, a writer or an existing target is in the way: nothing lost
  5  a defect of this program
  130  interrupted, by Ctrl-C, SIGTERM or SIGHUP; a sentence says what is left
  129, 143  ended at once, by a second SIGHUP or SIGTERM
"""
"""The paragraph of help about them; `\\b` keeps click from filling its lines."""


def prepare() -> None:
    """Let streams whose encoding lacks a character write its escape, and show moments in the local zone.

    What a stream gets that the parent process has closed is lost, and in no file that is opened later.
    """
    set_utc(False)
    _open_closed_streams()
    codecs.register_error("state_store", _escaped)
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure") and (stream.encoding or "").lower().replace("-", "") != "utf8":
            stream.reconfigure(errors="state_store")


def _open_closed_streams() -> None:
    """Open standard streams that are closed on the null device."""
    for descriptor, name in enumerate(("stdin", "stdout", "stderr")):
        if getattr(sys, name) is None:
            null = os.open(os.devnull, os.O_RDWR)  # it gets the lowest number that is free
            os.set_inheritable(null, True)
            setattr(sys, name, os.fdopen(null, "w" if descriptor else "r", encoding="utf-8", closefd=False))


def set_utc(utc: bool) -> None:
    """Show and read moments in UTC, or in the local zone."""
    _zone.set(timezone.utc if utc else None)


def zone() -> tzinfo | None:
    """Return the zone of moments that name none; None is the local one."""
    return _zone.get()


def is_utc() -> bool:
    """Return True if moments are in UTC and not in the local zone."""
    return _zone.get() is timezone.utc


def visible(text: str, *, lines: bool = False) -> str:
    """Return a text with what would not be seen, or would act on a terminal, escaped.

    Args:
        text: any text.
        lines: line feeds stay as they are.
    """
    return _HIDDEN.sub(lambda match: match[0] if lines and match[0] == "\n" else _escape(match[0]), text)


def visible_json(text: str) -> str:
    """Return JSON with the same values, in which the characters that `visible` escapes are JSON's escapes.

    Line feeds stay as they are.
    """
    if text.isascii() and "\x7f" not in text:
        return text
    return _HIDDEN.sub(lambda match: match[0] if match[0] == "\n" else _utf16(match[0]), text)


def _escape(character: str) -> str:
    code = ord(character)
    return _SHORT.get(character) or (
        f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"
    )


def _utf16(text: str) -> str:
    """Return a text as JSON escapes of its UTF-16 code units."""
    data = text.encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{data[place]:02x}{data[place + 1]:02x}" for place in range(0, len(data), 2))


def _escaped(error: UnicodeError) -> tuple[str, int]:
    """Return JSON's escapes of characters that an encoding lacks, which are readable elsewhere, too."""
    assert isinstance(error, UnicodeEncodeError)
    return _utf16(error.object[error.start : error.end]), error.end


@contextlib.contextmanager
def ended_by_signals() -> Iterator[None]:
    """Let SIGTERM and SIGHUP interrupt a command as Ctrl-C does, so that it tidies up and says what is left.

    A signal that the parent process has this one ignore, as nohup does with SIGHUP, stays ignored.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    usual = {number: signal.getsignal(number) for number in _ENDING}
    numbers = [n for n in _ENDING if usual[n] in (signal.SIG_DFL, signal.default_int_handler)]
    runtime.note_interrupt(interrupted=False)
    watcher = _Watcher(numbers)
    _running.append(watcher)
    try:
        for number in numbers:
            signal.signal(number, watcher.interrupt)
        yield
    finally:
        for number in numbers:
            signal.signal(number, usual[number])
        _running.remove(watcher)
        watcher.close()
        runtime.note_interrupt(interrupted=False)


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
        """Interrupt the main thread, at the first signal; at the second the thread ends the process."""
        if self._has_noticed:
            return
        self._has_noticed = True
        runtime.note_interrupt(interrupted=True)
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
            runtime.remove_unfinished()
            _say(f"interrupted: {self.left}")
            os._exit(128 + number)

        threading.Thread(target=remove, name="removal", daemon=True).start()
        self._next(REMOVED_S)
        os._exit(128 + number)


def _say(text: str) -> None:
    with contextlib.suppress(OSError, ValueError):
        print(f"state-store: {text}", file=sys.stderr, flush=True)
