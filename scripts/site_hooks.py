"""Hooks of the site: pages from elsewhere in the repository, decisions outside the navigation, commands."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import click
from mkdocs.structure.files import File, Files

from state_store.cli.commands import GROUPS, load, state_store_command

ROOT = Path(__file__).resolve().parents[1]
PAGES = {"CHANGELOG.md": "CHANGELOG.md", "CONTRIBUTING.md": "CONTRIBUTING.md", "tests/README.md": "TESTS.md"}
"""Pages of the site that lie elsewhere in the repository, and their names in the site."""

_LINK = re.compile(r"\]\((?:\.\./)?(?:docs/)?([^)]*)")

_UP = re.compile(r"\]\(\.\./([^)#]*)")


def on_files(files: Files, config: Any) -> Files:
    """Add these pages, with their links as they are in the site."""
    for path, name in PAGES.items():
        text = (ROOT / path).read_text(encoding="utf-8")
        text = _LINK.sub(lambda link: f"]({PAGES.get(link[1], link[1])}", text)
        files.append(File.generated(config, name, content=text))
    for file in files.documentation_pages():
        if file.src_uri.startswith("decisions/") and file.name != "index":
            file.inclusion = file.inclusion.NOT_IN_NAV
    return files


def on_page_markdown(markdown: str, *, page: Any, **_: Any) -> str:
    """Return the text of a page with its links as they are in the site; one page has the help of commands."""
    text = _UP.sub(lambda link: f"]({PAGES.get(link[1], '../' + link[1])}", markdown)
    return text + help_of_commands() if page.file.src_uri == "cli.md" else text


def help_of_commands() -> str:
    """Return the help of all commands, by what they are for."""
    settings = state_store_command.context_settings
    parent = click.Context(state_store_command, info_name="state-store", **settings)
    parts = [_as_printed(parent)]
    for title, names in GROUPS.items():
        parts.append(f"## {title}")
        for name in names:
            parts += [f"### state-store {name}", _as_printed(click.Context(load(name), parent, name))]
    return "\n" + "\n\n".join(parts) + "\n"


def _as_printed(context: click.Context) -> str:
    return f"```text\n{context.get_help()}\n```"
