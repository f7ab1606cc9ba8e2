"""Help that travels with the page of checkpoints, in jar and wheel: hints over headings, and a page to read.

The page has an anchor for each alert, so that links of findings lead somewhere without any site.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from html import escape

from state_store.observe.model.page_words import WORDS
from state_store.observe.model.rules import RULES
from state_store.observe.monitoring.alerts import alerts, remedy_of, severity_of

DIRECTORY = "jvm_bridge/resources/state-store/page"
"""Directory of the page's files in a checkout."""

_HEAD = """\
<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>Checkpoints: help</title>
<link rel="stylesheet" href="page.css">
</head>
<body class="state-store-alone">
<div id="state-store">
<main class="help">
<h1>Read the page of checkpoints</h1>
<p class="card">A version is the state of the query after a batch. A delta is what one batch changed; a merge
makes one snapshot of many deltas and shares the files that did not change; a full checkpoint shares nothing
with older ones. The verdict says what is wrong, worst first, and what to do; each finding has its paragraph
below.</p>
"""

_END = "</main>\n</div>\n</body>\n</html>\n"


def files() -> dict[str, str]:
    """Return the texts of the files by their paths in a checkout."""
    words = json.dumps(WORDS, indent=1, ensure_ascii=False)
    comment = "// Words of the page. Written from the declarations by `make docs`.\n"
    return {
        f"{DIRECTORY}/words.js": f"{comment}window.stateStoreWords = {words};\n",
        f"{DIRECTORY}/help.html": "".join((_HEAD, *_parts(), *_findings(), _END)),
    }


def _parts() -> Iterator[str]:
    for part, words in WORDS.items():
        rows = "".join(f"<dt>{escape(name)}</dt><dd>{_coded(text)}</dd>\n" for name, text in words.items())
        heading = f'<h2 id="{_slug(part)}">{escape(part)}</h2>'
        yield f'<section class="card">{heading}\n<dl>\n{rows}</dl></section>\n'


def _findings() -> Iterator[str]:
    sentences = {rule.code: rule.sentence for rule in RULES}
    yield '<h1 id="findings">Findings and alerts</h1>\n'
    for alert, code, link in alerts():
        anchor = escape(link.partition("#")[2])
        said = f"<p><strong>{_coded(sentences[code])}</strong></p>\n" if code in sentences else ""
        fires = f"after {escape(alert.lasts)} of <code>{escape(alert.expression)}</code>"
        yield (
            f'<section class="card"><h2 id="{anchor}">{escape(alert.name)}</h2>\n{said}'
            f"<p>{_coded(remedy_of(code))}</p>\n"
            f'<p class="soft small">Finding <code>{escape(code)}</code>, alert of severity '
            f"{severity_of(code)} {fires}</p></section>\n"
        )


def _coded(text: str) -> str:
    return re.sub(r"`([^`]*)`", r"<code>\1</code>", escape(text))


def _slug(text: str) -> str:
    return re.sub(r"[^\w -]", "", text.lower()).replace(" ", "-")
