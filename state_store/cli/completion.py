"""`state-store completion`: the script that makes a shell complete the commands."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class

from state_store.cli.command import PROGRAM, command

_SHELLS = ("bash", "zsh", "fish")

_FOR_THIS_SHELL = """\
For this shell alone:
  eval "$(state-store completion bash)"        in bash
  eval "$(state-store completion zsh)"         in zsh
  state-store completion fish | source         in fish"""


@command(
    "completion",
    examples=("bash > ~/.local/share/bash-completion/completions/state-store",),
    note=f"\b\n{_FOR_THIS_SHELL}",
)
@click.argument("shell", type=click.Choice(_SHELLS))
@click.pass_context
def completion(ctx: click.Context, shell: str) -> None:
    """Print the script that makes a shell complete the commands.

    Put the line that runs it into ~/.bashrc, ~/.zshrc or ~/.config/fish/config.fish for every shell.
    """
    found = get_completion_class(shell)
    assert found is not None
    click.echo(found(ctx.find_root().command, {}, PROGRAM, "_STATE_STORE_COMPLETE").source())
