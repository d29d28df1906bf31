"""What the command ``calib`` and its groups of sub-commands have in common."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import typer

__all__ = ["add_commands", "make_app"]


def make_app(text: str, **more: Any) -> typer.Typer:
    """A command with sub-commands, that shows its help where none is given.

    Args:
        text: The help.
        more: What else typer is told.
    """
    return typer.Typer(
        help=text,
        no_args_is_help=True,
        # Rich help would take half of the time that --help has.
        rich_markup_mode=None,
        context_settings={"help_option_names": ["-h", "--help"]},
        **more,
    )


def add_commands(
    app: typer.Typer, prefix: str, commands: Iterable[tuple[Callable[..., None], str, str]]
) -> None:
    """Adds sub-commands, each with its example under its help.

    Args:
        app: The command.
        prefix: How it is called: "calib cache".
        commands: Function, summary, and an example of the call, which begins with the sub-command's name.
    """
    for function, summary, example in commands:
        name = example.split()[0]
        app.command(name, short_help=summary, epilog=f"Example: {prefix} {example}")(function)
