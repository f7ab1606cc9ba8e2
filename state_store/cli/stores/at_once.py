"""The option `--stores`: how many stores a command works on at once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click

STORES = 4


def stores_option(done: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Adds the parameter `stores`; `done` is what is done with them, such as `read`."""
    return click.option(
        "--stores",
        type=click.IntRange(min=1),
        default=STORES,
        show_default=True,
        metavar="N",
        help=f"Stores {done} at once; fewer where descriptors are short.",
    )
