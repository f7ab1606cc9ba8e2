"""`state-store completion`: the script that makes a shell complete commands, options and directories."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class

from state_store.cli.command import PROGRAM, command

_SHELLS = ("bash", "zsh", "fish")


@command("completion", examples=("bash > ~/.local/share/bash-completion/completions/state-store",))
@click.argument("shell", type=click.Choice(_SHELLS))
@click.pass_context
def completion(ctx: click.Context, shell: str) -> None:
    r"""Print the script that makes a shell complete the commands.

    \b
    For this shell alone:
      eval "$(state-store completion bash)"        in bash
      eval "$(state-store completion zsh)"         in zsh
      state-store completion fish | source         in fish
    Put the line into ~/.bashrc, ~/.zshrc or ~/.config/fish/config.fish for every shell.
    """
    found = get_completion_class(shell)
    assert found is not None
    click.echo(found(ctx.find_root().command, {}, PROGRAM, "_STATE_STORE_COMPLETE").source())
