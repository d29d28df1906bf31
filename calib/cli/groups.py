"""What the command ``calib``, its sub-commands and their groups have in common."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import typer

from calib.errors import UsageError

__all__ = ["add_commands", "beside", "make_app"]


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


def beside(model: Path, ending: str) -> Path:
    """Where an output goes by default: the model's path with another ending.

    Args:
        model: The model.
        ending: Such as ".cache".

    Raises:
        UsageError: It is the working folder or the root, which have no name to go by.
    """
    if not model.name:
        raise UsageError(f"{model} is a folder. Give the path of an .onnx file.")
    return model.with_suffix(ending)
