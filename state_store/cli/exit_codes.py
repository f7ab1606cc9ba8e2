"""Exit codes of `state-store`, one for each thing that a caller can do next."""

from __future__ import annotations

from collections.abc import Iterable

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


def of_findings(kinds: Iterable[str]) -> int:
    """Return the code for what a look at files found: RETRY if nothing but the storage failed."""
    codes = {OF_KIND[kind] for kind in kinds}
    if not codes:
        return OK
    return RETRY if codes == {RETRY} else PROBLEM


HELP = """\
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
