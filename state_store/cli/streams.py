r"""Standard streams and the texts on them: characters that are not seen are escaped; the zone of moments.

Texts may come from events, names and paths, which nobody has checked. Control characters, escape sequences
and characters that are invisible or change the direction of writing are shown escaped (`\x1b`, `\u202e`),
so that no data can act on a terminal.
"""

from __future__ import annotations

import codecs
import os
import re
import sys
from contextvars import ContextVar
from datetime import timezone, tzinfo

_HIDDEN = re.compile(
    "[\x00-\x1f\x7f-\x9f\xad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u2028-\u202e"
    "\u2060-\u206f\u2800\u3164\ud800-\udfff\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufffb\U0001bca0-\U0001bca3"
    "\U0001d173-\U0001d17a\U000e0000-\U000e0fff\U00013430-\U0001343f]"
)
"""Characters that are not shown, or that change how others are."""

_SHORT = {"\n": "\\n", "\t": "\\t", "\r": "\\r"}
_zone: ContextVar[tzinfo | None] = ContextVar("_zone", default=None)
"""The zone of printed moments and of texts that name none: None is the local one."""


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
    return _HIDDEN.sub(lambda found: found[0] if lines and found[0] == "\n" else _escape(found[0]), text)


def visible_json(text: str) -> str:
    """Return JSON with the same values, in which the characters that `visible` escapes are JSON's escapes.

    Line feeds stay as they are.
    """
    if text.isascii() and "\x7f" not in text:
        return text
    return _HIDDEN.sub(lambda found: found[0] if found[0] == "\n" else _utf16(found[0]), text)


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
