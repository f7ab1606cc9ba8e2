"""The earlier pages, whose sections stay for scenarios without kept results.

Some scenarios take half an hour. Their sections say when they were run, and stay until they run again.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from benchmarks.page.goals import Outcome

GOALS = "Goals"
_MISSED = "**missed**"


@dataclass(frozen=True)
class EarlierPage:
    """Sections by heading, and goals by their setting and what is compared."""

    sections: Mapping[str, str] = field(default_factory=dict)
    goals: Mapping[tuple[str, str], Outcome] = field(default_factory=dict)

    @classmethod
    def parse(cls, page: str) -> EarlierPage:
        parts = [part for part in re.split(r"(?m)^(?=## )", page) if part.startswith("## ")]
        sections = {part.split("\n", 1)[0][3:]: part.rstrip("\n") + "\n" for part in parts}
        rows = re.findall(r"(?m)^\| (.+) \| (.+) \| (.+) \| (.+) \| (.*) \|$", sections.get(GOALS, ""))
        found = [
            Outcome(*row[:4], _MISSED not in row[4], _missed_by(row[4])) for row in rows if row[4].strip()
        ]
        return cls(sections, {(one.setting, one.against): one for one in found})

    def of(self, one: Outcome) -> Outcome:
        """Return the outcome, or the earlier one with the same aim if there is no new measurement."""
        then = self.goals.get((one.setting, one.against))
        return then if one.met is None and then is not None and then.aim == one.aim else one

    def section(self, heading: str) -> str:
        """With its heading; empty where there is none."""
        return self.sections.get(heading, "")


def _missed_by(verdict: str) -> str:
    return verdict.replace(_MISSED, "").strip() if _MISSED in verdict else ""
